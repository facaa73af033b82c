"""How close a changed model's next-token distributions stay to the original's, over a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from lmcore.cache import KVCache
from lmcore.likelihood import logsumexp
from lmcore.model import Transformer

Logits = Float[np.ndarray, "T V"]


class Fidelity(NamedTuple):
    """Over the T positions of a text.

    - `loss`: mean negative log-likelihood of the T - 1 predicted tokens, in nats; NaN where there is one token.
    - `divergence`: mean over positions of KL(p || q) = sum p (log p - log q), p the original's, in nats.
    - `agreement`: share of positions at which both find the same token likeliest.
    """

    loss: float
    divergence: float
    agreement: float


def mean_loss(logits: Logits, tokens: Sequence[int]) -> float:
    """Mean of LSE(z) - z_y over the predicted tokens, in nats; NaN where there is one token."""
    if len(tokens) < 2:
        return float("nan")
    before, ids = np.arange(len(tokens) - 1), np.asarray(tokens[1:])
    return float((logsumexp(logits[:-1]) - logits[before, ids]).mean())


def compare(original: Logits, changed: Logits, tokens: Sequence[int]) -> Fidelity:
    """What the logits of a changed model have lost against the original's on the same T tokens."""
    assert original.shape == changed.shape
    assert len(original) == len(tokens)
    sums, other = logsumexp(original), logsumexp(changed)
    divergence = 0.0
    for row in range(len(tokens)):  # one row at a time: the whole vocabulary in float64 is large
        log_p = original[row].astype(np.float64) - sums[row]
        log_q = changed[row].astype(np.float64) - other[row]
        divergence += float(np.exp(log_p) @ (log_p - log_q))
    same = (original.argmax(axis=1) == changed.argmax(axis=1)).mean()
    return Fidelity(mean_loss(changed, tokens), divergence / len(tokens), float(same))


def read_through(
    model: Transformer,
    tokens: Sequence[int],
    cache: KVCache,
    *,
    chunk: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Logits:
    """The logits (T, V), float32, of a text run into an empty cache, `chunk` tokens a forward.

    The queries of a forward read what the cache hands back of all earlier ones, so that what it has lost shows in every
    later logit; with `chunk` 1 that is decoding. Raising inside `progress` (tokens done, of all) cancels.
    """
    rows = []
    for begin in range(0, len(tokens), chunk):
        if progress is not None:
            progress(begin, len(tokens))
        part = torch.tensor([list(tokens[begin : begin + chunk])], device=model.device)
        rows.append(model.forward(part, cache=cache).logits[0].float().cpu().numpy())
    return np.concatenate(rows)
