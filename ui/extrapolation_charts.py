"""Charts of what was measured past the trained length; each is drawn once all of its runs are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from figures.extrapolation import (
    Curve,
    Merit,
    attention_said,
    blame_said,
    curves_payload,
    doublings,
    encodings_said,
    merit_payload,
    scalings_said,
)
from figures.format import group
from lmcore import teaching
from lmcore.scalings import slow_pairs, turns
from ui import components, extrapolating, page
from ui.extrapolating import Wanted

if TYPE_CHECKING:
    from lmcore.extrapolate import Blocks

BLOCK = 32
TRAINED, LENGTH, TIMES = teaching.CONTEXT, extrapolating.LENGTH, extrapolating.TIMES
_TRAINED_MARK = ((TRAINED, f"trained to {TRAINED}"),)


def _measured(wanted: list[Wanted]) -> list[tuple[Wanted, np.ndarray]]:
    found = ((one, extrapolating.losses(one)) for one in wanted)
    return [(one, losses) for one, losses in found if losses is not None]


def merit(name: str, losses: np.ndarray, pieces: np.ndarray) -> Merit:
    """A run's row; `pieces` are the losses of the same tokens in pieces of the trained length."""
    from lmcore.extrapolate import beyond, standard_error, within

    inside, outside, known = within(losses, TRAINED), beyond(losses, TRAINED), beyond(pieces, TRAINED)
    error = float(standard_error(outside - known))
    return Merit(name, float(inside.mean()), float(outside.mean()), float(known.mean()), error)


def _curve(name: str, colour: int, smooth: Blocks) -> Curve:
    return Curve(name, colour, smooth.position, smooth.mean, smooth.error)


def loss_curves(measured: list[tuple[Wanted, np.ndarray]], colours: list[int]) -> list[Curve]:
    from lmcore.extrapolate import blocks

    return [
        _curve(one.name, colour, blocks(losses, BLOCK)) for (one, losses), colour in zip(measured, colours, strict=True)
    ]


def _loss_chart(curves: list[Curve], *, file: str, label: str, key: str) -> None:
    """The losses, on a logarithmic scale if one line would press all others flat."""
    losses = np.concatenate([curve.y for curve in curves])
    log = bool(losses.max() > 3 * losses.min())
    payload = curves_payload(
        curves,
        file=file,
        label=label,
        x_title="position",
        y_title=f"loss in nats, mean of {BLOCK} positions" + (", log scale" if log else ""),
        log=log,
        unit="nats",
        width=BLOCK,
        first=1,
        x_word="positions",
        x_ticks=doublings(TRAINED, LENGTH),
        x_range=(0, LENGTH),
        verticals=_TRAINED_MARK,
        note=f"Mean over {extrapolating.WINDOWS} windows; the band is one standard error of it.",
    )
    components.mount("curves", payload, key=key)


def _table(rows: list[Merit], label: str, file: str, key: str) -> None:
    with st.container(width=page.PROSE_WIDTH):
        components.mount("sheet", merit_payload(rows, label=label, file=file), key=key)


def _source(function: str, snippet: str, key: str) -> None:
    with page.tools():
        page.source(function, snippet, key=f"{key}_source")


def _in_pieces(measured: list[tuple[Wanted, np.ndarray]]) -> dict[str, np.ndarray]:
    """The losses in pieces of the trained length, by model; of those that are measured."""
    models = {one.model: one for one, _ in measured}
    return {one.model: losses for one, losses in _measured([extrapolating.in_pieces(one) for one in models.values()])}


def _piece_curve(pieces: dict[str, np.ndarray], colour: int, name: str) -> Curve:
    from lmcore.extrapolate import blocks

    return _curve(name, colour, blocks(pieces[extrapolating.ROPE], BLOCK))


def encodings() -> None:
    wanted = extrapolating.encodings()
    measured = _measured(wanted)
    pieces = _in_pieces(measured)
    if len(measured) < len(wanted) or len(pieces) < len(wanted):
        return
    st.markdown("**Each encoding as it was trained.** All else is equal: text, seed, budget, shape.")
    curves = loss_curves(measured, list(range(len(measured))))
    curves.append(_piece_curve(pieces, len(curves), "RoPE in pieces"))
    _loss_chart(
        curves, file="loss-by-encoding", label="Loss by position, each position encoding", key="positions_encodings"
    )
    rows = [merit(one.name, losses, pieces[one.model]) for one, losses in measured]
    page.notice(encodings_said(rows, times=TIMES))
    _table(rows, "Loss of each position encoding", "encodings", "positions_encodings_table")
    page.formula(r"\ell_t = -\ln p(x_t \mid x_0, \dots, x_{t-1})")
    page.prose(
        f"In the table: the mean loss of positions {TRAINED // 2} to {TRAINED - 1}, of those from {group(TRAINED)} on, "
        f"and of the same tokens *in pieces of {TRAINED}*, cut so that each has {TRAINED // 2} to {TRAINED - 1} tokens "
        "before it. Passages differ in how hard they are, so the rise is beyond less in pieces."
    )
    _source("lmcore.extrapolate.token_losses", _snippet(), "positions_encodings")


def scalings(factor: int) -> None:
    wanted = extrapolating.scalings(factor)
    measured = _measured(wanted)
    pieces = _in_pieces(measured)
    if len(measured) < len(wanted) or not pieces:
        return
    st.space("small")
    st.markdown(f"**The RoPE model under each scaling, factor s = {factor}.** The weights stay as they are.")
    curves = loss_curves(measured, list(range(len(measured))))
    curves.append(_piece_curve(pieces, len(curves), "in pieces"))
    _loss_chart(
        curves, file="loss-by-scaling", label="Loss by position, RoPE under each scaling", key="positions_scalings_loss"
    )
    rows = [merit(one.name, losses, pieces[one.model]) for one, losses in measured]
    page.notice(scalings_said(rows, plain=wanted[0].name, factor=factor, length=LENGTH))
    _table(rows, "Loss of RoPE under each scaling", "scalings", "positions_scalings_table")
    page.prose(
        f"Dynamic NTK and LongRoPE follow the length: each stretch of {TRAINED} positions is measured in a text that "
        "ends with it; dynamic NTK takes s = length / trained length, whatever the slider says. LongRoPE’s published "
        "divisors come from a search for each model; none was made for this one. Here they are 1 for the fastest pair, "
        "s for every pair that does not complete a turn in training, and geometric in between."
    )
    example = f'scaled(model.cfg.rope, "yarn", factor={factor}, trained={TRAINED})'
    _source("lmcore.scalings.scaled", _snippet(example), "positions_scalings_loss")


def pairs(factor: int) -> None:
    from lmcore.extrapolate import beyond

    plain_run, linear = extrapolating.scalings(factor)[:2]
    wanted = [plain_run, *extrapolating.ablations(factor), linear]
    measured = _measured(wanted)
    if len(measured) < len(wanted):
        return
    st.space("small")
    slow = slow_pairs(extrapolating.rope(), TRAINED)
    st.markdown(
        f"**Which pairs met angles they had never seen.** Pair i goes round Lθᵢ / 2π times in the trained length L = "
        f"{TRAINED}. The {group(int(slow.sum()))} that do not complete a turn leave their range as soon as the text "
        "leaves its own."
    )
    made = turns(extrapolating.rope(), TRAINED)
    every = Curve("", 0, np.arange(len(made), dtype=np.float64), made, np.full(len(made), np.nan))
    components.mount(
        "curves",
        curves_payload(
            [every],
            file="turns-by-pair",
            label="Turns of each pair in the trained length",
            x_title="pair",
            y_title=f"turns in {TRAINED} positions, log scale",
            unit="turns",
            x_word="pair",
            x_ticks=list(range(0, len(made), 3)),
            limits=((1.0, "one turn"),),
            discs=True,
            log=True,
        ),
        key="positions_turns",
    )
    page.prose(
        f"The ablation: only the slow pairs turn {factor} times slower, so that up to position "
        f"{group(factor * TRAINED)} they meet no new angle; or only the fast ones; or all, which is linear "
        "interpolation."
    )
    named = [(Wanted("all slowed", one.model, one.rope) if one is linear else one, found) for one, found in measured]
    curves = loss_curves(named, list(range(len(named))))
    _loss_chart(curves, file="loss-by-pairs", label="Loss by position, some pairs slowed", key="positions_pairs_loss")
    unscaled, slowed, fast, both = (float(beyond(losses, TRAINED).mean()) for _, losses in measured)
    said = blame_said(
        unscaled=unscaled,
        slow=slowed,
        fast=fast,
        both=both,
        n_slow=int(slow.sum()),
        n_pairs=len(slow),
        factor=factor,
    )
    page.notice(said)
    page.formula(rf"\text{{slow}} \iff L\,\theta_i < 2\pi, \qquad \theta_i' = \theta_i / {factor}")
    example = f"divided(model.cfg.rope, slow_pairs(model.cfg.rope, {TRAINED}), {factor})"
    _source("lmcore.scalings.slow_pairs", _snippet(example), "positions_pairs_loss")


def attention(factor: int) -> None:
    from lmcore.extrapolate import blocks

    wanted = extrapolating.readings(factor)
    found = [(one, extrapolating.reading(one)) for one in wanted]
    if any(reading is None for _, reading in found):
        return
    st.space("small")
    st.markdown("**What attention does there.** Mean over all heads, layers and two windows.")
    numbers = {one.model: at for at, one in enumerate(extrapolating.encodings())}
    colours = [numbers[one.model] if one.rope is None else 6 for one in wanted]
    charts: dict[str, list[Curve]] = {"entropy": [], "first": []}
    for (one, reading), colour in zip(found, colours, strict=True):
        assert reading is not None
        for what, curves in charts.items():
            # A mean over layers is one series, so it has no spread over windows.
            curves.append(
                _curve(one.name, colour, blocks(getattr(reading, what).mean(0)[None].astype(np.float32), BLOCK))
            )
    uniform = blocks(np.log(np.arange(1, LENGTH + 1))[None].astype(np.float32), BLOCK)
    charts["entropy"].append(_curve("uniform", 7, uniform))
    left, right = st.columns(2, gap="medium")
    places = (
        (left, "entropy", "entropy of a row of weights, nats", "nats", 2),
        (right, "first", "weight of the first token, log scale", "", 3),
    )
    for column, what, y_title, unit, digits in places:
        payload = curves_payload(
            charts[what],
            file=f"attention-{what}",
            label=y_title,
            x_title="position",
            y_title=y_title,
            unit=unit,
            digits=digits,
            width=BLOCK,
            x_word="positions",
            x_ticks=doublings(TRAINED, LENGTH),
            x_range=(0, LENGTH),
            verticals=_TRAINED_MARK,
            log=what == "first",
        )
        with column:
            components.mount("curves", payload, key=f"positions_{what}")
    page.notice(attention_said(charts["entropy"][:-1], charts["first"], trained=TRAINED))
    page.formula(r"H_i = -\sum_{j \le i} A_{ij} \ln A_{ij} \;\le\; \ln(i + 1)")
    snippet = (
        'model, tokenizer, _ = load_pretrained("teaching:rope-gqa")\n'
        "ids = np.array(tokenizer.encode(heldout_text()))\n"
        f"attention_by_position(model, ids[:{LENGTH}]).entropy.mean(0)"
    )
    _source("lmcore.extrapolate.attention_by_position", snippet, "positions_attention")


def _snippet(rope: str = "None") -> str:
    return f"""
from lmcore.checkpoint import load_pretrained
from lmcore.extrapolate import blocks, token_losses, windows
from lmcore.scalings import divided, scaled, slow_pairs
from lmcore.teaching import heldout_text

model, tokenizer, _ = load_pretrained("teaching:rope-gqa", dtype="float32")
texts = windows(tokenizer.encode(heldout_text()), {LENGTH}, {extrapolating.WINDOWS})
blocks(token_losses(model, texts, {rope}), {BLOCK})  # position, mean, standard error
"""
