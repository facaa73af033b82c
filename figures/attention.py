"""The payload of the attention component: every head's map small, some of them exact, and what each head does.

Two steps, because the first reads every weight and the second is asked for again when the browser wants another layer:

    summary = summarise(weights, ids, allowed)                          # all layers, once a prompt; holds no weights
    blob = attention_payload(weights, summary, tokens, n_kv_heads=3)    # a bounded number of bytes

`weights` is one (H, T, T) float32 for each layer, with a row for each query. `allowed` is (T, T), or (L, T, T) where
layers differ, true where a query may read a key; None is the causal mask.

What is exact depends on the size: all heads up to T = 128, if they fit into EXACT_BYTES; else all heads of one layer;
else one head. What is not exact is there as a thumbnail: each cell of it the maximum of a block of cells, in 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from figures.head_metrics import CHUNK_BYTES, METRICS, Metric, head_metrics
from figures.payload import pack
from figures.tokens import Token
from lmcore.errors import InputError

EXACT_BYTES = 16 * 2**20
THUMBNAIL_BYTES = 4 * 2**20
MAX_TOKENS = 2048
"""A full map of 2048 x 2048 float32 weights is EXACT_BYTES: one head always fits."""
ALL_HEADS_TOKENS = 128
_SIDE = 36  # a thumbnail is drawn 18 pixels wide, 36 on a fine screen

MASKED, NOT_FINITE = 0, 255
"""The two states in a thumbnail's bytes; 1..254 are the weight w as 1 + 253 sqrt(w), which is how it is coloured."""


class Layers(Protocol):
    """The weights by layer: an array (L, H, T, T), a list of (H, T, T), or an object that computes one."""

    def __len__(self) -> int: ...

    def __getitem__(self, layer: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class View:
    """What the component shows first; a view in the page's address goes before it."""

    layer: int = 0
    head: int = 0
    query: int = 0
    key: int = 0
    grid: str = "maps"
    scale: str = "raw"


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """What is known of every head without its weights."""

    metrics: np.ndarray  # (L, H, 7) float32, by METRICS
    not_finite: np.ndarray  # (L, H) int32, cells that are NaN or infinite
    thumbnails: np.ndarray  # (2, L, H, P, P) uint8, raw and without position 0; P = 0 where all weights are sent
    block: int  # cells of the map on a side of one cell of a thumbnail
    masks: np.ndarray  # (M, T, T) bool, the distinct ones
    mask_of_layer: np.ndarray  # (L,) int32
    start: View

    @property
    def shape(self) -> tuple[int, int, int]:
        layers, heads, _ = self.metrics.shape
        return layers, heads, self.masks.shape[-1]

    @property
    def triangular(self) -> bool:
        """No query reads a later key, so only the lower triangle is sent."""
        return not np.triu(self.masks, 1).any()

    @property
    def exact(self) -> str:
        """Which weights a payload holds exactly: "all" of them, those of one "layer", or those of one "head"."""
        return _what_fits(*self.shape, self.triangular)


def summarise(weights: Layers, ids: Sequence[int], allowed: np.ndarray | None = None) -> Summary:
    """The summary of all layers' weights; reads each layer once. Raises InputError above MAX_TOKENS tokens."""
    tokens, layers = len(ids), len(weights)
    if not 1 <= tokens <= MAX_TOKENS:
        raise InputError(
            f"{tokens} tokens",
            expected=f"1 to {MAX_TOKENS}",
            where="the attention maps",
            todo="Shorten the prompt: a map has a cell for every pair of tokens.",
        )
    masks, mask_of_layer = _distinct_masks(allowed, layers, tokens)
    metrics, not_finite, thumbnails, peaks = [], [], [], []
    side = 0
    for index in range(layers):
        layer = np.asarray(weights[index])
        heads = layer.shape[0]
        if index == 0 and _what_fits(layers, heads, tokens, not np.triu(masks, 1).any()) != "all":
            side = _side(layers, heads, tokens)
        mask = masks[mask_of_layer[index]]
        metrics.append(head_metrics(layer, mask, ids))
        not_finite.append((~np.isfinite(layer) & mask).sum((1, 2)))
        some = max(1, CHUNK_BYTES // (4 * tokens * tokens))  # heads of which a copy is small
        parts = [_thumbnails(layer[first : first + some], mask, side) for first in range(0, heads, some)]
        thumbnails.append(np.concatenate(parts, 1))
        peaks.append(_peak(layer, mask))
    return Summary(
        metrics=np.stack(metrics),
        not_finite=np.stack(not_finite).astype(np.int32),
        thumbnails=np.stack(thumbnails, 1),
        block=-(-tokens // side) if side else 1,
        masks=masks,
        mask_of_layer=mask_of_layer,
        start=_strongest(peaks, tokens),
    )


def attention_payload(
    weights: Layers,
    summary: Summary,
    tokens: Sequence[Token],
    *,
    n_kv_heads: int,
    view: View | None = None,
    exact: tuple[int, int] | None = None,
) -> bytes:
    """The component's payload; `exact` is the layer and head whose exact weights it must hold (default: the view's).

    At most EXACT_BYTES of weights, THUMBNAIL_BYTES of thumbnails (or 32 bytes a head, where that is more), T^2 / 8 for
    each distinct mask, 32 bytes of numbers a head, and the tokens' text.
    """
    view = view or summary.start
    n_layers, n_heads, n_tokens = summary.shape
    layer, head = exact or (view.layer, view.head)
    layer, head = min(max(layer, 0), n_layers - 1), min(max(head, 0), n_heads - 1)
    if summary.exact == "all":
        first_layer, layers, first_head, heads = 0, n_layers, 0, n_heads
    elif summary.exact == "layer":
        first_layer, layers, first_head, heads = layer, 1, 0, n_heads
    else:
        first_layer, layers, first_head, heads = layer, 1, head, 1
    packed = np.empty((layers, heads, _cells(n_tokens, summary.triangular)), np.float32)
    cells = np.tril_indices(n_tokens) if summary.triangular else np.indices((n_tokens, n_tokens)).reshape(2, -1)
    for k in range(layers):
        packed[k] = np.asarray(weights[first_layer + k])[first_head : first_head + heads, cells[0], cells[1]]
    meta = {
        "tokens": [token.parts for token in tokens],
        "shape": list(summary.shape),
        "n_kv_heads": n_kv_heads,
        "exact": {"layer": first_layer, "layers": layers, "head": first_head, "heads": heads},
        "triangular": summary.triangular,
        "block": summary.block,
        "mask_of_layer": summary.mask_of_layer.tolist(),
        "metrics": [asdict(metric) | {"top": _top(metric, summary)} for metric in METRICS],
        "view": asdict(view),
    }
    masks = np.packbits(summary.masks.reshape(len(summary.masks), -1), axis=-1, bitorder="little")
    return pack(meta, packed, masks, summary.metrics, summary.not_finite, summary.thumbnails)


def _top(metric: Metric, summary: Summary) -> float:
    """The end of a metric's axis: 1, or for a distance what a causal head that reads position 0 only has, T / 2."""
    if not metric.tokens:
        return 1.0
    found = summary.metrics[..., METRICS.index(metric)]
    return max(1.0, summary.shape[2] / 2, float(np.nanmax(found, initial=0)))


def _cells(tokens: int, triangular: bool) -> int:
    return tokens * (tokens + 1) // 2 if triangular else tokens * tokens


def _what_fits(layers: int, heads: int, tokens: int, triangular: bool) -> str:
    head_bytes = 4 * _cells(tokens, triangular)
    if tokens <= ALL_HEADS_TOKENS and layers * heads * head_bytes <= EXACT_BYTES:
        return "all"
    return "layer" if heads * head_bytes <= EXACT_BYTES else "head"


def _side(layers: int, heads: int, tokens: int) -> int:
    """The largest side of a thumbnail for which two sets of them fit into THUMBNAIL_BYTES, between 4 and _SIDE."""
    fits = int((THUMBNAIL_BYTES / (2 * layers * heads)) ** 0.5)
    return min(tokens, _SIDE, max(4, fits))


def _distinct_masks(allowed: np.ndarray | None, layers: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    if allowed is None:
        allowed = np.tri(tokens, dtype=bool)
    allowed = np.asarray(allowed, bool)
    if allowed.ndim == 2:
        return allowed[None], np.zeros(layers, np.int32)
    masks, of_layer = np.unique(allowed, axis=0, return_inverse=True)
    return masks, of_layer.reshape(-1).astype(np.int32)


def _thumbnails(weights: np.ndarray, allowed: np.ndarray, side: int) -> np.ndarray:
    """(2, H, P, P) uint8: the maximum of each block, of the weights and of the weights without position 0."""
    if not side:
        return np.zeros((2, weights.shape[0], 0, 0), np.uint8)
    seen = weights.astype(np.float32)  # a copy
    masked = ~allowed
    np.copyto(seen, np.float32(-1), where=masked)
    finite = bool(np.isfinite(seen).all())
    raw = _pool(seen, side, finite)
    rest = np.einsum("hij,ij->hi", seen[:, :, 1:], allowed[:, 1:].astype(np.float32))[:, :, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        seen /= rest
    np.copyto(seen, np.float32(-1), where=masked)
    np.copyto(seen, np.float32(-1), where=rest == 0)
    seen[:, :, 0] = -1
    return np.stack([raw, _pool(seen, side, finite)])


def _pool(values: np.ndarray, side: int, finite: bool) -> np.ndarray:
    """(H, P, P) uint8 of (H, T, T) values; what is below 0 is masked."""
    if not finite:
        values = np.where(np.isfinite(values), values, np.float32(np.inf))
    block = -(-values.shape[-1] // side)
    starts = range(0, values.shape[-1], block)
    rows = np.stack([values[:, start : start + block].max(1) for start in starts], 1)
    top = np.maximum.reduceat(rows, starts, axis=2)
    shade = 1 + np.rint(253 * np.sqrt(np.clip(top, 0, 1)))
    return np.select([top < 0, np.isinf(top)], [MASKED, NOT_FINITE], shade).astype(np.uint8)


def _peak(weights: np.ndarray, allowed: np.ndarray) -> tuple[float, int, int]:
    """The largest weight of the last query, apart from what everything reads: position 0 and the query itself."""
    last = np.where(allowed[-1] & np.isfinite(weights[:, -1]), weights[:, -1], -1.0)
    last[:, [0, -1]] = -1.0
    head, key = np.unravel_index(int(last.argmax()), last.shape)
    return float(last[head, key]), int(head), int(key)


def _strongest(peaks: Sequence[tuple[float, int, int]], tokens: int) -> View:
    layer = max(range(len(peaks)), key=lambda index: peaks[index][0])
    weight, head, key = peaks[layer]
    if weight < 0:
        return View(query=tokens - 1)
    return View(layer=layer, head=head, query=tokens - 1, key=key)
