"""The weights derived a second time: against a plain loop, and with the negative controls that make it a check."""

from __future__ import annotations

import math

import numpy as np
import pytest

from figures import attention_check
from figures.attention_check import check_layer, scores_again, softmax_rows, worst

EPS = 2.0**-23


@pytest.fixture
def layer() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(weights, q, k, allowed) of 4 query heads on 2 KV heads, by a loop over the definition."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((4, 6, 8)).astype(np.float32), rng.standard_normal((2, 6, 8)).astype(np.float32)
    allowed = np.tri(6, dtype=bool)
    weights = np.zeros((4, 6, 6))
    for h in range(4):
        for i in range(6):
            scores = [sum(float(q[h, i, d]) * float(k[h // 2, j, d]) for d in range(8)) for j in range(i + 1)]
            exp = [math.exp(score / 8**0.5) for score in scores]
            weights[h, i, : i + 1] = np.array(exp) / sum(exp)
    return weights.astype(np.float32), q, k, allowed


def test_equal_weights_differ_by_rounding(layer) -> None:
    check = check_layer(3, *layer, eps=EPS, scale=8**-0.5)
    assert check.difference <= check.bound < 1e-4
    assert check.place[0] == 3
    assert (check.masked, check.zeros, check.rows) == (4 * 15, 4 * 15, 24)
    assert check.row_sum == pytest.approx(1, abs=1e-6)


def test_a_changed_weight_is_found_where_it_is(layer) -> None:
    weights, q, k, allowed = layer
    weights[2, 4, 1] += 0.01
    check = check_layer(0, weights, q, k, allowed, eps=EPS, scale=8**-0.5)
    assert check.place == (0, 2, 4, 1)
    assert check.difference == pytest.approx(0.01, abs=1e-5)
    assert check.difference > check.bound
    assert check.row_sum == pytest.approx(1.01, abs=1e-5)


def test_rows_in_blocks_are_the_rows_at_once(layer, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, q, k, allowed = layer
    weights[2, 4, 1] += 0.01
    more = {"eps": EPS, "scale": 8**-0.5, "slopes": np.array([1, 2, 3, 4.0]), "bias": np.ones((4, 6)) * np.arange(6)}
    whole = check_layer(0, weights, q, k, allowed, **more)
    monkeypatch.setattr(attention_check, "BLOCK_BYTES", 8 * 4 * 6 * 4)
    blocks = check_layer(0, weights, q, k, allowed, **more)
    assert (blocks.place, blocks.rows, blocks.masked, blocks.zeros) == (whole.place, 24, 60, 60)
    assert blocks.difference == pytest.approx(whole.difference, abs=1e-12)
    weights[1, 5, 5] = np.nan  # in the second block
    assert check_layer(0, weights, q, k, allowed, **more).place == (0, 1, 5, 5)


def test_a_leak_into_the_future_and_nan_are_found(layer) -> None:
    weights, q, k, allowed = layer
    weights[1, 0, 5] = 1e-12
    assert check_layer(0, weights, q, k, allowed, eps=EPS, scale=8**-0.5).zeros == 4 * 15 - 1
    weights[3, 3, 2] = np.nan
    check = check_layer(0, weights, q, k, allowed, eps=EPS, scale=8**-0.5)
    assert check.place == (0, 3, 3, 2)


@pytest.mark.parametrize("change", [{"scale": 0.3}, {"scale": 8**-0.5, "softcap": 2.0}])
def test_another_formula_disagrees(layer, change) -> None:
    check = check_layer(0, *layer, eps=EPS, **change)
    assert check.difference > 10 * check.bound


def test_a_soft_cap_and_alibi_are_applied_to_the_score(layer) -> None:
    _, q, k, _ = layer
    plain = scores_again(q, k, scale=0.5)
    np.testing.assert_allclose(scores_again(q, k, scale=0.5, softcap=3.0), 3 * np.tanh(plain / 3))
    sloped = scores_again(q, k, scale=0.5, slopes=np.array([1, 2, 3, 4.0]))
    assert sloped[2, 5, 1] == pytest.approx(plain[2, 5, 1] - 3 * 4)


def test_a_query_that_may_read_nothing_gets_zeros() -> None:
    weights = softmax_rows(np.ones((1, 2, 2)), np.array([[False, False], [True, True]]))
    np.testing.assert_array_equal(weights, [[[0, 0], [0.5, 0.5]]])


def test_worst_takes_the_largest_difference_and_adds_the_cells(layer) -> None:
    weights, *rest = layer
    good = check_layer(0, weights, *rest, eps=EPS, scale=8**-0.5)
    bad = check_layer(1, weights * np.float32(0.9), *rest, eps=EPS, scale=8**-0.5)
    both = worst([good, bad])
    assert (both.place[0], both.rows, both.masked) == (1, 48, 120)
    assert both.row_sum == pytest.approx(0.9, abs=1e-5)
