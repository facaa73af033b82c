"""What a head does on one prompt: seven numbers, each with its definition. All but the distance lie between 0 and 1.

`A_ij` is the weight that query i gives to key j; masked cells count as weight 0. A number is NaN where it is undefined:
the prompt is too short, nothing in it repeats, or the head's weights are not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHUNK_BYTES = 16 * 2**20
ROWS = 256
"""Rows are worked on so many at a time, of as many heads as fit into CHUNK_BYTES, and only as wide as they may read."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`tokens`: the number is a distance in tokens, and not a share."""

    key: str
    name: str
    short: str
    definition: str
    undefined: str
    tokens: bool = False


METRICS = (
    Metric(
        "first",
        "mass on the first token",
        "sink",
        "mean over the queries i ≥ 1 of the weight on key 0",
        "undefined",
    ),
    Metric(
        "previous",
        "mass on the previous token",
        "previous",
        "mean over the queries i ≥ 1 of the weight on key i − 1",
        "undefined",
    ),
    Metric(
        "induction",
        "induction",
        "induction",
        "weight on the keys that follow an earlier occurrence of the query's token, mean over the queries with one",
        "no repeated token",
    ),
    Metric(
        "entropy",
        "entropy, of the maximum",
        "broad",
        "entropy of a row over the logarithm of the number of keys it may read, mean over the rows that may read two",
        "undefined",
    ),
    Metric(
        "distance",
        "mean distance in tokens",
        "far",
        "sum over the keys j of weight times |i − j|, mean over the queries i ≥ 1",
        "undefined",
        tokens=True,
    ),
    Metric(
        "same",
        "same token",
        "same",
        "weight on the earlier keys that hold the query's own token, itself (j = i) left out, mean over the queries "
        "with one",
        "no repeated token",
    ),
    Metric(
        "uniform",
        "uniform",
        "uniform",
        "1 − half the sum over the n readable keys of |weight − 1/n| (the total variation distance to uniform), mean "
        "over the rows that may read two",
        "undefined",
    ),
)


def head_metrics(weights: np.ndarray, allowed: np.ndarray, ids: Sequence[int]) -> np.ndarray:
    """The METRICS of each head, (H, 7) float32, of the weights (H, T, T) of one layer.

    `allowed` (T, T) is true where a query may read a key. With n_i the number of keys that query i may read,

        first      mean_{i>=1} A_i0
        previous   mean_{i>=1} A_i,i-1
        induction  mean_i sum_j A_ij over the j with 1 <= j < i, allowed, t_{j-1} = t_i; i runs over those with such a j
        entropy    mean_i (-sum_j A_ij ln A_ij) / ln n_i over the i with n_i >= 2
        distance   mean_{i>=1} sum_j A_ij |i - j|, in tokens
        same       mean_i sum_j A_ij over the j < i, allowed, t_j = t_i; i runs over those with such a j
        uniform    mean_i (1 - sum_j |A_ij - 1 / n_i| / 2) over the i with n_i >= 2, j over the keys that i may read

    (induction after Olsson et al. 2022, "In-context Learning and Induction Heads", there called prefix matching;
    "same" is what Wang et al. 2023, "Interpretability in the Wild", call duplicate token heads).
    """
    heads, tokens, _ = weights.shape
    allowed = np.asarray(allowed, bool)
    chunk = max(1, CHUNK_BYTES // (4 * tokens * min(tokens, ROWS)))
    sums, counts = np.zeros((heads, len(METRICS))), np.zeros(len(METRICS), int)
    for top in range(0, tokens, ROWS):
        some = slice(top, top + ROWS)
        block = _Block(allowed[some], np.asarray(ids), top)
        counts += block.counts
        for first in range(0, heads, chunk):
            sums[first : first + chunk] += block.sums(weights[first : first + chunk, some])
    out = np.full((heads, len(METRICS)), np.nan, np.float32)
    np.divide(sums, counts, out=out, where=counts > 0, casting="same_kind")
    out[~np.isfinite(sums).all(-1)] = np.nan
    return out


class _Block:
    """Some rows of a map, from row `top` on: for each metric how many of them count, and a head's sum over these."""

    def __init__(self, allowed: np.ndarray, ids: np.ndarray, top: int) -> None:
        self._width = int(np.flatnonzero(allowed.any(0)).max(initial=0)) + 1
        self._allowed = allowed = allowed[:, : self._width]
        query, key = np.arange(top, top + len(allowed)), np.arange(self._width)
        earlier = allowed & (key < query[:, None])
        before = np.concatenate([[-1], ids])[: self._width]  # the token before each key; no id is negative
        self._kinds = [(kind & earlier) for kind in (ids[query][:, None] == before, ids[query][:, None] == ids[key])]
        readable = allowed.sum(-1)
        self._wide, self._later = readable >= 2, query >= 1
        self._logarithm = np.log(np.maximum(readable, 2))
        self._even = (allowed / np.maximum(readable, 1)[:, None]).astype(np.float32)
        self._away = np.abs(query[:, None] - key).astype(np.float32)
        self._previous = np.flatnonzero(self._later & (query - 1 < self._width)), top
        later, wide = int(self._later.sum()), int(self._wide.sum())
        follows, same = (int(kind.any(-1).sum()) for kind in self._kinds)
        self.counts = np.array([later, later, follows, wide, later, same, wide])

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """(H, 7) float64 of the weights (H, rows, T); not finite throughout where a weight is not."""
        a = weights[:, :, : self._width].astype(np.float32)  # a copy
        np.copyto(a, np.float32(0), where=~self._allowed)
        rows, top = self._previous
        out = np.zeros((len(a), len(METRICS)))
        out[:, 0] = a[:, self._later, 0].sum(-1, dtype=np.float64)
        out[:, 1] = a[:, rows, rows + top - 1].sum(-1, dtype=np.float64)
        out[:, 4] = _over(a, self._away)[:, self._later].sum(-1, dtype=np.float64)
        for column, kind in zip((2, 5), self._kinds, strict=True):
            out[:, column] = _over(a, kind.astype(np.float32)).sum(-1, dtype=np.float64)
        logarithm = np.log(np.maximum(a, np.finfo(np.float32).tiny))  # times 0 it is 0, as it should be
        entropy = -np.einsum("hij,hij->hi", a, logarithm)
        out[:, 3] = (entropy / self._logarithm)[:, self._wide].sum(-1)
        out[~np.isfinite(entropy).all(-1)] = np.nan
        apart = np.abs(np.subtract(a, self._even, out=a), out=a).sum(-1, dtype=np.float64)
        out[:, 6] = (1 - apart / 2)[:, self._wide].sum(-1)
        return out


def _over(a: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """sum_j a_hij f_ij, (H, rows)."""
    return np.einsum("hij,ij->hi", a, factor)
