"""Decode: prefill, then one token a step, with the distribution, the sampler and the KV cache."""

from typing import Any

import streamlit as st

from lmcore.sampling import Sampler
from ui import (
    branches_view,
    breaks_view,
    decode_view,
    decoding,
    guard,
    lens_view,
    models,
    page,
    prefill_view,
    prefix_view,
    reads_view,
    runs,
    shell,
    speculative_view,
    uncached_view,
)

CATCH_UP_S = 0.1


def sampler_controls() -> None:
    """The sampler and the seed, as the sliders and the address have them."""
    link: dict[str, Any] = {"bind": "query-params", "persist_state": "session", "width": 164}
    link["on_change"] = decode_view.repaint
    ranges = {
        "repetition_penalty": (1.0, 2.0, 1.0, 0.05),
        "temperature": (0.0, 2.0, 0.7, 0.05),
        "top_k": (0, 200, 40, 1),
        "top_p": (0.05, 1.0, 0.95, 0.05),
        "min_p": (0.0, 0.5, 0.0, 0.01),
        "typical_p": (0.05, 1.0, 1.0, 0.05),
    }
    with st.container(horizontal=True, gap="small"):
        for name, (key, label) in decode_view.CONTROLS.items():
            st.slider(label, *ranges[name], key=key, **link)
        st.number_input("Seed", 0, 999_999, 0, key="decode_seed", **link)


def snippet(opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan, sampler: Sampler, seed: int) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in vars(sampler).items())
    return f"""
from lmcore.checkpoint import load_pretrained
from lmcore.decode import Decoder
from lmcore.sampling import Sampler

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
decoder = Decoder(model, {list(prompt.ids)}, Sampler({given}), seed={seed})
forced = {plan.forced!r}  # token chosen by hand, by step
steps = [decoder.step(forced.get(index)) for index in range({plan.steps})]
decoder.tokens, decoder.cache.used_bytes
"""


def source(opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan) -> None:
    with page.tools():
        run = decoding.run(opened, prompt.ids)
        made = snippet(opened, prompt, plan, run.decoder.sampler, run.decoder.seed)
        page.source("lmcore.decode.Decoder.step", made, key="decode_source")


def below(opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan) -> None:
    """The sections under the run; while the steps of a link are made they would be of steps that nobody asked for."""
    branches_view.section(opened, prompt, plan)
    page.section("Formula")
    page.formula(
        r"p = \mathrm{softmax}(z / \tau), \qquad z = W_U\, \mathrm{norm}(x_L)",
        r"\text{bytes}(S) = 2\, L\, K\, D_h\, b\, S",
    )
    page.prose(
        "The repetition penalty $r$ lowers the logits of tokens already in the text ($z / r$ where positive, $r z$ "
        "where negative); $\\tau$ is the temperature; top-k, top-p, min-p and typical then drop tokens in that order, "
        "each from what the one before left, renormalised. The draw depends on seed and position alone: a step taken "
        "back and made again gives the same token, and another sampler or seed chooses again from the logits at hand, "
        "without a forward, up to the first token that comes out differently. $S$ positions are cached in $L$ layers "
        "of $K$ KV heads, $b$ bytes a number."
    )
    guard.fragment(source, key="decode_source")(opened, prompt, plan)
    reads_view.section(opened, prompt, plan)
    lens_view.section(opened, prompt, plan)
    uncached_view.section(opened, prompt)
    prefill_view.section(opened, prompt)
    prefix_view.section(opened, prompt)
    speculative_view.section(opened, prompt)
    breaks_view.section(opened, prompt)


shell.ensure()
page.head(
    "Chapter 8",
    "Decode, step by step",
    "One pass reads the prompt and fills the cache. From then on each step computes one position and reads the rest.",
)
sampler_controls()
opened = models.current(height=decode_view.FIGURE_PX)
prompt = runs.prompt(opened)
if prompt.ids:
    plan, run = decoding.plan(opened, prompt.ids), decoding.run(opened, prompt.ids)
    plan.to(min(plan.steps, run.room))
    slot = st.empty()
    if not run.steps:
        with slot:
            st.skeleton(height=decode_view.TRANSPORT_PX + decode_view.FIGURE_PX)
    more = decode_view.advance(opened, run, plan, *decode_view.chosen_by())
    slot.empty()
    every = (decode_view.PLAY_S if plan.playing else CATCH_UP_S) if more else None
    st.fragment(decode_view.figure, run_every=every, key=decode_view.FIGURE)(opened, prompt, plan, every)
    st.fragment(decode_view.held, key=decode_view.HELD)(opened, prompt, plan)
    if not (plan.linked and more):
        below(opened, prompt, plan)
else:
    page.empty_prompt()
