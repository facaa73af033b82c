"""The payload of the ranked component: a number for every head as a grid, and the largest of them as a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from figures.format import MINUS, fixed, group, scientific
from figures.payload import pack

MOST = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a list: what it is, its number, where it lies in the grid (None: nowhere), and a second number."""

    name: str
    value: float
    text: str
    layer: int | None = None
    head: int | None = None
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One grid (L, H), or (L, H + 1) where a last column stands for the FFNs, and its list.

    `kind` is "root" (the ramp) or "signed" (the diverging ramp about zero), both by the square root; `top` is its end.
    `totals` are rows under the list: a mark ("ring", "disc", "delta" or none), a name, a number.
    """

    title: str
    definition: str
    values: np.ndarray
    entries: tuple[Entry, ...]
    kind: str = "root"
    top: float = 1.0
    extra: str = ""
    beside: str = ""
    totals: tuple[tuple[str, str, str], ...] = field(default=())


def ranked_payload(panels: Sequence[Panel], *, start: tuple[int, int] = (0, 0)) -> bytes:
    """The payload of the ranked component; 4 bytes a cell and at most MOST rows a panel."""
    shown: list[dict[str, Any]] = []
    for panel in panels:
        row = {name: value for name, value in _fields(panel).items() if name not in ("values", "entries")}
        shown.append(row | {"entries": [asdict(entry) for entry in panel.entries]})
    return pack({"panels": shown, "start": list(start)}, *(np.asarray(panel.values, np.float32) for panel in panels))


def _fields(panel: Panel) -> dict[str, Any]:
    return {name: getattr(panel, name) for name in Panel.__dataclass_fields__}


def score_panel(title: str, definition: str, scores: np.ndarray, on_prompt: np.ndarray | None) -> Panel:
    """The heads with the largest score; beside each what the prompt alone says of it, NaN where it says nothing."""
    order = np.argsort(-scores, axis=None, kind="stable")[:MOST]
    entries = []
    for index in order:
        layer, head = (int(i) for i in np.unravel_index(index, scores.shape))
        beside = "" if on_prompt is None else _or_none(float(on_prompt[layer, head]))
        entries.append(
            Entry(
                f"layer {layer}, head {head}",
                float(scores[layer, head]),
                fixed(scores[layer, head], 3),
                layer,
                head,
                beside,
            )
        )
    return Panel(title, definition, scores, tuple(entries), beside="" if on_prompt is None else "on the prompt")


def shared_top(scores: np.ndarray, on_prompt: np.ndarray) -> int | None:
    """How many of the MOST best heads by one score are among the MOST best by the other; None where that is unknown."""
    if not np.isfinite(on_prompt).any():
        return None
    best = (np.argsort(-np.nan_to_num(s, nan=-1.0), axis=None, kind="stable")[:MOST] for s in (scores, on_prompt))
    first, second = (set(order.tolist()) for order in best)
    return len(first & second)


def logit_panel(
    title: str,
    *,
    embedding: float,
    heads: np.ndarray,
    ffn: np.ndarray,
    biases: float,
    total: float,
    logit: float,
) -> Panel:
    """The parts of one logit: heads (L, H) and FFNs (L,) as a signed grid, the largest of all parts as a list."""
    parts = [Entry("embedding", embedding, ""), Entry("biases", biases, "")]
    for layer in range(len(ffn)):
        parts.append(Entry(f"layer {layer}, FFN", float(ffn[layer]), "", layer, heads.shape[1]))
        parts += [
            Entry(f"layer {layer}, head {h}", float(heads[layer, h]), "", layer, h) for h in range(heads.shape[1])
        ]
    parts = [part for part in parts if part.value != 0 or part.name == "embedding"]
    parts.sort(key=lambda part: -abs(part.value))
    values = np.concatenate((heads, ffn[:, None]), axis=1)
    shown = tuple(Entry(p.name, p.value, signed(p.value), p.layer, p.head) for p in parts[:MOST])
    rest = sum(part.value for part in parts[MOST:])
    totals = [("", f"{group(len(parts) - MOST)} other parts", signed(rest))] if len(parts) > MOST else []
    difference = logit - total
    totals += [
        ("ring", "sum of all parts", signed(total, 5)),
        ("disc", "logit of the model", signed(logit, 5)),
        ("delta", "difference", scientific(difference, 1) if difference else "0"),
    ]
    return Panel(
        title,
        "Indigo lowers the logit, ochre raises it, by the square root. The column at the right holds the FFNs.",
        values,
        shown,
        kind="signed",
        top=float(np.abs(values).max()),
        extra="FFN",
        totals=tuple(totals),
    )


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign: +1.234, −0.500."""
    text = fixed(value, digits)
    return text if value < 0 and text.startswith(MINUS) else f"+{text.removeprefix(MINUS)}"


def _or_none(value: float) -> str:
    return fixed(value, 3) if np.isfinite(value) else "undefined"
