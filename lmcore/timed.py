"""A loaded model against its formulas: a prefill and a decode step by the clock, the cache's bytes at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from lmcore.cache import KVCache
from lmcore.errors import InputError
from lmcore.kv_costs import kv_cache_bytes
from lmcore.machine import best_time
from lmcore.model import Transformer
from lmcore.roofline import Point, decode_point, prefill_point

Progress = Callable[[str], None]
STEPS = 6


class Timing(NamedTuple):
    """One prefill of `tokens` and the step after it: seconds of each, the fastest of several, and what they do."""

    tokens: int
    prefill_s: float
    decode_s: float
    prefill: Point
    decode: Point


def timed(
    model: Transformer, tokens: Sequence[int], *, budget_s: float = 1.0, progress: Progress = lambda line: None
) -> Timing:
    """Times a prefill (logits of the last token) and one step after it, with the cache as it is each time.

    FLOPs and bytes are the formulas', in the model's dtype; attention counts as written out where the model's kind of
    scores keeps the fused kernel from doing it. InputError without a token.
    """
    ids = _ids(model, tokens)
    size = ids.shape[1]
    how = {"dtype": model.dtype, "device": model.device}
    progress(f"prefill of {size} tokens")
    prefill_s = best_time(
        lambda: model(ids, cache=KVCache.empty(model.cfg, size, **how), logits_to_keep=1), model.device, budget_s
    )
    progress(f"one step after {size} cached tokens")
    cache = KVCache.empty(model.cfg, size + 1, **how)
    model(ids, cache=cache, logits_to_keep=1)
    caches = iter([cache.fork() for _ in range(STEPS + 1)])
    decode_s = best_time(lambda: model(ids[:, -1:], cache=next(caches)), model.device, 0.0, least=STEPS)
    stored: dict[str, Any] = dict.fromkeys(("itemsize", "weight_itemsize", "cache_itemsize"), model.dtype.itemsize)
    scores = "written" if _written_out(model) else "fused"
    return Timing(
        size,
        prefill_s,
        decode_s,
        prefill_point(model.cfg, tokens=size, scores=scores, **stored),
        decode_point(model.cfg, position=size, scores=scores, **stored),
    )


class Held(NamedTuple):
    """The cache at one length: bytes in use and allocated, in its tensors and by formula."""

    length: int
    used: int
    used_by_formula: int
    allocated: int
    allocated_by_formula: int


def cache_by_step(model: Transformer, tokens: Sequence[int]) -> list[Held]:
    """The cache after a prefill of the first half of the tokens, then after each further one."""
    ids = _ids(model, tokens)
    capacity, size = ids.shape[1], model.dtype.itemsize
    cache = KVCache.empty(model.cfg, capacity, dtype=model.dtype, device=model.device)
    first = max(1, capacity // 2)
    found = []
    whole = sum(kv_cache_bytes(model.cfg, context=capacity, itemsize=size))
    for chunk in ids.split([first] + [1] * (capacity - first), dim=1):
        model(chunk, cache=cache, logits_to_keep=1)
        formula = sum(kv_cache_bytes(model.cfg, context=cache.length, itemsize=size))
        found.append(Held(cache.length, cache.used_bytes, formula, cache.allocated_bytes, whole))
    return found


def _ids(model: Transformer, tokens: Sequence[int]) -> torch.Tensor:
    if not tokens:
        raise InputError("there are no tokens", expected="at least one", where="the prompt", todo="Type some text.")
    return torch.tensor([list(tokens)], dtype=torch.long, device=model.device)


def _written_out(model: Transformer) -> bool:
    a = model.cfg.attention
    return bool(getattr(a, "softcap", None) is not None or getattr(a, "sinks", False))
