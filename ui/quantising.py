"""The running model on quantised caches, measured on a text: bytes, divergence, agreement, loss; made on demand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmcore.formats import Quantised
from lmcore.kv_costs import kv_cache_bytes
from ui import runs
from ui.asked import Asked, Tell
from ui.models import Opened


@dataclass(frozen=True)
class Setting:
    """Numbers a scale is shared by, positions that stay whole, tokens a forward."""

    group: int
    residual: int
    chunk: int


@dataclass(frozen=True)
class Point:
    """One format: bytes of the cache after the text by formula and in its tensors; the rest as in `lmcore.fidelity`."""

    name: str
    expected_bytes: int
    used_bytes: int
    loss: float
    divergence: float
    agreement: float


FORMATS: Asked[tuple[Point, ...]] = Asked("quantised caches", size=lambda points: 256 * len(points))
FULL = "full precision"


def measure(opened: Opened, ids: tuple[int, ...], how: Setting, tell: Tell) -> tuple[Point, ...]:
    """The text through an ordinary cache, then through one of each format, `how.chunk` tokens a forward."""
    from lmcore.cache import KVCache
    from lmcore.fidelity import compare, read_through
    from lmcore.quantise import How, formats, quantised_cache, quantised_cache_bytes

    model, cfg = opened.model, opened.config
    size, length = model.dtype.itemsize, len(ids)
    place = {"dtype": model.dtype, "device": model.device}

    def through(name: str, cache: KVCache) -> np.ndarray:
        def progress(done: int, of: int) -> None:
            tell(f"{name}: {done} of {of} tokens")

        with runs.forwarding():
            return read_through(model, ids, cache, chunk=how.chunk, progress=progress)

    plain = KVCache.empty(cfg, length, **place)
    original = through(FULL, plain)
    expected = sum(kv_cache_bytes(cfg, context=length, itemsize=size))
    points = [Point(FULL, expected, plain.used_bytes, *compare(original, original, ids))]
    across = Quantised(bits=4, group=how.group, scale_bytes=2, zero_bytes=2, along="channel")
    for name, storage in {**formats(how.group), "INT4, keys per token": (across, across)}.items():
        stored = How(storage, how.residual)
        cache = quantised_cache(cfg, length, stored, **place)
        logits = through(name, cache)
        expected = sum(quantised_cache_bytes(cfg, stored, context=length, itemsize=size))
        points.append(Point(name, expected, cache.used_bytes, *compare(original, logits, ids)))
    return tuple(points)
