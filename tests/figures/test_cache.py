"""The cache grid's payload: exact lengths, pooled only above the bound, with every step."""

from __future__ import annotations

import numpy as np
import pytest

from figures.cache import MAX_VALUES, Fill, cache_payload, key_lengths
from figures.payload import unpack
from figures.tokens import token_parts

RNG = np.random.default_rng(0)


def fills(prompt: int, steps: int) -> list[Fill]:
    return [Fill(prompt + step, 100 * (prompt + step), 100 * (prompt + step)) for step in range(steps)]


def test_lengths_are_euclidean_norms_of_the_keys():
    keys = [RNG.normal(size=(2, 5, 8)).astype(np.float32) for _ in range(3)]
    expected = [[[sum(x * x for x in key.tolist()) ** 0.5 for key in head] for head in layer] for layer in keys]
    np.testing.assert_allclose(key_lengths(keys), expected, rtol=1e-6)


def test_a_windowed_layer_holds_the_latest_positions():
    lengths = key_lengths([np.ones((1, 4, 9), np.float32), np.ones((1, 2, 9), np.float32)])
    np.testing.assert_array_equal(lengths[1, 0], [np.nan, np.nan, 3, 3])
    np.testing.assert_array_equal(lengths[0, 0], [3, 3, 3, 3])


def test_lengths_and_bytes_of_all_steps_travel_unchanged():
    lengths = RNG.random((3, 2, 6), np.float32)
    payload = cache_payload(lengths, pieces=[token_parts(b"a")] * 7, prompt_length=4, fills=fills(4, 3), capacity=32)
    meta, (values,) = unpack(payload)
    np.testing.assert_array_equal(values, lengths)
    assert meta["fills"] == [[4, 400, 400], [5, 500, 500], [6, 600, 600]]
    assert (meta["low"], meta["high"]) == (lengths.min(), lengths.max())
    assert (meta["held"], meta["prompt"], meta["pooled"], len(meta["pieces"])) == (6, 4, 1, 6)


@pytest.mark.parametrize(
    ("held", "capacity", "columns"), [(6, 8, 8), (6, None, 16), (16, None, 32), (6, 6, 6), (0, None, 16)]
)
def test_there_is_room_to_fill_but_never_more_than_the_capacity(held: int, capacity: int | None, columns: int):
    lengths = np.ones((1, 1, held), np.float32)
    meta, _ = unpack(cache_payload(lengths, pieces=[], prompt_length=held, fills=[], capacity=capacity))
    assert meta["columns"] == columns


def test_512_positions_of_a_small_model_are_not_pooled():
    lengths = RNG.random((30, 3, 512), np.float32)
    meta, (values,) = unpack(cache_payload(lengths, pieces=[], prompt_length=512, fills=[]))
    assert meta["pooled"] == 1
    np.testing.assert_array_equal(values, lengths)


def test_above_the_bound_each_value_is_the_maximum_of_its_positions():
    lengths = RNG.random((126, 8, 1001), np.float32)
    meta, (values,) = unpack(cache_payload(lengths, pieces=[], prompt_length=1001, fills=[]))
    factor = meta["pooled"]
    assert values.size <= MAX_VALUES + 126 * 8
    assert factor > 1
    for column in (0, 17, values.shape[2] - 1):
        expected = lengths[:, :, column * factor : (column + 1) * factor].max(axis=2)
        np.testing.assert_array_equal(values[:, :, column], expected)


def test_a_length_that_is_not_finite_is_sent_and_kept_out_of_the_scale():
    lengths = np.array([[[1, np.inf, np.nan, 3]]], np.float32)
    meta, (values,) = unpack(cache_payload(lengths, pieces=[], prompt_length=4, fills=[]))
    assert (meta["low"], meta["high"]) == (1, 3)
    np.testing.assert_array_equal(values, lengths)
