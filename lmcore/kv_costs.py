"""Bytes of a KV cache from the config alone: windows, latents, ranks, beams, pages, quantised storage. Ints only.

One layer holds `2 K Dh` numbers a position (MLA: `kv_rank + rope_dim`, DeepSeek-V2, section 2.1.2), so that a full
layer takes `B * S * 2 K Dh * itemsize` bytes and one with a window w `B * min(S, w) * 2 K Dh * itemsize`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from lmcore.bounds import MAX_COUNT, count, one_of
from lmcore.config import ModelConfig
from lmcore.errors import InputError
from lmcore.formats import Quantised
from lmcore.layer_kinds import LayerKind, layer_kinds
from lmcore.shapes import cache_shapes
from lmcore.specs import Latent

KEEP = ("window", "reach", "past", "all")
Storage = Quantised | tuple[Quantised, Quantised]


def kv_cache_bytes(
    cfg: ModelConfig,
    *,
    context: int,
    batch: int = 1,
    itemsize: int = 2,
    beams: int = 1,
    tensor_parallel: int = 1,
    page: int | None = None,
    quantised: Storage | None = None,
    keep: str = "window",
) -> tuple[int, ...]:
    """Bytes of the KV cache on one rank, one int per layer; the sum over all ranks is `tensor_parallel` times as much.

    - `beams`: the cache holds `batch * beams` sequences.
    - `tensor_parallel`: KV heads are spread over the ranks and replicated when there are fewer (`kv_heads_per_rank`);
      the latent of MLA, which all heads read, is on every rank.
    - `page`: positions are stored in pages of that many, the last one whole.
    - `quantised`: how numbers are stored instead of `itemsize` bytes each, or a pair for keys and values (latent and
      rotary key); scales and zero points count.
    - `keep`: which positions a layer with a window or chunk holds (`positions_kept`).

    Raises InputError naming the argument: no int, negative, over `MAX_COUNT`, heads that the ranks cannot share.
    """
    sequences = count("batch", batch) * count("beams", beams, 1)
    count("context", context)
    count("itemsize", itemsize, 1, 16)
    sizes = [0] * cfg.n_layers
    for kind, tensors in _held(cfg, tensor_parallel):
        kept = positions_kept(kind, context, keep=keep, page=page)
        if quantised is None:
            size = itemsize * kept * sum(tensors)
        else:
            size = sum(_of(quantised, place).bytes_of(kept, values) for place, values in enumerate(tensors))
        for layer in kind.layers:
            sizes[layer] = sequences * size
    return tuple(sizes)


def positions_kept(kind: LayerKind, context: int, *, keep: str = "window", page: int | None = None) -> int:
    """Positions that a layer of this kind holds after `context` of them. Engines differ in what they let go:

    - "window": min(S, w) in layers with a sliding window, which is what the next queries may read, and every position
      in chunked layers; the cache of lmcore. "reach": also min(S, c) in layers with chunks, as static caches allocate.
    - "past": w - 1 (or c - 1) between two steps, the next position being the last of its own window: the dynamic cache
      of `transformers`.
    - "all": every position; the window is in the mask only.
    """
    one_of("keep", keep, KEEP)
    reach = kind.window if keep == "window" else None if keep == "all" else kind.reach
    if reach is not None and keep == "past":
        reach = reach - 1
    kept = context if reach is None else min(context, reach)
    if page is None:
        return kept
    return -(-kept // count("page", page, 1)) * page


def kv_heads_per_rank(cfg: ModelConfig, tensor_parallel: int) -> int:
    """KV heads that one rank holds: K / ranks, or one when there are more ranks than heads. For MLA one: the latent.

    Raises InputError when the ranks cannot share the query heads, or the KV heads neither divide nor are divided.
    """
    ranks, a = count("tensor_parallel", tensor_parallel, 1), cfg.attention
    if a.n_heads % ranks:
        raise InputError(
            f"{a.n_heads} query heads cannot be split over {ranks} ranks",
            expected="tensor_parallel to divide the number of query heads",
            where="argument tensor_parallel",
        )
    if isinstance(a, Latent):
        return 1
    if a.n_kv_heads % ranks and ranks % a.n_kv_heads:
        raise InputError(
            f"{a.n_kv_heads} KV heads can be neither split over nor repeated on {ranks} ranks",
            expected="tensor_parallel to divide the number of KV heads, or to be a multiple of it",
            where="argument tensor_parallel",
        )
    return max(1, a.n_kv_heads // ranks)


def kv_share(cfg: ModelConfig, tensor_parallel: int) -> tuple[int, int]:
    """The part of the KV heads that one rank holds, as a fraction: (heads on the rank, heads of the model)."""
    mine = kv_heads_per_rank(cfg, tensor_parallel)
    return (1, 1) if isinstance(cfg.attention, Latent) else (mine, cfg.attention.n_kv_heads)


def cached_after(prompt: int, new: int) -> int:
    """Positions in the cache once `new` tokens are generated: the newest was chosen and not yet run, so T + n - 1."""
    return count("prompt", prompt, 1) + count("new", new) - (1 if new else 0)


def longest_context(cfg: ModelConfig, *, free_bytes: int, **how: object) -> int:
    """The most positions whose cache fits into `free_bytes` on one rank, 0 when none does, `MAX_COUNT` without end.

    `how` goes to `kv_cache_bytes`: batch, itemsize, beams, tensor_parallel, page, quantised, keep.
    """
    count("free_bytes", free_bytes, 0, 2**63)
    return _largest(lambda context: sum(kv_cache_bytes(cfg, context=context, **how)), free_bytes)  # type: ignore[arg-type]


def largest_batch(cfg: ModelConfig, *, free_bytes: int, context: int, **how: object) -> int:
    """The most sequences of `context` positions that fit into `free_bytes` on one rank, 0 when not even one does."""
    count("free_bytes", free_bytes, 0, 2**63)
    one = sum(kv_cache_bytes(cfg, context=context, batch=1, **how))  # type: ignore[arg-type]
    return MAX_COUNT if one == 0 else min(MAX_COUNT, free_bytes // one)


def _largest(size: Callable[[int], int], free: int) -> int:
    """The largest n up to MAX_COUNT whose size fits, 0 when none does; the size never falls.

    The line through both ends says where to look (regula falsi, Illinois variant: the end that stays counts half); a
    cache grows along few straight pieces, so that a few looks do. Every third halves, whatever the curve is.
    """
    low, high = 0, MAX_COUNT
    under, over = free - size(low), size(high) - free
    if over <= 0 or under < 0:
        return high if over <= 0 else low
    looks = 0
    while high - low > 1:
        looks += 1
        middle = low + (high - low) * under // (under + over) if looks % 3 else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1)
        room = free - size(middle)
        if room >= 0:
            low, under, over = middle, room, -(-over // 2)
        else:
            high, over, under = middle, -room, -(-under // 2)
    return low


def _of(quantised: Storage, place: int) -> Quantised:
    return quantised[min(place, 1)] if isinstance(quantised, tuple) else quantised


@lru_cache(maxsize=256)
def _held(cfg: ModelConfig, tensor_parallel: int) -> tuple[tuple[LayerKind, tuple[int, ...]], ...]:
    """Each kind of layer with the numbers of a position in each tensor that one rank caches of it: k and v, or latent
    and rotary key."""
    mine, heads = kv_share(cfg, tensor_parallel)
    return tuple(
        (kind, tuple(k * dim * mine // heads for k, dim in cache_shapes(cfg, kind.layers[0]).values()))
        for kind in layer_kinds(cfg)
    )
