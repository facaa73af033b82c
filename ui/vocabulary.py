"""Token ids as the figures need them: by their exact bytes, for any model, with a tokenizer or without."""

from __future__ import annotations

from collections.abc import Iterable

from figures.tokens import Token, flat
from ui.models import Opened


def tokens(opened: Opened, ids: Iterable[int]) -> list[Token]:
    """The tokens of a sequence; joined, their bytes are its text. Without a tokenizer each is its id in digits."""
    ids = list(ids)
    if opened.tokenizer is None:
        return [Token(i, str(i).encode()) for i in ids]
    return [Token(i, piece, _special(opened, i)) for i, piece in zip(ids, opened.tokenizer.pieces(ids), strict=True)]


def token(opened: Opened, token_id: int) -> Token:
    """One token alone, as it reads in the middle of a text."""
    if opened.tokenizer is None:
        return Token(token_id, str(token_id).encode())
    return Token(token_id, opened.tokenizer.piece_bytes(token_id), _special(opened, token_id))


def generated(opened: Opened, token_id: int) -> bytes:
    """What a generated token adds to the text: its bytes, or its id and a space before it."""
    return f" {token_id}".encode() if opened.tokenizer is None else opened.tokenizer.piece_bytes(token_id)


def label(opened: Opened, token_id: int) -> str:
    """One token on one line, for a sentence (not Markdown)."""
    return flat(token(opened, token_id).parts)


def _special(opened: Opened, token_id: int) -> str | None:
    assert opened.tokenizer is not None
    return opened.tokenizer.name(token_id) if opened.tokenizer.is_special(token_id) else None
