"""The charts of a prefill in chunks and its table: the numbers given, in the unit that the axis names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from figures.prefill import HEADER, chunk_flops, chunk_rows, flops_chart, score_chart, times_chart, total_chart
from lmcore.config import ModelConfig
from lmcore.costs import forward_flops
from lmcore.families import config_from_hf
from tests.lmcore.tiny import BASE


def lines(chart: Any) -> list[Any]:
    return list(chart.data)


PARTS = [(0, 8), (8, 8), (16, 3)]


@pytest.fixture
def cfg() -> ModelConfig:
    return config_from_hf({"model_type": "llama"} | BASE)[0]


def test_chunks_cost_what_the_formula_says_and_less_than_at_once(cfg: ModelConfig) -> None:
    flops = chunk_flops(cfg, PARTS)
    assert flops[1] == sum(forward_flops(cfg, tokens=8, cached=8, logits=1).values())
    rows = 2 * cfg.d_model * cfg.vocab_size
    assert sum(flops) - 2 * rows < chunk_flops(cfg, [(0, 19)])[0]


def test_the_lines_are_the_numbers_in_the_axis_unit() -> None:
    chart = flops_chart(PARTS, [4_000_000, 2_000_000, 1_000_000], [4_000_000, 2_000_000, 1_500_000], theme="light")
    by_formula, counted = (np.asarray(trace.y) for trace in lines(chart)[:2])
    np.testing.assert_allclose(by_formula, [4, 2, 1])
    np.testing.assert_allclose(counted, [4, 2, 1.5])
    np.testing.assert_allclose(np.asarray(lines(chart)[0].x), [0, 8, 16])
    np.testing.assert_allclose(
        np.asarray(lines(times_chart(PARTS, [0.1, 0.2, 0.05], theme="dark"))[0].y), [100, 200, 50]
    )
    peaks = score_chart([1, 2, 4], [1024, 2048, 6144], current=2, theme="light")
    np.testing.assert_allclose(np.asarray(lines(peaks)[0].y), [1, 2, 6])
    totals = total_chart([1, 2, 4], [0.4, 0.2, 0.1], 0.09, theme="light")
    np.testing.assert_allclose(np.asarray(lines(totals)[0].y), [400, 200, 100])


def test_one_chunk_is_a_chart_too() -> None:
    assert len(lines(flops_chart([(0, 5)], [7], None, theme="light"))) == 1
    assert len(lines(score_chart([5], [100], current=5, theme="light"))) >= 1


def test_the_table_has_a_row_a_chunk_and_leaves_out_what_was_not_counted() -> None:
    rows = chunk_rows(PARTS, [3, 2, 1], None, [30, 20, 10], [0.1, 0.2, 0.3])
    assert [len(row) for row in rows] == [len(HEADER)] * 3
    assert rows[1] == [8, 8, 2, None, 20, 200.0]
