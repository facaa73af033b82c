"""The payload of the sheet component: a table of numbers that can be copied, or saved as a CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from figures.format import THOUSANDS
from figures.payload import pack


def sheet_payload(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    label: str,
    file: str,
    mark: str,
    exact_head: Sequence[str] = (),
    exact: Sequence[Sequence[object]] | None = (),
    marked: int | None = None,
) -> bytes:
    """A table as shown, `label` what a screen reader calls it, one row perhaps marked.

    `exact` and `exact_head` are what is copied and saved instead, a cell None where that is what is shown, its digits
    not grouped; if empty, all of it is. With None for `exact` the table cannot be copied yet.
    """
    cells = exact if exact is None else [[None if cell is None else str(cell) for cell in row] for row in exact]
    return pack(
        {
            "head": list(head),
            "rows": [list(row) for row in rows],
            "exact_head": list(exact_head or head),
            "exact": [[None] * len(row) for row in rows] if cells == [] else cells,
            "label": label,
            "file": file,
            "mark": mark,
            "marked": marked,
        }
    )


def copied(meta: dict[str, Any]) -> list[list[str]]:
    """The table as it is copied from the component, its head first: what the browser makes of the payload's header."""
    return [
        meta["exact_head"],
        *(
            [shown[at].replace(THOUSANDS, "") if cell is None else cell for at, cell in enumerate(exact)]
            for shown, exact in zip(meta["rows"], meta["exact"], strict=True)
        ),
    ]
