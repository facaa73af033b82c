"""Fields and the changed run beside the plain one: what the payloads hold."""

from __future__ import annotations

import numpy as np

from figures.masks import Field, beside_payload, beside_tile, fields_payload, masked, next_tokens
from figures.payload import unpack
from figures.tokens import Token

TOKENS = [Token(i, bytes([97 + i])) for i in range(3)]


def test_a_masked_cell_is_a_state_and_a_nan_stays_one():
    values = np.array([[0.0, 0.5], [np.nan, 1.0]])
    out = masked(values, np.array([[True, False], [True, True]]))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, [[0, -1], [np.nan, 1]])


def test_the_fields_arrive_whole_and_name_their_heads():
    array = np.arange(2 * 2 * 9, dtype=np.float32).reshape(2, 2, 3, 3)
    meta, [found] = unpack(fields_payload(TOKENS, [Field("Weight")], [array], start=(1, 0), by_head=(2, 2)))
    np.testing.assert_array_equal(found, array)
    assert (meta["by_head"], meta["start"]) == ([2, 2], [1, 0])
    assert meta["fields"][0]["kind"] == "root"


def test_a_tile_says_by_how_much_the_changed_run_differs():
    assert beside_tile("Loss", 2.0, 2.5)["difference"] == "+0.500"
    assert beside_tile("Loss", 2.5, 2.0)["difference"] == "−0.500"
    assert beside_tile("Loss", 2.0, 2.0)["difference"] == "0"
    assert beside_tile("Loss", 2.0, float("nan")) | {"note": ""} == {
        "name": "Loss",
        "unit": "",
        "note": "",
        "plain": "2.000",
        "changed": "NaN",
        "difference": "–",
    }


def test_the_likeliest_of_both_runs_are_listed_and_the_rest_is_summed():
    plain, changed = np.array([0.7, 0.1, 0.1, 0.05, 0.05]), np.array([0.0, 0.05, 0.05, 0.1, 0.8])
    assert next_tokens(plain, changed, most=2) == [0, 1, 4, 3]
    assert next_tokens(plain, np.full(5, np.nan), most=1) == [0]
    blob = beside_payload([], plain, changed, token_of=lambda i: Token(i, b"x"), name="this mask")
    meta, [both] = unpack(blob)
    assert [row["id"] for row in meta["rows"]] == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(both.sum(1), 1)
