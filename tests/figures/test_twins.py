"""Number tiles: every state says the right thing, and no digit is lost between the two twins."""

from __future__ import annotations

import pytest

from figures.payload import unpack
from figures.twins import tile, tiles_payload

THIN = "\u2006"


def test_equal_numbers_show_every_digit_twice_and_a_difference_of_zero():
    shown = tile("Parameters", 134_515_008, 134_515_008, unit="parameters")
    digits = f"134{THIN}515{THIN}008"
    assert (shown["state"], shown["calculated"], shown["measured"]) == ("equal", digits, digits)
    assert (shown["difference"], shown["value"], shown["unit"]) == ("0", "134.5", "million parameters")


def test_a_difference_of_one_among_billions_is_not_rounded_away():
    shown = tile("FLOPs", 5_406_842_880, 5_406_842_879, unit="FLOP", reason="One was left out.")
    assert (shown["state"], shown["difference"], shown["reason"]) == ("unequal", "\u22121", "One was left out.")
    assert (shown["value"], shown["unit"]) == ("5.407", "GFLOP")


def test_a_difference_that_rounding_explains_is_named_and_its_size_kept():
    shown = tile("Row sum", 1, 1 + 2.4e-7, how="measured", rounding=1e-6, reason="float32 rounding")
    assert (shown["state"], shown["difference"], shown["value"]) == ("rounding", "float32 rounding", "1")
    assert shown["measured"] == "1 + 2.4 × 10⁻⁷"


def test_just_above_the_rounding_it_is_unequal():
    assert tile("Row sum", 1, 1 + 1.1e-6, rounding=1e-6)["state"] == "unequal"


@pytest.mark.parametrize("impossible", [False, True])
def test_without_a_measured_number_there_is_a_state_a_reason_and_no_difference(impossible: bool):
    shown = tile("x", 7, missing="no such weights", impossible=impossible, run="Measure")
    assert (shown["state"], shown["measured"], shown["difference"]) == (
        "impossible" if impossible else "missing",
        "no such weights",
        "–",
    )
    assert shown["run"] == ("" if impossible else "Measure"), "what cannot be measured offers no button"


@pytest.mark.parametrize(
    ("value", "unit", "headline"),
    [
        (921_600, "B", ("900", "KiB")),
        (900, "B", ("900", "bytes")),
        (0.0962, "s", ("96.2", "ms")),
        (2.5, "s", ("2.50", "s")),
        (41, "tokens", ("41", "tokens")),
        (405_853_388_800, "parameters", ("405.9", "billion parameters")),
    ],
)
def test_headline_is_in_the_unit_of_its_twin(value: float, unit: str, headline: tuple[str, str]):
    shown = tile("x", value, value, unit=unit)
    assert (shown["value"], shown["unit"]) == headline


def test_a_count_that_is_not_finite_is_unequal_and_leaves_the_calculated_headline():
    shown = tile("x", 3, float("nan"))
    assert (shown["state"], shown["measured"], shown["value"]) == ("unequal", "NaN", "3")


def test_payload_holds_the_tiles_in_order():
    meta, arrays = unpack(tiles_payload([tile("a", 1, 1), tile("b", 2)]))
    assert ([shown["name"] for shown in meta["tiles"]], arrays) == (["a", "b"], [])
