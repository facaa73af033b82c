"""The prompt read in chunks, or on from another prompt's cache: run on demand, kept, and shared by all sessions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ui import runs
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.cache import KVCache

COUNTED = 256
"""The longest prompt that is run under the FLOP counter, which needs every attention weight written out."""
MOST_CHUNKS = 64
"""Chunks of the smallest size of the curve."""
ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Chunked:
    """The prompt in chunks beside one forward of it: times in seconds, largest differences of logits (after the last
    token) and of stored keys and values, and the largest of each, which says what rounding explains."""

    times_s: tuple[float, ...]
    whole_s: float
    logits: float
    largest_logit: float
    cache: float
    largest_in_cache: float

    @property
    def time_s(self) -> float:
        return sum(self.times_s)


@dataclass(frozen=True)
class Counted:
    """FLOPs of each chunk as PyTorch counts them, and the bytes of the largest weights that one layer held."""

    flops: tuple[int, ...]
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class Resumed:
    """One prompt read from the cache of another that begins alike, and read afresh: medians of `ROUNDS` in seconds.

    `reused` tokens were in the cache; `copy_s` is what copying it took, which `resumed_s` leaves out.
    """

    reused: int
    resumed_s: float
    copy_s: float
    fresh_s: float
    logits: float
    largest_logit: float
    same_choice: bool
    flops: tuple[int, int] | None


_CHUNKED: ByteLRU[Chunked] = ByteLRU(max_entries=256, max_bytes=2**20, size=lambda found: 8 * len(found.times_s) + 64)
_COUNTED: ByteLRU[Counted] = ByteLRU(max_entries=64, max_bytes=2**20, size=lambda found: 8 * len(found.flops) + 64)
_RESUMED: ByteLRU[Resumed] = ByteLRU(max_entries=64, max_bytes=2**20, size=lambda _: 128)


def sizes(tokens: int) -> list[int]:
    """Chunk sizes of the curve: powers of two from at most `MOST_CHUNKS` chunks on, and the whole prompt."""
    powers = [1 << n for n in range(tokens.bit_length()) if (1 << n) * MOST_CHUNKS >= tokens and 1 << n < tokens]
    return [*powers, tokens]


def parts(tokens: int, size: int) -> list[tuple[int, int]]:
    """Position of the first token of each chunk, and how many it has."""
    return [(first, min(size, tokens - first)) for first in range(0, tokens, size)]


def known(opened: Opened, ids: tuple[int, ...], size: int) -> Chunked | None:
    return _CHUNKED.peek((opened.key, ids, size))


def known_count(opened: Opened, ids: tuple[int, ...], size: int) -> Counted | None:
    return _COUNTED.peek((opened.key, ids, size))


def run(opened: Opened, ids: tuple[int, ...], size: int) -> Iterator[int]:
    """One forward of the prompt, then its chunks; yields how many are done."""
    from lmcore.prefill import cache_difference, chunks

    if known(opened, ids, size) is not None:
        return
    whole, pieces = _empty(opened, len(ids)), _empty(opened, len(ids))
    with runs.forwarding():
        one = next(chunks(opened.model, ids, cache=whole))
    steps, done = chunks(opened.model, ids, cache=pieces, size=size), []
    for _ in parts(len(ids), size):
        with runs.forwarding():
            done.append(next(steps))
        yield len(done)
    expected, found = one.logits.float(), done[-1].logits.float()
    layers = range(opened.config.n_layers)
    outcome = Chunked(
        times_s=tuple(chunk.time_s for chunk in done),
        whole_s=one.time_s,
        logits=float((expected - found).abs().max()),
        largest_logit=float(expected.abs().max()),
        cache=cache_difference(whole, pieces),
        largest_in_cache=max(
            float(held(at).float().abs().max()) for held in (whole.keys, whole.values) for at in layers
        ),
    )
    _CHUNKED.put((opened.key, ids, size), outcome)


def count(opened: Opened, ids: tuple[int, ...], size: int) -> Iterator[int]:
    """The chunks once more under the FLOP counter, their weights written out; nothing for a long prompt."""
    import torch

    from lmcore.measure import FlopCount
    from lmcore.trace import Capture

    if len(ids) > COUNTED or known_count(opened, ids, size) is not None:
        return
    cache, flops, peak = _empty(opened, len(ids)), [], 0
    for first, tokens in parts(len(ids), size):
        part = torch.tensor([ids[first : first + tokens]], device=opened.model.device)
        with runs.forwarding(), FlopCount(opened.model) as counter:
            trace = opened.model.forward(part, cache=cache, capture=Capture.of("pattern"), logits_to_keep=1).trace
        assert trace is not None
        flops.append(sum(counter.flops.values()))
        peak = max(peak, *(layer["pattern"].nbytes for layer in trace.layers.values()))
        yield len(flops)
    _COUNTED.put((opened.key, ids, size), Counted(tuple(flops), peak))


def known_resumed(opened: Opened, ids: tuple[int, ...], reused: int) -> Resumed | None:
    """The comparison for this prompt, with so many of its tokens in a cache."""
    return _RESUMED.peek((opened.key, ids, reused))


def resume(opened: Opened, cache: KVCache, seen: tuple[int, ...], ids: tuple[int, ...]) -> Iterator[int]:
    """Read `ids` from a copy of the cache of `seen`, and afresh, in turn; yields how many rounds are done."""
    from lmcore.prefill import chunks, reusable

    again, fresh, copies, reused = [], [], [], 0
    for index in range(ROUNDS):
        begun = time.perf_counter()
        held = reusable(cache, seen, ids)
        copies.append(time.perf_counter() - begun)
        reused = held.length
        with runs.forwarding():
            again.append(next(chunks(opened.model, ids[reused:], cache=held)))
        with runs.forwarding():
            fresh.append(next(chunks(opened.model, ids, cache=_empty(opened, len(ids)))))
        yield index + 1
    expected, found = (done[-1].logits.float().cpu().numpy() for done in (fresh, again))
    _RESUMED.put(
        (opened.key, ids, reused),
        Resumed(
            reused=reused,
            resumed_s=statistics.median(done.time_s for done in again),
            copy_s=statistics.median(copies),
            fresh_s=statistics.median(done.time_s for done in fresh),
            logits=float(np.abs(expected - found).max()),
            largest_logit=float(np.abs(expected).max()),
            same_choice=int(expected.argmax()) == int(found.argmax()),
            flops=_flops(opened, cache, seen, ids),
        ),
    )


def _flops(opened: Opened, cache: KVCache, seen: Sequence[int], ids: tuple[int, ...]) -> tuple[int, int] | None:
    """Counted FLOPs from the cache on, and afresh; None for a long prompt."""
    import torch

    from lmcore.measure import FlopCount
    from lmcore.prefill import reusable
    from lmcore.trace import Capture

    if len(ids) > COUNTED:
        return None
    found = []
    for held in (reusable(cache, seen, ids), _empty(opened, len(ids))):
        with runs.forwarding(), FlopCount(opened.model) as counter:
            tokens = torch.tensor([ids[held.length :]], device=opened.model.device)
            opened.model.forward(tokens, cache=held, capture=Capture.of("pattern"), logits_to_keep=1)
        found.append(sum(counter.flops.values()))
    return found[0], found[1]


def _empty(opened: Opened, tokens: int) -> KVCache:
    from lmcore.cache import KVCache

    return KVCache.empty(opened.config, tokens, dtype=opened.model.dtype, device=opened.model.device)
