"""What a head does on one prompt: seven numbers, each with its definition. All but the distance lie between 0 and 1.

`A_ij` is the weight that query i gives to key j; masked cells count as weight 0. A number is NaN where it is undefined:
the prompt is too short, nothing in it repeats, or the head's weights are not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHUNK_BYTES = 16 * 2**20
"""Heads are worked on as many at a time as fit into this: a layer at T = 2,048 is 17 MB for each."""


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
    kinds = _follows_earlier(ids) & allowed, _same_earlier(ids) & allowed
    chunk = max(1, CHUNK_BYTES // (4 * tokens * tokens))
    parts = [_scores(weights[start : start + chunk], allowed, *kinds) for start in range(0, heads, chunk)]
    return np.concatenate(parts)


def _scores(weights: np.ndarray, allowed: np.ndarray, follows: np.ndarray, same: np.ndarray) -> np.ndarray:
    heads, tokens, _ = weights.shape
    a = weights.astype(np.float32)  # a copy
    np.copyto(a, np.float32(0), where=~allowed)
    broken = ~np.isfinite(a).all((1, 2))
    out = np.full((heads, len(METRICS)), np.nan, np.float32)
    at = np.arange(tokens)
    if tokens > 1:
        out[:, 0] = a[:, 1:, 0].mean(-1, dtype=np.float64)
        out[:, 1] = a[:, at[1:], at[:-1]].mean(-1, dtype=np.float64)
        away = np.abs(at[:, None] - at[None, :]).astype(np.float32)
        out[:, 4] = np.einsum("hij,ij->hi", a[:, 1:], away[1:]).mean(-1, dtype=np.float64)
    for column, keys in ((2, follows), (5, same)):
        asking = keys.any(-1)
        if asking.any():
            read = np.einsum("hij,ij->hi", a[:, asking], keys[asking].astype(np.float32))
            out[:, column] = read.mean(-1, dtype=np.float64)
    readable = allowed.sum(-1)
    wide = readable >= 2
    if wide.any():
        logarithm = np.log(np.maximum(a, np.finfo(np.float32).tiny))  # times 0 it is 0, as it should be
        entropy = -np.einsum("hij,hij->hi", a, logarithm)[:, wide]
        out[:, 3] = (entropy / np.log(readable[wide])).mean(-1, dtype=np.float64)
        even = allowed / np.maximum(readable, 1)[:, None]
        apart = np.abs(np.subtract(a, even.astype(np.float32), out=a), out=a).sum(-1, dtype=np.float64)[:, wide]
        out[:, 6] = (1 - apart / 2).mean(-1)
    out[broken] = np.nan
    return out


def _follows_earlier(ids: Sequence[int]) -> np.ndarray:
    """(T, T) bool: key j stands right after an earlier occurrence of the token of query i, and before i."""
    token = np.asarray(ids)
    position = np.arange(len(token))
    follows = np.zeros((len(token), len(token)), bool)
    follows[:, 1:] = token[:, None] == token[None, :-1]
    return follows & (position[None, :] < position[:, None])


def _same_earlier(ids: Sequence[int]) -> np.ndarray:
    """(T, T) bool: key j holds the token of query i, and stands before i."""
    token, position = np.asarray(ids), np.arange(len(ids))
    return (token[:, None] == token[None, :]) & (position[None, :] < position[:, None])
