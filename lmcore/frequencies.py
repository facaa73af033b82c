"""The frequencies of rotary positions, one function per paper; numpy only, so that calculators need no torch.

Each returns theta (d/2,) in float64, radians a token, and the factor on cos and sin of q and k alike (so that scores
get its square). `length` is the current total length: only "dynamic" and "longrope" depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64

from lmcore.errors import ConfigError
from lmcore.specs import Rope

# Heads have a few hundred dims: a file that says more is not believed with an array.
MAX_ROTARY_DIM = 2**16
Frequencies = tuple[Float64[np.ndarray, " pairs"], float]


def powers(base: float, dim: int) -> Float64[np.ndarray, " pairs"]:
    """`base^(-2i/d)`, i = 0 .. d/2 - 1 (Su et al. 2021, RoFormer, eq. 15)."""
    return base ** -(np.arange(0, dim, 2, dtype=np.float64) / dim)


def default(rope: Rope, length: int) -> Frequencies:
    """`theta_i = base^(-2i/d)`, unscaled."""
    return powers(rope.base, rope.rotary_dim), 1.0


def linear(rope: Rope, length: int) -> Frequencies:
    """Position interpolation: all divided by `factor` (Chen et al. 2023, eq. 4)."""
    return powers(rope.base, rope.rotary_dim) / rope.factor, 1.0


def ntk(rope: Rope, length: int) -> Frequencies:
    """NTK-aware: `base' = base * s^(d/(d-2))`: the first pair stays, the last is divided by s (bloc97 2023)."""
    return powers(ntk_base(rope.base, rope.factor, rope.rotary_dim), rope.rotary_dim), 1.0


def ntk_base(base: float, factor: float, dim: int) -> float:
    """The base that divides the slowest of d/2 frequencies by `factor` and keeps the fastest."""
    return base * factor ** (dim / (dim - 2)) if dim > 2 else base


def dynamic(rope: Rope, length: int) -> Frequencies:
    """NTK-aware with `s = factor * l / max_positions - (factor - 1)` once the length l passes `max_positions`."""
    trained = _required(rope.max_positions, "max_positions", rope)
    stretch = rope.factor * max(length, trained) / trained - (rope.factor - 1)
    return powers(ntk_base(rope.base, stretch, rope.rotary_dim), rope.rotary_dim), 1.0


def yarn(rope: Rope, length: int) -> Frequencies:
    """YaRN (Peng et al. 2023, eqs. 17-23): slow pairs interpolated, fast ones kept, a ramp between.

    The ramp runs over pair indices between those that make `beta_fast` and `beta_slow` turns within
    `original_max_positions`, rounded outwards when `truncate`. The factor on cos and sin is `attention_factor` when
    given, the ratio of the two `mscale` terms when both are, else `0.1 ln s + 1`.
    """
    original = _required(rope.original_max_positions, "original_max_positions", rope)
    dim, kept = rope.rotary_dim, powers(rope.base, rope.rotary_dim)
    if rope.base <= 1:
        raise ConfigError(f"base is {rope.base}", expected="more than 1", where="the rope spec of type yarn")

    def pair_of(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low, high = pair_of(rope.beta_fast), pair_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    return kept / rope.factor * ramp + kept * (1 - ramp), yarn_factor(rope)


def yarn_factor(rope: Rope) -> float:
    """The factor on cos and sin of YaRN, see `yarn`."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return mscale(rope.factor, rope.mscale) / mscale(rope.factor, rope.mscale_all_dim)
    return mscale(rope.factor, 1.0)


def mscale(factor: float, weight: float) -> float:
    """`0.1 m ln s + 1`, and 1 for s <= 1 (YaRN, eq. 22; DeepSeek-V2's `mscale` m)."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def llama3(rope: Rope, length: int) -> Frequencies:
    """Llama 3.1: wavelengths over `original / low_freq_factor` are interpolated, under `original / high_freq_factor`
    kept, and those between are mixed by `(original / wavelength - low) / (high - low)` (Grattafiori et al. 2024).
    """
    original = _required(rope.original_max_positions, "original_max_positions", rope)
    if rope.high_freq_factor <= rope.low_freq_factor:
        raise ConfigError(
            f"high_freq_factor is {rope.high_freq_factor}",
            expected=f"more than low_freq_factor, {rope.low_freq_factor}",
            where="the rope spec of type llama3",
        )
    theta = powers(rope.base, rope.rotary_dim)
    turns = original * theta / (2 * math.pi)
    mix = np.clip((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0, 1)
    return (1 - mix) * theta / rope.factor + mix * theta, 1.0


def longrope(rope: Rope, length: int) -> Frequencies:
    """LongRoPE (Ding et al. 2024): each pair divided by a searched factor, `short_factor` up to
    `original_max_positions` and `long_factor` beyond; cos and sin times `sqrt(1 + ln s / ln original)` unless given.
    """
    original = _required(rope.original_max_positions, "original_max_positions", rope)
    divisors = np.asarray(rope.long_factor if length > original else rope.short_factor, dtype=np.float64)
    factor = rope.attention_factor
    if factor is None:
        factor = math.sqrt(1 + math.log(rope.factor) / math.log(original)) if rope.factor > 1 else 1.0
    return powers(rope.base, rope.rotary_dim) / _per_pair(divisors, rope), factor


def divided(rope: Rope, length: int) -> Frequencies:
    """Each pair divided by its entry of `short_factor` at any length: the form in which GGUF files store Llama 3's."""
    return powers(rope.base, rope.rotary_dim) / _per_pair(np.asarray(rope.short_factor, dtype=np.float64), rope), 1.0


def proportional(rope: Rope, length: int) -> Frequencies:
    """The first `rotated_fraction` of the pairs of the whole head turn, divided by `factor`; the others stand still."""
    theta = powers(rope.base, rope.rotary_dim) / rope.factor
    turning = int(rope.rotated_fraction * rope.rotary_dim // 2)
    return np.where(np.arange(rope.rotary_dim // 2) < turning, theta, 0.0), 1.0


FREQUENCIES: dict[str, Callable[[Rope, int], Frequencies]] = {
    "default": default,
    "linear": linear,
    "ntk": ntk,
    "dynamic": dynamic,
    "yarn": yarn,
    "llama3": llama3,
    "longrope": longrope,
    "divided": divided,
    "proportional": proportional,
}


def frequencies(rope: Rope, length: int) -> Frequencies:
    """Frequencies (d/2,) in float64 radians/token, and the factor on cos and sin, at a context of `length` tokens."""
    if rope.type not in FREQUENCIES:
        known = ", ".join(FREQUENCIES)
        raise ConfigError(f"RoPE type {rope.type!r} is not known", expected=f"one of {known}", where="the rope spec")
    if rope.rotary_dim > MAX_ROTARY_DIM:
        raise ConfigError(
            f"rotary_dim is {rope.rotary_dim:,}", expected=f"at most {MAX_ROTARY_DIM:,}", where="the rope spec"
        )
    return FREQUENCIES[rope.type](rope, length)


def same_frequencies(rope: Rope, one: int, other: int) -> bool:
    """Whether two context lengths have the same frequencies and factor."""
    (a, factor), (b, another) = frequencies(rope, one), frequencies(rope, other)
    return factor == another and bool((a == b).all())


def _required(value: int | None, name: str, rope: Rope) -> int:
    if value is None or value < 2:
        raise ConfigError(
            f"{name} is {value!r}", expected="a trained length", where=f"the rope spec of type {rope.type}"
        )
    return value


def _per_pair(divisors: np.ndarray, rope: Rope) -> np.ndarray:
    if divisors.shape != (rope.rotary_dim // 2,) or not (divisors > 0).all():
        raise ConfigError(
            f"the rope factors are {divisors.size} numbers",
            expected=f"{rope.rotary_dim // 2} positive ones, one per pair",
            where=f"the rope spec of type {rope.type}",
        )
    return divisors
