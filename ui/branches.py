"""Continuations that were left: kept with the plan, so that they can be returned to and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lmcore.sampling import Sampler

MOST = 8


@dataclass(frozen=True)
class Branch:
    """The tokens of every step, the log-probability the model gave each, and what led to them."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    forced: Mapping[int, int] = field(compare=False)
    sampler: Sampler
    seed: int

    def plan(self, sampler: Sampler, seed: int) -> dict[int, int]:
        """The tokens to choose by hand so that a run with this sampler and seed gives the branch again."""
        if (sampler, seed) == (self.sampler, self.seed):
            return dict(self.forced)
        return dict(enumerate(self.tokens))


def starts(long: Sequence[int], short: Sequence[int]) -> bool:
    return tuple(long[: len(short)]) == tuple(short)


def kept(branches: Sequence[Branch], new: Branch) -> list[Branch]:
    """The branches with a new one, which takes the place of those it goes on from; at most `MOST`, the newest last."""
    if not new.tokens or any(starts(branch.tokens, new.tokens) for branch in branches):
        return list(branches)
    return [*(branch for branch in branches if not starts(new.tokens, branch.tokens)), new][-MOST:]
