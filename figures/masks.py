"""Payloads of two components: square fields side by side (masks, weights), and a changed run beside the plain one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from figures.format import MINUS, sig
from figures.payload import pack
from figures.tokens import Token

MASKED = -1.0
"""In a field's array: this key may not be read. NaN and infinity are themselves."""


@dataclass(frozen=True, slots=True)
class Field:
    """One map: what it shows, and how its values become colours.

    `kind`: "mask", true or not; "root", the ramp by the square root up to `top` (None: the largest value shown);
    "signed", the diverging ramp about zero, symmetric.
    """

    title: str
    kind: str = "root"
    top: float | None = None
    unit: str = "weight"


def masked(values: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The values as a field's array, with MASKED where a key may not be read."""
    return np.where(allowed, values, np.float32(MASKED)).astype(np.float32)


def fields_payload(
    tokens: Sequence[Token],
    fields: Sequence[Field],
    arrays: Sequence[np.ndarray],
    *,
    start: tuple[int, int] | None = None,
    by_head: tuple[int, int] | None = None,
    file: str = "maps",
) -> bytes:
    """The payload of the fields component for T tokens: fields and their arrays one to one.

    An array is (T, T); with `by_head` = (L, H) it is (L, H, T, T) and the head shown is the one that the address has,
    at first `start`. 4 bytes a cell. A "mask" is an array of 0 and MASKED. `file` names what is saved.
    """
    meta: dict[str, Any] = {
        "tokens": [token.parts for token in tokens],
        "fields": [asdict(field) for field in fields],
        "by_head": list(by_head) if by_head else None,
        "start": list(start or (0, 0)),
        "file": file,
    }
    return pack(meta, *(np.asarray(array, np.float32) for array in arrays))


Tile = dict[str, str]


def beside_tile(name: str, plain: float, changed: float, *, unit: str = "", digits: int = 4, note: str = "") -> Tile:
    """One number of the changed run over that of the plain one; both are measured."""
    difference = changed - plain
    sign = MINUS if difference < 0 else "+"
    shown = "0" if difference == 0 else f"{sign}{sig(abs(difference), 3)}" if np.isfinite(difference) else "–"
    written = {"plain": sig(plain, digits), "changed": sig(changed, digits), "difference": shown}
    return {"name": name, "unit": unit, "note": note, **written}


def next_tokens(plain: np.ndarray, changed: np.ndarray, most: int = 6) -> list[int]:
    """The likeliest tokens of either distribution, those of the plain run first."""
    chosen: dict[int, None] = {}
    for probabilities in (plain, changed):
        if np.isfinite(probabilities).all():
            for token in np.argsort(-probabilities, kind="stable")[:most]:
                chosen[int(token)] = None
    return list(chosen)


def beside_payload(
    tiles: Sequence[Tile],
    plain: np.ndarray,
    changed: np.ndarray,
    *,
    token_of: Callable[[int], Token],
    name: str,
) -> bytes:
    """The payload of the beside component: tiles, and the distribution of the next token in both runs.

    `plain` and `changed` (V,) are probabilities; the list is cut to the likeliest, the rest is summed.
    """
    ids = next_tokens(plain, changed)
    rows = [{"id": token, "parts": token_of(token).parts} for token in ids]
    meta = {"tiles": list(tiles), "rows": rows, "others": len(plain) - len(ids), "name": name}
    both = np.stack([np.append(p[ids], p.sum() - p[ids].sum()) for p in (plain, changed)])
    return pack(meta, both.astype(np.float64))
