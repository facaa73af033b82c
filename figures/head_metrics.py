"""What a head does on one prompt, as four numbers between 0 and 1, each with its definition.

`A_ij` is the weight that query i gives to key j; masked cells count as weight 0. A number is NaN where it is undefined:
the prompt is too short, nothing in it repeats, or the head's weights are not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Metric:
    key: str
    name: str
    short: str
    definition: str
    undefined: str


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
)


def head_metrics(weights: np.ndarray, allowed: np.ndarray, ids: Sequence[int]) -> np.ndarray:
    """The METRICS of each head, (H, 4) float32, of the weights (H, T, T) of one layer.

    `allowed` (T, T) is true where a query may read a key. With n_i the number of keys that query i may read,

        first      mean_{i>=1} A_i0
        previous   mean_{i>=1} A_i,i-1
        induction  mean_i sum_j A_ij over the j with 1 <= j < i, allowed, t_{j-1} = t_i; i runs over those with such a j
        entropy    mean_i (-sum_j A_ij ln A_ij) / ln n_i over the i with n_i >= 2

    (induction after Olsson et al. 2022, "In-context Learning and Induction Heads", there called prefix matching).
    """
    heads, tokens, _ = weights.shape
    allowed = np.asarray(allowed, bool)
    a = weights.astype(np.float32)  # a copy
    np.copyto(a, np.float32(0), where=~allowed)
    out = np.full((heads, len(METRICS)), np.nan, np.float32)
    if tokens > 1:
        later = np.arange(1, tokens)
        out[:, 0] = a[:, 1:, 0].mean(-1, dtype=np.float64)
        out[:, 1] = a[:, later, later - 1].mean(-1, dtype=np.float64)
    follows = _follows_earlier(ids) & allowed
    asking = follows.any(-1)
    if asking.any():
        out[:, 2] = np.einsum("hij,ij->hi", a[:, asking], follows[asking].astype(np.float32)).mean(-1, dtype=np.float64)
    readable = allowed.sum(-1)
    wide = readable >= 2
    if wide.any():
        logarithm = np.log(np.maximum(a, np.finfo(np.float32).tiny))  # times 0 it is 0, as it should be
        entropy = -np.einsum("hij,hij->hi", a, logarithm)[:, wide]
        out[:, 3] = (entropy / np.log(readable[wide])).mean(-1, dtype=np.float64)
    out[~np.isfinite(a).all((1, 2))] = np.nan
    return out


def _follows_earlier(ids: Sequence[int]) -> np.ndarray:
    """(T, T) bool: key j stands right after an earlier occurrence of the token of query i, and before i."""
    token = np.asarray(ids)
    position = np.arange(len(token))
    follows = np.zeros((len(token), len(token)), bool)
    follows[:, 1:] = token[:, None] == token[None, :-1]
    return follows & (position[None, :] < position[:, None])
