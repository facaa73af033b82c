"""Line charts in the house's look: names at the ends of their lines, limits, the current setting; no legend.

Axes are always numbers with tick text. Category axes would merge equal labels without a word.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from figures.format import group

TEMPLATES = Path(__file__).parent.parent / "assets" / "plotly_template.json"
LABEL_GAP = 17
"""Pixels between two names at the ends of their lines."""

Theme = Literal["light", "dark"]


@dataclass(frozen=True)
class Line:
    """One series. `points` marks measured values: solid discs in the colour of measurement; `color` sets another."""

    name: str
    x: np.ndarray
    y: np.ndarray
    points: bool = False
    color: str | None = None


@dataclass(frozen=True)
class Axis:
    """An axis: its title, whether it is logarithmic, and its tick values (chosen here if None) with their text."""

    title: str
    log: bool = False
    ticks: Sequence[float] | None = None
    tick_text: Sequence[str] | None = None


def line_chart(
    lines: Sequence[Line],
    *,
    x: Axis,
    y: Axis,
    theme: Theme,
    unit: str = "",
    current: float | None = None,
    limits: Sequence[tuple[float, str]] = (),
    height: int = 400,
) -> go.Figure:
    """A chart of lines (each x and y of shape (n,)) named at their ends, 17 px apart.

    `current` is the setting now: a vertical with a hollow ring on each line. `limits` are (value, label): dotted
    horizontals, a memory's size say. Raises ValueError for a value that a logarithmic axis cannot show.
    The figure holds the given arrays and at most two more points a line.
    """
    colours = _colours(theme)
    y_range = _range([value for line in lines for value in (line.y.min(), line.y.max())] + [v for v, _ in limits], y)
    x_range = _range([value for line in lines for value in (line.x.min(), line.x.max())], x, pad=0)
    x_axis, y_axis = _axis(x, x_range, most=4), _axis(y, y_range, most=5)
    left = 24 + 8 * max(4, *(len(text) for text in y_axis["ticktext"]))
    margin = {"l": left, "r": _name_room(lines), "t": 36, "b": 48}
    fig = go.Figure()
    ends = []
    for index, line in enumerate(lines):
        ordered = colours["measured"] if line.points else colours["categorical"][index % len(colours["categorical"])]
        colour = line.color or ordered
        fig.add_scatter(x=line.x, y=line.y, name=_plain(line.name), **_stroke(line, index, colour, unit))
        ends.append((_place(line.y[-1], y), line.name, colour))
        if current is not None and x_range[0] <= _place(current, x) <= x_range[1]:
            fig.add_scatter(x=[current], y=[_at(line, current, x, y)], **_ring(colour, colours["background"]))
    for value, label in limits:
        _limit(fig, value, label, x_range[0], y, colours)
    if current is not None:
        fig.add_vline(x=current, line={"color": colours["ink2"], "width": 1})
    pixels = (height - margin["t"] - margin["b"]) / (y_range[1] - y_range[0])
    for place, name, colour, shift in _spread(ends, pixels):
        fig.add_annotation(
            x=x_range[1],
            y=place,
            text=_plain(name),
            xanchor="left",
            xshift=8,
            yshift=shift,
            font={"color": colour, "size": 13},
        )
    _title(
        fig,
        y.title,
        {"x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom", "xshift": 8 - left, "yshift": 10},
        colours,
    )
    _title(fig, x.title, {"x": 1, "y": 0, "xanchor": "left", "yanchor": "top", "xshift": 8, "yshift": -8}, colours)
    fig.update_layout(
        template=template(theme),
        height=height,
        margin=margin,
        uirevision="glassbox",
        xaxis=x_axis,
        yaxis={**y_axis, "ticklabelstandoff": 8},
    )
    return fig


@lru_cache(maxsize=2)
def template(theme: Theme) -> go.layout.Template:
    """The house's plotly template for a theme; show charts with `theme=None` so that Streamlit adds none of its own."""
    return go.layout.Template(_templates()[theme])


@lru_cache(maxsize=1)
def _templates() -> dict[str, Any]:
    return json.loads(TEMPLATES.read_text(encoding="utf-8"))


def _colours(theme: Theme) -> dict[str, Any]:
    layout = _templates()[theme]["layout"]
    return {
        "categorical": layout["colorway"],
        "ink": layout["font"]["color"],
        "ink2": layout["xaxis"]["tickfont"]["color"],
        "rule": layout["xaxis"]["linecolor"],
        **_templates()["colours"][theme],
    }


def _stroke(line: Line, index: int, colour: str, unit: str) -> dict[str, Any]:
    dash = "solid" if line.points or index < 4 else "dash" if index < 6 else "dot"
    stroke: dict[str, Any] = {"mode": "lines", "line": {"color": colour, "dash": dash}}
    if line.points:
        stroke |= {"mode": "lines+markers", "marker": {"color": colour, "size": 7}, "cliponaxis": False}
    return stroke | {"hovertemplate": f"%{{y:.3~g}} {_plain(unit)}".rstrip()}


def _ring(colour: str, background: str) -> dict[str, Any]:
    marker = {"size": 9, "color": background, "line": {"color": colour, "width": 2}}
    return {"mode": "markers", "marker": marker, "hoverinfo": "skip", "showlegend": False}


def _limit(fig: go.Figure, value: float, label: str, left: float, y: Axis, colours: dict[str, Any]) -> None:
    fig.add_hline(y=value, line={"color": colours["rule"], "width": 1, "dash": "dot"})
    place = {"x": left, "y": _place(value, y), "xanchor": "left", "yanchor": "bottom", "xshift": 8}
    fig.add_annotation(text=_plain(label), font={"color": colours["ink2"], "size": 12}, **place)


def _title(fig: go.Figure, text: str, place: dict[str, Any], colours: dict[str, Any]) -> None:
    font = {"color": colours["ink"], "size": 13}
    fig.add_annotation(text=_plain(text), xref="paper", yref="paper", font=font, showarrow=False, **place)


def _spread(ends: Sequence[tuple[float, str, str]], pixels: float) -> list[tuple[float, str, str, float]]:
    """The names from the top down with the shift in pixels that keeps each at least LABEL_GAP below the one above."""
    placed, last = [], -math.inf
    for place, name, colour in sorted(ends, key=lambda end: -end[0]):
        wanted = -place * pixels
        position = max(wanted, last + LABEL_GAP)
        placed.append((place, name, colour, wanted - position))
        last = position
    return placed


def _place(value: float, axis: Axis) -> float:
    """A value in an axis's own coordinates, as plotly's annotations and ranges want it."""
    if not axis.log:
        return float(value)
    if not value > 0:
        raise ValueError(f"found {value} on the logarithmic axis '{axis.title}', expected a number above 0")
    return math.log10(value)


def _range(values: Sequence[float], axis: Axis, pad: float = 0.06) -> tuple[float, float]:
    places = [_place(float(value), axis) for value in values]
    low, high = min(places), max(places)
    if high == low:
        return low - 0.5, high + 0.5
    if axis.log:
        return (math.floor(low), high + (high - low) * pad) if pad else (low, high)
    return (min(0.0, low) if pad else low), high + (high - low) * pad


def _at(line: Line, current: float, x: Axis, y: Axis) -> float:
    """The height of a line at the current setting, along the segment as it is drawn on these axes."""
    places = [_place(value, x) for value in line.x]
    heights = [_place(value, y) for value in line.y]
    height = float(np.interp(_place(current, x), places, heights))
    return 10**height if y.log else height


def _axis(axis: Axis, span: tuple[float, float], most: int) -> dict[str, Any]:
    layout: dict[str, Any] = {"type": "log" if axis.log else "linear", "range": list(span), "tickangle": 0}
    ticks = list(axis.ticks) if axis.ticks is not None else _ticks(axis, span, most)
    text = list(axis.tick_text) if axis.tick_text is not None else [_number(tick) for tick in ticks]
    if len(ticks) > most:
        stride = math.ceil(len(ticks) / most)
        ticks, text = ticks[::stride], text[::stride]
    return layout | {"tickmode": "array", "tickvals": ticks, "ticktext": text}


def _ticks(axis: Axis, span: tuple[float, float], most: int) -> list[float]:
    low, high = span
    if axis.log:
        decades = [10.0**power for power in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]
        if len(decades) >= 2:
            return decades
        return [10**low, 10**high]
    size = 10 ** math.floor(math.log10((high - low) / most))
    step = next(size * m for m in (1, 2, 5, 10) if (high - low) / (size * m) <= most)
    return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return group(int(value)) if abs(value) >= 1000 else f"{value:.4g}".replace("-", "\u2212")


def _name_room(lines: Sequence[Line]) -> int:
    return max(48, min(170, 24 + 7 * max((len(line.name) for line in lines), default=0)))


def _plain(text: str) -> str:
    """Text that plotly will not read as its markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("$", "&#36;")
