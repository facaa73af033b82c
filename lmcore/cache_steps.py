"""The KV cache of a running model, read at every step: what is used, what is allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from lmcore.cache import KVCache
from lmcore.model import Transformer


class CacheStep(NamedTuple):
    """The cache after one forward of `tokens` tokens: positions seen, positions there is room for, bytes of both as the
    tensors have them."""

    tokens: int
    length: int
    capacity: int
    used_bytes: int
    allocated_bytes: int


def cache_steps(
    model: Transformer,
    prompt: Sequence[int],
    new: int,
    *,
    capacity: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[CacheStep, ...]:
    """Prefill, then `new` greedy tokens one by one, in a cache that starts with `capacity` positions and doubles.

    `kv_cache_bytes` at `length` and at `capacity` are what the two byte counts have to be. Raising inside `progress`
    (forwards done, of all) cancels.
    """
    cache = KVCache.empty(model.cfg, capacity, dtype=model.dtype, device=model.device, growable=True)
    tokens = torch.tensor([list(prompt)], device=model.device)
    steps = []
    for done in range(new + 1):
        if progress is not None:
            progress(done, new + 1)
        logits = model.forward(tokens, cache=cache, logits_to_keep=1).logits
        steps.append(CacheStep(tokens.shape[1], cache.length, cache.capacity, cache.used_bytes, cache.allocated_bytes))
        tokens = logits[:, -1:].argmax(-1)
    return tuple(steps)
