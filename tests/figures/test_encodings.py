"""Tables and biases of other encodings as fields of colour: the numbers of the definitions, pooled without loss."""

from __future__ import annotations

import math

import numpy as np
import pytest

from figures.encodings import (
    alibi_payload,
    alibi_said,
    bias_payload,
    buckets_payload,
    buckets_said,
    cosines,
    learned_said,
    likeness_payload,
    pooled,
    sinusoids_said,
    slopes_payload,
    table_payload,
)
from figures.payload import unpack
from lmcore.positions import alibi_slopes, sinusoidal_table, t5_buckets


def test_a_small_table_is_drawn_cell_by_cell() -> None:
    table = sinusoidal_table(40, 16)
    meta, [cells] = unpack(table_payload(table, file="f", title="PE"))
    np.testing.assert_allclose(cells, table, atol=1e-6)
    assert (meta["kind"], meta["row_step"], meta["column_step"]) == ("signed", 1, 1)
    assert meta["high"] == pytest.approx(1)
    assert meta["note"] == ""


def test_a_large_table_is_pooled_and_says_so() -> None:
    table = np.zeros((1024, 768), np.float32)
    table[1023, 767], table[5, 5] = -9.0, 4.0
    meta, [cells] = unpack(table_payload(table, file="f", title="wpe"))
    assert cells.shape == (256, 256)
    assert cells[-1, -1] == -9
    assert cells[1, 1] == 4
    assert "4 × 3" in meta["note"]


def test_pooling_keeps_the_sign_of_the_furthest() -> None:
    found, rows, columns = pooled(np.array([[1.0, -3.0, 2.0], [0.5, 2.5, -1.0], [0.0, 0.0, 7.0]]), most=2)
    assert (rows, columns) == (2, 2)
    assert found.tolist() == [[-3, 2], [0, 7]]


def test_cosines_are_those_of_the_definition() -> None:
    table = np.random.default_rng(0).normal(size=(5, 8))
    table[2] = 0
    found = cosines(table)
    expected = table[1] @ table[4] / np.linalg.norm(table[1]) / np.linalg.norm(table[4])
    assert found[1, 4] == pytest.approx(expected)
    assert (found[2] == 0).all()
    _, [drawn] = unpack(likeness_payload(table))
    np.testing.assert_allclose(drawn, found, atol=1e-6)


def test_sinusoids_say_what_is_measured_of_them() -> None:
    points = sinusoids_said(sinusoidal_table(64, 16))
    waves = 2 * math.pi * 10_000 ** (np.arange(8) / 8)
    assert f"{int((waves <= 64).sum())} of 8 pairs" in points[0]
    assert "⁻¹" in points[1]
    shuffled = sinusoidal_table(64, 16)[np.random.default_rng(0).permutation(64)]
    assert "⁻¹" not in sinusoids_said(shuffled)[1]


def test_a_learned_table_is_told_by_its_rows() -> None:
    table = np.ones((8, 4))
    table[0] *= 3
    text = " ".join(learned_said(table, cosines(table), "GPT"))
    assert "Of GPT." in text
    assert "1.000 in the mean, rows 4 apart 1.000" in text
    assert "2.00 to 6.00 long; the first is 6.00" in text


@pytest.mark.parametrize("heads", [1, 8, 12, 25])
def test_alibi_is_slope_times_distance(heads: int) -> None:
    slopes = alibi_slopes(heads)
    _, [bias] = unpack(alibi_payload(slopes, 50))
    assert bias.shape == (heads, 50)
    for head in range(heads):
        assert bias[head, 7] == pytest.approx(-7 * slopes[head], rel=1e-6)
    _, [x, y, _] = unpack(slopes_payload(slopes))
    assert x.tolist() == list(range(heads))
    np.testing.assert_array_equal(y, slopes)


def test_alibi_says_where_the_slopes_come_from() -> None:
    assert "8 is a power of two: each slope is 0.500 times" in alibi_said(alibi_slopes(8))[1]
    assert "heads 0 to 7 have the slopes of 8 heads, heads 8 to 11" in alibi_said(alibi_slopes(12))[1]
    # Head 7 of 8 has slope 1/256: half after 256 ln 2 positions.
    assert "every 177 in head 7" in alibi_said(alibi_slopes(8))[0]
    assert "every 1.4 positions in head 0" in alibi_said(alibi_slopes(8))[0]


def test_buckets_are_drawn_and_told() -> None:
    buckets = t5_buckets(-np.arange(256), 32, 128)
    _, [x, y, _] = unpack(buckets_payload(buckets))
    np.testing.assert_array_equal(y[x.astype(int)], buckets)
    last = int((buckets < 31).sum())
    assert buckets_said(buckets) == [
        f"Distances 0 to 15 have a bucket each; from {last} on all share bucket 31: beyond it a model with this bias "
        "cannot tell far from farther."
    ]
    bias = np.arange(2.0)[:, None] + buckets
    meta, [cells] = unpack(bias_payload(bias, buckets, owner="it"))
    np.testing.assert_array_equal(cells, bias)
    assert meta["note"] == f"From distance {last} on all share one bucket."
