"""What a model's logits say of their own text: the loss of each token, its rank, the likeliest others.

Arrays in, arrays out, in numpy. Position t is predicted by the logits of position t - 1; nothing predicts position 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int

Logits = Float[np.ndarray, "T V"]
ROWS = 64
"""Positions are ranked so many at a time: a copy of all logits of 2,048 tokens may not fit."""


class Prediction(NamedTuple):
    """For each of T tokens; the first of each is NaN, or 0 for the rank.

    - `logit` z_y and `logsumexp` LSE(z), of the logits before the token; `loss` = LSE(z) - z_y, in nats.
    - `rank`: 1 + the number of tokens with a larger logit.
    - `top_ids`, `top_probs` (T, k): the likeliest tokens *after* each position, in falling order.
    """

    logit: Float64[np.ndarray, " T"]
    logsumexp: Float64[np.ndarray, " T"]
    loss: Float64[np.ndarray, " T"]
    rank: Int[np.ndarray, " T"]
    top_ids: Int[np.ndarray, "T k"]
    top_probs: Float64[np.ndarray, "T k"]

    @property
    def mean_loss(self) -> float:
        """Mean negative log-likelihood of the predicted tokens, in nats; NaN when there are none."""
        return float(self.loss[1:].mean()) if len(self.loss) > 1 else float("nan")

    @property
    def perplexity(self) -> float:
        """exp of the mean loss: of how many equally likely tokens the choice would be as hard."""
        return float(np.exp(self.mean_loss))


def logsumexp(logits: Logits) -> Float64[np.ndarray, " T"]:
    """`log sum exp z` of each row, in float64, with the row's maximum taken out first."""
    largest = logits.max(axis=1).astype(np.float64)
    out = np.empty(len(logits))
    for row, top in enumerate(largest):  # one row at a time: T x V in float64 would be 200 MB at T = 512
        out[row] = top + np.log(np.exp(logits[row].astype(np.float64) - top).sum())
    return out


def predict(logits: Logits, tokens: Sequence[int], *, top: int = 10) -> Prediction:
    """The loss, the rank and the `top` likeliest next tokens at each position of a text of T tokens."""
    count, vocab = logits.shape
    assert count == len(tokens)
    before, ids = np.arange(count - 1), np.asarray(tokens[1:], dtype=np.int64)
    sums = logsumexp(logits)
    logit, lse = np.full(count, np.nan), np.full(count, np.nan)
    logit[1:], lse[1:] = logits[before, ids], sums[:-1]
    rank = np.zeros(count, dtype=np.int64)
    kept = min(top, vocab)
    top_ids, values = np.empty((count, kept), np.int64), np.empty((count, kept), logits.dtype)
    for first in range(0, count, ROWS):
        some = slice(first, first + ROWS)
        later = slice(first + 1, min(first + ROWS, count - 1) + 1)  # the tokens that these rows predict
        rows = logits[some]
        rank[later] = 1 + (rows[: later.stop - later.start] > logit[later, None]).sum(axis=1)
        best = np.argpartition(-rows, kept - 1, axis=1)[:, :kept]
        of_best = np.take_along_axis(rows, best, axis=1)
        order = np.lexsort((best, -of_best), axis=1)
        top_ids[some] = np.take_along_axis(best, order, axis=1)
        values[some] = np.take_along_axis(of_best, order, axis=1)
    return Prediction(
        logit=logit,
        logsumexp=lse,
        loss=lse - logit,
        rank=rank,
        top_ids=top_ids,
        top_probs=np.exp(values.astype(np.float64) - sums[:, None]),
    )


def histogram(logits: Logits, edges: Float64[np.ndarray, " N"]) -> Int[np.ndarray, "T N-1"]:
    """How many entries of the vocabulary have a logit in each bin, at each position."""
    return np.stack([np.histogram(row, bins=edges)[0] for row in logits])
