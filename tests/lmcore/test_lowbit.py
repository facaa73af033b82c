"""Codes, scales and packed bytes of a group of numbers."""

from __future__ import annotations

import pytest
import torch

from lmcore.errors import InputError
from lmcore.lowbit import encode, pack, unpack


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("size", [1e-9, 1e-4, 1.0, 900.0])
def test_error_is_at_most_half_a_scale(bits: int, size: float) -> None:
    """For every number of every group, ends included, whatever float16 does to scale and least value."""
    x = torch.randn(200, 32, generator=torch.Generator().manual_seed(bits)) * size
    x[0], x[1, 1:] = 3.3 * size, 0.0
    codes, scale, least = encode(x, bits)
    back = codes * scale.float()[:, None] + least.float()[:, None]
    error = (back - x).abs().amax(-1)
    assert bool((error <= scale.float() * 0.5 * (1 + 1e-4) + 1e-6 * size).all())
    if size > 1e-6:  # below float16's least step there is one code only
        assert float(error.max()) > 0.4 * float(scale.max())
    assert int(codes.max()) <= 2**bits - 1


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("length", [1, 5, 8, 12])
def test_packed_and_back(bits: int, length: int) -> None:
    codes = torch.randint(0, 2**bits, (3, 4, length), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    packed = pack(codes, bits)
    assert packed.nbytes == 12 * -(-length * bits // 8)
    assert torch.equal(unpack(packed, bits, length), codes)


def test_first_code_in_the_lowest_bits() -> None:
    assert pack(torch.tensor([1, 2, 3, 0], dtype=torch.uint8), 2).tolist() == [0b00_11_10_01]
    assert pack(torch.tensor([5, 12], dtype=torch.uint8), 4).tolist() == [0xC5]


def test_what_float16_cannot_scale_is_refused() -> None:
    with pytest.raises(InputError, match="1e\\+05"):
        encode(torch.tensor([[0.0, -1e5]]), 8)
