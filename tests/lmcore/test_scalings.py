"""Rotary specs made from another: what each scaling does to the pairs, and which pairs leave their trained range."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lmcore.errors import ConfigError
from lmcore.frequencies import frequencies
from lmcore.scalings import SCALINGS, at_length, divided, long_divisors, scaled, slow_pairs, turns
from lmcore.specs import Rope

ROPE, TRAINED = Rope(rotary_dim=32), 128
PLAIN = frequencies(ROPE, 1)[0]


def theta(kind: str, *, factor: float = 8, length: int = 1024) -> np.ndarray:
    return frequencies(scaled(ROPE, kind, factor=factor, trained=TRAINED), length)[0]


def test_unscaled_linear_and_ntk() -> None:
    np.testing.assert_array_equal(theta("none"), PLAIN)
    np.testing.assert_allclose(theta("linear"), PLAIN / 8)
    assert theta("ntk")[0] == PLAIN[0]
    assert theta("ntk")[-1] == pytest.approx(PLAIN[-1] / 8)
    assert (np.diff(PLAIN / theta("ntk")) > 0).all()


def test_dynamic_is_unscaled_up_to_the_trained_length_and_ntk_of_the_length_beyond() -> None:
    np.testing.assert_array_equal(theta("dynamic", length=TRAINED), PLAIN)
    np.testing.assert_allclose(theta("dynamic", factor=2, length=1024), theta("ntk", factor=8))
    assert not np.allclose(theta("dynamic", length=512), theta("dynamic", length=1024))


@pytest.mark.parametrize("kind", ["yarn", "llama3", "longrope"])
def test_the_slowest_pair_is_divided_by_the_factor_and_the_fastest_kept(kind: str) -> None:
    ratio = PLAIN / theta(kind)
    assert ratio[0] == pytest.approx(1)
    assert ratio[-1] == pytest.approx(8)
    assert (np.diff(ratio) >= -1e-12).all()


def test_longrope_keeps_short_texts_as_they_were() -> None:
    np.testing.assert_array_equal(theta("longrope", length=TRAINED), PLAIN)


def test_slow_pairs_of_llama2() -> None:
    """Base 10,000, 128 dims, 4,096 positions: 18 of 64 pairs never complete a turn, from pair 46 on."""
    slow = slow_pairs(Rope(rotary_dim=128), 4096)
    assert np.flatnonzero(slow).tolist() == list(range(46, 64))
    wavelengths = 2 * math.pi * 10_000 ** (np.arange(64) / 64)
    np.testing.assert_array_equal(slow, wavelengths > 4096)


def test_long_divisors() -> None:
    made, slow = long_divisors(ROPE, factor=8, trained=TRAINED), slow_pairs(ROPE, TRAINED)
    assert made[0] == 1
    np.testing.assert_allclose(made[slow], 8)
    assert ((made[~slow] < 8) & (made[~slow] >= 1)).all()
    logs = np.log(made[~slow])
    np.testing.assert_allclose(np.diff(logs, 2), 0, atol=1e-12)


def test_divisors_where_no_pair_completes_a_turn() -> None:
    np.testing.assert_array_equal(long_divisors(ROPE, factor=4, trained=4), np.full(16, 4.0))


def test_only_the_chosen_pairs_are_slowed() -> None:
    slow = slow_pairs(ROPE, TRAINED)
    assert 0 < slow.sum() < len(slow)
    found, factor = frequencies(divided(ROPE, slow, 8), 1024)
    assert factor == 1
    np.testing.assert_allclose(found, np.where(slow, PLAIN / 8, PLAIN))
    reach = turns(divided(ROPE, slow, 8), 8 * TRAINED)
    assert (reach[slow] < 1).all()


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("length", [64, 1024])
def test_at_length_holds_the_frequencies_of_a_length(kind: str, length: int) -> None:
    rope = scaled(ROPE, kind, factor=8, trained=TRAINED)
    wanted, wanted_factor = frequencies(rope, length)
    for other in (1, 200, 4096):
        found, factor = frequencies(at_length(rope, length), other)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
        assert factor == pytest.approx(wanted_factor)


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ConfigError, match="longrope"):
        scaled(ROPE, "stretch", factor=2, trained=TRAINED)
