"""The payload of the table of broken runs: one row for each thing broken, on the axes of the run that is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from figures.format import fixed
from figures.payload import pack


@dataclass(frozen=True, slots=True)
class Broken:
    """One row: what is changed, the line of source that does it, and what one run measured.

    `loss` and `entropy` are None where it was not run or the model lacks the thing; NaN is a result. `found` says what
    failed, in words and numbers, or why it cannot be run.
    """

    name: str
    formula: str
    line: str
    loss: float | None = None
    entropy: float | None = None
    found: tuple[str, ...] = ()


def breaks_payload(right: Broken, rows: Sequence[Broken]) -> bytes:
    """The payload of the breaks component: the right run first, whose numbers are a line through all rows."""
    axes = []
    for name, values in (
        ("mean loss, nats", [row.loss for row in (right, *rows)]),
        ("entropy of a row, nats", [row.entropy for row in (right, *rows)]),
    ):
        finite = [value for value in values if value is not None and math.isfinite(value)]
        axes.append({"name": name, "top": _round_up(max(finite, default=1.0))})
    shown = [_row(row) for row in (right, *rows)]
    return pack({"axes": axes, "rows": shown})


def _row(row: Broken) -> dict[str, object]:
    """The row with numbers that JSON can write: a NaN is null with the text that says so."""
    out: dict[str, object] = asdict(row)
    for name in ("loss", "entropy"):
        value = getattr(row, name)
        out[name] = value if value is not None and math.isfinite(value) else None
        out[f"{name}_text"] = "not run" if value is None else fixed(value, 3)
    return out


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten, or a half step below it, so that an axis ends near its data."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)
