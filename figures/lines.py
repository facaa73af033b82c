"""The payload of the lines component: curves that are calculated, points that are measured, limits, the setting now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from figures.payload import pack

READ = "Point at a place to read it, or walk with left and right."


@dataclass(frozen=True)
class Series:
    """One line over x: with `discs`, measured points joined by a thin line (or, where neighbours have nothing to do
    with each other, not `joined`); `dash` for a second kind of line.

    The name stands at its end, `said` (the name, if empty) before what is read of it.
    """

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    discs: bool = False
    dash: bool = False
    said: str = ""
    joined: bool = True


@dataclass(frozen=True)
class Scale:
    """An axis: its title, whether it is logarithmic, ticks of its own as (value, text).

    Of x: `word` stands before a place that is read, `whole` if places are whole numbers, `pad` leaves room at the ends.
    Of y: the `unit` after what is read, `zero` if the axis begins at 0.
    """

    title: str
    log: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    word: str = ""
    whole: bool = True
    pad: bool = False
    unit: str = ""
    zero: bool = False


def lines_payload(
    series: Sequence[Series],
    *,
    x: Scale,
    y: Scale,
    label: str,
    file: str,
    note: str = READ,
    current: float | None = None,
    limits: Sequence[tuple[float, str]] = (),
    height: int = 360,
) -> bytes:
    """16 bytes a point. `label` is what a screen reader says, `file` the name under which it is saved, `note` what
    stands below while nothing is read; `limits` are (value of y, label)."""
    meta: dict[str, Any] = {
        "lines": [
            {"name": s.name, "discs": s.discs, "dash": s.dash, "said": s.said or s.name, "joined": s.joined}
            for s in series
        ],
        "x": {**vars(x), "ticks": [list(tick) for tick in x.ticks]},
        "y": {**vars(y), "ticks": [list(tick) for tick in y.ticks]},
        "label": label,
        "file": file,
        "note": note,
        "current": current,
        "limits": [list(limit) for limit in limits],
        "height": height,
    }
    return pack(meta, *(np.asarray(values, np.float64) for s in series for values in (s.x, s.y)))
