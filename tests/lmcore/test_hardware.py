"""The accelerator table against its data sheets, and the roofline."""

from __future__ import annotations

import pytest

from lmcore.errors import InputError
from lmcore.hardware import ACCELERATORS, DTYPES, accelerator, custom
from lmcore.roofline import Point, Roof


def test_the_table_is_complete() -> None:
    assert len(ACCELERATORS) >= 15
    assert len({row.name for row in ACCELERATORS}) == len(ACCELERATORS)
    for row in ACCELERATORS:
        assert row.source
        assert 16 * 10**9 <= row.memory_bytes <= 200 * 10**9
        assert 300 * 10**9 <= row.bytes_per_s <= 8000 * 10**9
        assert set(row.flops_per_s) <= set(DTYPES)
        assert all(type(peak) is int for peak in row.flops_per_s.values())


@pytest.mark.parametrize(
    ("name", "dtype", "peak", "bytes_per_s"),
    [
        ("A100 40 GB", "bfloat16", 312 * 10**12, 1555 * 10**9),
        ("A100 80 GB SXM", "float32", 19_500 * 10**9, 2039 * 10**9),
        ("H100 SXM", "bfloat16", 989_500 * 10**9, 3350 * 10**9),
        ("RTX 4090", "float16", 165_200 * 10**9, 1008 * 10**9),
        ("MI300X", "fp8", 2_614_900 * 10**9, 5300 * 10**9),
        ("TPU v5e", "bfloat16", 197 * 10**12, 819 * 10**9),
    ],
)
def test_dense_peaks_and_bandwidths(name: str, dtype: str, peak: int, bytes_per_s: int) -> None:
    row = accelerator(name)
    assert (row.flops_per_s[dtype], row.bytes_per_s) == (peak, bytes_per_s)


def test_fp8_is_twice_and_what_is_not_printed_is_not_known() -> None:
    """A peak with sparsity among the dense ones would break the ratio that every tensor core has."""
    for row in ACCELERATORS:
        if "fp8" in row.flops_per_s:
            assert row.flops_per_s["fp8"] / row.flops_per_s["bfloat16"] == pytest.approx(2, rel=0.02)
    roof = accelerator("Apple M4 Max").roof("bfloat16")
    assert roof.flops_per_s is None
    assert Point(flops=10**9, bytes=546 * 10**9).seconds(roof) == 1.0
    assert Point(flops=1, bytes=1).bound(roof) == "not known"
    assert accelerator("T4").roof("bfloat16").flops_per_s is None


def test_unknown_machines_and_senseless_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="no accelerator named"):
        accelerator("H1000")
    for bad in ({"memory_gb": -1.0}, {"gb_per_s": 0.0}, {"tflops": float("nan")}, {"tflops": float("inf")}):
        with pytest.raises(InputError, match=f"argument {next(iter(bad))}"):
            custom(**{"memory_gb": 24.0, "gb_per_s": 900.0, "tflops": 100.0} | bad)
    assert custom(memory_gb=24, gb_per_s=900, tflops=None).roof("float32").flops_per_s is None


def test_time_is_the_larger_of_two_bounds() -> None:
    roof = Roof(flops_per_s=100.0, bytes_per_s=10.0)
    assert roof.ridge == 10
    assert [roof.attainable(x) for x in (1, 10, 100)] == [10, 100, 100]
    memory, arithmetic = Point(flops=50, bytes=50), Point(flops=1000, bytes=20)
    assert (memory.seconds(roof), memory.bound(roof)) == (5.0, "memory")
    assert (arithmetic.seconds(roof), arithmetic.bound(roof)) == (10.0, "arithmetic")
    assert Point(flops=500, bytes=50).bound(roof) == "arithmetic"


@pytest.mark.parametrize("rates", [(0.0, 1.0), (1.0, -1.0), (float("inf"), 1.0)])
def test_a_roof_is_positive(rates: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="_per_s is"):
        Roof(*rates)
