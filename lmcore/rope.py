"""Rotary position embedding (Su et al. 2021, RoFormer): tables of cos and sin, and the rotation itself.

Pairing is half-split throughout: dims i and i + d/2 turn together by position * theta_i, so that the angles are laid
out (theta_0 .. theta_{d/2-1}, theta_0 .. theta_{d/2-1}). Checkpoints stored interleaved (dims 2i, 2i + 1) are permuted
once when they are loaded.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmcore.frequencies import frequencies
from lmcore.specs import Rope

Angles = Float[Tensor, "T pairs"]


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
                rows = max(256, 1 << (length - 1).bit_length())
                found = _table(rope, np.arange(rows), 0, device)
            self.rows[key] = found
            if len(self.rows) > self.max_entries:
                self.rows.pop(next(iter(self.rows)))
        return found


def _table(rope: Rope, positions: np.ndarray, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of positions, angles in float64: float32 loses 0.004 rad at position 100,000."""
    theta, factor = frequencies(rope, length)
    angles = np.outer(positions.astype(np.float64), theta)
    cos, sin = (torch.from_numpy((f(angles) * factor).astype(np.float32)).to(device) for f in (np.cos, np.sin))
    return cos, sin


_tables = _Tables()


def rope_table(rope: Rope, positions: Int[Tensor, " T"], length: int) -> tuple[Angles, Angles]:
    """cos and sin, each (T, d/2) in float32, of the angles position * theta_i at a total length of `length` tokens.

    `length` exceeds every position. One table per spec and device is kept, except for scalings that follow the length.
    """
    if rope.follows_length:
        return _table(rope, positions.cpu().numpy(), length, positions.device)
    cos, sin = _tables.up_to(rope, length, positions.device)
    return cos[positions], sin[positions]


def rotate(x: Float[Tensor, "B N T Dh"], cos: Angles, sin: Angles) -> Float[Tensor, "B N T Dh"]:
    """x with its first 2 * pairs dims turned, half-split: (x1 cos - x2 sin, x2 cos + x1 sin); computed in float32."""
    pairs = cos.shape[-1]
    first, second, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
    return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), dim=-1)


def rotate_interleaved(x: Float[Tensor, "B N T Dh"], cos: Angles, sin: Angles) -> Float[Tensor, "B N T Dh"]:
    """As `rotate`, with dims 2i and 2i + 1 as a pair: (RoFormer's layout) right only for weights ordered that way."""
    pairs = cos.shape[-1]
    turning, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    first, second = turning[..., ::2], turning[..., 1::2]
    turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2).to(x.dtype)
    return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), dim=-1)


class Turn(NamedTuple):
    """The rotation of one forward: cos and sin of its new positions."""

    cos: Tensor
    sin: Tensor
    interleaved: bool = False

    def new(self, x: Float[Tensor, "B N T Dh"]) -> Float[Tensor, "B N T Dh"]:
        """x of the new positions, turned."""
        return (rotate_interleaved if self.interleaved else rotate)(x, self.cos, self.sin)
