"""The numbers of a figure as CSV (RFC 4180), every digit."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and rows; what is missing (None or NaN) is an empty field, and text never starts a formula."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    for row in rows:
        writer.writerow([_field(value) for value in row])
    return out.getvalue()


def _field(value: object) -> object:
    if value is None or value != value:
        return ""
    # A spreadsheet would run text that begins so as a formula; a leading apostrophe makes it text.
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}:
        return f"'{value}"
    return value
