"""Prefill: reading a prompt into a cache, at once, in chunks, or from the cache of another text that began alike.

A chunk is a forward like any other: its queries read what the cache holds of the chunks before it (Agrawal et al. 2023,
SARATHI, section 4.1). The products are those of one forward over the prompt, in another order, so logits and cache are
equal to rounding; the scores in flight are T_chunk x S instead of T x T, and each chunk reads all weights again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lmcore.cache import KVCache
from lmcore.config import ModelConfig
from lmcore.errors import InputError
from lmcore.model import Transformer


class Chunk(NamedTuple):
    """One forward of the prefill: its `tokens` begin at position `first`; logits (V,) after the last of them."""

    first: int
    tokens: int
    logits: Tensor
    time_s: float


def chunks(model: Transformer, tokens: Sequence[int], *, cache: KVCache, size: int | None = None) -> Iterator[Chunk]:
    """Run the tokens that follow those in the cache, at most `size` in a forward (all when None), one at a time.

    Between two of them the caller may stop. InputError for no tokens or a size below 1.
    """
    if not tokens:
        raise InputError("there are no tokens to run", expected="at least one", where="the prefill")
    if size is not None and size < 1:
        raise InputError(f"chunks of {size} tokens", expected="at least 1", where="the prefill")
    size = size or len(tokens)
    for begin in range(0, len(tokens), size):
        part = torch.tensor([list(tokens[begin : begin + size])], device=model.device)
        first, start = cache.length, time.perf_counter()
        logits = model(part, cache=cache, logits_to_keep=1).logits[0, -1]
        yield Chunk(first, part.shape[1], logits, time.perf_counter() - start)


def prefill(model: Transformer, tokens: Sequence[int], *, cache: KVCache, chunk: int | None = None) -> Tensor:
    """Logits (V,) after the last token, all of them now in the cache; see `chunks`."""
    *_, last = chunks(model, tokens, cache=cache, size=chunk)
    return last.logits


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _kept(cache: KVCache, seen: Sequence[int], tokens: Sequence[int]) -> int:
    """How much of the cache of the text `seen` serves `tokens`: one of them at least is left to run, for its logits."""
    return min(common_prefix(seen[: cache.length], tokens), len(tokens) - 1)


def reusable(cache: KVCache, seen: Sequence[int], tokens: Sequence[int]) -> KVCache:
    """A copy of the cache of the text `seen`, cut to what `tokens` begins with and waiting for the rest of it.

    At least one token is left to run, for its logits. Empty where a windowed layer has evicted what that token reads:
    keys and values above the first layer depend on every token before them, so the whole text is then run again.
    """
    assert cache.length <= len(seen)
    kept = _kept(cache, seen, tokens)
    copy = cache.fork()
    copy.growable = True
    copy.truncate(kept if copy.can_truncate(kept) else 0)
    return copy


def hand_over(old: KVCache, seen: Sequence[int], new: KVCache, tokens: Sequence[int]) -> int:
    """Copy to the empty cache `new` what `old`, of the text `seen`, holds of the start of `tokens`; returns how many.

    `new` keeps its own capacity, which must hold them. At least one token is left to run, for its logits. Nothing is
    copied where a windowed layer has evicted what that token reads, nor from keys whose frequencies follow the length.
    """
    assert new.length == 0
    kept = _kept(old, seen, tokens)
    if kept == 0 or old.turned is not None or not old.can_truncate(kept):
        return 0
    for layer, (of_old, of_new) in enumerate(zip(old.layers, new.layers, strict=True)):
        held = kept - of_old.start
        new.append(layer, old.keys(layer)[:, :, :held], old.values(layer)[:, :, :held])
        of_new.start, of_new.end = of_old.start, kept
    return kept


def score_bytes(cfg: ModelConfig, *, tokens: int, cached: int, itemsize: int) -> int:
    """Bytes of one layer's scores H x T x S when `tokens` queries read them and `cached` keys, in the widest layer.

    What a kernel that writes the scores out holds at its peak; a fused one never holds them. S = cached + T; a window w
    bounds it to w + T after cached tokens, as in `forward_flops`.
    """
    keys = [cached + tokens]
    if cached:
        windows = (cfg.window_of(layer) for layer in range(cfg.n_layers))
        keys = [keys[0] if window is None else min(keys[0], window + tokens) for window in windows]
    return itemsize * cfg.n_heads * tokens * max(keys)


def cache_difference(a: KVCache, b: KVCache) -> float:
    """The largest difference of a stored key or value between two caches of the same positions."""
    worst = 0.0
    for layer in range(len(a.layers)):
        if a.extent(layer) != b.extent(layer):
            raise InputError(
                f"layer {layer} holds positions {tuple(a.extent(layer))} in one cache, {tuple(b.extent(layer))} in the "
                "other",
                where="the comparison of two caches",
            )
        for x, y in ((a.keys(layer), b.keys(layer)), (a.values(layer), b.values(layer))):
            worst = max(worst, float((x.double() - y.double()).abs().max()))
    return worst
