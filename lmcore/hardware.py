"""Accelerators: memory, bandwidth and peak FLOP/s as their makers print them, each with its source.

Conventions: GB, TB and TFLOP are powers of ten, as on data sheets; memory is what is printed, of which a driver leaves
a little less. Peaks are dense: where a sheet prints them with 2:4 sparsity, half of that. FP16 and BF16 products are
those with float32 accumulation, which consumer cards do at half the rate. No peak of a dtype: the machine cannot do it,
or its maker prints none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lmcore.errors import InputError
from lmcore.roofline import Roof

GB, TERA = 10**9, 10**12
DTYPES = ("float32", "bfloat16", "float16", "fp8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    """One machine: bytes of memory, bytes/s, dense FLOP/s by dtype, and where it is written."""

    name: str
    memory_bytes: int
    bytes_per_s: int
    flops_per_s: dict[str, int] = field(hash=False)
    source: str
    note: str = ""

    def roof(self, dtype: str) -> Roof:
        """The roofline for products in this dtype; without an arithmetic limit where no peak is known."""
        peak = self.flops_per_s.get(dtype)
        return Roof(None if peak is None else float(peak), float(self.bytes_per_s))


def _row(name: str, gb: int, gb_per_s: int, source: str, note: str = "", **tera: float) -> Accelerator:
    """A row of the table: memory in GB, bandwidth in GB/s, peaks in TFLOP/s (`half`: bfloat16 and float16 alike)."""
    if "half" in tera:
        tera["bfloat16"] = tera["float16"] = tera.pop("half")
    assert set(tera) <= set(DTYPES)
    peaks = {dtype: round(value * 1000) * (TERA // 1000) for dtype, value in tera.items()}
    return Accelerator(
        name=name, memory_bytes=gb * GB, bytes_per_s=gb_per_s * GB, flops_per_s=peaks, source=source, note=note
    )


_HALF = "Printed with sparsity; half of it here."
_CARD = "With float32 accumulation, half the rate of float16 accumulation."
ACCELERATORS: tuple[Accelerator, ...] = (
    _row("A100 40 GB", 40, 1555, "NVIDIA A100 data sheet", float32=19.5, half=312),
    _row("A100 80 GB SXM", 80, 2039, "NVIDIA A100 data sheet", float32=19.5, half=312),
    _row("A100 80 GB PCIe", 80, 1935, "NVIDIA A100 data sheet", float32=19.5, half=312),
    _row("H100 SXM", 80, 3350, "NVIDIA H100 data sheet", _HALF, float32=67, half=989.5, fp8=1979),
    _row("H100 PCIe", 80, 2000, "NVIDIA H100 data sheet", _HALF, float32=51, half=756.5, fp8=1513),
    _row("H100 NVL", 94, 3900, "NVIDIA H100 data sheet", _HALF, float32=60, half=835.5, fp8=1670.5),
    _row("H200 SXM", 141, 4800, "NVIDIA H200 data sheet", _HALF, float32=67, half=989.5, fp8=1979),
    _row("B200", 180, 8000, "NVIDIA HGX B200 data sheet, an eighth", _HALF, float32=75, half=2250, fp8=4500),
    _row("L4", 24, 300, "NVIDIA L4 data sheet", _HALF, float32=30.3, half=121, fp8=242.5),
    _row("L40S", 48, 864, "NVIDIA L40S data sheet", float32=91.6, half=362, fp8=733),
    _row("A10", 24, 600, "NVIDIA A10 data sheet", float32=31.2, half=125),
    _row("T4", 16, 320, "NVIDIA T4 data sheet", "No bfloat16.", float32=8.1, float16=65),
    _row("V100 SXM2 32 GB", 32, 900, "NVIDIA V100 data sheet", "No bfloat16.", float32=15.7, float16=125),
    _row("RTX 3090", 24, 936, "NVIDIA Ampere GA102 whitepaper", _CARD, float32=35.6, half=71),
    _row("RTX 4090", 24, 1008, "NVIDIA Ada GPU architecture whitepaper", _CARD, float32=82.6, half=165.2, fp8=330.3),
    _row("RTX 5090", 32, 1792, "NVIDIA RTX Blackwell whitepaper", _CARD, float32=104.8, half=209.5, fp8=419),
    _row("MI300X", 192, 5300, "AMD Instinct MI300X data sheet", float32=163.4, half=1307.4, fp8=2614.9),
    _row("TPU v5e", 16, 819, "Google Cloud TPU v5e documentation", bfloat16=197),
    _row("TPU v5p", 95, 2765, "Google Cloud TPU v5p documentation", bfloat16=459),
    _row("Apple M1 Max", 64, 400, "Apple, press release of October 2021", "Shared with the CPU.", float32=10.4),
    _row("Apple M2 Ultra", 192, 800, "Apple, press release of June 2023", "Shared with the CPU.", float32=27.2),
    _row("Apple M4 Max", 128, 546, "Apple, press release of October 2024", "Apple prints no FLOP/s."),
)  # fmt: skip


def accelerator(name: str) -> Accelerator:
    """The machine of that name. Raises InputError for any other."""
    found = next((row for row in ACCELERATORS if row.name == name), None)
    if found is None:
        raise InputError(
            f"there is no accelerator named {name[:60]!r}",
            expected=f"one of the {len(ACCELERATORS)} in the table",
            where="the choice of an accelerator",
            todo="Pick one from the list, or give a memory, a bandwidth and a peak of your own.",
        )
    return found


def custom(*, memory_gb: float, gb_per_s: float, tflops: float | None) -> Accelerator:
    """A machine by its numbers, its peak for whatever dtype. Raises InputError for what is no positive number."""
    for name, value in (("memory_gb", memory_gb), ("gb_per_s", gb_per_s), ("tflops", tflops)):
        if value is not None and (isinstance(value, bool) or not 0 < value < 1e9):
            raise InputError(f"{name} is {value!r}", expected="a positive number below 10^9", where=f"argument {name}")
    return Accelerator(
        name="custom",
        memory_bytes=round(memory_gb * GB),
        bytes_per_s=round(gb_per_s * GB),
        flops_per_s={} if tflops is None else dict.fromkeys(DTYPES, round(tflops * TERA)),
        source="your numbers",
    )
