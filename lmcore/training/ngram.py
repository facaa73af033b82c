"""An n-gram model of the same tokens: what a model must beat to have learned more than short contexts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Gram = tuple[int, ...]


class _Level(NamedTuple):
    """Counts of one order, by n-gram; by context the sum of its counts and its number of different continuations."""

    counts: Counter[Gram]
    totals: Counter[Gram]
    kinds: Counter[Gram]
    discount: float


def _level(counts: Counter[Gram]) -> _Level:
    totals: Counter[Gram] = Counter()
    kinds: Counter[Gram] = Counter()
    for gram, count in counts.items():
        totals[gram[:-1]] += count
        kinds[gram[:-1]] += 1
    once, twice = (sum(count == n for count in counts.values()) for n in (1, 2))
    return _Level(counts, totals, kinds, once / (once + 2 * twice) if once else 0.5)


class KneserNey:
    """Interpolated Kneser-Ney of an order (Kneser & Ney 1995; Chen & Goodman 1999, section 2.7), one discount an order:

    `p(w | h) = max(c(h w) - d, 0) / c(h) + d N(h .) / c(h) p(w | h')`, h' being h without its first token; below the
    top order c counts the different tokens before an n-gram, and below one token stands the uniform distribution.
    """

    def __init__(self, tokens: Sequence[int], order: int, vocabulary: int) -> None:
        self.order, self.vocabulary = order, vocabulary
        grams = Counter(zip(*(tokens[start:] for start in range(order)), strict=False))
        levels = [_level(grams)]
        for _ in range(order - 1):
            grams = Counter(gram[1:] for gram in grams)
            levels.insert(0, _level(grams))
        self.levels = levels

    def probability(self, context: Sequence[int], token: int) -> float:
        """p(token | context), of which the last `order` - 1 tokens count."""
        p = 1 / self.vocabulary
        for n, level in enumerate(self.levels):
            history = tuple(context[len(context) - n :]) if n else ()
            total = level.totals.get(history, 0)
            if n > len(context) or not total:
                break
            kept = max(level.counts.get((*history, token), 0) - level.discount, 0.0)
            p = (kept + level.discount * level.kinds[history] * p) / total
        return p

    def loss(self, tokens: Sequence[int], positions: Iterable[int]) -> float:
        """Mean of -ln p, in nats, of the tokens at these positions given all before them."""
        losses = [-math.log(self.probability(tokens[max(0, at - self.order + 1) : at], tokens[at])) for at in positions]
        return math.fsum(losses) / len(losses)
