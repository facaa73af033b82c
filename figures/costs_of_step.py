"""What one step costs with the cache and without: curves over the position, and the numbers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from figures.chart import Axis, Line, Theme, line_chart
from lmcore.config import ModelConfig
from lmcore.costs import forward_flops

POINTS = 96
WITH, WITHOUT = "with cache", "without"
_SCALES = ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"))


@dataclass(frozen=True)
class Compared:
    """One step: its position, the time of its forward with the cache and of one over the whole text, in seconds, and
    the largest difference between their logits."""

    position: int
    cached_s: float
    full_s: float
    difference: float
    same_choice: bool


def step_flops(cfg: ModelConfig, position: int, *, cached: bool) -> int:
    """FLOPs of the forward that chooses the token of `position`: one token after position - 1 cached ones, or all."""
    tokens, held = (1, position - 1) if cached else (position, 0)
    return sum(forward_flops(cfg, tokens=tokens, cached=held, logits=1).values())


def flops_chart(cfg: ModelConfig, *, last: int, now: int, theme: Theme) -> go.Figure:
    """FLOPs by formula of a step at every position up to `last`, both ways; `now` is the newest step's."""
    x = np.unique(np.linspace(1, last, min(last, POINTS)).round().astype(int))
    both = [np.array([step_flops(cfg, int(at), cached=cached) for at in x], float) for cached in (True, False)]
    scale, unit = next(((size, unit) for size, unit in _SCALES if both[1].max() >= size), (1.0, "FLOP"))
    lines = [Line(name, x, y / scale) for name, y in zip((WITH, WITHOUT), both, strict=True)]
    return line_chart(
        lines,
        x=Axis("position"),
        y=Axis(f"{unit} of a step, calculated, log scale", log=True),
        theme=theme,
        unit=unit,
        current=now,
        height=330,
    )


def times_chart(compared: Sequence[Compared], *, theme: Theme) -> go.Figure:
    """The measured time of the compared steps, both ways, in ms."""
    x = np.array([step.position for step in compared])
    times = ((WITH, [step.cached_s for step in compared]), (WITHOUT, [step.full_s for step in compared]))
    lines = [Line(name, x, np.array(seconds) * 1e3, points=True) for name, seconds in times]
    return line_chart(
        lines,
        x=Axis("position", ticks=_ticks(x)),
        y=Axis("ms, measured, log scale", log=True),
        theme=theme,
        unit="ms",
        height=330,
    )


def _ticks(x: np.ndarray) -> list[float]:
    return sorted({float(x[0]), float(x[len(x) // 2]), float(x[-1])})
