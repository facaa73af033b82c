"""The logit lens as a table: what each layer would say if the model ended there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from figures.payload import pack
from figures.tokens import Parts


def lens_payload(
    top_ids: np.ndarray,
    top_probs: np.ndarray,
    probs: np.ndarray,
    ranks: np.ndarray,
    *,
    token: int,
    parts: Callable[[int], Parts],
    step: int = 0,
    of: int = 1,
    url: str | None = None,
) -> bytes:
    """The payload of the lens component for L layers: the k likeliest tokens (L, k) and their probabilities, and the
    probability and rank (from 1) of `token` after each. `step`: which of `of` steps; `url`: the name of the step in the
    address, None where there is nothing to move along. 8 bytes a listed token and its text, once."""
    ids = top_ids.astype(np.int32)
    meta = {
        "layers": [str(layer) for layer in range(len(ids))],
        "token": token,
        "step": step,
        "of": of,
        "url": url,
        "vocabulary": {str(listed): parts(listed) for listed in sorted({token, *np.unique(ids).tolist()})},
    }
    return pack(meta, ids, top_probs.astype(np.float32), probs.astype(np.float64), ranks.astype(np.int32))


def settled(ranks: Sequence[int] | np.ndarray) -> int | None:
    """The first layer from which on the token stays the likeliest; None where it is not so at the end."""
    wrong = np.flatnonzero(np.asarray(ranks) != 1)
    after = int(wrong[-1]) + 1 if wrong.size else 0
    return after if after < len(ranks) else None


def lens_rows(
    top_ids: np.ndarray, top_probs: np.ndarray, probs: np.ndarray, ranks: np.ndarray, name: Callable[[int], str]
) -> tuple[list[str], list[list[object]]]:
    """The table for a CSV file: a row a layer."""
    head = ["layer", "probability of the token", "rank of the token"]
    for place in range(1, top_ids.shape[1] + 1):
        head += [f"token {place}", f"probability {place}"]
    rows: list[list[object]] = []
    for layer in range(len(ranks)):
        row: list[object] = [layer, float(probs[layer]), int(ranks[layer])]
        for token, probability in zip(top_ids[layer], top_probs[layer], strict=True):
            row += [name(int(token)), float(probability)]
        rows.append(row)
    return head, rows
