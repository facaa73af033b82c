"""Continuations that were left: kept with the plan, so that they can be returned to, compared and put into a link."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from figures.texts import first_difference
from lmcore.sampling import Sampler

MOST = 8
LINK_CHARS = 6000
"""The longest list of branches read from a link: `MOST` of 128 tokens each need less."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_BRANCH = re.compile(r"([0-9]{1,4})_([0-9a-z]{1,6}(?:\.[0-9a-z]{1,6})*)", re.ASCII)


@dataclass(frozen=True)
class Branch:
    """The tokens of every step, the log-probability the model gave each, and what led to them.

    A link holds the tokens alone: what chose them is then not known, and `sampler` is None.
    """

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    forced: Mapping[int, int] = field(compare=False)
    sampler: Sampler | None
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


def to_link(branches: Sequence[Sequence[int]]) -> str | None:
    """Branches as the address holds them, "0_4.2f.1a-2_9": for each how many tokens it begins with that the one before
    it has, too, then its own, in base 36. None for none."""
    written: list[str] = []
    before: Sequence[int] = ()
    for tokens in branches:
        same = min(first_difference([tokens, before]), len(tokens) - 1)
        written.append(f"{same}_{'.'.join(_base36(token) for token in tokens[same:])}")
        before = tokens
    return "-".join(written) or None


def from_link(text: str, *, vocab_size: int, most_tokens: int) -> list[tuple[int, ...]] | None:
    """What `to_link` wrote; None for anything else, and for more than is ever kept."""
    parts = text.split("-") if len(text) <= LINK_CHARS else []
    found: list[tuple[int, ...]] = []
    for part in parts:
        match = _BRANCH.fullmatch(part)
        before = found[-1] if found else ()
        if match is None or int(match[1]) > len(before):
            return None
        tokens = before[: int(match[1])] + tuple(int(token, 36) for token in match[2].split("."))
        if len(tokens) > most_tokens or max(tokens) >= vocab_size:
            return None
        found.append(tokens)
    return found if 0 < len(found) <= MOST else None


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits
