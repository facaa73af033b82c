"""Scalings of RoPE side by side, every parameter a slider, and the one chosen applied to the loaded model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st

from figures.extrapolation import Curve, curves_payload
from figures.format import fixed, group, sig
from figures.masks import beside_payload, beside_tile
from figures.scalings import METHODS, changed_fields, scaled, scalings_payload, settings_of
from lmcore.frequencies import frequencies, same_frequencies
from lmcore.specs import Rope
from ui import components, guard, models, page, rescaled, rotary, runs, vocabulary
from ui.markdown import plain

KEY = "positions_scalings"
PREFIX = "scale_"


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """The curves and their sliders; below, both runs of the prompt, once a scaling is applied."""
    page.section(
        "Scalings side by side",
        "To read further than it was trained, a model’s angles are squeezed back into the range they had. The methods "
        "differ in whom they squeeze: linear all pairs alike, NTK-aware by a larger base, YaRN and Llama 3 only those "
        "that turned too little. Nothing is trained here: the curves are the papers’ formulas at the sliders’ values.",
    )
    cfg = opened.config
    kind = rotary.choose(cfg, "positions_scaled_layers")
    rope = kind.rope
    if said_of := rotary.reach_said(kind):
        page.prose(f":small[:gray[{said_of}]]")
    applied, spec = chosen(rope, cfg.max_positions)
    can_run = opened.weights is not None and bool(prompt.ids)
    payload = scalings_payload(rope, cfg.max_positions, applied=applied, runs=can_run, target=target(kind))
    components.mount("frequencies", payload, key=KEY, values={"applied": None})
    if spec is not None and can_run:
        outcome(opened, prompt.ids, METHODS[applied], kind, spec)
    page.formula(
        r"\text{linear: } \theta'_i = \theta_i / s \qquad \text{NTK-aware: } b' = b\, s^{d/(d-2)}",
        r"\text{YaRN, Llama 3: } \theta'_i = (1 - \gamma_i)\, \theta_i / s + \gamma_i\, \theta_i",
        r"\text{YaRN: } \cos, \sin \text{ of q and k} \times (0.1 \ln s + 1), \text{ scores by its square}",
    )
    page.prose(
        "γ goes from 1 (kept) to 0 (divided by s): in YaRN along the pair index, between the pairs that make beta_fast "
        "and beta_slow turns within L; in Llama 3 along the number of turns, between high_freq_factor and "
        "low_freq_factor. Dynamic NTK takes s·l/L − (s − 1) for s once the length l passes L. LongRoPE divides each "
        "pair by a factor of its own, found by search; a curve stands for these factors here."
    )
    with page.tools():
        page.source("lmcore.frequencies.frequencies", snippet(kind, spec or rope), key="positions_scalings_source")


def chosen(rope: Rope, max_positions: int) -> tuple[str, Rope | None]:
    """The method that is applied now and its spec: what the browser sent, or the link says; ("", None) for none."""
    from_link = {
        name.removeprefix(PREFIX): st.query_params[name] for name in st.query_params if name.startswith(PREFIX)
    }
    given = components.sent(KEY, "applied", {**from_link, "method": from_link.get("applied", "")})
    method = given.get("method") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or method not in METHODS:
        return "", None
    return str(method), scaled(str(method), settings_of(given, rope, max_positions), rope)


def target(kind: rotary.Kind) -> str:
    """What a scaling is applied to."""
    return "the loaded model" if kind.only is None else f"the {kind.name}"


def outcome(opened: models.Opened, ids: tuple[int, ...], name: str, kind: rotary.Kind, spec: Rope) -> None:
    """Both runs of the prompt beside each other, and what changed in the spec and in which pairs."""
    page.section(f"{name} on {target(kind)}")
    with page.awaited("positions_applied", height=330)():
        found = rescaled.compare(opened, ids, spec, kind.only)
        before, after = found.mean_losses
        tiles = [
            beside_tile("Mean loss", before, after, unit="nats", note="Of all tokens but the first."),
            beside_tile(
                "Largest change of a logit",
                0.0,
                found.largest,
                note=f"After position {found.position}, of {group(opened.config.vocab_size)} logits at each.",
            ),
        ]
        payload = beside_payload(
            tiles,
            found.probabilities[0],
            found.probabilities[1],
            token_of=lambda token: vocabulary.token(opened, token),
            name=name,
        )
        components.mount("beside", payload, key="positions_beside")
        if len(ids) > 2:
            _losses(found, name)
    page.prose(_fields(kind.rope, spec))
    page.notice(said(opened, ids, kind, spec, found))


def _losses(found: rescaled.Rescaled, name: str) -> None:
    at = np.arange(1, found.losses.shape[1])
    none = np.full(len(at), np.nan)
    names = ("the model’s own", name)
    curves = [Curve(words, row, at, found.losses[row, 1:], none) for row, words in enumerate(names)]
    payload = curves_payload(
        curves,
        file="loss-by-token",
        label="loss of each token of the prompt, in both runs; arrow keys read it",
        x_title="position →",
        y_title="loss of the token, nats",
        unit="nats",
        digits=3,
        discs=len(at) <= 128,
        from_zero=True,
        note="Point at the chart to read it.",
    )
    components.mount("curves", payload, key="positions_losses")


def _fields(own: Rope, spec: Rope) -> str:
    rows = [
        f"| {plain(name)} | {plain(before)} | {plain(after)} |" for name, before, after in changed_fields(own, spec)
    ]
    if not rows:
        return "No field of the rotary spec differs from the model’s own."
    return "\n".join(["| field of the rotary spec | the model’s own | applied |", "|---|---|---|", *rows])


def said(
    opened: models.Opened, ids: tuple[int, ...], kind: rotary.Kind, spec: Rope, found: rescaled.Rescaled
) -> list[str]:
    """What changed, in which pairs, and what it did, computed from both specs and both runs."""
    count = len(ids)
    (theta, factor), (other, applied) = frequencies(kind.rope, count), frequencies(spec, count)
    points = [_pairs_said(theta, other, factor, applied, count)]
    before, after = found.mean_losses
    if found.largest == 0:
        same = not same_frequencies(spec, count, 2**20)
        points.append(
            f"Nothing moves: at {group(count)} tokens this scaling is the model’s own."
            + (" It follows the length: set L below the length of the prompt to see it act." if same else "")
        )
    elif np.isfinite(before) and np.isfinite(after):
        verb = "rises" if after > before else "falls"
        why = (
            "The weights are random and have learned no angles."
            if opened.random_weights
            else "This is within the trained context; what a scaling is for begins past it, below."
        )
        points.append(f"The mean loss {verb} from {fixed(before, 4)} to {fixed(after, 4)} nats. {why}")
    points.append(
        f"The weights are as they were: the forward was given another rotary spec{_where(opened, kind)}. *Undo* leaves "
        "nothing behind."
    )
    return points


def _where(opened: models.Opened, kind: rotary.Kind) -> str:
    others = opened.config.n_layers - len(kind.layers)
    return "" if kind.only is None else f" in {group(len(kind.layers))} layers and its own in the other {group(others)}"


def _pairs_said(theta: np.ndarray, other: np.ndarray, factor: float, applied: float, count: int) -> str:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(theta == other, 1.0, theta / other)
    moved = np.flatnonzero(np.abs(ratio - 1) > 1e-9)
    on_scores = (
        ""
        if applied == factor
        else f" cos and sin are multiplied by {fixed(applied, 4)} instead of {fixed(factor, 4)}, "
        f"scores by {fixed((applied / factor) ** 2, 4)}."
    )
    if not len(moved):
        return f"At {group(count)} tokens no pair changes its frequency.{on_scores}"
    first, last = (sig(float(ratio[at]), 4) for at in (moved[0], moved[-1]))
    return (
        f"At {group(count)} tokens {len(moved)} of {len(theta)} pairs change their frequency, from pair {moved[0]} "
        f"(divided by {first}) to pair {moved[-1]} (divided by {last})." + on_scores
    )


def snippet(kind: rotary.Kind, spec: Rope) -> str:
    only = "" if kind.only is None else f", rope_layers=frozenset({set(kind.layers)!r})"
    return f"""
import torch
from lmcore.frequencies import frequencies
from lmcore.specs import Rope
from lmcore.trace import Edits

own = {kind.rope!r}
spec = {spec!r}
frequencies(own, 1024)[0] / frequencies(spec, 1024)[0]  # what each pair is divided by
model.forward(tokens, edits=Edits(rope=spec{only})).logits  # the same weights, turned otherwise
"""
