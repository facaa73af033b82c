"""Line charts: numeric axes, names that never overlap, plain text, the house's template in both themes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from figures.chart import LABEL_GAP, Axis, Line, Theme, line_chart, template

X = np.array([128.0, 1024.0, 8192.0, 65536.0])


def chart(lines: list[Line], **changes: Any) -> Any:
    given = {"x": Axis("tokens", log=True), "y": Axis("GiB", log=True), "theme": "light"} | changes
    return line_chart(lines, **given)


def named(fig: Any, *names: str) -> list[Any]:
    return [note for note in fig.layout.annotations if note.text in names]


def colour_of(look: Any) -> str:
    return look.layout.font.color


def test_names_at_the_line_ends_keep_their_distance():
    names = [f"model {k}" for k in range(6)]
    fig = chart([Line(name, X, X * (1 + k * 1e-6)) for k, name in enumerate(names)], height=400)
    low, high = fig.layout.yaxis.range
    pixels = (400 - fig.layout.margin.t - fig.layout.margin.b) / (high - low)
    heights = sorted(note.y * pixels + note.yshift for note in named(fig, *names))
    assert all(above - below >= LABEL_GAP - 1e-6 for below, above in pairwise(heights))


@pytest.mark.parametrize("log", [True, False])
def test_current_setting_sits_on_every_line(log: bool):
    axes = {"x": Axis("tokens", log=log), "y": Axis("GiB", log=log)}
    fig = chart([Line("a", X, 3 * X), Line("b", X, 5 * X)], current=4096, **axes)
    rings = [trace for trace in fig.data if trace.mode == "markers"]
    assert [trace.y[0] for trace in rings] == pytest.approx([3 * 4096, 5 * 4096])


def test_ticks_are_numbers_with_text_and_few():
    fig = chart([Line("a", X, X)])
    for axis, most in ((fig.layout.xaxis, 4), (fig.layout.yaxis, 5)):
        assert axis.type == "log"
        assert len(axis.tickvals) == len(axis.ticktext) <= most
        assert all(isinstance(value, float) for value in axis.tickvals)


def test_a_limit_stays_within_the_range_and_is_named_on_its_line():
    fig = chart([Line("a", X, X)], limits=[(1e9, "80 GiB of memory")])
    assert fig.layout.yaxis.range[1] > 9
    (label,) = named(fig, "80 GiB of memory")
    assert label.y == pytest.approx(9)


def test_text_from_outside_is_not_read_as_markup():
    fig = chart([Line("<b>$x$</b>", X, X)])
    assert named(fig, "&lt;b&gt;&#36;x&#36;&lt;/b&gt;")
    assert "<b>" not in str(fig.to_dict()["data"])


def test_measured_points_are_solid_discs_in_the_colour_of_measurement():
    fig = chart([Line("timed", X, X, points=True)])
    assert (fig.data[0].mode, fig.data[0].marker.color) == ("lines+markers", "#B4480A")


def test_from_the_fifth_line_on_dashes():
    fig = chart([Line(str(k), X, X * (k + 1)) for k in range(7)])
    assert [trace.line.dash for trace in fig.data] == ["solid"] * 4 + ["dash"] * 2 + ["dot"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_have_their_template(theme: Theme):
    inks = {name: colour_of(template(name)) for name in ("light", "dark")}
    assert colour_of(chart([Line("a", X, X)], theme=theme).layout.template) == inks[theme]
    assert inks["light"] != inks["dark"]


def test_zero_on_a_logarithmic_axis_is_refused_by_name():
    with pytest.raises(ValueError, match="logarithmic axis 'GiB'"):
        chart([Line("a", X, np.array([0.0, 1, 2, 3]))])


def test_a_single_point_and_a_flat_line_have_a_range():
    fig = chart([Line("a", X[:1], X[:1])], x=Axis("step"), y=Axis("ms"))
    for axis in (fig.layout.xaxis, fig.layout.yaxis):
        assert axis.range[0] < axis.range[1]
