"""Accelerators: memory, bandwidth and peak FLOP/s as their makers print them, each with its source and a second text.

Conventions: GB, TB and TFLOP are powers of ten, as on data sheets; memory is what is printed, of which a driver leaves
a little less. Peaks are dense: where a sheet prints them with 2:4 sparsity, half of that. FP16 and BF16 products are
those with float32 accumulation, which consumer cards do at half the rate. No peak of a dtype: the machine cannot do it,
or its maker prints none. `source` is the maker's text; `second` another one, read beside it, that prints the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lmcore.errors import InputError
from lmcore.roofline import Roof

GB, TERA = 10**9, 10**12
DTYPES = ("float32", "bfloat16", "float16", "fp8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    """One machine: bytes of memory, bytes/s, dense FLOP/s by dtype, where it is written, and where once more."""

    name: str
    memory_bytes: int
    bytes_per_s: int
    flops_per_s: dict[str, int] = field(hash=False)
    source: str
    second: str = ""
    note: str = ""

    def roof(self, dtype: str) -> Roof:
        """The roofline for products in this dtype; without an arithmetic limit where no peak is known."""
        peak = self.flops_per_s.get(dtype)
        return Roof(None if peak is None else float(peak), float(self.bytes_per_s))


def _row(name: str, gb: int, gb_per_s: int, source: str, second: str, note: str = "", **tera: float) -> Accelerator:
    """A row of the table: memory in GB, bandwidth in GB/s, peaks in TFLOP/s (`half`: bfloat16 and float16 alike)."""
    if "half" in tera:
        tera["bfloat16"] = tera["float16"] = tera.pop("half")
    assert set(tera) <= set(DTYPES)
    peaks = {dtype: round(value * 1000) * (TERA // 1000) for dtype, value in tera.items()}
    return Accelerator(
        name=name,
        memory_bytes=gb * GB,
        bytes_per_s=gb_per_s * GB,
        flops_per_s=peaks,
        source=source,
        second=second,
        note=note,
    )


_A100, _H100 = "NVIDIA A100 data sheet", "NVIDIA H100 data sheet"
_HALF = "Printed with sparsity; half of it here."
_BLACKWELL = "NVIDIA Blackwell data sheet, HGX B200"
_TWICE = f"{_HALF} Other pages of NVIDIA print 8 TB/s."
_CARD = "With float32 accumulation, half the rate of float16 accumulation."
_ADA = "NVIDIA Ada GPU architecture whitepaper"
_4090 = f"{_CARD} The whitepaper's FP8 row is right from version 2.02 on."
_A10 = "Not AWS's A10G, which has 35 TFLOP/s in float32 and 70 in 16 bit."
_M1, _M2, _M4 = (f"Apple, press release of {when}" for when in ("October 2021", "June 2023", "October 2024"))
_SHARED = "Shared with the CPU."
_TORCH = "PyTorch, torch/_inductor/analysis/device_info.py"
_LIGHTNING = "Lightning Fabric, utilities/throughput.py; bandwidth: sysrqmts.com"
_RENTED = "Waterline, table of rented GPUs, September 2026"
_GIB = "Later versions of the page print 800 GiB/s."
_V5E = "Lightning Fabric, utilities/throughput.py; bandwidth: the page's own translations"
ACCELERATORS: tuple[Accelerator, ...] = (
    _row("A100 40 GB", 40, 1555, _A100, "Paderborn PC2, A100 40GB with NVLINK", float32=19.5, half=312),
    _row("A100 80 GB SXM", 80, 2039, _A100, _TORCH, float32=19.5, half=312),
    _row("A100 80 GB PCIe", 80, 1935, _A100, _RENTED, float32=19.5, half=312),
    _row("H100 SXM", 80, 3350, _H100, _TORCH, _HALF, float32=67, half=989.5, fp8=1979),
    _row("H100 PCIe", 80, 2000, _H100, "HPCTech, NVIDIA H100", _HALF, float32=51, half=756.5, fp8=1513),
    _row("H100 NVL", 94, 3900, _H100, _RENTED, _HALF, float32=60, half=835.5, fp8=1670.5),
    _row("H200 SXM", 141, 4800, "NVIDIA H200 data sheet", _RENTED, _HALF, float32=67, half=989.5, fp8=1979),
    _row("B200", 180, 7700, _BLACKWELL, "HPC-AI, B200", _TWICE, float32=75, half=2250, fp8=4500),
    _row("L4", 24, 300, "NVIDIA L4 data sheet", _RENTED, _HALF, float32=30.3, half=121, fp8=242.5),
    _row("L40S", 48, 864, "NVIDIA L40S data sheet", "Mullet, NVIDIA L40S", float32=91.6, half=362.05, fp8=733),
    _row("A10", 24, 600, "NVIDIA A10 data sheet", "Baseten, A10 vs A10G", _A10, float32=31.2, half=125),
    _row("T4", 16, 320, "NVIDIA T4 data sheet", _LIGHTNING, "No bfloat16.", float32=8.1, float16=65),
    _row("V100 SXM2 32 GB", 32, 900, "NVIDIA V100 data sheet", _RENTED, "No bfloat16.", float32=15.7, float16=125),
    _row("RTX 3090", 24, 936, "NVIDIA Ampere GA102 whitepaper", _RENTED, _CARD, float32=35.6, half=71),
    _row("RTX 4090", 24, 1008, _ADA, "hmc-tech.com", _4090, float32=82.6, half=165.2, fp8=330.3),
    _row("RTX 5090", 32, 1792, "NVIDIA RTX Blackwell whitepaper", _RENTED, _CARD, float32=104.8, half=209.5, fp8=419),
    _row("MI300X", 192, 5300, "AMD Instinct MI300X data sheet", _TORCH, float32=163.4, half=1307.4, fp8=2614.9),
    _row("TPU v5e", 16, 819, "Google Cloud TPU v5e documentation", _V5E, _GIB, bfloat16=197),
    _row("TPU v5p", 95, 2765, "Google Cloud TPU v5p documentation", "Wikipedia, Tensor Processing Unit", bfloat16=459),
    _row("Apple M1 Max", 64, 400, _M1, "Notebookcheck, M1 Max 32-Core GPU", _SHARED, float32=10.4),
    _row("Apple M2 Ultra", 192, 800, _M2, "Apple, page of the Mac Pro", _SHARED, float32=27.2),
    _row("Apple M4 Max", 128, 546, _M4, "Notebookcheck, M4 Max", "Apple prints no FLOP/s."),
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
