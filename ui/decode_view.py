"""What the Decode page shows of a run, and how it goes on while it is looked at."""

from __future__ import annotations

import time

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.errors import StreamlitAPIException

from figures.cache import cache_payload
from figures.decode import decode_payload
from figures.format import group, sig
from figures.twins import tile, tiles_payload
from lmcore.config import ModelConfig
from lmcore.sampling import Sampler
from lmcore.specs import GroupedQuery
from ui import components, decoding, models, page, prefix_reuse, runs, vocabulary
from ui.guard import guard
from ui.markdown import plain

FIGURE = "decode_figure"
FIGURE_PX = 620
PLAY_S = 0.6
AT_ONCE_S = 0.4
"""How long a run goes on before the page is drawn again."""
AWAY_S = 5.0
"""A run that plays and is not looked at for so long has been left: it waits."""


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


def figure(
    opened: models.Opened,
    prompt: runs.Prompt,
    plan: decoding.Plan,
    drawn_with: tuple[Sampler, int],
    every: float | None,
    told: DeltaGenerator,
) -> None:
    """What the page shows of the run. With `every` the browser calls again after so many seconds, until all is done.

    Under another sampler or seed than the page was `drawn_with` the figure comes first, and then the page.
    """
    with guard():
        run, chosen_by = decoding.run(opened, prompt.ids), chosen_sampler()
        more = advance(opened, run, plan, *chosen_by)
        told.markdown(f":small[:gray[{status(opened, run)}]]")
        chosen = draw(opened, prompt, plan, run)
        if chosen is not None and may_choose(opened, run, *chosen):
            plan.stop()
            plan.choose(*chosen)
            st.rerun()
        if not more and (every is not None or plan.active):
            plan.stop()
            st.rerun()
        if chosen_by != drawn_with:
            st.rerun()


def repaint() -> None:
    """Callback of the sampler's controls: the figure is drawn again at once, before the sections under it."""
    try:
        st.rerun(FIGURE)
    except StreamlitAPIException:
        # The figure does not stand yet: the page runs, as after any other control.
        return


def chosen_sampler() -> tuple[Sampler, int]:
    """The sampler and the seed as the page's controls stand."""
    state = st.session_state
    sampler = Sampler(
        temperature=state["decode_temperature"],
        top_k=state["decode_top_k"],
        top_p=state["decode_top_p"],
        min_p=state["decode_min_p"],
        typical_p=state["decode_typical"],
        repetition_penalty=state["decode_penalty"],
    )
    return sampler, int(state["decode_seed"])


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
