"""Continuations of one prompt beside one another, told apart from the first token that differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from figures.decode import streamed
from figures.payload import pack


class Version(NamedTuple):
    """One continuation: its name, its tokens, and what else is to be said of it."""

    label: str
    tokens: Sequence[int]
    note: str = ""


def first_difference(versions: Sequence[Sequence[int]]) -> int:
    """How many tokens all versions begin with alike."""
    same = 0
    for tokens in zip(*versions, strict=False):
        if len(set(tokens)) > 1:
            break
        same += 1
    return same


def texts_payload(versions: Sequence[Version], *, piece: Callable[[int], bytes]) -> bytes:
    """The payload of the texts component. A character split by the first difference counts to each version's own."""
    same = first_difference([version.tokens for version in versions])
    rows = []
    for label, tokens, note in versions:
        pieces = [text for text, _ in streamed([piece(token) for token in tokens])]
        rows.append({"label": label, "note": note, "same": "".join(pieces[:same]), "own": "".join(pieces[same:])})
    return pack({"texts": rows})
