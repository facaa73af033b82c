"""Rotary specs made from another: each published scaling, some pairs alone slowed down, frequencies held still.

None of it touches weights: a spec goes into a forward as `Edits(rope=...)`. Numpy only.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float64

from lmcore.errors import ConfigError
from lmcore.frequencies import frequencies, powers
from lmcore.specs import Rope

SCALINGS = ("none", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope")


def scaled(rope: Rope, kind: str, *, factor: float, trained: int) -> Rope:
    """The spec of a model trained at `trained` positions without scaling, scaled to `factor` times as many.

    Base and rotary dims are those of `rope`, all else the published defaults: YaRN's ramp from 32 turns to 1, Llama 3's
    from 4 to 1. "dynamic" has `s = l / trained` at length l, whatever the factor. "longrope" has the divisors of
    `long_divisors`, since the published ones are found by a search of their own for each model.
    """
    if kind not in SCALINGS:
        raise ConfigError(f"scaling {kind!r} is not known", expected="one of " + ", ".join(SCALINGS), where="the rope")
    plain = Rope(rotary_dim=rope.rotary_dim, base=rope.base)
    if kind == "none":
        return plain
    if kind == "dynamic":
        return replace(plain, type=kind, factor=1.0, max_positions=trained)
    divisors: dict[str, tuple[float, ...]] = {}
    if kind == "longrope":
        long = long_divisors(plain, factor=factor, trained=trained)
        divisors = {"short_factor": (1.0,) * len(long), "long_factor": tuple(float(x) for x in long)}
    return replace(plain, type=kind, factor=factor, original_max_positions=trained, max_positions=trained, **divisors)


def turns(rope: Rope, length: int) -> Float64[np.ndarray, " pairs"]:
    """How often each pair goes round in `length` positions: `length * theta_i / (2 pi)`."""
    return frequencies(rope, length)[0] * length / (2 * math.pi)


def slow_pairs(rope: Rope, trained: int) -> Bool[np.ndarray, " pairs"]:
    """The pairs whose wavelength is longer than the trained length: angles beyond the last trained one are new to them.

    A pair that has gone round at least once has met every angle in training, whatever the position.
    """
    return turns(rope, trained) < 1


def long_divisors(rope: Rope, *, factor: float, trained: int) -> Float64[np.ndarray, " pairs"]:
    """Divisors of LongRoPE's form: 1 for the fastest pair, `factor` for every slow one, geometric in between.

    With r_i the turns of pair i in training: `factor ** clip(1 - ln r_i / ln r_0, 0, 1)`.
    """
    made = turns(replace(rope, type="default"), trained)
    if made[0] <= 1:
        return np.full(len(made), float(factor))
    return factor ** np.clip(1 - np.log(made) / math.log(made[0]), 0, 1)


def divided(rope: Rope, chosen: Bool[np.ndarray, " pairs"], factor: float) -> Rope:
    """The unscaled spec with the chosen pairs turning `factor` times slower and the others as they were."""
    divisors = tuple(np.where(chosen, float(factor), 1.0).tolist())
    return Rope(rotary_dim=rope.rotary_dim, base=rope.base, type="divided", short_factor=divisors)


def at_length(rope: Rope, length: int) -> Rope:
    """The spec whose frequencies, at any length, are those that `rope` has at this one."""
    if not rope.follows_length:
        return rope
    theta, factor = frequencies(rope, length)
    divisors = tuple((powers(rope.base, rope.rotary_dim) / theta).tolist())
    if factor == 1:
        return Rope(rotary_dim=rope.rotary_dim, base=rope.base, type="divided", short_factor=divisors)
    return Rope(
        rotary_dim=rope.rotary_dim,
        base=rope.base,
        type="longrope",
        original_max_positions=2,
        short_factor=divisors,
        long_factor=divisors,
        attention_factor=factor,
    )
