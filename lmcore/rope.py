"""Rotary position embedding (Su et al. 2021, RoFormer): frequencies, tables of cos and sin, and the rotation itself.

Pairing is half-split throughout: dims i and i + d/2 turn together by position * theta_i, so that the angles are laid
out (theta_0 .. theta_{d/2-1}, theta_0 .. theta_{d/2-1}). Checkpoints stored interleaved (dims 2i, 2i + 1) are permuted
once when they are loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from lmcore.config import Rope
from lmcore.errors import ConfigError

Frequencies = tuple[Float64[np.ndarray, " pairs"], float]


def default_frequencies(rope: Rope, length: int) -> Frequencies:
    """`theta_i = base^(-2i/d)`, i = 0 .. d/2 - 1, in radians a token (RoFormer, eq. 15); cos and sin are not scaled."""
    exponents = np.arange(0, rope.rotary_dim, 2, dtype=np.float64) / rope.rotary_dim
    return rope.base**-exponents, 1.0


FREQUENCIES: dict[str, Callable[[Rope, int], Frequencies]] = {"default": default_frequencies}


def frequencies(rope: Rope, length: int) -> Frequencies:
    """Frequencies (d/2,) in float64 radians/token, and the factor on cos and sin, at a context of `length` tokens."""
    if rope.type not in FREQUENCIES:
        raise ConfigError(
            f"RoPE type {rope.type!r} is not known",
            expected="one of " + ", ".join(FREQUENCIES),
            where="field type of rope",
        )
    return FREQUENCIES[rope.type](rope, length)


class _Tables:
    """Rows of (cos, sin) by (spec, device): a memo of a pure function, grown by doubling, the least used dropped."""

    def __init__(self, max_entries: int = 16) -> None:
        self.rows: dict[tuple[Rope, torch.device], tuple[Tensor, Tensor]] = {}
        self.lock, self.max_entries = threading.Lock(), max_entries

    def up_to(self, rope: Rope, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        key = (rope, device)
        with self.lock:
            found = self.rows.pop(key, None)
            if found is None or found[0].shape[0] < length:
                found = _table(rope, max(256, 1 << (length - 1).bit_length()), device)
            self.rows[key] = found
            if len(self.rows) > self.max_entries:
                self.rows.pop(next(iter(self.rows)))
        return found


def _table(rope: Rope, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    theta, factor = frequencies(rope, length)
    angles = np.outer(np.arange(length, dtype=np.float64), theta)
    cos, sin = (torch.from_numpy((f(angles) * factor).astype(np.float32)).to(device) for f in (np.cos, np.sin))
    return cos, sin


_tables = _Tables()


def rope_table(
    rope: Rope, positions: Int[Tensor, " T"], length: int
) -> tuple[Float[Tensor, "T pairs"], Float[Tensor, "T pairs"]]:
    """cos and sin, each (T, d/2) in float32, of the angles position * theta_i.

    `length` is one more than the largest position. Angles are taken in float64, since float32 loses 0.004 rad at
    position 100,000.
    """
    cos, sin = _tables.up_to(rope, length, positions.device)
    return cos[positions], sin[positions]


def rotate(
    x: Float[Tensor, "B N T Dh"], cos: Float[Tensor, "T pairs"], sin: Float[Tensor, "T pairs"]
) -> Float[Tensor, "B N T Dh"]:
    """x with its first 2 * pairs dims turned, half-split: (x1 cos - x2 sin, x2 cos + x1 sin); computed in float32."""
    pairs = cos.shape[-1]
    first, second, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
    return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), dim=-1)
