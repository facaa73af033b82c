"""The logit lens for one step of the run: what each layer would have chosen."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from figures.format import group, sig
from figures.lens import lens_payload, lens_rows, settled
from figures.table import csv_text
from figures.twins import tile, tiles_payload
from ui import components, cursor, decoding, guard, models, page, replays, runs, vocabulary
from ui.markdown import plain

if TYPE_CHECKING:
    from lmcore.decode import Step
    from lmcore.effects import Lens

TOP = 5


@partial(guard.fragment, key="decode_lens")
def section(opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan) -> None:
    """One more forward of the step's newest token, and the head on what every layer made of it."""
    run = decoding.run(opened, prompt.ids)
    page.section(
        "Through the layers: the logit lens",
        "Final norm and unembedding applied to the residual stream after every layer, as if the model ended there. "
        "The last row is the model’s own output.",
    )
    step = cursor.looked_at(run, plan, "decode_lens")
    name = plain(vocabulary.label(opened, step.token))
    st.markdown(f":small[:gray[Step {step.index}: **{name}** for position {group(step.position)}]]")
    with page.awaited("decode_lens", height=420)():
        lens = replays.lens(opened, run, step, top=TOP)
        payload = lens_payload(
            *lens,
            token=step.token,
            parts=lambda token: vocabulary.token(opened, token).parts,
            step=step.index,
            of=len(run.steps),
            url="step",
        )
        components.mount("lens", payload, key="decode_lens", values={"cursor": None})
        st.space("small")
        components.twins(tiles_payload([_tile(opened, run, step, lens)]), key="decode_lens_tile")
    page.notice(points(opened, step, lens))
    page.formula(r"p_\ell = \mathrm{softmax}\!\left(W_U\, \mathrm{norm}(x_\ell)\right), \qquad p_L = p")
    page.prose(
        "$x_\\ell$ is the stream after layer $\\ell$ at the position whose logits choose the token. The head was "
        "trained on $x_L$ alone: early rows say what the stream already has in the head’s directions, not what "
        "the layer “thinks” (nostalgebraist 2020)."
    )
    with page.tools():
        page.source("lmcore.effects.logit_lens", snippet(opened, run, step), key="decode_lens_source")
        header, rows = lens_rows(*lens, name=lambda token: vocabulary.label(opened, token))
        page.csv(csv_text(header, rows), "logit-lens.csv", key="decode_lens_csv")


def _tile(opened: models.Opened, run: decoding.Decoding, step: Step, lens: Lens) -> dict:
    from lmcore.proof import TOLERANCE

    view = run.views[step.index]
    given = float(view.raw[list(view.ids).index(step.token)])
    last = float(lens.probs[-1])
    within = abs(last - given) <= TOLERANCE[opened.dtype]
    return tile(
        "Probability of the token, last row",
        last,
        given,
        how="in the output",
        reason=f"{opened.dtype} rounding" if within else "",
        note="The step’s own output, before the sampler.",
    )


def points(opened: models.Opened, step: Step, lens: Lens) -> list[str]:
    """What to notice, computed from this step."""
    name, layers = plain(vocabulary.label(opened, step.token)), len(lens.ranks)
    start = settled(lens.ranks)
    if start is None:
        rank = int(lens.ranks[-1])
        said = f"**{name}** is not the likeliest token in the end: its rank is {group(rank)}."
    elif start == layers - 1:
        said = f"**{name}** becomes the likeliest token in the very last of {group(layers)} layers."
    else:
        said = f"**{name}** is the likeliest token from layer {start} on, of layers 0 to {layers - 1}."
    worst = int(lens.ranks.argmax())
    last = f"{group(int(lens.ranks[worst]))} of {group(opened.config.vocab_size)}"
    most = f"Its rank is furthest down after layer {worst}: {last}."
    rises = lens.probs[1:] - lens.probs[:-1]
    if not rises.size or rises.max() <= 0:
        return [said, most]
    layer = int(rises.argmax()) + 1
    return [said, most, f"Layer {layer} adds most to its probability: {sig(float(rises[layer - 1]), 3)}."]


def snippet(opened: models.Opened, run: decoding.Decoding, step: Step) -> str:
    ids = list(run.decoder.tokens[: step.position])
    return f"""
import torch
from lmcore.checkpoint import load_pretrained
from lmcore.effects import logit_lens
from lmcore.trace import Capture

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
trace = model(torch.tensor([{ids}]), capture=Capture.of("resid_post"), logits_to_keep=1).trace
stream = torch.stack([trace.layers[at].resid_post[0, -1] for at in sorted(trace.layers)])
logit_lens(model, stream.float().numpy(), {step.token}, top={TOP})
"""
