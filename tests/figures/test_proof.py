"""The comparison as rows, tiles and a sentence: what is bad stands first and is never hidden by the scale."""

from __future__ import annotations

import math
from typing import Any

import pytest

from figures.payload import unpack
from figures.proof import badge, layers_payload, proof_rows, proof_tiles
from lmcore.proof import LayerDifference, Proof


def proof(*layers: tuple[float, float | None], **changes: Any) -> Proof:
    given: dict[str, Any] = {
        "tokens": 20,
        "dtype": "float32",
        "logits": 3.1e-6,
        "largest_logit": 30.0,
        "same_choices": 20,
        "embedding": 0.0,
        "layers": tuple(LayerDifference(n, *pair) for n, pair in enumerate(layers)),
        "noise": None,
        "transformers": "5.24.0",
        "torch": "2.13.0",
        "measured_at": 0.0,
        "seconds": 9.0,
    }
    return Proof(**(given | changes))


GOOD = ((1e-7, 2e-7), (3e-7, None), (0.0, 0.0))
BAD = ((1e-7, 2e-7), (3e-2, 1e-6), (4e-2, 1e-3))


def test_rows_in_order_where_all_is_equal():
    meta, _ = unpack(layers_payload(proof(*GOOD)))
    assert [row["name"] for row in meta["rows"]] == ["0", "1", "2"]
    assert meta["rows"][1]["texts"][1] == "not given"
    assert meta["rows"][2]["texts"] == ["equal", "equal"]
    assert not any(row["bad"] for row in meta["rows"])


def test_the_first_bad_layer_stands_first():
    meta, _ = unpack(layers_payload(proof(*BAD)))
    assert [row["name"] for row in meta["rows"]] == ["1", "0", "2"]
    assert [row["bad"] for row in meta["rows"]] == [True, False, True]
    assert [row["first"] for row in meta["rows"]] == [True, False, False]


@pytest.mark.parametrize("worst", [0.0, 1e-30, 1e-4, 0.7, 5e6, float("inf"), float("nan")])
def test_every_disc_has_a_place_on_the_axis(worst: float):
    meta, _ = unpack(layers_payload(proof((1e-6, 1e-6), (worst, worst))))
    assert 0 < meta["low"] < meta["limit"] < meta["high"]
    for row in meta["rows"]:
        for value in row["values"]:
            assert meta["low"] <= value <= meta["high"]
    assert math.log10(meta["high"] / meta["low"]) <= 12


def test_what_is_no_number_is_bad_and_named():
    meta, _ = unpack(layers_payload(proof((float("nan"), None))))
    assert meta["rows"][0]["bad"]
    assert "NaN" in meta["rows"][0]["texts"][0]


def test_sentences():
    assert badge(proof(*GOOD), "12:04") == "Equal to transformers 5.24.0 to 3.1 × 10⁻⁶, measured 12:04."
    assert "in bfloat16" in badge(proof(*GOOD, dtype="bfloat16", logits=0.02), "12:04")
    assert "from layer 1 on" in badge(proof(*BAD), "12:04")
    assert "Differs" in badge(proof(*BAD), "12:04")
    assert "in its logits" in badge(proof(*GOOD, logits=1.0), "12:04")


def test_tiles_count_what_agrees_and_name_the_noise():
    tiles = {tile["name"]: tile for tile in proof_tiles(proof(*BAD, same_choices=18, noise=2e-6))}
    assert tiles["Layers that are equal"]["measured"] == "1"
    assert tiles["Positions with the same likeliest token"]["measured"] == "18"
    assert "float64" in tiles["Largest difference of a logit"]["note"]
    assert tiles["Largest difference of a logit"]["reason"] == ""
    assert proof_tiles(proof(*GOOD))[0]["reason"] == "float32 rounding"


def test_the_table_has_a_row_for_each_layer():
    assert [list(row) for row in proof_rows(proof(*BAD))][1] == [1, 3e-2, 1e-6, True]
