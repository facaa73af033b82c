"""Two prompts that begin alike: where their tokens part, and where their text does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Seam(NamedTuple):
    """What two token sequences begin with in common: `tokens` of them, which are `token_bytes` bytes of text, and
    `text_bytes` of the text itself, never fewer: a tokenizer may join the last common characters with what follows."""

    tokens: int
    token_bytes: int
    text_bytes: int

    @property
    def merged(self) -> int:
        """Bytes that are common to the texts and stand in different tokens."""
        return self.text_bytes - self.token_bytes


def seam(first: Sequence[int], second: Sequence[int], pieces: Sequence[Sequence[bytes]]) -> Seam:
    """Where they part. `pieces` are the bytes of each token of the first and of the second."""
    tokens = _same(first, second)
    texts = [b"".join(of_one) for of_one in pieces]
    return Seam(tokens, sum(len(piece) for piece in pieces[0][:tokens]), _same(*texts))


def _same(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
