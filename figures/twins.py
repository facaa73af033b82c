"""Number tiles: a calculated number, the same number counted or timed on the running model, and their difference.

Numbers stay whole (or floats, for a clock) until here; every digit is written in the twin, a few in the headline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from figures.format import MINUS, bytes_iec, fixed, group, sig
from figures.payload import pack
from figures.table import csv_text

Tile = dict[str, Any]

_SCALES = ((10**12, "trillion", "T"), (10**9, "billion", "G"), (10**6, "million", "M"))


def tile(
    name: str,
    calculated: int | float,
    measured: int | float | None = None,
    *,
    unit: str = "",
    how: str = "counted",
    rounding: float = 0,
    reason: str = "",
    note: str = "",
    missing: str = "not run",
    impossible: bool = False,
    run: str = "",
) -> Tile:
    """One tile. The headline is the measured number if there is one, else the calculated one, in their unit.

    `unit`: "B" is written in KiB, MiB, ... above and in bytes below, "FLOP" in GFLOP and FLOP, "s" in ms or s; any
    other is a plain word after the number ("parameters" from a million on as "134.5 million parameters").
    `how`: how the twin was found ("counted", "in the cache", "timed").
    `rounding`: the largest difference that rounding explains; `reason` then names it ("float32 rounding"). A larger
    difference is shown as a number, with `reason` below it.
    Without a measured number the twin says `missing`; `run` is the label of a button that would measure it, and
    `impossible` says that nothing could ("no such weights").
    """
    shown: Tile = {"name": name, "calculated": _exact(calculated, unit), "how": how, "note": note}
    within = measured is not None and abs(measured - calculated) <= rounding
    headline = calculated if measured is None or within or not math.isfinite(measured) else measured
    shown["value"], shown["unit"] = _headline(headline, unit)
    if measured is None:
        state = "impossible" if impossible else "missing"
        return shown | {"state": state, "measured": missing, "difference": "–", "run": "" if impossible else run}
    shown["measured"] = _exact(measured, unit)
    difference = measured - calculated
    if difference == 0:
        return shown | {"state": "equal", "difference": "0"}
    if within:
        shown["measured"] = f"{_exact(calculated, unit)} {MINUS if difference < 0 else '+'} {_size(difference, unit)}"
        return shown | {"state": "rounding", "difference": reason or "rounding"}
    signed = f"{MINUS if difference < 0 else '+'}{_size(difference, unit)}"
    return shown | {"state": "unequal", "difference": signed, "reason": reason}


def tiles_csv(tiles: Sequence[Tile]) -> str:
    """The numbers of the tiles as a table, as they are written in them."""
    header = ["number", "calculated", "how measured", "measured", "difference"]
    return csv_text(header, ([t["name"], t["calculated"], t["how"], t["measured"], t["difference"]] for t in tiles))


def tiles_payload(tiles: Sequence[Tile]) -> bytes:
    """The payload of the twins component: at most some 500 bytes a tile."""
    return pack({"tiles": list(tiles)})


def _headline(value: int | float, unit: str) -> tuple[str, str]:
    """The large number to three or four significant figures, and what stands after it."""
    if unit == "B":
        number, _, prefix = bytes_iec(int(value)).rpartition(" ")
        return number, "bytes" if prefix == "B" else prefix
    if unit == "s":
        return (sig(value * 1e3, 3), "ms") if abs(value) < 1 else (sig(value, 3), "s")
    for scale, word, prefix in _SCALES:
        if abs(value) >= scale:
            number = sig(value / scale, 4)
            return (number, f"{prefix}FLOP") if unit == "FLOP" else (number, f"{word} {unit}".strip())
    return (group(value) if isinstance(value, int) else sig(value, 4)), unit


def _exact(value: int | float, unit: str) -> str:
    """Every digit of a whole number; a measured float to six significant figures, a time to 0.1 ms."""
    if unit == "s":
        return f"{fixed(value * 1e3, 1)} ms" if abs(value) < 1 else f"{fixed(value, 3)} s"
    text = group(value) if isinstance(value, int) else sig(value, 6)
    return f"{text} B" if unit == "B" else text


def _size(difference: int | float, unit: str) -> str:
    """The size of a difference, every digit of a whole one; its sign is the caller's."""
    if unit == "s" or isinstance(difference, int):
        return _exact(abs(difference), unit)
    return sig(abs(difference), 2)
