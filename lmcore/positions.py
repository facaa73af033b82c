"""Positions other than rotary ones."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64


def alibi_slopes(n_heads: int, largest_exponent: float = 8.0) -> Float64[np.ndarray, " H"]:
    """The slope of each head: `2^(-e h / n)`, h = 1 .. n, for n a power of two and e = 8 (Press et al. 2022).

    For other head counts the slopes of the next lower power of two, then every other one of the next higher, as the
    authors' code and BLOOM's do.
    """
    lower = 2 ** math.floor(math.log2(n_heads))
    slopes = 2.0 ** (-largest_exponent / lower * np.arange(1, lower + 1))
    between = 2.0 ** (-largest_exponent / (2 * lower) * np.arange(1, 2 * (n_heads - lower), 2))
    return np.concatenate([slopes, between])
