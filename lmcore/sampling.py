"""Choosing the next token: filters over the full vocabulary in a stated order, a draw seeded by (seed, position)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64

from lmcore.errors import InputError

Logits = Float[np.ndarray, " V"]
Probs = Float64[np.ndarray, " V"]


class Stage(NamedTuple):
    """One filter of the sampler: how many tokens it left, and the probability it took from those before it."""

    name: str
    kept: int
    removed_mass: float


class Distribution(NamedTuple):
    """`raw` is softmax(logits); `probs` is what is drawn from, after every stage; both (V,) in float64, sums one."""

    raw: Probs
    probs: Probs
    stages: tuple[Stage, ...]


def softmax(logits: Logits) -> Probs:
    """`exp(z - max z) / sum`, in float64."""
    shifted = np.exp(logits.astype(np.float64) - float(logits.max()))
    return shifted / shifted.sum()


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Repetition penalty, temperature, top-k, top-p, min-p, typical: each on what the one before left, renormalised.

    The order is that of `transformers`.

    - `repetition_penalty` r: the logits of tokens already in the text are divided by r where positive and multiplied
      where negative (Keskar et al. 2019, CTRL, section 4.1); 1 is off.
    - `temperature` t: logits / t; 0 is greedy, all mass on the largest logit (the lowest id of equals).
    - `top_k` = k: the k most probable tokens stay; 0 is off. Ties at the k-th place stay.
    - `top_p` = p: the smallest set of most probable tokens whose mass reaches p stays (Holtzman et al. 2020, nucleus).
    - `min_p` = m: tokens with at least m times the largest probability stay (Nguyen et al. 2024).
    - `typical_p` = p: tokens in order of how near their surprise -ln p is to the entropy, until their mass reaches p
      (Meister et al. 2023, locally typical sampling); 1 is off.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        checks = (
            ("temperature", self.temperature, 0 <= self.temperature < float("inf"), "0 (greedy) or more"),
            ("top_k", self.top_k, self.top_k >= 0, "0 (off) or more"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "more than 0 and at most 1 (off)"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "from 0 (off) to 1"),
            ("typical_p", self.typical_p, 0 < self.typical_p <= 1, "more than 0 and at most 1 (off)"),
            ("repetition_penalty", self.repetition_penalty, 0 < self.repetition_penalty < 100, "more than 0, 1 is off"),
        )
        for name, value, good, expected in checks:
            if not good:
                raise InputError(f"{name} is {value!r}", expected=expected, where="the sampler")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def penalised(self, logits: Logits, history: Sequence[int]) -> Logits:
        """The logits with those of the tokens of `history` made less likely."""
        if self.repetition_penalty == 1 or not len(history):
            return logits
        seen, out = np.unique(np.asarray(history, dtype=np.int64)), logits.copy()
        there = out[seen]
        out[seen] = np.where(there > 0, there / self.repetition_penalty, there * self.repetition_penalty)
        return out

    def distribution(self, logits: Logits, history: Sequence[int] = ()) -> Distribution:
        """The distribution of the model and the one the sampler draws from, with what each filter removed.

        `history` holds the tokens that the repetition penalty applies to: the text so far.
        """
        finite = np.isfinite(logits) | np.isneginf(logits)
        if not finite.all() or not np.isfinite(logits).any():
            raise InputError(
                f"{int((~finite).sum())} logits are NaN or infinite",
                expected="finite logits",
                where="the model's output",
            )
        raw = softmax(logits)
        logits = self.penalised(logits, history)
        penalty = []
        if self.repetition_penalty != 1:
            seen = np.unique(np.asarray(history, dtype=np.int64))
            taken = float(raw[seen].sum() - softmax(logits)[seen].sum())
            penalty = [Stage("repetition penalty", logits.size, max(0.0, taken))]
        if self.greedy:
            probs = np.zeros_like(raw)
            probs[int(logits.argmax())] = 1.0
            greedy = Stage("greedy", 1, float(1 - raw[int(logits.argmax())]))
            return Distribution(raw, probs, (*penalty, greedy))
        with np.errstate(over="ignore"):
            probs = softmax((logits.astype(np.float64) - float(logits.max())) / self.temperature)
        warmed = [Stage("temperature", int(np.count_nonzero(probs)), 0.0)] if self.temperature != 1 else []
        stages = penalty + warmed
        for name, on, keep in (
            ("top-k", self.top_k > 0, self._top_k),
            ("top-p", self.top_p < 1, self._top_p),
            ("min-p", self.min_p > 0, self._min_p),
            ("typical", self.typical_p < 1, self._typical),
        ):
            if on:
                kept = np.where(keep(probs), probs, 0.0)
                mass = float(kept.sum())
                probs = kept / mass
                stages.append(Stage(name, int(np.count_nonzero(probs)), max(0.0, 1 - mass)))
        return Distribution(raw, probs, tuple(stages))

    def _top_k(self, probs: Probs) -> np.ndarray:
        k = min(self.top_k, probs.size)
        return probs >= np.partition(probs, probs.size - k)[probs.size - k]

    def _top_p(self, probs: Probs) -> np.ndarray:
        likely = _likeliest(probs, self.top_p)
        order = likely[np.argsort(-probs[likely], kind="stable")]
        before = np.cumsum(probs[order]) - probs[order]
        keep = np.zeros(probs.shape, dtype=bool)
        keep[order[before < self.top_p]] = True
        return keep

    def _min_p(self, probs: Probs) -> np.ndarray:
        return probs >= self.min_p * probs.max()

    def _typical(self, probs: Probs) -> np.ndarray:
        there = np.flatnonzero(probs)
        some = probs[there]
        surprise = -np.log(some)
        entropy = float((some * surprise).sum())
        order = np.argsort(np.abs(surprise - entropy), kind="stable")
        before = np.cumsum(some[order]) - some[order]
        keep = np.zeros(probs.shape, dtype=bool)
        keep[there[order[before < self.typical_p]]] = True
        return keep

    def choose(self, logits: Logits, *, seed: int, position: int, history: Sequence[int] = ()) -> int:
        """The token id at this position: the same for the same logits, seed and position, whatever was drawn before."""
        if self.greedy:
            return int(self.penalised(logits, history).argmax())
        return draw(self.distribution(logits, history).probs, seed=seed, position=position)


def _likeliest(probs: Probs, mass: float, most: int = 1024) -> np.ndarray:
    """Ids of the likeliest tokens, at least so many that they reach `mass`: few, if these suffice, to sort few."""
    there = np.flatnonzero(probs)
    if there.size > most:
        some = probs[there]
        few = some >= np.partition(some, some.size - most)[some.size - most]
        if some[few].sum() > mass + 1e-6:
            return there[few]
    return there


def draw(probs: Probs, *, seed: int, position: int) -> int:
    """Inverse-CDF draw from `probs` with a uniform number that depends on (seed, position) alone."""
    return pick(probs, uniform(seed, position))


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that decides the draw at a position."""
    return float(np.random.default_rng((seed, position)).random())


def pick(probs: Probs, point: float) -> int:
    """Inverse CDF: the token whose share of [0, 1) holds `point`."""
    cumulative = np.cumsum(probs)
    chosen = int(np.searchsorted(cumulative, point * cumulative[-1], side="right"))
    return min(chosen, int(np.flatnonzero(probs)[-1]))
