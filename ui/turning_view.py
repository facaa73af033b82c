"""One pair turning: two numbers of the model's own q and k, moved through the positions in the browser."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from figures.format import group, sig
from figures.turning import turning_payload
from lmcore.frequencies import frequencies
from lmcore.specs import Latent
from ui import components, guard, models, page, rotary, runs, turned, vocabulary
from ui.heads import EPS

_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}
HEIGHT, ON_PHONE = 883, 1371


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """The plane with the pair of q and of k, the rotation as a matrix and as a complex product, and what it adds."""
    page.section(
        "One pair turning",
        "Two numbers of a query are a point in a plane, and so are the same two of a key. RoPE turns each by its own "
        "position times θ. Move both together and the angle between them stays; move the query alone and what "
        "this pair adds to the score goes up and down.",
    )
    at = turned.layers(opened.config)
    layer = (
        st.select_slider("Layer", at, at[len(at) // 2], key="positions_layer", width=280, **_LINK)
        if len(at) > 1
        else at[0]
    )
    with page.awaited("positions_turning", height=HEIGHT, phone=ON_PHONE)():
        found = turned.of(opened, prompt.ids, layer)
        count = found.q.shape[1]
        theta, factor = frequencies(found.rope, count)
        payload = turning_payload(
            vocabulary.tokens(opened, prompt.ids[:count]),
            found.q,
            found.k,
            theta,
            factor,
            layer=layer,
            trained=rotary.trained(opened.config, found.rope),
        )
        with page.at_least(HEIGHT, phone=ON_PHONE):
            components.mount("turning", payload, key="positions_turning")
    page.notice(points(opened, prompt, found))
    page.formula(
        r"\begin{pmatrix} a' \\ b' \end{pmatrix} = \begin{pmatrix} \cos m\theta_i & -\sin m\theta_i \\ \sin m\theta_i "
        r"& \cos m\theta_i \end{pmatrix} \begin{pmatrix} a \\ b \end{pmatrix}",
        r"a' + b'\mathrm{i} = (a + b\,\mathrm{i})\, e^{\mathrm{i} m \theta_i}",
    )
    with page.tools():
        page.source("lmcore.rope.rotate", snippet(opened, prompt, layer), key="positions_turning_source")


def points(opened: models.Opened, prompt: runs.Prompt, found: turned.Turned) -> list[str]:
    """What is to be said of this layer, the check of the rotation against the run first."""
    said = []
    if not found.normed_after:
        worst, bound = check(found, EPS[opened.dtype])
        within = "within" if worst <= bound else "beyond"
        said.append(
            f"Turned again here in float64, q and k of layer {found.layer} differ from the run’s by at most "
            f"{sig(worst, 2)}: {within} {opened.dtype} rounding ({sig(bound, 2)})."
        )
    how = ", permuted from interleaved ones when it was loaded" if _permuted(opened) else ""
    half = found.rope.rotary_dim // 2
    said.append(
        f"This model runs with half-split pairs{how}: dims i and i + {half}. In the interleaved layout the same pair "
        "stands in dims 2i and 2i + 1; read these weights that way and the pairs are others than it was trained with."
    )
    still = found.q.shape[-1] - found.rope.rotary_dim
    if still:
        latent = isinstance(opened.config.attention, Latent)
        where = "; the others come last in a head and are counted from 0 here" if latent else ""
        said.append(f"{group(still)} of the {group(found.q.shape[-1])} dims of a head do not turn at all{where}.")
    elif len(prompt.ids) > found.q.shape[1]:
        said.append(f"The first {group(found.q.shape[1])} of {group(len(prompt.ids))} tokens are shown.")
    return said


def check(found: turned.Turned, eps: float) -> tuple[float, float]:
    """The largest difference between q and k turned here, by complex numbers in float64, and the run's; and what
    rounding explains: a few units in the last place of the longest vector."""
    from lmcore.relative import pairs_of

    count, half = found.q.shape[1], found.rope.rotary_dim // 2
    theta, factor = frequencies(found.rope, count)
    phases = factor * np.exp(1j * np.outer(np.arange(count), theta))
    worst = bound = 0.0
    for before, after in ((found.q, found.rot_q), (found.k, found.rot_k)):
        for head, of_run in zip(before, after, strict=True):
            z = pairs_of(head, found.rope) * phases
            again = np.concatenate([z.real, z.imag], axis=-1)
            worst = max(worst, float(np.abs(again - of_run[:, : 2 * half]).max()))
            bound = max(bound, 4 * eps * float(np.abs(z).max()))
    return worst, bound


def _permuted(opened: models.Opened) -> bool:
    return any(word in row.transform for row in opened.report.mapped for word in ("interleaved", "rotary rows"))


def snippet(opened: models.Opened, prompt: runs.Prompt, layer: int) -> str:
    return f"""
import torch
from lmcore.checkpoint import load_pretrained
from lmcore.rope import rope_table, rotate
from lmcore.trace import Capture

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = torch.tensor([{list(prompt.ids[: turned.MAX_TOKENS])}])
trace = model.forward(tokens, capture=Capture.of("q", "rot_q", layers=[{layer}])).trace
at = torch.arange(tokens.shape[1])
rotate(trace.layers[{layer}].q, *rope_table(model.cfg.rope_of({layer}), at, len(at))) - trace.layers[{layer}].rot_q
"""
