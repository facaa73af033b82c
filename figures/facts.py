"""Short facts as rows of a label and a value: the load report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from figures.format import bytes_iec, fixed, group
from figures.payload import pack


class Fact(NamedTuple):
    label: str
    value: str
    note: str = ""


def facts_payload(facts: Sequence[Fact]) -> bytes:
    """The payload of the facts component; every text is shown as it is."""
    return pack({"facts": [fact._asdict() for fact in facts]})


def report_facts(report: Any) -> list[Fact]:
    """The load report (`lmcore.checkpoint.LoadReport`) in rows; of a config without weights there is little to say."""
    if not report.tensor_count:
        return [
            Fact("Source", report.source),
            Fact("Architecture", report.architecture),
            Fact("Weights", "none", "nothing was read or drawn"),
            Fact("Assumed", *_named(report.assumptions, most=6)),
        ]
    used = sum(1 for row in report.mapped if row.targets)
    changed = sum(1 for row in report.mapped if row.targets and row.transform != "as it is")
    mapped = f"{group(used)} of {group(report.tensor_count)}"
    stored = report.stored_dtype or "none"
    return [
        Fact("Source", report.source, report.path),
        Fact("Architecture", report.architecture),
        Fact("Tensors mapped", mapped, f"{group(changed)} changed on the way" if changed else "each as it is"),
        Fact("Tensors unused", *_named(report.unused)),
        Fact("Parameters missing", *_named(report.missing)),
        Fact("Stored as", stored, f"{group(report.bytes_read)} bytes" if report.bytes_read else "not read from a file"),
        Fact("Runs in", report.dtype, "" if stored in (report.dtype, "none") else f"converted from {stored}"),
        Fact("Quantisation", report.quantisation or "none"),
        Fact("Opened in", f"{fixed(report.seconds, 2)} s", bytes_iec(report.bytes_read) if report.bytes_read else ""),
        Fact("Assumed", *_named(report.assumptions, most=6)),
    ]


def _named(names: Sequence[str], most: int = 3) -> tuple[str, str]:
    """How many, and the first few by name."""
    if not names:
        return "none", ""
    rest = len(names) - most
    return group(len(names)), "; ".join(names[:most]) + (f"; and {group(rest)} more" if rest > 0 else "")
