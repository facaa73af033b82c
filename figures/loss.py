"""The loss of a token taken apart: where its logit lies among all logits, and how far log-sum-exp lies above it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from figures.format import fixed, group, sig
from figures.payload import pack
from figures.table import csv_text
from figures.tokens import Token
from figures.twins import Tile, tile

if TYPE_CHECKING:
    from lmcore.likelihood import Prediction

BINS = 56


def logit_edges(low: float, high: float, bins: int = BINS) -> np.ndarray:
    """Edges (bins + 1,) from `low` to `high`, of one width."""
    if not (np.isfinite(low) and np.isfinite(high)):
        low, high = -1.0, 1.0
    return np.linspace(low, high if high > low else low + 1.0, bins + 1)


def loss_payload(
    tokens: Sequence[Token],
    *,
    logit: np.ndarray,
    logsumexp: np.ndarray,
    counts: np.ndarray,
    edges: np.ndarray,
    vocab_size: int,
    url: str | None = "position",
) -> bytes:
    """The payload of the loss component for T tokens.

    `logit` and `logsumexp` (T,) of each token under the logits before it, NaN for position 0; `counts` (T, bins) how
    many entries of the vocabulary had a logit between two `edges` *after* each position. `url` as for the strip.
    At most 250 bytes a token.
    """
    meta = {
        "pieces": [token.parts for token in tokens],
        "ids": [token.id for token in tokens],
        "vocab_size": vocab_size,
        "url": url,
    }
    return pack(
        meta,
        np.asarray(logit, np.float64),
        np.asarray(logsumexp, np.float64),
        np.asarray(counts, np.int32),
        np.asarray(edges, np.float64),
    )


def dots_payload(
    tokens: Sequence[Token],
    *,
    candidates: np.ndarray,
    product: np.ndarray,
    logit: np.ndarray,
    normed_length: np.ndarray,
    row_length: np.ndarray,
    token_of: Callable[[int], Token],
    transformed: bool = False,
    url: str | None = "position",
) -> bytes:
    """The payload of the dots component: logits of k candidates after each of T positions, as dot products.

    `candidates` (T, k) are token ids, -1 where there is none; `product` (T, k) is h . w in float64, `logit` (T, k) what
    the model computed; `normed_length` (T,) |h|, `row_length` (T, k) |w|. `transformed`: the model adds a bias, scales
    or caps the product, which `product` then includes. At most 400 bytes a token.
    """
    used = sorted({int(i) for i in np.unique(candidates) if i >= 0})
    meta = {
        "pieces": [token.parts for token in tokens],
        "ids": [token.id for token in tokens],
        "vocabulary": {str(i): token_of(i).parts for i in used},
        "transformed": transformed,
        "url": url,
    }
    return pack(
        meta,
        np.asarray(candidates, np.int32),
        np.asarray(product, np.float64),
        np.asarray(logit, np.float32),
        np.asarray(normed_length, np.float32),
        np.asarray(row_length, np.float32),
    )


def with_next(top_ids: np.ndarray, tokens: Sequence[int], count: int) -> np.ndarray:
    """The first `count` likeliest ids after each position and, in one more column, the token that the text goes on
    with if it is not among them, -1 where it is or where the text ends."""
    first = np.asarray(top_ids[:, :count], np.int64)
    follows = np.append(np.asarray(tokens[1:], np.int64), -1)
    extra = np.where((first == follows[:, None]).any(axis=1), -1, follows)
    return np.concatenate([first, extra[:, None]], axis=1)


def loss_tiles(said: Prediction, torch_mean: float) -> list[Tile]:
    """Mean loss and perplexity, each from -z + LSE(z) and from PyTorch's cross entropy of the same logits."""
    predicted = len(said.loss) - 1
    if predicted < 1:
        return []
    mean = said.mean_loss
    # Each loss is a difference of numbers up to LSE(z), held in float32.
    bound = 8 * 2.0**-23 * max(1.0, float(abs(said.logsumexp[1:]).max()), float(abs(said.logit[1:]).max()))
    over = f"over {group(predicted)} predicted {'token' if predicted == 1 else 'tokens'}"
    return [
        tile(
            "Mean loss",
            mean,
            torch_mean,
            unit="nats",
            rounding=bound,
            how="by PyTorch",
            reason="float32 rounding",
            note=over,
        ),
        tile(
            "Perplexity",
            said.perplexity,
            math.exp(torch_mean),
            rounding=bound * said.perplexity,
            how="by PyTorch",
            reason="float32 rounding",
            note="exp of the mean loss",
        ),
    ]


def loss_points(tokens: Sequence[int], said: Prediction, *, name: Callable[[int], str]) -> list[str]:
    """Up to three sentences about this text; `name` writes a token so that it is safe in Markdown."""
    predicted = len(tokens) - 1
    if predicted < 1:
        return ["One token alone has no loss: nothing came before it to predict it."]
    first = int((said.rank[1:] == 1).sum())
    worst, best = int(said.loss[1:].argmax()) + 1, int(said.loss[1:].argmin()) + 1
    total = float(said.loss[1:].sum())
    points = [
        f"{group(first)} of {group(predicted)} tokens were the model's first choice.",
        f"{name(tokens[worst])} at position {worst} carries {fixed(100 * float(said.loss[worst]) / total, 0)} % of the "
        f"whole loss of {fixed(total, 2)} nats.",
    ]
    if best != worst:
        cost = float(said.loss[best])
        how = "nearly free" if cost < 0.1 else "the easiest"
        points.append(f"{name(tokens[best])} at position {best} was {how}: loss {sig(cost, 2)} nats.")
    return points


def loss_csv(tokens: Sequence[int], said: Prediction) -> str:
    """The terms of every token's loss."""
    rows = zip(range(len(tokens)), tokens, said.logit, said.logsumexp, said.loss, said.rank, strict=True)
    return csv_text(["position", "id", "logit", "log-sum-exp", "loss in nats", "rank"], rows)


def dots_csv(candidates: np.ndarray, product: np.ndarray, logit: np.ndarray) -> str:
    """Both derivations of every candidate's logit."""
    rows = (
        [position, int(token), product[position, k], logit[position, k]]
        for position, row in enumerate(candidates)
        for k, token in enumerate(row)
        if token >= 0
    )
    return csv_text(["position", "next token id", "dot product", "in the logits"], rows)
