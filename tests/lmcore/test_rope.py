"""RoPE: frequencies themselves, the pairing, the relative property, and the shared tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmcore.config import Rope
from lmcore.errors import ConfigError
from lmcore.frequencies import frequencies
from lmcore.rope import rope_table, rotate


def test_frequencies_are_the_formula() -> None:
    theta, factor = frequencies(Rope(rotary_dim=128, base=10_000.0), 4096)
    expected = [10_000 ** (-2 * i / 128) for i in range(64)]
    np.testing.assert_allclose(theta, expected, rtol=1e-12)
    assert factor == 1.0


def test_a_larger_base_does_not_slow_all_pairs_alike() -> None:
    """10,000 to 500,000 at d = 128: 1x for the first pair, 47.0x for the last, not 50x."""
    ratio = frequencies(Rope(rotary_dim=128), 1)[0] / frequencies(Rope(rotary_dim=128, base=500_000.0), 1)[0]
    assert ratio[0] == 1.0
    assert ratio[-1] == pytest.approx(47.03, abs=0.01)


def test_llama2_has_18_pairs_that_never_complete_a_turn() -> None:
    theta, _ = frequencies(Rope(rotary_dim=128), 4096)
    slow = np.flatnonzero(2 * np.pi / theta > 4096)
    assert slow.tolist() == list(range(46, 64))


def turn(x: torch.Tensor, position: int, rope: Rope) -> torch.Tensor:
    cos, sin = rope_table(rope, torch.tensor([position]), position + 1)
    return rotate(x.view(1, 1, 1, -1), cos, sin).flatten()


def test_pairing_is_half_split() -> None:
    """Dims i and i + d/2 turn together: the complex product (x1 + i x2) e^(i m theta)."""
    rope = Rope(rotary_dim=8, base=100.0)
    x = torch.randn(8, generator=torch.Generator().manual_seed(0))
    theta, _ = frequencies(rope, 8)
    z = (x[:4].double().numpy() + 1j * x[4:].double().numpy()) * np.exp(1j * 5 * theta)
    np.testing.assert_allclose(turn(x, 5, rope).numpy(), np.concatenate([z.real, z.imag]), atol=1e-6)


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 500))
def test_scores_depend_on_the_offset_alone(m: int, n: int, shift: int) -> None:
    rope = Rope(rotary_dim=16)
    random = torch.Generator().manual_seed(m)
    q, k = torch.randn(2, 16, generator=random)
    here = turn(q, m, rope) @ turn(k, n, rope)
    there = turn(q, m + shift, rope) @ turn(k, n + shift, rope)
    assert abs(float(here - there)) <= 1e-5
    assert float(turn(q, m, rope).norm()) == pytest.approx(float(q.norm()), rel=1e-5)


def test_only_the_rotary_part_turns() -> None:
    x = torch.ones(1, 1, 3, 12)
    cos, sin = rope_table(Rope(rotary_dim=8), torch.arange(3), 3)
    turned = rotate(x, cos, sin)
    assert torch.equal(turned[..., 8:], x[..., 8:])
    assert not torch.allclose(turned[..., 2, :8], x[..., 2, :8])


def test_tables_of_different_specs_are_different() -> None:
    """A shared table keyed without the base would hand one model's rotation to another."""
    at = torch.tensor([7])
    first, _ = rope_table(Rope(rotary_dim=8, base=100.0), at, 8)
    second, _ = rope_table(Rope(rotary_dim=8, base=1e6), at, 8)
    again, _ = rope_table(Rope(rotary_dim=8, base=100.0), at, 8)
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="spiral"):
        frequencies(Rope(rotary_dim=8, type="spiral"), 8)
