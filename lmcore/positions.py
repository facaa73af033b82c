"""Positions other than rotary ones: what is added to embeddings (sinusoids) or to scores (ALiBi, T5's buckets)."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int, Int64

from lmcore.errors import ConfigError


def alibi_slopes(n_heads: int, largest_exponent: float = 8.0) -> Float64[np.ndarray, " H"]:
    """The slope of each head: `2^(-e h / n)`, h = 1 .. n, for n a power of two and e = 8 (Press et al. 2022).

    For other head counts the slopes of the next lower power of two, then every other one of the next higher, as the
    authors' code and BLOOM's do.
    """
    lower = 2 ** math.floor(math.log2(n_heads))
    slopes = 2.0 ** (-largest_exponent / lower * np.arange(1, lower + 1))
    between = 2.0 ** (-largest_exponent / (2 * lower) * np.arange(1, 2 * (n_heads - lower), 2))
    return np.concatenate([slopes, between])


def sinusoidal_rows(positions: Int[np.ndarray, " T"], d_model: int) -> Float64[np.ndarray, "T D"]:
    """What is added to the embedding at each position p (Vaswani et al. 2017, section 3.5), for D even:

    `PE(p, 2i) = sin(p / 10000^(2i/D))` and `PE(p, 2i + 1) = cos(p / 10000^(2i/D))`. Any position has a row.
    Raises ConfigError for an odd D.
    """
    if d_model < 2 or d_model % 2:
        raise ConfigError(
            f"d_model is {d_model}", expected="an even number: sines and cosines come in pairs", where="field d_model"
        )
    frequencies = 10_000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = np.outer(np.asarray(positions, np.float64), frequencies)  # (T, D/2)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(len(angles), d_model)


def sinusoidal_table(length: int, d_model: int) -> Float64[np.ndarray, "T D"]:
    """The rows of positions 0 .. length - 1."""
    return sinusoidal_rows(np.arange(length), d_model)


def t5_buckets(
    relative: Int[np.ndarray, "..."], n_buckets: int = 32, max_distance: int = 128
) -> Int64[np.ndarray, "..."]:
    """The bucket of each relative position `key - query`, as T5's decoder has them (Raffel et al. 2020, section 2.1).

    With n = query - key: one bucket a distance for n < B/2; then B/2 buckets whose bounds grow geometrically up to
    `max_distance`, `B/2 + floor(ln(n / (B/2)) / ln(max_distance / (B/2)) * B/2)`; the last for all beyond. Keys after
    the query, which a causal mask hides, fall into bucket 0.
    """
    exact = n_buckets // 2
    if not 1 <= exact < max_distance:
        raise ConfigError(
            f"{n_buckets} buckets up to distance {max_distance}",
            expected="at least 2 buckets, and a distance above half their number",
            where="the relative bias",
        )
    distance = np.maximum(-np.asarray(relative, np.int64), 0)
    octaves = np.log(np.maximum(distance, exact) / exact) / math.log(max_distance / exact)
    far = np.minimum(exact + (octaves * (n_buckets - exact)).astype(np.int64), n_buckets - 1)
    return np.where(distance < exact, distance, far)
