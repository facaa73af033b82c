"""The steps of the run against forwards of the whole text: same logits, other costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from figures.format import group, sig
from figures.twins import Tile, tile, tiles_payload
from ui import components, decoding, guard, models, page, replays, runs

if TYPE_CHECKING:
    from figures.costs_of_step import Compared
    from lmcore.decode import Step

NAME = "Largest difference of a logit"
FLOPS_WITH, FLOPS_WITHOUT = "FLOPs of the newest step", "Without the cache"


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """Tiles at once; the full forwards when they are asked for, then the curves."""
    run = decoding.run(opened, prompt.ids)
    page.section(
        "With and without the cache",
        "Without a cache every step runs the whole text again, and its last row is the one that counts. "
        "The logits are the same; the work is not.",
    )
    steps = replays.compared(run)
    if not steps:
        st.markdown("Make a step: the prefill itself runs without a cache, so there is nothing to compare yet.")
        return
    if components.sent("decode_uncached", "run") == NAME:
        told = st.empty()
        for done in replays.run_all(opened, run, steps):
            told.markdown(f":small[:gray[{done} of {len(steps)} forwards of the whole text]]")
        for cached in (True, False):
            replays.counted(opened, run, steps[-1], cached=cached)
        told.empty()
    components.twins(tiles_payload(tiles(opened, run, steps)), key="decode_uncached")
    found = [known for step in steps if (known := measured(opened, run, step)) is not None]
    if found:
        curves(opened, run, steps[-1], found)
        page.notice(points(found))
    page.formula(
        r"F_\text{with}(S) \approx 2 N + 4 L S H D_h, \qquad F_\text{without}(S) \approx S \cdot F_\text{with}(S)"
    )
    page.prose(
        "$N$ weights in matrices, $S$ positions, $H$ heads of $D_h$ dims in $L$ layers; the curves and tiles use the "
        "exact count, in which only the last row goes through the unembedding."
    )
    with page.tools():
        page.source("lmcore.cache.KVCache.append", snippet(opened, run, steps[-1]), key="decode_uncached_source")


def measured(opened: models.Opened, run: decoding.Decoding, step: Step) -> Compared | None:
    from figures.costs_of_step import Compared

    full = replays.known(opened, run, step)
    if full is None:
        return None
    difference = float(np.abs(full.logits - step.logits).max())
    same = int(full.logits.argmax()) == int(step.logits.argmax())
    return Compared(step.position, step.time_s, full.time_s, difference, same)


def tiles(opened: models.Opened, run: decoding.Decoding, steps: list[Step]) -> list[Tile]:
    from figures.costs_of_step import step_flops
    from lmcore.proof import TOLERANCE

    cfg, last = opened.config, steps[-1]
    found = [known for step in steps if (known := measured(opened, run, step)) is not None]
    done, many = len(found) == len(steps), len(steps) > 1
    worst = max((step.difference for step in found), default=0.0)
    bound = TOLERANCE[opened.dtype] * max(1.0, float(np.abs(last.logits).max()))
    logits = tile(
        NAME,
        0.0,
        worst if done else None,
        how="measured",
        reason=f"{opened.dtype} rounding" if worst <= bound else "",
        note=f"Cached = uncached, at {group(len(steps))} step{'s' if many else ''} of the run, all of the vocabulary."
        if done
        else "",
        run=f"Run {group(len(steps))} forward{'s' if many else ''} of the whole text",
    )
    counted = [replays.peek_counted(opened, run, last, cached=cached) for cached in (True, False)]
    where = f"For position {group(last.position)}."
    too_long = last.position > replays.COUNTED
    missing = f"text over {group(replays.COUNTED)} tokens" if too_long else "not run"
    return [
        logits,
        tile(
            FLOPS_WITH,
            step_flops(cfg, last.position, cached=True),
            counted[0],
            unit="FLOP",
            note=where,
            missing=missing,
        ),
        tile(
            FLOPS_WITHOUT,
            step_flops(cfg, last.position, cached=False),
            counted[1],
            unit="FLOP",
            note=where,
            missing=missing,
        ),
    ]


def curves(opened: models.Opened, run: decoding.Decoding, last: Step, found: list[Compared]) -> None:
    from figures.costs_of_step import flops_chart, times_chart

    theme = st.context.theme.type or "light"
    left, right = st.columns(2, gap="medium")
    figures = (
        (left, "flops", flops_chart(opened.config, last=run.capacity, now=last.position, theme=theme)),
        (right, "times", times_chart(found, theme=theme)),
    )
    for column, name, figure in figures:
        column.plotly_chart(figure, theme=None, config={"displayModeBar": False}, key=f"decode_{name}_chart")


def points(found: list[Compared]) -> list[str]:
    """What to notice, computed from the compared steps."""
    last, same = found[-1], sum(step.same_choice for step in found)
    cached, full = (float(np.median(times)) for times in zip(*((s.cached_s, s.full_s) for s in found), strict=True))
    return [
        f"In the median of {group(len(found))} step{'s' if len(found) > 1 else ''} a forward took "
        f"{sig(cached * 1e3, 3)} ms with the cache and {sig(full * 1e3, 3)} ms without. At position "
        f"{group(last.position)} the text has {group(last.position)} times as many tokens as the step: few of them "
        "cost little more time, since one pass reads each weight once for all.",
        f"The likeliest token is the same in {group(same)} of {group(len(found))} compared steps.",
    ]


def snippet(opened: models.Opened, run: decoding.Decoding, step: Step) -> str:
    ids = list(run.decoder.tokens[: step.position])
    return f"""
import torch
from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = torch.tensor([{ids}])
cache = KVCache.empty(model.cfg, {len(ids)}, dtype=model.dtype)
model(tokens[:, :-1], cache=cache)
cached = model(tokens[:, -1:], cache=cache).logits[0, -1]
(cached - model(tokens).logits[0, -1]).abs().max()
"""
