"""The other encodings, each drawn: sinusoids, a learned table, ALiBi, T5's buckets, and none at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from figures.encodings import (
    MOST_CELLS,
    alibi_payload,
    alibi_said,
    bias_payload,
    buckets_payload,
    buckets_said,
    cosines,
    distance_payload,
    learned_said,
    likeness_payload,
    sinusoids_said,
    slopes_payload,
    table_payload,
)
from figures.extrapolation import Curve
from figures.format import fixed, group, sig
from figures.table import csv_text
from figures.twins import tile, tiles_csv, tiles_payload
from lmcore import teaching
from lmcore.positions import alibi_slopes, sinusoidal_table, t5_buckets
from ui import components, encodings, extrapolating, guard, models, page
from ui.markdown import plain

SINUSOIDAL, LEARNED, ALIBI, T5, NONE = "sinusoidal", "learned", "ALiBi", "T5 buckets", "none"
KINDS = (SINUSOIDAL, LEARNED, ALIBI, T5, NONE)
POSITIONS, DIMS = (32, 64, 128, 256, 512), (16, 32, 64, 128, 256)
BUCKETS, REACHES = (8, 16, 32, 64, 128), (64, 128, 256, 512)
ALIBI_DISTANCES = 128
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@guard.fragment
def section(opened: models.Opened) -> None:
    """The choice of an encoding, and its picture."""
    page.section(
        "The others",
        "Where a token stands can be told without turning anything: by rows added to its embedding, by a bias added "
        "to each score, or by the mask alone.",
    )
    kind = st.segmented_control("Encoding", KINDS, default=SINUSOIDAL, key="positions_encoding", required=True, **_LINK)
    DRAWN[str(kind)](opened)


def _sinusoidal(opened: models.Opened) -> None:
    with st.container(horizontal=True, gap="medium"):
        rows = st.select_slider("Positions", POSITIONS, 128, key="positions_rows", width=280, **_LINK)
        dims = st.select_slider("Dims D", DIMS, 64, key="positions_dims", width=280, **_LINK)
    table = sinusoidal_table(int(rows), int(dims))
    _table(table, f"PE, {rows} positions × {dims} dims", "positions_sinusoidal")
    page.notice(sinusoids_said(table))
    page.formula(
        r"PE_{p,\,2i} = \sin\!\left(p / 10000^{2i/D}\right), \qquad PE_{p,\,2i+1} = \cos\!\left(p / 10000^{2i/D}\right)"
    )
    page.prose("Vaswani et al. 2017, section 3.5: sine and cosine alternate, and the row is added to the embedding.")
    snippet = f"from lmcore.positions import sinusoidal_table\n\nsinusoidal_table({rows}, {dims})"
    _tools("lmcore.positions.sinusoidal_rows", snippet, "sinusoidal", table)


def _learned(opened: models.Opened) -> None:
    found = encodings.learned(opened)
    if found is None:
        st.info("Neither the loaded model nor this installation has a learned table.")
        return
    table = found.rows
    _table(table, f"Learned rows, {group(len(table))} positions × {group(table.shape[1])} dims", "positions_learned")
    page.notice(learned_said(table, cosines(table), plain(found.owner)))
    page.formula(r"x_p = E_{\text{token}} + P_p, \qquad 0 \le p < " + str(len(table)))
    page.prose("A row for each position, learned like any weight. A position without a row cannot be run.")
    own = opened.config.learned_positions is not None and opened.weights is not None
    source = opened.choice.source if own else "teaching:learned"
    snippet = (
        "from lmcore.checkpoint import load_pretrained\n\n"
        f"model = load_pretrained({source!r}).model\n"
        "model.model.embed_positions.weight[model.cfg.position_offset :]"
    )
    _tools("lmcore.model.Transformer.embed", snippet, "learned-positions", table)


def _alibi(opened: models.Opened) -> None:
    heads = st.slider("Heads H", 1, 64, 12, key="positions_alibi", width=280, **_LINK)
    slopes = alibi_slopes(heads)
    left, right = st.columns(2, gap="medium")
    with left:
        components.mount("curves", slopes_payload(slopes), key="positions_slopes")
    with right:
        components.mount("heat", alibi_payload(slopes, ALIBI_DISTANCES), key="positions_alibi_bias")
    page.notice(alibi_said(slopes))
    page.formula(
        r"s_{ij} = \frac{q_i \cdot k_j}{\sqrt{D_h}} - m_h\,(i - j)",
        r"m_h = 2^{-8h/n}, \quad h = 1, \dots, n, \qquad n = 2^{\lfloor \log_2 H \rfloor}",
    )
    page.prose(
        "Press et al. 2022. For H that is no power of two the authors’ code takes the slopes of the next lower power "
        "n, and for the other heads every other slope of 2n."
    )
    snippet = f"from lmcore.positions import alibi_slopes\n\nalibi_slopes({heads})"
    _tools("lmcore.positions.alibi_slopes", snippet, "alibi-slopes")


def _t5(opened: models.Opened) -> None:
    with st.container(horizontal=True, gap="medium"):
        count = st.select_slider("Buckets B", BUCKETS, 32, key="positions_buckets", width=280, **_LINK)
        reach = st.select_slider("Largest distance told apart", REACHES, 128, key="positions_reach", width=280, **_LINK)
    buckets = t5_buckets(-np.arange(2 * int(reach)), int(count), int(reach))
    components.mount("curves", buckets_payload(buckets), key="positions_t5_buckets")
    page.notice(buckets_said(buckets))
    page.formula(
        r"b(n) = \begin{cases} n & n < B/2 \\ \min\!\left(B - 1,\ \tfrac{B}{2} + \left\lfloor "
        r"\frac{\ln (2n/B)}{\ln (2N/B)} \cdot \tfrac{B}{2} \right\rfloor\right) & \text{else} \end{cases}"
    )
    page.prose(
        "Raffel et al. 2020, the decoder’s one-sided form: n = i − j is the distance, N the largest told apart. "
        "Each head has a learned number for each bucket, added to its score, the same in every layer."
    )
    found = encodings.t5_bias(opened, 256)
    if found is not None:
        bias, shared, name = found
        components.mount("heat", bias_payload(bias, shared, owner=name), key="positions_t5_bias")
    snippet = (
        "import numpy as np\nfrom lmcore.positions import t5_buckets\n\n"
        f"t5_buckets(-np.arange({2 * int(reach)}), {count}, {reach})"
    )
    _tools("lmcore.positions.t5_buckets", snippet, "t5-buckets")


def _none(opened: models.Opened) -> None:
    names = [name for name in extrapolating.ENCODINGS if name != "alibi" and encodings.there(name)]
    if "nope" not in names:
        st.info("The teaching model without positions is not in this installation.")
        return
    with page.awaited("positions_none", height=420)():
        curves = [_by_distance(name, extrapolating.ENCODINGS.index(name)) for name in names]
        payload = distance_payload(
            curves,
            label="Score against distance under each encoding",
            y_title="mean score, each row’s own mean taken out",
            note=f"Mean over all heads and layers of the teaching models, {encodings.WINDOWS} windows of "
            f"{teaching.CONTEXT} tokens.",
        )
        components.mount("curves", payload, key="positions_by_distance")
        moved = encodings.shuffled("nope")
        tiles = [
            tile(
                "Logits moved by reversing what came before, no mask",
                0.0,
                moved.unmasked,
                how="measured",
                rounding=1e-4,
                reason="float32 rounding",
                note="Without positions and mask a key is read wherever it stands.",
            ),
        ]
        components.twins(tiles_payload(tiles), key="positions_none_tiles")
    bare = encodings.scores("nope").mean(0)
    page.notice(
        [
            f"Under its causal mask the same reversal moves a logit by {sig(moved.masked, 3)}: so order gets in.",
            f"Without positions its mean score still goes from {fixed(float(bare[0]), 2)} at distance 0 to "
            f"{fixed(float(bare[100]), 2)} at distance 100: learned from what the mask lets through.",
            "ALiBi is left out of the chart: its bias is a straight line by rule.",
        ]
    )
    page.prose(
        "NoPE adds nothing. What remains is the causal mask: a first token reads one key, a later one reads many, and "
        "from that difference later layers can tell early from late (Haviv et al. 2022; Kazemnejad et al. 2023)."
    )
    snippet = (
        "import numpy as np\nfrom lmcore.checkpoint import load_pretrained\nfrom lmcore.extrapolate import windows\n"
        "from lmcore.order import reversed_before, scores_by_distance\nfrom lmcore.teaching import heldout_text\n\n"
        'model, tokenizer, _ = load_pretrained("teaching:nope")\n'
        f"texts = windows(tokenizer.encode(heldout_text()), {teaching.CONTEXT}, {encodings.WINDOWS})\n"
        "scores_by_distance(model, texts).mean(0), reversed_before(model, texts[0])"
    )
    with page.tools():
        page.source("lmcore.order.scores_by_distance", snippet, key="positions_none_source")
        page.csv(tiles_csv(tiles), "no-positions.csv", key="positions_none_csv")


def _by_distance(name: str, colour: int) -> Curve:
    mean = encodings.scores(name).mean(0)
    x = np.arange(len(mean), dtype=np.float64)
    return Curve(extrapolating.title(name), colour, x, mean, np.full(len(x), np.nan))


def _table(table: np.ndarray, title: str, key: str) -> None:
    left, right = st.columns([3, 2], gap="medium")
    with left:
        components.mount("heat", table_payload(table, file=key.removeprefix("positions_"), title=title), key=key)
    with right:
        components.mount("heat", likeness_payload(table), key=f"{key}_likeness")


def _tools(function: str, snippet: str, name: str, table: np.ndarray | None = None) -> None:
    """The source; and all of a table of which the field shows a part."""
    with page.tools():
        page.source(function, snippet, key=f"positions_{name}_source")
        if table is not None and max(table.shape) > MOST_CELLS:
            header = ["position", *(f"dim {column}" for column in range(table.shape[1]))]
            rows = ([at, *map(float, line)] for at, line in enumerate(table))
            page.csv(csv_text(header, rows), f"{name}.csv", label="CSV of all rows", key=f"positions_{name}_csv")


DRAWN = {SINUSOIDAL: _sinusoidal, LEARNED: _learned, ALIBI: _alibi, T5: _t5, NONE: _none}
