"""The sliders' settings as specs: what each method makes of them, and what of a bad link is let pass."""

from __future__ import annotations

import math

import numpy as np
import pytest

from figures.payload import unpack
from figures.scalings import METHODS, changed_fields, pairs_payload, parameters, scaled, scalings_payload, settings_of
from lmcore.frequencies import frequencies
from lmcore.specs import Rope

OWN = Rope(rotary_dim=32, base=10_000.0)
PLAIN = [10_000 ** (-2 * i / 32) for i in range(16)]


def settings(**given: float) -> dict[str, float]:
    return settings_of({"factor": 8, "original": 512, "length": 4096, **given}, OWN, 2048)


def divisors(method: str, **given: float) -> np.ndarray:
    now = settings(**given)
    return PLAIN / frequencies(scaled(method, now, OWN), round(now["length"]))[0]


def test_each_method_divides_as_its_paper_says() -> None:
    np.testing.assert_allclose(divisors("none"), 1)
    np.testing.assert_allclose(divisors("linear"), 8)
    np.testing.assert_allclose(divisors("ntk"), [8 ** (i / 15) for i in range(16)])
    stretch = 8 * 4096 / 512 - 7
    np.testing.assert_allclose(divisors("dynamic"), [stretch ** (i / 15) for i in range(16)])
    np.testing.assert_allclose(divisors("dynamic", length=512), 1)
    np.testing.assert_allclose(divisors("longrope", long_last=5, long_power=1), [1 + 4 * i / 15 for i in range(16)])
    np.testing.assert_allclose(divisors("longrope", length=512, short_last=3, long_power=2)[-1], 3)
    turns = [512 * theta / (2 * math.pi) for theta in PLAIN]
    for method, fast, slow in (("yarn", 32, 1), ("llama3", 4, 1)):
        found = divisors(method)
        assert all(found[i] == pytest.approx(8) for i in range(16) if turns[i] < slow / 3)
        assert all(found[i] == pytest.approx(1) for i in range(16) if turns[i] > fast * 3)
        assert (np.diff(found) >= -1e-12).all()


def test_mscale_makes_the_attention_factor() -> None:
    now = settings(mscale=0.7, mscale_all_dim=0.3)
    expected = (0.07 * math.log(8) + 1) / (0.03 * math.log(8) + 1)
    assert scaled("yarn", now, OWN).attention_factor == pytest.approx(expected)
    assert scaled("yarn", settings(), OWN).attention_factor == pytest.approx(0.1 * math.log(8) + 1)


def test_every_method_has_frequencies_at_the_ends_of_every_slider() -> None:
    for parameter in parameters(OWN, 2048):
        for value in (parameter.low, parameter.high):
            now = settings_of({parameter.key: value}, OWN, 2048)
            for method in METHODS:
                theta, factor = frequencies(scaled(method, now, OWN), round(now["length"]))
                assert np.isfinite(theta).all()
                assert (theta > 0).all()
                assert factor > 0


@pytest.mark.parametrize("junk", ["", "x", "nan", "inf", "-1", "1e99", None, [], {"a": 1}])
def test_settings_that_are_no_number_within_bounds_are_the_default(junk: object) -> None:
    assert settings_of({"factor": junk}, OWN, 2048) == settings_of({}, OWN, 2048)
    assert settings_of({}, OWN, 2048)["original"] == 2048


def test_what_changed_is_named_field_by_field() -> None:
    rows = changed_fields(OWN, scaled("yarn", settings(), OWN))
    assert {name for name, _, _ in rows} == {"type", "factor", "original_max_positions", "attention_factor"}
    assert ("factor", "1", "8") in rows
    assert changed_fields(OWN, OWN) == []
    rows = changed_fields(OWN, scaled("longrope", settings(), OWN))
    assert ("long_factor", "none", "16 factors, 1 to 4") in rows


def test_payloads_hold_the_spec_and_the_sliders() -> None:
    meta, _ = unpack(pairs_payload(OWN, 2048))
    assert (meta["view"], meta["trained"], meta["rope"]["base"]) == ("pairs", 2048, 10_000)
    meta, _ = unpack(scalings_payload(OWN, 2048, applied="yarn", runs=True))
    assert [key for key, _ in meta["methods"]] == list(METHODS)
    assert set(meta["urls"]) >= {p["key"] for p in meta["parameters"]}
