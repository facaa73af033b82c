"""The curves of a step's cost: formula and measurement as they are drawn."""

from __future__ import annotations

import numpy as np

from figures.costs_of_step import Compared, flops_chart, step_flops, times_chart
from lmcore.costs import forward_flops
from lmcore.families import config_from_hf
from tests.lmcore.tiny import BASE

CFG, _ = config_from_hf({"model_type": "llama"} | BASE)


def test_a_step_without_a_cache_is_a_forward_of_the_whole_text() -> None:
    assert step_flops(CFG, 1, cached=True) == step_flops(CFG, 1, cached=False)
    assert step_flops(CFG, 40, cached=False) == sum(forward_flops(CFG, tokens=40, logits=1).values())
    assert step_flops(CFG, 40, cached=True) == sum(forward_flops(CFG, tokens=1, cached=39, logits=1).values())
    assert step_flops(CFG, 40, cached=False) > 10 * step_flops(CFG, 40, cached=True)


def test_the_flops_curves_are_the_formula_in_the_unit_of_the_axis() -> None:
    fig = flops_chart(CFG, last=300, now=40, theme="light")
    lines = {trace.name: trace for trace in fig.data if trace.name in ("with cache", "without")}
    unit = {"TFLOP": 1e12, "GFLOP": 1e9, "MFLOP": 1e6, "kFLOP": 1e3}
    scale = next(size for name, size in unit.items() if any(name in a.text for a in fig.layout.annotations))
    for name, cached in (("with cache", True), ("without", False)):
        for x, y in zip(lines[name].x, lines[name].y, strict=True):
            assert np.isclose(y * scale, step_flops(CFG, int(x), cached=cached))
    assert lines["without"].x[-1] == 300


def test_measured_times_stand_at_their_positions() -> None:
    steps = [Compared(at, 0.01 * at, 0.02 * at, 0.0, True) for at in (3, 5, 9)]
    fig = times_chart(steps, theme="dark")
    lines = {trace.name: trace for trace in fig.data if trace.name in ("with cache", "without")}
    np.testing.assert_allclose(lines["with cache"].y, [30, 50, 90])
    np.testing.assert_allclose(lines["without"].y, [60, 100, 180])
    assert list(fig.layout.xaxis.tickvals) == [3, 5, 9]
    times_chart(steps[:1], theme="light")


def test_one_position_can_be_drawn() -> None:
    flops_chart(CFG, last=1, now=1, theme="light")
