"""Mistakes with the cache, made on purpose on the loaded model: what each does, or what stops it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lmcore.errors import LmcoreError
from ui import runs
from ui.lru import ByteLRU
from ui.models import Opened

TOKENS = 16


@dataclass(frozen=True, eq=False)
class Forgotten:
    """Greedy decoding with the right positions and with each step's beginning at 0 again.

    `right` and `wrong` are the tokens; `logits` (2, V) those of the first step after the prefill, for which both have
    read the same text.
    """

    right: tuple[int, ...]
    wrong: tuple[int, ...]
    logits: np.ndarray


_FORGOTTEN: ByteLRU[Forgotten] = ByteLRU(max_entries=32, max_bytes=16 * 2**20, size=lambda found: found.logits.nbytes)


def room(opened: Opened, ids: tuple[int, ...]) -> int:
    return min(TOKENS, opened.config.max_positions - len(ids))


def known(opened: Opened, ids: tuple[int, ...]) -> Forgotten | None:
    return _FORGOTTEN.peek((opened.key, ids))


def forget_positions(opened: Opened, ids: tuple[int, ...]) -> Iterator[str]:
    """Decode both ways; yields a line in words after every token."""
    import torch

    from lmcore.cache import KVCache

    model, many, made, logits = opened.model, room(opened, ids), [], []
    for forget in (False, True):
        cache = KVCache.empty(model.cfg, len(ids) + many, dtype=model.dtype, device=model.device)
        waiting, tokens = list(ids), []
        while len(tokens) < many:
            first = 0 if forget or not tokens else cache.length
            with runs.forwarding():
                positions = torch.arange(first, first + len(waiting), device=model.device)
                batch = torch.tensor([waiting], device=model.device)
                row = model.forward(batch, positions=positions, cache=cache, logits_to_keep=1).logits[0, -1].float()
            if len(tokens) == 1:
                logits.append(row.cpu().numpy())
            waiting = [int(row.argmax())]
            tokens += waiting
            yield f"{len(tokens)} of {many} tokens, {'positions from 0' if forget else 'right positions'}"
        made.append(tuple(tokens))
    if len(logits) == 2:
        _FORGOTTEN.put((opened.key, ids), Forgotten(made[0], made[1], np.stack(logits)))


@dataclass(frozen=True)
class Refused:
    """What the cache said, and the positions that it held before and after."""

    error: LmcoreError | None
    before: int
    after: int


def overflow(opened: Opened, ids: tuple[int, ...]) -> Refused:
    """One token more than there is room for, in a cache that may not grow and is full with the first of `ids`."""
    import torch

    from lmcore.cache import KVCache

    ids = ids[-8:]
    model = opened.model
    cache = KVCache.empty(model.cfg, len(ids), dtype=model.dtype, device=model.device)
    with runs.forwarding():
        batch = torch.tensor([ids], device=model.device)
        model.forward(batch, cache=cache, logits_to_keep=1)
        before = cache.length
        try:
            model.forward(batch[:, -1:], cache=cache)
        except LmcoreError as error:
            return Refused(error, before, cache.length)
    return Refused(None, before, cache.length)


def wrong_axis(opened: Opened) -> tuple[Refused, tuple[int, ...], tuple[int, ...]]:
    """Keys with heads and time swapped, and their shape and the right one: (B, T, K, Dh) instead of (B, K, T, Dh)."""
    import torch

    from lmcore.cache import KVCache
    from lmcore.shapes import cache_shapes

    model = opened.model
    cache = KVCache.empty(model.cfg, 16, dtype=model.dtype, device=model.device)
    (heads, dim), (_, other) = cache_shapes(model.cfg, 0).values()
    new = heads + 1
    keys, values = (torch.zeros(1, heads, new, d, dtype=model.dtype, device=model.device) for d in (dim, other))
    swapped = keys.transpose(1, 2)
    try:
        cache.append(0, swapped, values.transpose(1, 2))
    except LmcoreError as error:
        return Refused(error, 0, cache.length), tuple(swapped.shape), tuple(keys.shape)
    return Refused(None, 0, cache.length), tuple(swapped.shape), tuple(keys.shape)
