"""A prompt read in chunks: what each chunk costs, and what the size of the chunks changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from figures.chart import Axis, Line, Theme, line_chart
from figures.format import group
from lmcore.config import ModelConfig
from lmcore.costs import forward_flops

CALCULATED, COUNTED, WHOLE = "calculated", "counted", "at once"
HEADER = ("first position", "tokens", "FLOPs calculated", "FLOPs counted", "score bytes of a layer", "ms")
_FLOPS = ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"))
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
HEIGHT = 300


def chunk_flops(cfg: ModelConfig, parts: Sequence[tuple[int, int]]) -> list[int]:
    """FLOPs by formula of each chunk (first position, tokens); one row of logits each."""
    return [sum(forward_flops(cfg, tokens=tokens, cached=first, logits=1).values()) for first, tokens in parts]


def flops_chart(
    parts: Sequence[tuple[int, int]], calculated: Sequence[int], counted: Sequence[int] | None, *, theme: Theme
) -> go.Figure:
    """FLOPs of every chunk, by formula and, where they were counted, as PyTorch counts them."""
    x, (scale, unit) = _firsts(parts), _unit(max(calculated), _FLOPS, "FLOP")
    lines = [Line(CALCULATED, x, np.array(calculated, float) / scale)]
    if counted is not None:
        lines.append(Line(COUNTED, x, np.array(counted, float) / scale, points=True))
    y = Axis(f"{unit} of a chunk, at its first position")
    return line_chart(lines, x=_positions(parts), y=y, theme=theme, unit=unit, height=HEIGHT)


def times_chart(parts: Sequence[tuple[int, int]], times_s: Sequence[float], *, theme: Theme) -> go.Figure:
    """The measured time of every chunk, in ms."""
    line = Line("chunk", _firsts(parts), np.array(times_s) * 1e3, points=True)
    y = Axis("ms of a chunk, measured, at its first position")
    return line_chart([line], x=_positions(parts), y=y, theme=theme, unit="ms", height=HEIGHT)


def score_chart(sizes: Sequence[int], peaks: Sequence[int], *, current: int, theme: Theme) -> go.Figure:
    """Bytes of the largest scores of a layer over the size of the chunks, by formula."""
    scale, unit = _unit(max(peaks), _BYTES, "B")
    line = Line(CALCULATED, np.array(sizes), np.array(peaks, float) / scale)
    y = Axis(f"{unit} of scores at the peak by tokens in a chunk")
    return line_chart([line], x=_sizes(sizes), y=y, theme=theme, unit=unit, current=current, height=HEIGHT)


def total_chart(sizes: Sequence[int], times_s: Sequence[float], whole_s: float, *, theme: Theme) -> go.Figure:
    """The measured time of the whole prefill over the size of the chunks, in ms; `whole_s` is that of one forward."""
    line = Line("chunks", np.array(sizes), np.array(times_s) * 1e3, points=True)
    limits = ((whole_s * 1e3, WHOLE),)
    y = Axis("ms of the prefill by tokens in a chunk, measured")
    return line_chart([line], x=_sizes(sizes), y=y, theme=theme, unit="ms", limits=limits, height=HEIGHT)


def chunk_rows(
    parts: Sequence[tuple[int, int]],
    calculated: Sequence[int],
    counted: Sequence[int] | None,
    scores: Sequence[int],
    times_s: Sequence[float],
) -> list[list[object]]:
    """The table for a CSV file: a row a chunk."""
    found = [None] * len(parts) if counted is None else counted
    rows = zip(parts, calculated, found, scores, times_s, strict=True)
    return [
        [first, tokens, by_formula, by_count, held, t * 1e3] for (first, tokens), by_formula, by_count, held, t in rows
    ]


def _unit(largest: float, scales: Sequence[tuple[float, str]], least: str) -> tuple[float, str]:
    return next(((size, unit) for size, unit in scales if largest >= size), (1.0, least))


def _firsts(parts: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array([first for first, _ in parts])


def _positions(parts: Sequence[tuple[int, int]]) -> Axis:
    ticks = sorted({parts[0][0], parts[len(parts) // 2][0], parts[-1][0]})
    return Axis("position", ticks=ticks, tick_text=[group(tick) for tick in ticks])


def _sizes(sizes: Sequence[int]) -> Axis:
    ticks = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
    return Axis("size", log=True, ticks=ticks, tick_text=[group(tick) for tick in ticks])
