"""The payload of the grid component: a table of words and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from figures.payload import pack


def grid_payload(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    label: str,
    words: int = 1,
    marks: str = "",
    bold: Sequence[int] = (),
    copy: bool = True,
) -> bytes:
    """A table whose first `words` columns are text, the others numbers as they are to be written.

    `marks`: a letter a column, "c" calculated (a ring in its head), "m" measured (a disc), anything else nothing.
    `bold` are the rows that are marked as chosen; `copy` adds a button that copies the table as Markdown.
    """
    assert all(len(row) == len(columns) for row in rows)
    return pack(
        {
            "columns": list(columns),
            "rows": [list(row) for row in rows],
            "label": label,
            "words": words,
            "marks": marks.ljust(len(columns)),
            "bold": list(bold),
            "copy": copy,
        }
    )
