"""What this machine can do: bytes/s and FLOP/s at most, timed on demand in a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from lmcore.bounds import count
from lmcore.device import available_bytes
from lmcore.roofline import Roof

Progress = Callable[[str], None]
BUDGET_S = 1.2
LARGEST_BYTES = {"cuda": 2**30, "mps": 2**28, "cpu": 2**28}
MIN_BYTES = 2**22


@dataclass(frozen=True, slots=True)
class Machine:
    """The best rates seen: of reading a matrix once, and of a square product, in one dtype on one device."""

    device: str
    dtype: str
    bytes_per_s: float
    flops_per_s: float
    width: int
    threads: int

    @property
    def roof(self) -> Roof:
        return Roof(self.flops_per_s, self.bytes_per_s)


def measure_machine(
    device: str, dtype: torch.dtype, *, progress: Progress = lambda line: None, budget_s: float = BUDGET_S
) -> Machine:
    """Bandwidth and FLOP/s of a device, the best of several runs each; about three times `budget_s` seconds.

    Bandwidth is the larger of two: a matrix that fits no cache read once, times a vector, as a decode step reads the
    weights; and the same bytes copied, read and written both counted. FLOP/s: n x n products, n doubled from 256 to
    1,024 at least, since a busy machine may interrupt a small one, and on while a product takes less than a sixteenth
    of the budget; 2 n^3 FLOPs each. `progress` may raise to stop.
    """
    place = torch.device(device)
    size = min(LARGEST_BYTES[place.type], max(MIN_BYTES, available_bytes(device) // 8))
    with torch.inference_mode():
        progress("reading and copying memory")
        bandwidth = max(_read(place, dtype, size, budget_s), _copied(place, size, budget_s))
        best, width, n = 0.0, 256, 256
        while True:
            progress(f"multiplying matrices of {n} × {n}")
            a = torch.randn(n, n, device=place, dtype=torch.float32).to(dtype)
            b = a.clone()
            seconds = best_time(lambda a=a, b=b: a @ b, place, budget_s / 4)
            if 2 * n**3 / seconds > best:
                best, width = 2 * n**3 / seconds, n
            if n >= 1024 and (seconds > budget_s / 16 or n >= 16_384):
                break
            n *= 2
    return Machine(str(place), str(dtype).removeprefix("torch."), bandwidth, best, width, torch.get_num_threads())


def best_time(work: Callable[[], object], device: torch.device, budget_s: float, least: int = 2) -> float:
    """Seconds of the fastest of the runs that fit into the budget, `least` at any rate, after one that warms up."""
    count("least", least, 1)
    work()
    wait(device)
    fastest, runs, begun = float("inf"), 0, time.perf_counter()
    while runs < least or time.perf_counter() - begun < budget_s:
        started = time.perf_counter()
        work()
        wait(device)
        fastest = min(fastest, time.perf_counter() - started)
        runs += 1
    return fastest


def wait(device: torch.device) -> None:
    """Until the device has done what it was given: a clock that stops earlier times nothing."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _read(device: torch.device, dtype: torch.dtype, size: int, budget_s: float) -> float:
    rows = size // dtype.itemsize // 4096
    matrix = torch.zeros(rows, 4096, dtype=dtype, device=device)
    vector = torch.zeros(4096, dtype=dtype, device=device)
    return matrix.numel() * dtype.itemsize / best_time(lambda: matrix @ vector, device, budget_s / 2)


def _copied(device: torch.device, size: int, budget_s: float) -> float:
    source = torch.zeros(size // 8, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / best_time(lambda: target.copy_(source), device, budget_s / 2)
