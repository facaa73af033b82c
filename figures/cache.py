"""The KV cache as it fills: layers down, positions across, the length of the stored key vectors as colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from figures.payload import pack
from figures.tokens import Parts

MAX_VALUES = 2**18
"""Key lengths in one payload, 1 MiB; above that neighbouring positions are pooled by their maximum."""


@dataclass(frozen=True)
class Fill:
    """The cache after one step: positions held, and the bytes they take by formula and in the running cache."""

    length: int
    calculated_bytes: int
    used_bytes: int


def key_lengths(keys: Sequence[np.ndarray]) -> np.ndarray:
    """(L, K, S) float32: the Euclidean length of each stored key, from one array (K, S, Dh) per layer.

    Layers may hold fewer positions than others (a sliding window); what they let go is NaN. Fewer means the latest.
    """
    longest = max((layer.shape[1] for layer in keys), default=0)
    heads = keys[0].shape[0] if len(keys) else 0
    lengths = np.full((len(keys), heads, longest), np.nan, np.float32)
    for row, layer in zip(lengths, keys, strict=True):
        row[:, longest - layer.shape[1] :] = np.linalg.norm(layer.astype(np.float32), axis=-1)
    return lengths


def cache_payload(
    lengths: np.ndarray,
    *,
    pieces: Sequence[Parts],
    prompt_length: int,
    fills: Sequence[Fill],
    capacity: int | None = None,
    allocated_bytes: int | None = None,
    windows: Sequence[int | None] = (),
    url: str | None = None,
    keep: bool = False,
) -> bytes:
    """The payload of the cache component, with all steps so far, so that moving through them sends nothing.

    `lengths`: (L, K, S) float32, the length of each stored key vector (`key_lengths`). `pieces`: the parts of the
    tokens at these S positions or more. `fills`: the cache after prefill, then after each step. `windows`: the window
    of each layer, None for a full one; positions that have left it are drawn as such.
    `url`: the name in the address under which the chosen step stands, shared with the decode component.
    `keep`: the step that is looked at stays, though there are more steps than before.
    At most 1 MiB of lengths (from there on pooled by maximum over `pooled` positions), 60 bytes a token, 40 a step.
    """
    layers, heads, held = lengths.shape
    assert not fills or max(fill.length for fill in fills) <= held, "a step holds more positions than were given"
    pooled = max(1, -(-layers * heads * held // MAX_VALUES))
    values = _pooled(lengths.astype(np.float32), pooled)
    finite = lengths[np.isfinite(lengths)]
    meta: dict[str, Any] = {
        "layers": layers,
        "heads": heads,
        "held": held,
        "columns": _columns(held, capacity),
        "prompt": prompt_length,
        "pooled": pooled,
        "low": float(finite.min()) if finite.size else 0.0,
        "high": float(finite.max()) if finite.size else 0.0,
        "fills": [[fill.length, fill.calculated_bytes, fill.used_bytes] for fill in fills],
        "pieces": list(pieces[:held]),
        "capacity": capacity,
        "allocated": allocated_bytes,
        "windows": list(windows),
        "url": url,
        "keep": keep,
    }
    return pack(meta, values)


def _columns(held: int, capacity: int | None) -> int:
    """Columns drawn: what is held and room to fill, at most the capacity, in leaps so that the grid stands still."""
    leap = 16 if held < 128 else 64
    room = (held // leap + 1) * leap
    return max(held, room if capacity is None else min(room, capacity))


def _pooled(lengths: np.ndarray, factor: int) -> np.ndarray:
    """The maximum over each run of `factor` positions; a run is NaN or infinite if one of its cells is."""
    if factor == 1:
        return lengths
    layers, heads, held = lengths.shape
    padded = np.pad(lengths, ((0, 0), (0, 0), (0, -held % factor)), constant_values=-np.inf)
    return padded.reshape(layers, heads, -1, factor).max(axis=-1)
