"""What the Decode page shows of a run, and how it goes on while it is looked at."""

from __future__ import annotations

import time
from typing import Any, NoReturn

import streamlit as st
from streamlit.errors import StreamlitAPIException

from figures.cache import cache_payload
from figures.decode import Chosen, decode_payload, logits_payload, next_payload, streamed, text_keys
from figures.format import group, sig
from figures.twins import tile, tiles_payload
from lmcore.config import ModelConfig
from lmcore.sampling import Sampler, uniform
from lmcore.specs import GroupedQuery
from ui import components, decoding, models, page, prefix_reuse, runs, vocabulary
from ui.guard import guard
from ui.markdown import plain

FIGURE, HELD = "decode_figure", "decode_held"
FOLLOWING = ("decode_branches", "decode_source", "decode_reads", "decode_lens", "decode_speculative")
"""The parts of the page that follow a step or the sampler, which run without the rest of it."""
CONTROLS = {
    "repetition_penalty": ("decode_penalty", "Repetition penalty, 1 off"),
    "temperature": ("decode_temperature", "Temperature, 0 greedy"),
    "top_k": ("decode_top_k", "Top-k, 0 off"),
    "top_p": ("decode_top_p", "Top-p, 1 off"),
    "min_p": ("decode_min_p", "Min-p, 0 off"),
    "typical_p": ("decode_typical", "Typical, 1 off"),
}
"""Of each setting of the sampler the key of its slider and its label, by which the browser hears it."""
LEAP = 16
FIGURE_PX, TRANSPORT_PX = 620, 56
PLAY_S = 0.6
AT_ONCE_S = 0.4
"""How long a run goes on before the page is drawn again."""
AWAY_S = 20.0
"""A run that plays and is not looked at for so long has been left: it waits. A slow machine may need most of it."""


def advance(opened: models.Opened, run: decoding.Decoding, plan: decoding.Plan, sampler: Sampler, seed: int) -> bool:
    """Bring the run nearer to its plan, which grows while it plays; whether there is more to do."""
    ends = ends_of_text(opened)
    since = time.monotonic() - plan.stepped_at
    if plan.playing and plan.stepped_at and since > AWAY_S:
        plan.stop()
    turn = plan.playing and since > PLAY_S / 2
    if turn:
        plan.steps = min(len(run.steps) + 1, run.room)
    run.follow(plan, sampler, seed, for_s=AT_ONCE_S, ends=ends)
    if turn:
        plan.stepped_at = time.monotonic()
    if plan.playing and (len(run.steps) >= run.room or run.steps[-1].token in ends):
        plan.stop()
    return plan.playing or len(run.steps) < plan.steps


def transport(plan: decoding.Plan, run: decoding.Decoding) -> None:
    """Back, step, play or pause, a leap, restart; beside them how far the run is is told."""

    def go(change: int) -> None:
        plan.stop()
        plan.ahead = change > 1
        plan.to(min(max(1, plan.steps + change), run.room))
        if change > 1:
            st.rerun()
        repaint()

    def play(pause: bool) -> None:
        # What the button says counts: the run may have ended by itself since it was drawn.
        plan.stop()
        if pause:
            plan.to(max(1, min(plan.steps, len(run.steps))))
        else:
            plan.playing, plan.stepped_at = True, 0.0
        st.rerun()

    def restart() -> None:
        plan.stop()
        plan.to(0)
        plan.to(1)
        repaint()

    full, first = plan.steps >= run.room and not plan.active, plan.steps <= 1 and not plan.forced
    st.button("Back", on_click=go, args=(-1,), disabled=plan.steps <= 1 and not plan.active, key="decode_back")
    st.button("Step", on_click=go, args=(1,), disabled=full, key="decode_step")
    st.button("Pause" if plan.active else "Play", on_click=play, args=(plan.active,), disabled=full, key="decode_play")
    st.button(f"+ {LEAP}", on_click=go, args=(LEAP,), disabled=full, key="decode_leap", help=f"{LEAP} steps at once")
    st.button("Restart", on_click=restart, disabled=first and not plan.active, key="decode_restart")


def figure(opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan, every: float | None) -> None:
    """What the page shows of the run. With `every` the browser calls again after so many seconds, until all is done."""
    with guard():
        run = decoding.run(opened, prompt.ids)
        more = advance(opened, run, plan, *chosen_by())
        with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
            transport(plan, run)
            st.markdown(f":small[:gray[{status(opened, run)}]]")
        chosen = draw(opened, prompt, plan, run)
        if chosen is not None and may_choose(opened, run, *chosen):
            plan.stop()
            plan.choose(*chosen)
            st.rerun()
        if not more and (every is not None or plan.active):
            plan.stop()
            st.rerun()
        if more and every is None:
            st.rerun()


def repaint() -> NoReturn:
    """Ends a callback: the figure is drawn again at once, and then what follows it; the rest of the page stays."""
    try:
        st.rerun([FIGURE, HELD, *FOLLOWING])
    except StreamlitAPIException:
        # Not all of them stand yet: the page runs, as after any other control.
        st.rerun()


def held(opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan) -> None:
    """What the browser holds so that it need not wait: the logits of the newest step, and the step after it."""
    with guard():
        run = decoding.run(opened, prompt.ids)
        if plan.active or not run.steps:
            return
        given = [step.token for step in run.steps]
        with st.container(gap=None):
            logits = _newest_logits(opened, run, text_keys(opened.key, prompt.ids, given)[-2])
            if logits is not None:
                components.mount("held", logits, key="decode_logits")
            if (after := run.ahead(plan)) is not None:
                payload = next_payload(
                    [*run.views, after],
                    piece=lambda token: vocabulary.generated(opened, token),
                    parts=lambda token: vocabulary.token(opened, token).parts,
                    keys=text_keys(opened.key, prompt.ids, [*given, after.token]),
                    chosen_by=_choice(run),
                    address=plan.address | {"decode_steps": len(run.steps) + 1},
                )
                components.mount("held", payload, key="decode_next")


def _newest_logits(opened: models.Opened, run: decoding.Decoding, key: str) -> bytes | None:
    step, view = run.steps[-1], run.views[-1]
    before = [vocabulary.generated(opened, earlier.token) for earlier in run.steps[:-1]]
    listed = {int(token): streamed([*before, vocabulary.generated(opened, int(token))])[-1] for token in view.ids}
    point = uniform(run.decoder.seed, step.position)
    history = run.decoder.tokens[: step.position]
    return logits_payload(step.logits, key=key, point=point, history=history, texts=listed)


def _choice(run: decoding.Decoding) -> Chosen:
    """What the steps of this run were chosen by."""
    sampler = run.decoder.sampler
    settings = {name: float(getattr(sampler, name)) for name in CONTROLS} | {"seed": float(run.decoder.seed)}
    return Chosen(settings, {name: label for name, (_, label) in CONTROLS.items()})


def chosen_by() -> tuple[Sampler, int]:
    """The sampler and the seed as the page's controls stand."""
    state: Any = st.session_state
    return Sampler(**{name: state[key] for name, (key, _) in CONTROLS.items()}), int(state["decode_seed"])


def may_choose(opened: models.Opened, run: decoding.Decoding, index: int, token: int) -> bool:
    if index >= len(run.steps) or token >= opened.config.vocab_size:
        return False
    return not (run.steps[index].forced and run.steps[index].token == token)


def draw(
    opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan, run: decoding.Decoding
) -> tuple[int, int] | None:
    given = [token.parts for token in vocabulary.tokens(opened, prompt.ids)]
    with page.at_least(FIGURE_PX):
        chosen = components.decode(
            decode_payload(
                given,
                run.views,
                piece=lambda token: vocabulary.generated(opened, token),
                parts=lambda token: vocabulary.token(opened, token).parts,
                keys=text_keys(opened.key, prompt.ids, [step.token for step in run.steps]),
                chosen_by=_choice(run),
                url="step",
                address=plan.address,
                keep=plan.linked,
            ),
            key="decode",
        )
    page.section(
        "The cache as it fills",
        "Layer by position; the colour is the length of the stored key vector. "
        "Prefill writes the prompt’s columns together, then each step writes one.",
    )
    cfg, last = opened.config, run.steps[-1]
    components.cache(
        cache_payload(
            run.lengths(),
            pieces=[*given, *(vocabulary.token(opened, step.token).parts for step in run.steps)],
            prompt_length=len(prompt.ids),
            fills=run.fills(),
            capacity=run.capacity,
            allocated_bytes=last.allocated_bytes,
            windows=[cfg.window_of(layer) for layer in range(cfg.n_layers)],
            url="step",
            keep=plan.linked,
        ),
        key="cache",
    )
    st.space("small")
    components.twins(
        tiles_payload(
            [
                tile(
                    f"Cache, {group(last.cache_length)} position{'' if last.cache_length == 1 else 's'}",
                    run.formula_bytes(last.cache_length),
                    last.used_bytes,
                    unit="B",
                    how="in the cache",
                ),
                tile(
                    f"Allocated, {group(run.capacity)} positions",
                    run.formula_bytes(run.capacity),
                    last.allocated_bytes,
                    unit="B",
                    how="in the cache",
                ),
            ]
        ),
        key="decode_tiles",
    )
    page.section("What to notice")
    page.notice(points(opened, run))
    return chosen


def ends_of_text(opened: models.Opened) -> frozenset[int]:
    """The tokens with which this model says that it is done."""
    return opened.tokenizer.stop_ids if opened.tokenizer is not None else frozenset()


def status(opened: models.Opened, run: decoding.Decoding) -> str:
    """One line of Markdown under the buttons: how far the run is, and what stops it."""
    made = f"{group(len(run.steps))} of at most {group(run.room)} steps."
    if len(run.steps) >= run.room:
        limit = "the trained limit" if run.room < decoding.MAX_STEPS else "all that this page allocates"
        return f"{made} The cache is full: {group(run.capacity)} positions, {limit}. Take steps back or start again."
    if run.steps[-1].token in ends_of_text(opened):
        name = plain(vocabulary.label(opened, run.steps[-1].token))
        return f"{made} The model ended the text here, with {name}. Step or Play goes on past it."
    return made


def points(opened: models.Opened, run: decoding.Decoding) -> list[str]:
    """What to notice, computed from this run."""
    first, last, view = run.steps[0], run.steps[-1], run.views[-1]
    each = first.time_s / first.forward_tokens
    found = [
        f"Prefill read {group(first.forward_tokens)} token{'s' if first.forward_tokens > 1 else ''} in "
        f"{sig(first.time_s * 1e3, 3)} ms, {sig(each * 1e3, 2)} ms a token.{prefix_reuse.said(run.decoder)}"
    ]
    decoded = sorted(step.time_s for step in run.steps[1:] if step.forward_tokens == 1)
    if decoded:
        median = decoded[len(decoded) // 2]
        found[0] += (
            f" The median decode step took {sig(median * 1e3, 3)} ms for one, {sig(median / each, 2)} times as "
            "long: it reads every weight of the model for a single position."
        )
    name = plain(vocabulary.label(opened, last.token))
    how = "chosen by hand" if last.forced else "drawn"
    found.append(
        f"The newest token, **{name}**, {how}, had rank {group(view.rank + 1)} and probability "
        f"{sig(float(view.raw[list(view.ids).index(last.token)]), 3)} in the model; the sampler left "
        f"{group(view.kept)} of {group(view.vocab_size)} tokens to draw from."
    )
    grown = run.formula_bytes(last.cache_length) - run.formula_bytes(last.cache_length - 1)
    found.append(f"A step adds {group(grown)} B to the cache{cache_terms(opened.config, run.itemsize)}.")
    return found


def cache_terms(cfg: ModelConfig, itemsize: int) -> str:
    """Where the bytes of a position come from, for models whose layers are all alike."""
    if cfg.window is not None or not isinstance(cfg.attention, GroupedQuery):
        return ""
    a = cfg.attention
    return f": {cfg.n_layers} layers × keys and values × {a.n_kv_heads} KV heads × {a.head_dim} numbers × {itemsize} B"
