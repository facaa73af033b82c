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


# Memory in GB, bandwidth in GB/s, dense TFLOP/s in float32, 16 bit and FP8, copied by hand from what is named in the
# table: a second time, so that a slip of the keys shows.
RIGHT: dict[str, tuple[int, int, float | None, float | None, float | None]] = {
    "A100 40 GB": (40, 1555, 19.5, 312, None),
    "A100 80 GB SXM": (80, 2039, 19.5, 312, None),
    "A100 80 GB PCIe": (80, 1935, 19.5, 312, None),
    "H100 SXM": (80, 3350, 67, 1979 / 2, 3958 / 2),
    "H100 PCIe": (80, 2000, 51, 1513 / 2, 3026 / 2),
    "H100 NVL": (94, 3900, 60, 1671 / 2, 3341 / 2),
    "H200 SXM": (141, 4800, 67, 1979 / 2, 3958 / 2),
    "B200": (180, 7700, 75, 4500 / 2, 9000 / 2),
    "L4": (24, 300, 30.3, 242 / 2, 485 / 2),
    "L40S": (48, 864, 91.6, 362.05, 733),
    "A10": (24, 600, 31.2, 125, None),
    "T4": (16, 320, 8.1, 65, None),
    "V100 SXM2 32 GB": (32, 900, 15.7, 125, None),
    "RTX 3090": (24, 936, 35.6, 71, None),
    "RTX 4090": (24, 1008, 82.6, 330.3 / 2, 660.6 / 2),
    "RTX 5090": (32, 1792, 104.8, 419 / 2, 838 / 2),
    "MI300X": (192, 5300, 163.4, 1307.4, 2614.9),
    "TPU v5e": (16, 819, None, 197, None),
    "TPU v5p": (95, 2765, None, 459, None),
    "Apple M1 Max": (64, 400, 10.4, None, None),
    "Apple M2 Ultra": (192, 800, 27.2, None, None),
    "Apple M4 Max": (128, 546, None, None, None),
}


def test_dense_peaks_and_bandwidths() -> None:
    assert [row.name for row in ACCELERATORS] == list(RIGHT)
    for row in ACCELERATORS:
        gb, gb_per_s, *peaks = RIGHT[row.name]
        assert (row.memory_bytes, row.bytes_per_s) == (gb * 10**9, gb_per_s * 10**9)
        half = row.flops_per_s.get("bfloat16", row.flops_per_s.get("float16"))
        found = (row.flops_per_s.get("float32"), half, row.flops_per_s.get("fp8"))
        for peak, right in zip(found, peaks, strict=True):
            assert peak == (None if right is None else pytest.approx(right * 1e12, rel=1e-3)), row.name


def test_every_row_is_written_in_two_places() -> None:
    """A maker's text and another one: no figure stands on memory alone."""
    for row in ACCELERATORS:
        assert row.source
        assert row.second
        assert row.second != row.source


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
