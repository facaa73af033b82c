"""The relative property, measured on the model's own q and k: flat or not by arithmetic, and scores by distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from figures.format import fixed, group, sig, unbroken
from figures.relative import Spread, distance_payload, slide_payload, spread_of
from figures.twins import tile, tiles_csv, tiles_payload
from ui import components, guard, models, page, runs, turned
from ui.lru import ByteLRU

if TYPE_CHECKING:
    from lmcore.relative import Slide

SLIDE_TO = 32_768
STEP = 61
"""Between the key's positions: no multiple of 2, which bf16 would hold exactly further up than others."""
OFFSETS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
PAIRS_OF_TOKENS = 48
"""Every pair of the first tokens of the prompt: 1,176 of them."""
MAX_DISTANCE = 1024
FLAT = 1e-5
"""What float32 rounding may move q . k, over |q| |k|."""
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}

_SLIDES: ByteLRU[Slide] = ByteLRU(max_entries=32, max_bytes=2**22, size=lambda slide: 5 * slide.positions.nbytes)
_SCORES: ByteLRU[Scores] = ByteLRU(max_entries=32, max_bytes=2**22, size=lambda kept: 5 * kept.distances.nbytes)


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """One q and one k at a fixed offset while both slide; the scores of all pairs against distance."""
    page.section(
        "Only the distance counts, to rounding",
        "Turn q and k of two tokens to any two positions the same distance apart, and their product stays. That is "
        "exact only in exact arithmetic: the angle is the position times θ, so what is rounded in the position comes "
        "out of the product. A position held in bf16 has 8 significant bits.",
    )
    layer, head, query, key, offset = _controls(opened, prompt)
    found = turned.of(opened, prompt.ids, layer)
    q, k = found.q[head], found.k[found.key_head(head)]
    with page.awaited("positions_slide", height=640)():
        _slide(opened, prompt, found, (layer, head, query, key, offset), q[query], k[key])
    page.section(
        "Score against distance",
        "Every q of the prompt with every k that stands at or before it, placed any distance apart: what the position "
        "alone does to the scores of this head. Random vectors of the same lengths have no preference to lose.",
    )
    with page.awaited("positions_distance", height=380)():
        _distance(opened, prompt, found, head)


def _controls(opened: models.Opened, prompt: runs.Prompt) -> tuple[int, int, int, int, int]:
    """Layer, query head, the tokens of q and k, and the offset between the positions they are turned to."""
    at = turned.layers(opened.config)
    last = min(len(prompt.ids), turned.MAX_TOKENS) - 1
    with st.container(horizontal=True, gap="medium"):
        layer = _choice("Layer", at, at[len(at) // 2], "positions_relative_layer")
        head = _choice("Query head", list(range(opened.config.n_heads)), 0, "positions_relative_head")
        query = _choice("q of token", list(range(last + 1)), last, "positions_relative_query")
        key = _choice("k of token", list(range(last + 1)), min(1, last), "positions_relative_key")
        offset = st.select_slider("Offset n, tokens", OFFSETS, 8, key="positions_offset", width=160, **_LINK)
    return layer, head, query, key, offset


def _choice(label: str, options: list[int], default: int, key: str) -> int:
    if len(options) < 2:
        return options[0]
    return st.select_slider(label, options, default, key=key, width=160, **_LINK)


def _slide(
    opened: models.Opened,
    prompt: runs.Prompt,
    found: turned.Turned,
    at: tuple[int, int, int, int, int],
    q: np.ndarray,
    k: np.ndarray,
) -> None:
    import torch

    from lmcore.relative import slide

    offset = at[-1]
    positions = torch.arange(0, SLIDE_TO + 1, STEP)
    kept = _SLIDES.get(
        (opened.key, prompt.ids, at),
        lambda: slide(
            torch.from_numpy(q.copy()), torch.from_numpy(k.copy()), found.rope, offset=offset, positions=positions
        ),
    )
    components.mount("curves", slide_payload(kept.positions, kept.products, offset=offset), key="positions_slide_chart")
    far = (
        f"Over |q| |k|: of {group(len(kept.positions))} positions up to {group(SLIDE_TO)} the one furthest from the "
        "exact product."
    )
    tiles = [
        tile(
            "q · k moves, float32",
            0.0,
            kept.spread("float32"),
            how="measured",
            rounding=FLAT,
            reason="float32 rounding",
            note=unbroken(far + " The angles are float64."),
        ),
        tile(
            "Angles in float32",
            0.0,
            kept.spread("float32 angles"),
            how="measured",
            reason=unbroken(f"at position {group(SLIDE_TO)} a float32 angle is off by up to 0.002 radians"),
            note="Position times θ in float32, as most code does it.",
        ),
        tile(
            "Positions in bf16",
            0.0,
            kept.spread("bf16 positions"),
            how="measured",
            reason=unbroken(f"a position is rounded to a multiple of 2 from 256 on, of 128 from {group(2**14)} on"),
            note="The offset itself is then wrong.",
        ),
        tile(
            "|q| and |k| change, float32",
            0.0,
            kept.norms["float32"],
            how="after turning",
            rounding=FLAT,
            reason="float32 rounding",
            note=f"The most at any position; {sig(kept.norms['bf16 cos and sin'], 2)} with cos and sin in bf16.",
        ),
    ]
    components.twins(tiles_payload(tiles), key="positions_slide_tiles")
    page.formula(r"(R_{m+n}\, q) \cdot (R_m\, k) = (R_n\, q) \cdot k \quad \text{for every } m", r"|R_m\, q| = |q|")
    with page.tools():
        page.source("lmcore.relative.slide", snippet(opened, prompt, at), key="positions_slide_source")
        page.csv(tiles_csv(tiles), "rope-slide-twins.csv", key="positions_slide_csv")


@dataclass(frozen=True, eq=False)
class Scores:
    """Of one head: the scores of its own pairs and of random vectors against distances (D,), how many pairs there are,
    and the largest difference from the run's own scores, at the distances that the pairs really have."""

    distances: np.ndarray
    own: Spread
    random: Spread
    pairs: int
    differs: float


def scores(opened: models.Opened, ids: tuple[int, ...], found: turned.Turned, head: int) -> Scores:
    """Every q of the first tokens with every k at or before it, at every distance up to MAX_DISTANCE."""
    from lmcore.relative import at_distance, random_like

    def make() -> Scores:
        q, k = found.q[head][:PAIRS_OF_TOKENS], found.k[found.key_head(head)][:PAIRS_OF_TOKENS]
        query, key = np.tril_indices(len(q))
        distances = np.arange(min(opened.config.max_positions, MAX_DISTANCE))
        length, scale = found.q.shape[1], opened.config.attention.scale
        random_q, random_k = random_like(q, 0), random_like(k, 1)
        own = at_distance(q[query], k[key], found.rope, distances, length) * scale
        random = at_distance(random_q[query], random_k[key], found.rope, distances, length) * scale
        again = at_distance(q[query], k[key], found.rope, np.arange(len(q)), length)
        rotated_q, rotated_k = found.rot_q[head].astype(np.float64), found.rot_k[found.key_head(head)]
        run = (rotated_q[query] * rotated_k[key]).sum(-1)
        differs = float(np.abs(again[np.arange(len(query)), query - key] - run).max() * scale)
        return Scores(distances, spread_of(own), spread_of(random), len(query), differs)

    return _SCORES.get((opened.key, ids, found.layer, head), make)


def _distance(opened: models.Opened, prompt: runs.Prompt, found: turned.Turned, head: int) -> None:
    kept = scores(opened, prompt.ids, found, head)
    spreads = {"this head": kept.own, "random": kept.random}
    components.mount("curves", distance_payload(kept.distances, spreads), key="positions_distance_chart")
    mean, random = kept.own.mean, kept.random.mean
    first, last, least, most = (fixed(float(value), 3) for value in (mean[0], mean[-1], random.min(), random.max()))
    points = [
        f"This head’s mean over {group(kept.pairs)} pairs goes from {first} at distance 0 to {last} at "
        f"{group(int(kept.distances[-1]))}; that of random vectors stays between {least} and {most}.",
    ]
    if not found.normed_after:
        points.append(
            "At the distances the pairs really have, these scores and the run’s own differ by at most "
            f"{sig(kept.differs, 2)}."
        )
    page.notice(points)
    page.formula(
        r"q_m \cdot k_{m-n} = f^2\, \mathrm{Re} \sum_{i=0}^{d/2-1} z^q_i\, \overline{z^k_i}\, e^{\mathrm{i} n \theta_i}"
    )
    rest = " plus the product of the dims that do not turn" if found.rope.rotary_dim < found.q.shape[-1] else ""
    page.prose(
        f"$z_i = x_i + \\mathrm{{i}}\\, x_{{i+d/2}}$, d = {found.rope.rotary_dim} rotary dims{rest}; f is the factor "
        f"on cos and sin. The scores are scaled by {fixed(opened.config.attention.scale, 4)} and not masked."
    )
    with page.tools():
        page.source("lmcore.relative.at_distance", distance_snippet(found, head), key="positions_distance_source")


def snippet(opened: models.Opened, prompt: runs.Prompt, at: tuple[int, int, int, int, int]) -> str:
    layer, head, query, key, offset = at
    kv_head = head * opened.config.n_kv_heads // opened.config.n_heads
    return f"""
import torch
from lmcore.checkpoint import load_pretrained
from lmcore.relative import slide
from lmcore.trace import Capture

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = torch.tensor([{list(prompt.ids[: turned.MAX_TOKENS])}])
trace = model.forward(tokens, capture=Capture.of("q", "k", layers=[{layer}])).trace
q, k = trace.layers[{layer}].q[0, {head}, {query}], trace.layers[{layer}].k[0, {kv_head}, {key}]
found = slide(q, k, model.cfg.rope_of({layer}), offset={offset}, positions=torch.arange(0, {SLIDE_TO}, {STEP}))
found.spread("float32"), found.spread("bf16 positions")
"""


def distance_snippet(found: turned.Turned, head: int) -> str:
    return f"""
import numpy as np
from lmcore.relative import at_distance

# q (H, T, Dh) and k (K, T, Dh) of layer {found.layer}, captured before they are turned
query, key = np.tril_indices(q.shape[1])
scores = at_distance(q[{head}][query], k[{found.key_head(head)}][key], model.cfg.rope_of({found.layer}), np.arange(256))
scores.mean(0) * model.cfg.attention.scale
"""
