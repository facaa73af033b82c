"""Speculative decoding as it is shown: the passes of the target, and the numbers beside plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from figures.decode import streamed
from figures.payload import pack
from figures.tokens import Parts

if TYPE_CHECKING:
    from lmcore.speculative import Round


def speculative_payload(
    rounds: Sequence[Round], *, parts: Callable[[int], Parts], piece: Callable[[int], bytes]
) -> bytes:
    """The payload of the speculative component: all drafts of every pass, and p, q and u of those looked at."""
    numbers = [(check.p, check.q, check.uniform) for done in rounds for check in done.drafts]
    named = {token for done in rounds for token in (*done.proposed, *done.tokens)}
    meta = {
        "rounds": [
            {
                "drafts": list(done.proposed),
                "seen": len(done.drafts),
                "kept": done.accepted,
                "token": done.token,
                "replaced": done.replaced,
                "draft_s": done.draft_s,
                "target_s": done.target_s,
            }
            for done in rounds
        ],
        "vocabulary": {str(token): parts(token) for token in sorted(named)},
        "text": "".join(text for text, _ in streamed([piece(token) for done in rounds for token in done.tokens])),
    }
    return pack(meta, np.array(numbers, np.float64).reshape(-1, 3))


HEADER = ("pass", "draft", "token", "p of the target", "q of the draft", "uniform number", "kept")


def draft_rows(rounds: Sequence[Round], name: Callable[[int], str]) -> list[list[object]]:
    """The table for a CSV file: a row for each draft, those that nobody looked at without numbers."""
    rows: list[list[object]] = []
    for index, done in enumerate(rounds):
        for place, token in enumerate(done.proposed):
            seen = done.drafts[place] if place < len(done.drafts) else None
            found = (
                (None, None, None, "not looked at") if seen is None else (seen.p, seen.q, seen.uniform, seen.accepted)
            )
            rows.append([index, place, name(token), *found])
    return rows
