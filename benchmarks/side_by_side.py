"""Timing two ways of doing the same thing, turn by turn, so that whatever else the machine does falls on both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def alternate(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of each, after one unmeasured run of both; the order changes every round."""
    for run in (ours, theirs):
        run()
    mine: list[float] = []
    other: list[float] = []
    for turn in range(rounds):
        pairs = [(mine, ours), (other, theirs)]
        for times, run in pairs if turn % 2 == 0 else reversed(pairs):
            times.append(seconds(run))
    return mine, other


def report(what: str, ours: list[float], theirs: list[float], *, peer: str, reach: float, per: int = 0) -> None:
    """One line: medians, their ratio, the bound to reach. With `per` > 0 the ratio is of rates (tokens a second)."""
    a, b = statistics.median(ours), statistics.median(theirs)
    if per:
        print(f"{what:46} {per / a:8.2f} /s  {peer} {per / b:8.2f} /s  ratio {b / a:5.2f}  reach >= {reach}")
    else:
        print(f"{what:46} {a:8.3f} s   {peer} {b:8.3f} s   ratio {a / b:5.2f}  reach <= {reach}")
