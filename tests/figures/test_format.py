"""Numbers as they are written on the page."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from figures.format import bytes_iec, fixed, group, scientific, sig

S = "\u2006"
M = "\u2212"


@given(st.integers(-(10**18), 10**18))
def test_grouping_keeps_every_digit_and_leaves_groups_of_three(n):
    text = group(n)
    assert int(text.replace(S, "").replace(M, "-")) == n
    assert all(len(part) == 3 for part in text.split(S)[1:])


@given(st.floats(-1e12, 1e12), st.integers(1, 6))
def test_significant_figures_are_within_half_a_unit_of_the_last_one(x, n):
    text = sig(x, n).replace(S, "").replace(M, "-")
    mantissa, _, power = text.partition(" × 10")
    exponent = int(power.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")) or 0)
    if x == 0:
        assert text == "0"
        return
    magnitude = math.floor(math.log10(abs(x)))
    assert abs(float(f"{mantissa}e{exponent}") - x) <= 0.5000001 * 10.0 ** (magnitude - n + 1) + abs(x) * 1e-14


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (group(134515008), f"134{S}515{S}008"),
        (group(-1234), f"{M}1{S}234"),
        (group(0), "0"),
        (sig(0.0123456), "0.0123"),
        (sig(1234.5), f"1{S}230"),
        (sig(999.6), f"1{S}000"),
        (sig(0.99999, 3), "1.00"),
        (sig(2.4e-7, 2), "2.4 × 10⁻⁷"),
        (sig(-0.5, 2), f"{M}0.50"),
        (sig(5.4e9, 3), "5.40 × 10⁹"),
        (sig(0), "0"),
        (fixed(5406.842, 2), f"5{S}406.84"),
        (fixed(-0.0001, 2), "0.00"),
        (fixed(-1.5, 1), f"{M}1.5"),
        (scientific(2.384e-7), "2.4 × 10⁻⁷"),
        (scientific(-1e10, 0), f"{M}1 × 10¹⁰"),
        (bytes_iec(900), "900 B"),
        (bytes_iec(921600), "900 KiB"),
        (bytes_iec(1023), f"1{S}023 B"),
        (bytes_iec(1536), "1.50 KiB"),
        (bytes_iec(5 * 2**30 + 2**29), "5.50 GiB"),
        (bytes_iec(0), "0 B"),
        (sig(math.nan), "NaN"),
        (fixed(-math.inf, 2), f"{M}infinity"),
    ],
)
def test_written(written, expected):
    assert written == expected
