"""What a head does, on heads built to do it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import figures.head_metrics as module
from figures.head_metrics import METRICS, head_metrics

FIRST, PREVIOUS, INDUCTION, ENTROPY, DISTANCE, SAME, UNIFORM = range(7)
CAUSAL_5 = np.tri(5, dtype=bool)


def softmax_rows(rng: np.random.Generator, heads: int, allowed: np.ndarray) -> np.ndarray:
    scores = np.where(allowed, rng.normal(size=(heads, *allowed.shape)) * 3, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def by_hand(weights: np.ndarray, allowed: np.ndarray, ids: list[int]) -> list[float]:
    """The definitions, cell by cell, for one head."""
    count = len(ids)
    first = [float(weights[i, 0]) for i in range(1, count)]
    previous = [float(weights[i, i - 1]) for i in range(1, count)]
    distance = [sum(float(weights[i, j]) * abs(i - j) for j in range(count) if allowed[i, j]) for i in range(1, count)]
    induction, entropy, same, uniform = [], [], [], []
    for i in range(count):
        targets = [j for j in range(1, i) if allowed[i, j] and ids[j - 1] == ids[i]]
        if targets:
            induction.append(sum(float(weights[i, j]) for j in targets))
        repeats = [j for j in range(i) if allowed[i, j] and ids[j] == ids[i]]
        if repeats:
            same.append(sum(float(weights[i, j]) for j in repeats))
        keys = [j for j in range(count) if allowed[i, j]]
        if len(keys) >= 2:
            p = np.array([weights[i, j] for j in keys], float)
            entropy.append(-sum(x * np.log(x) for x in p if x > 0) / np.log(len(keys)))
            uniform.append(1 - sum(abs(x - 1 / len(keys)) for x in p) / 2)
    lists = (first, previous, induction, entropy, distance, same, uniform)
    return [float(np.mean(x)) if x else np.nan for x in lists]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_equal_to_the_definitions_cell_by_cell(ids, seed, window):
    count = len(ids)
    query, key = np.mgrid[:count, :count]
    allowed = (key <= query) & (key > query - window)
    weights = softmax_rows(np.random.default_rng(seed), 2, allowed)
    measured = head_metrics(weights, allowed, ids)
    for head in range(2):
        np.testing.assert_allclose(measured[head], by_hand(weights[head], allowed, ids), atol=3e-6)


def test_heads_in_chunks_are_the_heads_at_once(monkeypatch):
    weights, ids = softmax_rows(np.random.default_rng(3), 5, CAUSAL_5), [1, 2, 1, 2, 1]
    whole = head_metrics(weights, CAUSAL_5, ids)
    monkeypatch.setattr(module, "CHUNK_BYTES", 2 * 4 * 10)
    monkeypatch.setattr(module, "ROWS", 2)
    np.testing.assert_allclose(head_metrics(weights, CAUSAL_5, ids), whole, rtol=1e-6)


def test_a_sink_head_a_previous_token_head_and_a_uniform_head():
    sink = np.zeros((5, 5), np.float32)
    sink[:, 0] = 1
    previous = np.zeros((5, 5), np.float32)
    previous[0, 0] = 1
    previous[np.arange(1, 5), np.arange(4)] = 1
    uniform = np.tri(5, dtype=np.float32) / np.arange(1, 6, dtype=np.float32)[:, None]
    measured = head_metrics(np.stack([sink, previous, uniform]), CAUSAL_5, range(5))
    assert measured[0, [FIRST, ENTROPY]].tolist() == [1, 0]
    assert measured[1, [PREVIOUS, ENTROPY]].tolist() == [1, 0]
    assert measured[2, ENTROPY] == pytest.approx(1)
    assert measured[2, UNIFORM] == pytest.approx(1)
    assert measured[0, UNIFORM] == pytest.approx(np.mean([1 / 2, 1 / 3, 1 / 4, 1 / 5]))
    assert measured[:, DISTANCE] == pytest.approx([2.5, 1, 1.25])
    assert np.isnan(measured[:, [INDUCTION, SAME]]).all()


def test_a_head_that_reads_its_own_token_again():
    head = np.eye(6, dtype=np.float32)[None] * 0.75
    head[0, [3, 4, 5], [0, 1, 2]] = 0.25
    assert head_metrics(head, np.tri(6, dtype=bool), [7, 8, 9, 7, 8, 9])[0, SAME] == 0.25  # not the diagonal's 0.75


def test_an_induction_head_on_a_repeated_sequence():
    ids = [7, 8, 9, 7, 8, 9]
    head = np.zeros((1, 6, 6), np.float32)
    head[0, :, 0] = 1
    for query in (3, 4, 5):
        head[0, query] = np.eye(6)[query - 2]
    allowed = np.tri(6, dtype=bool)
    assert head_metrics(head, allowed, ids)[0, INDUCTION] == 1
    assert head_metrics(head[:, :, ::-1], allowed, ids)[0, INDUCTION] < 1


def test_one_token_is_undefined_and_warns_of_nothing(recwarn):
    measured = head_metrics(np.ones((2, 1, 1), np.float32), np.ones((1, 1), bool), [3])
    assert np.isnan(measured).all()
    assert not recwarn


def test_weights_that_are_not_finite_give_no_number():
    weights = np.tri(5, dtype=np.float32)[None].repeat(2, 0)
    weights[1, 3, 2] = np.nan
    measured = head_metrics(weights, CAUSAL_5, range(5))
    assert np.isfinite(measured[0, FIRST])
    assert np.isnan(measured[1]).all()


def test_what_a_masked_cell_holds_does_not_count():
    weights = np.tri(5, dtype=np.float32)[None] / np.arange(1, 6, dtype=np.float32)[:, None]
    polluted = np.where(CAUSAL_5, weights, np.float32(np.nan))
    np.testing.assert_array_equal(
        head_metrics(polluted, CAUSAL_5, [1, 2, 1, 2, 1]), head_metrics(weights, CAUSAL_5, [1, 2, 1, 2, 1])
    )


def test_every_metric_has_a_definition():
    assert [metric.key for metric in METRICS] == [
        *("first", "previous", "induction", "entropy"),
        *("distance", "same", "uniform"),
    ]
    assert all(metric.definition and metric.undefined for metric in METRICS)
