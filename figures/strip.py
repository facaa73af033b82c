"""The payload of the token strip: the prompt's tokens, what each cost, and what the model expected after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from figures.payload import pack
from figures.table import csv_text
from figures.tokens import Token, completed_characters, flat, hexadecimal


def strip_payload(
    tokens: Sequence[Token],
    *,
    loss: np.ndarray,
    rank: np.ndarray,
    top_ids: np.ndarray,
    top_probs: np.ndarray,
    token_of: Callable[[int], Token],
    vocab_size: int,
    selected: int | None = None,
    tell: bool = False,
    url: str | None = "position",
    ids: bool = False,
    spelled: bool = True,
) -> bytes:
    """The strip's payload for T tokens; selecting another position then needs no message.

    `loss` (T,) is the negative log-probability, in nats, that the model gave to each token, NaN where nothing predicted
    it (position 0); `rank` (T,) the place of the token in the vocabulary, 1 for the most probable, 0 where nothing
    predicted it. `top_ids` and `top_probs` (T, k) are the most probable tokens after each position, in falling order,
    and `token_of` gives their bytes.

    `selected` is the position shown first (default: the last); one in the address under the name `url` goes before it,
    and None keeps it out of the address. With `tell` each selection is also sent to Python. `ids` writes below each
    token its id and, where it shares a character with its neighbours, that character. `spelled` is false where a token
    stands for no text (the checkpoint has no tokenizer): its bytes are then not told.
    """
    count = len(tokens)
    characters = completed_characters([token.piece for token in tokens])
    below = [f"{token.id} {c}" if c else str(token.id) for token, c in zip(tokens, characters, strict=True)]
    used = sorted({int(i) for i in np.unique(top_ids)})
    meta = {
        "tokens": [token.parts for token in tokens],
        "ids": [token.id for token in tokens],
        "bytes": [hexadecimal(token.piece) if spelled else "" for token in tokens],
        "characters": characters,
        "below": below if ids else None,
        "special": [token.special_name is not None for token in tokens],
        "vocabulary": {str(i): token_of(i).parts for i in used},
        "vocab_size": vocab_size,
        "selected": count - 1 if selected is None else min(max(selected, 0), count - 1),
        "tell": tell,
        "url": url,
    }
    return pack(
        meta,
        np.asarray(loss, np.float32).reshape(count),
        np.asarray(rank, np.int32).reshape(count),
        np.asarray(top_ids, np.int32).reshape(count, -1),
        np.asarray(top_probs, np.float32).reshape(count, -1),
    )


def strip_csv(tokens: Sequence[Token], loss: np.ndarray, rank: np.ndarray) -> str:
    """The strip's numbers, a row for each token."""
    header = ["position", "id", "token", "bytes", "loss in nats", "rank"]
    rows = (
        [position, token.id, flat(token.parts), hexadecimal(token.piece), loss[position], rank[position] or None]
        for position, token in enumerate(tokens)
    )
    return csv_text(header, rows)
