"""Decode: prefill, then one token a step, with the distribution, the sampler and the KV cache."""

from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lmcore.sampling import Sampler
from ui import (
    branches_view,
    breaks_view,
    decode_view,
    decoding,
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

CATCH_UP_S, LEAP = 0.1, 16


def sampler_controls() -> tuple[Sampler, int]:
    """The sampler and the seed, as the sliders and the address have them."""
    link: dict[str, Any] = {"bind": "query-params", "persist_state": "session", "width": 164}
    link["on_change"] = decode_view.repaint
    with st.container(horizontal=True, gap="small"):
        st.slider("Repetition penalty, 1 off", 1.0, 2.0, 1.0, 0.05, key="decode_penalty", **link)
        st.slider("Temperature, 0 greedy", 0.0, 2.0, 0.7, 0.05, key="decode_temperature", **link)
        st.slider("Top-k, 0 off", 0, 200, 40, key="decode_top_k", **link)
        st.slider("Top-p, 1 off", 0.05, 1.0, 0.95, 0.05, key="decode_top_p", **link)
        st.slider("Min-p, 0 off", 0.0, 0.5, 0.0, 0.01, key="decode_min_p", **link)
        st.slider("Typical, 1 off", 0.05, 1.0, 1.0, 0.05, key="decode_typical", **link)
        st.number_input("Seed", 0, 999_999, 0, key="decode_seed", **link)
    return decode_view.chosen_sampler()


def transport(plan: decoding.Plan, run: decoding.Decoding) -> DeltaGenerator:
    """Back, step, play or pause, a leap, restart; and the place beside them that says how far the run is."""

    def go(change: int) -> None:
        plan.stop()
        plan.ahead = change > 1
        plan.to(min(max(1, plan.steps + change), run.room))

    def play() -> None:
        if plan.active:
            plan.stop()
            plan.to(max(1, len(run.steps)))
        else:
            plan.playing, plan.stepped_at = True, 0.0

    def restart() -> None:
        plan.stop()
        plan.to(0)
        plan.to(1)

    full, first = plan.steps >= run.room and not plan.active, plan.steps <= 1 and not plan.forced
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
        st.button("Back", on_click=go, args=(-1,), disabled=plan.steps <= 1 and not plan.active, key="decode_back")
        st.button("Step", on_click=go, args=(1,), disabled=full, key="decode_step")
        st.button("Pause" if plan.active else "Play", on_click=play, disabled=full, key="decode_play")
        st.button(
            f"+ {LEAP}", on_click=go, args=(LEAP,), disabled=full, key="decode_leap", help=f"{LEAP} steps at once"
        )
        st.button("Restart", on_click=restart, disabled=first and not plan.active, key="decode_restart")
        return st.empty()


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


def below(
    opened: models.Opened,
    prompt: runs.Prompt,
    plan: decoding.Plan,
    run: decoding.Decoding,
    sampler: Sampler,
    seed: int,
) -> None:
    """The sections under the run; while the steps of a link are made they would be of steps that nobody asked for."""
    branches_view.section(opened, run, plan, sampler, seed)
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
    with page.tools():
        page.source("lmcore.decode.Decoder.step", snippet(opened, prompt, plan, sampler, seed), key="decode_source")
    reads_view.section(opened, prompt, plan)
    lens_view.section(opened, prompt, plan)
    uncached_view.section(opened, prompt)
    prefill_view.section(opened, prompt)
    prefix_view.section(opened, prompt)
    speculative_view.section(opened, prompt, sampler, seed)
    breaks_view.section(opened, prompt)


shell.ensure()
page.head(
    "Chapter 8",
    "Decode, step by step",
    "One pass reads the prompt and fills the cache. From then on each step computes one position and reads the rest.",
)
sampler, seed = sampler_controls()
opened = models.current(height=decode_view.FIGURE_PX)
prompt = runs.prompt(opened)
if prompt.ids:
    plan, run = decoding.plan(opened, prompt.ids), decoding.run(opened, prompt.ids)
    plan.to(min(plan.steps, run.room))
    told = transport(plan, run)
    slot = st.empty()
    if not run.steps:
        with slot:
            st.skeleton(height=decode_view.FIGURE_PX)
    more = decode_view.advance(opened, run, plan, sampler, seed)
    slot.empty()
    every = (decode_view.PLAY_S if plan.playing else CATCH_UP_S) if more else None
    draw = st.fragment(decode_view.figure, run_every=every, key=decode_view.FIGURE)
    draw(opened, prompt, plan, (sampler, seed), every, told)
    if not (plan.linked and more):
        below(opened, prompt, plan, run, sampler, seed)
else:
    page.empty_prompt()
