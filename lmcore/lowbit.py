"""Numbers as integers of 8, 4 or 2 bits: a scale and a least value a group, and codes packed into bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from lmcore.errors import InputError


def encode(groups: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes 0 .. 2^bits - 1 (uint8, the shape of `groups`), and for each group, the last axis, scale and least value.

    x = code * scale + least, in float16 both: `least` is rounded down and `scale` up, so that every x lies between the
    ends and comes back to within scale / 2. Raises InputError for numbers that float16 cannot hold.
    """
    x, levels = groups.float(), 2**bits - 1
    least = _rounded(x.amin(-1), up=False)
    scale = _rounded((x.amax(-1) - least.float()) / levels, up=True)
    if not bool(torch.isfinite(least).all() & torch.isfinite(scale).all()):
        raise InputError(
            f"keys or values up to {float(x.abs().max()):.3g}",
            expected="numbers within the range of float16, in which the scales are stored",
            where="the quantised KV cache",
            todo="Run the model with an ordinary cache.",
        )
    step = scale.float()[..., None]
    codes = torch.where(step > 0, ((x - least.float()[..., None]) / step).round().clamp(0, levels), 0)
    return codes.to(torch.uint8), scale, least


def _rounded(x: Tensor, *, up: bool) -> Tensor:
    """The nearest float16 that is not below x (`up`) or not above it."""
    half = x.half()
    missed = half.float() < x if up else half.float() > x
    end = torch.full_like(half, torch.inf if up else -torch.inf)
    return torch.where(missed, torch.nextafter(half, end), half)


def pack(codes: Tensor, bits: int) -> Tensor:
    """8 / bits codes a byte along the last axis, the first in the lowest bits; a row ends on a whole byte."""
    per = 8 // bits
    room = -codes.shape[-1] % per
    spread = torch.nn.functional.pad(codes, (0, room)).unflatten(-1, (-1, per))
    shifts = torch.arange(per, device=codes.device, dtype=torch.uint8) * bits
    return (spread << shifts).sum(-1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int, length: int) -> Tensor:
    """The codes that `pack` packed, `length` of them a row."""
    shifts = torch.arange(8 // bits, device=packed.device, dtype=torch.uint8) * bits
    return ((packed[..., None] >> shifts) & (2**bits - 1)).flatten(-2)[..., :length]
