"""The weights of a layer a second time, in numpy and float64, from the queries and keys that the model used."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

BLOCK_BYTES = 4 * 2**20
"""Scores in float64 are made for so many rows at a time: of a long prompt they would be 34 MB a head."""


@dataclass(frozen=True, slots=True)
class Check:
    """One layer, or several put together with `worst`.

    `model` and `again` are the weight where the two derivations differ most, at (layer, head, query, key); `bound` is
    what rounding in the model's dtype explains. `row_sum` is the row sum furthest from 1 of `rows`. Of `masked` cells
    `zeros` have a weight of exactly 0.
    """

    model: float
    again: float
    place: tuple[int, int, int, int]
    bound: float
    row_sum: float
    rows: int
    masked: int
    zeros: int

    @property
    def difference(self) -> float:
        return abs(self.model - self.again)


def softmax_rows(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """exp(s - max) / sum over the keys that a query may read; 0 for the others, and for all where it may read none."""
    scores = np.where(allowed, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


def scores_again(
    q: np.ndarray,
    k: np.ndarray,
    *,
    scale: float,
    softcap: float | None = None,
    slopes: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    first: int = 0,
) -> np.ndarray:
    """(H, R, T) float64 from q (H, R, Dh), of positions `first` on, and k (K, T, Dh), both after RoPE; query head h
    reads KV head h // (H / K).

    c tanh(q k^T scale / c) - slope (i - j) + bias[i - j]; without a soft-cap c, slopes (ALiBi) or a `bias` (H, T) by
    distance (T5) these terms are left out.
    """
    shared = np.repeat(k.astype(np.float64), q.shape[0] // k.shape[0], axis=0)
    scores = (q.astype(np.float64) @ shared.transpose(0, 2, 1)) * scale
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    away = np.arange(first, first + q.shape[1])[:, None] - np.arange(k.shape[1])
    if slopes is not None:
        scores -= np.asarray(slopes, np.float64)[:, None, None] * away
    if bias is not None:
        scores += np.asarray(bias, np.float64)[:, np.abs(away)]
    return scores


def check_layer(
    layer: int,
    weights: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    allowed: np.ndarray,
    *,
    eps: float,
    scale: float,
    softcap: float | None = None,
    slopes: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> Check:
    """The model's `weights` (H, T, T) of one layer against softmax(scores) over the keys that `allowed` gives a query.

    The bound: a weight is rounded by eps, the spacing of the model's dtype at 1; a score s by eps |s| where it is
    stored, and by that of float32 times |q| |k| scale where it is summed; softmax passes these on, at most halved.
    """
    rows = max(1, BLOCK_BYTES // (8 * weights.shape[0] * weights.shape[2]))
    found = []
    for first in range(0, weights.shape[1], rows):
        some = slice(first, first + rows)
        scores = scores_again(q[:, some], k, scale=scale, softcap=softcap, slopes=slopes, bias=bias, first=first)
        check = _check_rows(layer, weights[:, some], scores, q[:, some], k, allowed[some], eps, scale)
        head, query, key = check.place[1:]
        found.append(replace(check, place=(layer, head, first + query, key)))
    return worst(found)


def _check_rows(
    layer: int,
    weights: np.ndarray,
    scores: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    allowed: np.ndarray,
    eps: float,
    scale: float,
) -> Check:
    again = softmax_rows(scores, allowed)
    off = np.abs(weights - again)
    head, query, key = (int(i) for i in np.unravel_index(int(np.nan_to_num(off, nan=np.inf).argmax()), off.shape))
    sums = weights.sum(-1, dtype=np.float64)[:, allowed.any(-1)]
    longest = [float(np.linalg.norm(x, axis=-1).max()) for x in (q, k)]
    return Check(
        model=float(weights[head, query, key]),
        again=float(again[head, query, key]),
        place=(layer, head, query, key),
        bound=eps * (1 + float(np.abs(scores[:, allowed]).max(initial=0))) + 2.0**-23 * longest[0] * longest[1] * scale,
        row_sum=float(sums.flat[int(np.abs(sums - 1).argmax())]) if sums.size else 1.0,
        rows=sums.size,
        masked=weights.shape[0] * int((~allowed).sum()),
        zeros=int((weights[:, ~allowed] == 0).sum()),
    )


def worst(checks: list[Check]) -> Check:
    """Several layers as one: the largest difference, the row sum furthest from 1, and all cells. NaN is worst."""

    def size(off: float) -> float:
        return float(np.nan_to_num(abs(off), nan=np.inf))

    most = max(checks, key=lambda check: size(check.difference))
    return Check(
        model=most.model,
        again=most.again,
        place=most.place,
        bound=max(check.bound for check in checks),
        row_sum=max((check.row_sum for check in checks), key=lambda total: size(total - 1)),
        rows=sum(check.rows for check in checks),
        masked=sum(check.masked for check in checks),
        zeros=sum(check.zeros for check in checks),
    )
