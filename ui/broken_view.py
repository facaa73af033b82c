"""Attention broken in six ways on the running model, each beside the run that is right."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import streamlit as st

from figures.breaks import Broken, breaks_payload
from figures.format import fixed, group, scientific, sig
from lmcore.specs import GroupedQuery
from ui import components, experiments, guard, models, page, runs
from ui.experiments import PLAIN, Change, Outcome

FLOAT16_EXP = 11.09
"""exp(s) is over 65504, float16's largest number, from here on."""
ROW_PX = 78


@dataclass(frozen=True)
class Break:
    """What is changed, and the line of lmcore (in a function, by a piece of it) that does it."""

    name: str
    formula: str
    change: str
    function: str
    piece: str


BREAKS = (
    Break("Mask after the softmax", "softmax(QKᵀ / √Dₕ) ⊙ M", "after", "lmcore.attention.attend", "* reads.allowed"),
    Break("No mask", "softmax(QKᵀ / √Dₕ)", "unmasked", "lmcore.model.Transformer._reads", "edits.mask or"),
    Break("No 1/√Dₕ", "softmax(QKᵀ + M)", "unscaled", "lmcore.attention.Attention.forward", "edits.scale is None"),
    Break(
        "Softmax in float16 without the row’s maximum",
        "exp(s) / Σ exp(s) instead of exp(s − max) / Σ exp(s − max)",
        "unsafe",
        "lmcore.attention.softmax_unsafe",
        "exp.sum",
    ),
    Break("RoPE on V as well", "A (R V)", "values", "lmcore.attention.Attention.forward", "edits.rotate_values"),
    Break(
        "Halves mixed with interleaved",
        "dims 2i, 2i + 1 turn, not i, i + Dₕ/2",
        "pairing",
        "lmcore.rope.rotate_interleaved",
        "first, second =",
    ),
)


def changes() -> dict[str, Change]:
    from lmcore.masks import Mask

    return {
        "after": Change(softmax="mask_after"),
        "unmasked": Change(mask=Mask(causal=False)),
        "unscaled": Change(scale=1.0),
        "unsafe": Change(softmax="unsafe_float16"),
        "values": Change(rotate_values=True),
        "pairing": Change(pairing="interleaved"),
    }


def lacking(opened: models.Opened, name: str) -> str:
    """Why this model has nothing to break there; empty where it has."""
    cfg = opened.config
    if name in ("values", "pairing") and all(cfg.rope_of(layer) is None for layer in range(cfg.n_layers)):
        return "This model has no RoPE."
    if name == "values" and not isinstance(cfg.attention, GroupedQuery):
        return "This model’s values come out of the latent, which holds no position."
    if name == "unsafe" and isinstance(cfg.attention, GroupedQuery) and cfg.attention.sinks:
        return "This model’s softmax has learned sinks and a form of its own."
    return ""


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """The table of broken runs; they are made on a button, and stand from then on."""
    cut = experiments.cut(opened, prompt.ids, keeps_weights=False)
    ids = cut.ids
    page.section(
        "Break it",
        "Each row changes one thing in every layer and runs the loaded model on the prompt again. The line through the "
        "rows is the run that is right. " + cut.said,
    )
    wanted = {name: change for name, change in changes().items() if not lacking(opened, name)}
    done = all(experiments.known(opened, ids, change) for change in (PLAIN, *wanted.values()))
    place = st.empty()
    asked = st.session_state.get("_breaks") == (opened.key, ids)
    if not done and asked:
        for index, change in enumerate((PLAIN, *wanted.values())):
            left = len(wanted) + 1 - index
            expected = f", about {sig(experiments.measure(opened, ids).seconds * left, 2)} s left" if index else ""
            told = f"{index} of {len(wanted) + 1} runs{expected}"

            def tell(layer: int, told: str = told) -> None:
                place.markdown(f":small[:gray[{told}; layer {layer + 1} of {opened.config.n_layers}]]")

            experiments.measure(opened, ids, change, tell)
        place.empty()
    elif not done:

        def ask() -> None:
            st.session_state["_breaks"] = (opened.key, ids)

        place.button(f"Run the {len(wanted)} broken models", on_click=ask, key="attention_breaks")
    done = done or asked
    right, rows = table(opened, ids, done)
    components.mount("breaks", breaks_payload(right, rows), key="attention_breaks_table")
    if done:
        page.notice(said(right, rows))
        with page.tools():
            page.source("lmcore.attention.attend", snippet(opened, ids), key="attention_breaks_source")


def table(opened: models.Opened, ids: tuple[int, ...], done: bool) -> tuple[Broken, list[Broken]]:
    """The right run's row and one for each break, with what they measured once they are run."""
    right = Broken("The right run", "softmax(QKᵀ / √Dₕ + M) V", "")
    if not done:
        rows = [Broken(b.name, b.formula, source_line(b), found=_without(opened, b)) for b in BREAKS]
        return right, rows
    plain = experiments.measure(opened, ids)
    sums = f"Row sums from {fixed(plain.row_sums[0], 4)} to {fixed(plain.row_sums[2], 4)}; the largest score is "
    right = replace(right, loss=plain.mean_loss, entropy=plain.entropy, found=(f"{sums}{fixed(plain.largest, 2)}.",))
    made, rows = changes(), []
    for b in BREAKS:
        row = Broken(b.name, b.formula, source_line(b), found=_without(opened, b))
        if not row.found:
            outcome = experiments.measure(opened, ids, made[b.change])
            found = FOUND[b.change](opened, ids, plain, outcome)
            row = replace(row, loss=outcome.mean_loss, entropy=outcome.entropy, found=found)
        rows.append(row)
    return right, rows


def _without(opened: models.Opened, b: Break) -> tuple[str, ...]:
    why = lacking(opened, b.change)
    return (why,) if why else ()


def source_line(b: Break) -> str:
    """File, number and text of the line, read from the file that runs."""
    found = page.resolve(b.function)
    lines, first = inspect.getsourcelines(found)
    at = next(index for index, line in enumerate(lines) if b.piece in line)
    path = Path(inspect.getsourcefile(found) or "")
    return f"{path.parent.name}/{path.name}:{first + at}  {lines[at].strip()}"


def _after(opened: models.Opened, ids: tuple[int, ...], plain: Outcome, broken: Outcome) -> tuple[str, ...]:
    low, mean, high = broken.row_sums
    return (
        f"Rows no longer sum to 1: least {sig(low, 2)}, mean {fixed(mean, 3)}, largest {fixed(high, 3)}.",
        "What the softmax gave to the future is lost, so early rows lose most.",
    )


def _unmasked(opened: models.Opened, ids: tuple[int, ...], plain: Outcome, broken: Outcome) -> tuple[str, ...]:
    some = ids[: experiments.LEAST_TOKENS]  # each of the two runs the text twice
    right, leaked = experiments.leak(opened, some, PLAIN), experiments.leak(opened, some, changes()["unmasked"])
    why = "The loss falls for the wrong reason." if broken.mean_loss < plain.mean_loss else ""
    moved = (
        f"Another last token moves the logits before it by up to {sig(leaked, 3)}; in the right run by {sig(right, 2)}."
    )
    return tuple(text for text in (moved, f"The future leaks. {why}".strip()) if text)


def _unscaled(opened: models.Opened, ids: tuple[int, ...], plain: Outcome, broken: Outcome) -> tuple[str, ...]:
    dim, scale = opened.config.head_dim, opened.config.attention.scale
    return (
        f"Variance of q·k within a head: {sig(plain.variance, 3)}, against Dₕ = {group(dim)} for independent parts of "
        f"variance 1; scaled it is {sig(plain.variance * scale**2, 3)}.",
        f"Entropy of a row goes from {fixed(plain.entropy, 3)} to {fixed(broken.entropy, 3)} nats.",
    )


def _unsafe(opened: models.Opened, ids: tuple[int, ...], plain: Outcome, broken: Outcome) -> tuple[str, ...]:
    limit = f"The largest score of the right run is {fixed(plain.largest, 2)}; exp overflows from {FLOAT16_EXP}."
    if broken.bad_rows:
        return (f"{_rows(broken)}.", limit)
    both = experiments.measure(opened, ids, Change(scale=1.0, softmax="unsafe_float16"))
    return (f"No row overflows on this prompt; without 1/√Dₕ as well, {_rows(both)}.", limit)


def _rows(outcome: Outcome) -> str:
    if not outcome.bad_rows:
        return "none does either"
    rows = f"{group(outcome.bad_rows)} of {group(outcome.rows)} rows hold NaN or infinity"
    return f"{rows}, from layer {outcome.bad_layer} on"


def _values(opened: models.Opened, ids: tuple[int, ...], plain: Outcome, broken: Outcome) -> tuple[str, ...]:
    return (_moved(plain, broken), "A value then depends on where it stands, and W_O does not turn it back.")


def _pairing(opened: models.Opened, ids: tuple[int, ...], plain: Outcome, broken: Outcome) -> tuple[str, ...]:
    spread = experiments.offset_spread(opened, ids)
    if spread is None:
        return (_moved(plain, broken),)
    alike, mixed = (scientific(x, 1) if x < 1e-3 else sig(x, 3) for x in (spread["interleaved"], spread["mixed"]))
    return (
        _moved(plain, broken),
        f"q·k at a fixed offset spreads by {alike} of |q||k| when q and k are both interleaved: still relative, but of "
        f"the wrong dims. With k alone interleaved it spreads by {mixed}: no longer a function of the offset.",
    )


def _moved(plain: Outcome, broken: Outcome) -> str:
    return f"Logits at the last position differ by up to {sig(float(np.abs(broken.logits - plain.logits).max()), 3)}."


FOUND: dict[str, Callable[[models.Opened, tuple[int, ...], Outcome, Outcome], tuple[str, ...]]] = {
    "after": _after,
    "unmasked": _unmasked,
    "unscaled": _unscaled,
    "unsafe": _unsafe,
    "values": _values,
    "pairing": _pairing,
}


def said(right: Broken, rows: list[Broken]) -> list[str]:
    """Which break costs most and which the loss does not show, from these runs."""
    if right.loss is None or not np.isfinite(right.loss):
        return ["One token has no loss: what is measured here are weights and logits alone."]
    losses = {row.name: row.loss for row in rows if row.loss is not None}
    points = []
    dead = [name for name, loss in losses.items() if not np.isfinite(loss)]
    if dead:
        points.append(f"No loss is left, only NaN: {', '.join(dead)}.")
    alive = {name: loss - right.loss for name, loss in losses.items() if np.isfinite(loss)}
    if alive:
        worst, least = max(alive, key=lambda name: alive[name]), min(alive, key=lambda name: abs(alive[name]))
        points.append(f"*{worst}* costs most: {_signed(alive[worst])} nats a token.")
        points.append(f"*{least}* shows least in the loss: {_signed(alive[least])} nats. Loss alone would miss it.")
    return points


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "") + fixed(value, 3)


def snippet(opened: models.Opened, ids: tuple[int, ...]) -> str:
    return f"""
import torch
from lmcore.checkpoint import load_pretrained
from lmcore.masks import Mask
from lmcore.trace import Capture, Edits

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = torch.tensor([{list(ids)}])
for edits in (
    Edits(softmax="mask_after"), Edits(mask=Mask(causal=False)), Edits(scale=1.0),
    Edits(softmax="unsafe_float16"), Edits(rotate_values=True), Edits(pairing="interleaved"),
):
    out = model.forward(tokens, capture=Capture.of("pattern"), edits=edits)
    print(edits, torch.nn.functional.cross_entropy(out.logits[0, :-1].float(), tokens[0, 1:]))
"""
