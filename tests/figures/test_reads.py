"""What a step reads: the payload's numbers are the row's, and pooling loses no maximum."""

from __future__ import annotations

import numpy as np
import pytest

from figures.payload import unpack
from figures.reads import measures, reads_payload, strongest

RNG = np.random.default_rng(3)


def rows(layers: int = 2, heads: int = 3, positions: int = 11) -> np.ndarray:
    made = RNG.random((layers, heads, positions)).astype(np.float32)
    return made / made.sum(-1, keepdims=True)


def payload(weights: np.ndarray, **given) -> tuple[dict, list[np.ndarray]]:
    pieces = [[["text", str(place)]] for place in range(weights.shape[-1])]
    return unpack(reads_payload(weights, pieces=pieces, step=1, of=4, **given))


def test_a_short_row_goes_out_exactly() -> None:
    weights = rows()
    weights[1, :, :4] = np.nan
    meta, (sent, _) = payload(weights)
    np.testing.assert_array_equal(sent, weights)
    assert (meta["pooled"], meta["gaps"]) == (1, True)
    assert not payload(rows())[0]["gaps"]


@pytest.mark.parametrize("most", [20, 30, 65])
def test_a_long_row_is_pooled_by_its_largest_and_keeps_what_cannot_be_read_apart(most: int) -> None:
    weights = rows()
    weights[0, 1, :7] = np.nan
    meta, (sent, _) = payload(weights, most_values=most)
    factor = meta["pooled"]
    assert factor > 1
    for column in range(sent.shape[-1]):
        run = weights[..., column * factor : (column + 1) * factor]
        none = np.isnan(run).all(-1)
        np.testing.assert_array_equal(np.isnan(sent[..., column]), none)
        np.testing.assert_array_equal(sent[..., column][~none], np.nanmax(run[~none], axis=-1))
    assert sent.size <= max(most, weights.shape[0] * weights.shape[1])


def test_measures_by_hand() -> None:
    weights = np.array([[[0.25, 0.25, 0.25, 0.25], [0, 0, 0, 1], [0.5, 0, 0, 0], [np.nan, np.nan, 0.5, 0.5]]])
    entropy, distance, first = np.moveaxis(measures(weights.astype(np.float32))[0], -1, 0)
    np.testing.assert_allclose(entropy, [np.log(4), 0, 0, np.log(2)], atol=1e-6)
    np.testing.assert_allclose(distance, [1.5, 0, 3, 0.5])
    np.testing.assert_allclose(first, [0.25, 0, 0.5, 0])


def test_the_strongest_leaves_the_first_position_and_the_query_out_where_it_can() -> None:
    weights = np.zeros((2, 2, 5), np.float32)
    weights[0, 0] = [0.9, 0, 0, 0.1, 0]
    weights[1, 1] = [0, 0.2, 0.3, 0, 0.5]
    assert strongest(weights) == (1, 1, 2)
    assert strongest(weights[..., :1]) == (0, 0, 0)
    assert strongest(weights[..., [0, 4]]) == (0, 0, 0)
    weights[..., 1:-1] = np.nan
    assert strongest(weights) == (0, 0, 0)
