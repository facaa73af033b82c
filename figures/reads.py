"""What one step reads: the attention of its query, every head of every layer over all positions before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from figures.payload import pack
from figures.tokens import Parts

MAX_VALUES = 2**18
"""Weights in one payload, 1 MiB; above that neighbouring positions are pooled by their maximum."""
MEASURES = ("entropy", "distance", "first")


def measures(weights: np.ndarray) -> np.ndarray:
    """(L, H, 3) float32 of rows (L, H, S): entropy in nats, mean distance in positions, weight on position 0.

    A row need not sum to one (attention sinks of gpt-oss take a share); entropy and distance are those of the row
    divided by its sum. NaN is what the query cannot read.
    """
    read = np.nan_to_num(weights.astype(np.float64), nan=0.0)
    shares = read / np.maximum(read.sum(-1, keepdims=True), np.finfo(np.float64).tiny)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    distance = np.arange(weights.shape[-1] - 1, -1, -1)
    return np.stack([-(shares * logs).sum(-1), (shares * distance).sum(-1), read[..., 0]], -1).astype(np.float32)


def reads_payload(
    weights: np.ndarray,
    *,
    pieces: Sequence[Parts],
    step: int,
    of: int,
    url: str | None = None,
    text: str | None = None,
    most_values: int = MAX_VALUES,
) -> bytes:
    """The payload of the reads component.

    `weights`: (L, H, S), the row of the last of S positions in every head, NaN where the head cannot read (positions
    that have left a layer's window). `pieces`: the parts of the S tokens. `step`: which of `of` steps. `url`: the name
    of the step in the address. `text`: a prompt that is these tokens, for a link to the Attention page; None if none
    is. At most 1 MiB of weights (from there on the largest of each run of `pooled` positions) and 60 bytes a token.
    """
    layers, heads, positions = weights.shape
    start = strongest(weights)
    assert len(pieces) == positions, "a token for each position"
    pooled = max(1, -(-layers * heads * positions // most_values))
    meta: dict[str, Any] = {
        "layers": layers,
        "heads": heads,
        "positions": positions,
        "pooled": pooled,
        "pieces": list(pieces),
        "measures": list(MEASURES),
        "step": step,
        "of": of,
        "url": url,
        "text": text,
        "start": start[0] * heads + start[1],
        "gaps": bool(np.isnan(weights).any()),
    }
    return pack(meta, _pooled(weights.astype(np.float32), pooled), measures(weights))


def _pooled(weights: np.ndarray, factor: int) -> np.ndarray:
    """The largest weight of each run of `factor` positions; NaN where none of them can be read."""
    if factor == 1:
        return weights
    layers, heads, positions = weights.shape
    padded = np.pad(weights, ((0, 0), (0, 0), (0, -positions % factor)), constant_values=np.nan)
    return np.fmax.reduce(padded.reshape(layers, heads, -1, factor), axis=-1)


def strongest(weights: np.ndarray) -> tuple[int, int, int]:
    """Layer, head and position of the largest weight, position 0 and the query itself left out where there are others.

    Most heads put most of their weight on the first token whatever the text (Xiao et al. 2023, attention sinks).
    """
    inner = weights[..., 1:-1] if weights.shape[-1] > 2 else weights
    if not np.isfinite(inner).any():
        inner = weights
    layer, head, place = np.unravel_index(int(np.nanargmax(inner)), inner.shape)
    return int(layer), int(head), int(place) + (weights.shape[-1] - inner.shape[-1] > 0)
