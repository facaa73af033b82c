"""q . k at a fixed offset: flat in float32, not in bf16; lengths kept; the score by distance derived a second way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmcore.frequencies import frequencies
from lmcore.relative import ARITHMETIC, at_distance, random_like, slide, tables
from lmcore.specs import Rope

ROPES = {
    "plain": Rope(rotary_dim=64),
    "part of the head": Rope(rotary_dim=16, base=500_000.0),
    "yarn": Rope(rotary_dim=64, type="yarn", factor=4.0, original_max_positions=2048),
    "llama3": Rope(rotary_dim=64, base=500_000.0, type="llama3", factor=8.0, original_max_positions=8192),
    "dynamic": Rope(rotary_dim=64, type="dynamic", factor=2.0, max_positions=512),
    "longrope": Rope(
        rotary_dim=64,
        type="longrope",
        factor=4.0,
        original_max_positions=512,
        short_factor=(1.0,) * 32,
        long_factor=tuple(1 + 0.2 * i for i in range(32)),
    ),
}
TO = torch.arange(0, 32_769, 61)


def vectors(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    q, k = torch.randn(2, 64, generator=torch.Generator().manual_seed(seed))
    return q, k


def rotated(x: np.ndarray, position: int, rope: Rope, length: int) -> np.ndarray:
    """(d,) turned by 2 x 2 matrices in float64, pair by pair."""
    theta, factor = frequencies(rope, length)
    out, half = x.astype(np.float64).copy(), rope.rotary_dim // 2
    for i in range(half):
        c, s = np.cos(position * theta[i]), np.sin(position * theta[i])
        out[[i, i + half]] = factor * np.array([[c, -s], [s, c]]) @ x[[i, i + half]].astype(np.float64)
    return out


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES.keys())
def test_float32_is_flat_over_32768_positions_and_bf16_positions_are_not(rope: Rope) -> None:
    found = slide(*vectors(), rope, offset=9, positions=TO)
    assert found.spread("float32") < 1e-5
    assert found.spread("bf16 positions") > 0.01
    assert found.spread("float32") < found.spread("float32 angles") < 1e-2
    assert 1e-5 < found.spread("bf16 cos and sin") < 0.05
    assert found.norms["float32"] < 1e-5
    assert found.norms["bf16 cos and sin"] > 1e-5


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES.keys())
def test_the_exact_product_is_the_one_of_two_turned_vectors_wherever_they_stand(rope: Rope) -> None:
    q, k = vectors(1)
    length = int(TO.max()) + 9 + 1
    found = slide(q, k, rope, offset=9, positions=TO)
    for key in (0, 1000, 32_000):
        product = rotated(q.numpy(), key + 9, rope, length) @ rotated(k.numpy(), key, rope, length)
        assert found.exact == pytest.approx(product, rel=1e-9, abs=1e-9)
    assert found.products["float32"][0] == pytest.approx(found.exact, abs=1e-4)


def test_another_offset_is_another_product() -> None:
    q, k = vectors()
    one, other = (slide(q, k, ROPES["plain"], offset=n, positions=TO[:3]) for n in (9, 10))
    assert abs(one.exact - other.exact) > 1e-3 * one.length


def test_a_bf16_position_is_a_multiple_of_2_from_256_on() -> None:
    rope = Rope(rotary_dim=2)
    cos, sin = tables(rope, torch.tensor([255, 257, 16_385]), "bf16 positions")
    angles = torch.tensor([255.0, 256.0, 16_384.0])
    torch.testing.assert_close(cos[:, 0], angles.cos())
    torch.testing.assert_close(sin[:, 0], angles.sin())
    assert len(ARITHMETIC) == 4


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES.keys())
def test_scores_by_distance_are_dot_products_of_turned_vectors(rope: Rope) -> None:
    rng = np.random.default_rng(2)
    q, k = rng.standard_normal((2, 3, 64)).astype(np.float32)
    distances = np.array([0, 1, 7, 300])
    found = at_distance(q, k, rope, distances, 1024)
    expected = [
        [rotated(a, 500 + d, rope, 1024) @ rotated(b, 500, rope, 1024) for d in distances]
        for a, b in zip(q, k, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_random_vectors_have_the_same_lengths_and_other_directions() -> None:
    x = np.random.default_rng(0).standard_normal((5, 64))
    drawn = random_like(x, 3)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), np.linalg.norm(x, axis=1))
    assert np.abs((drawn * x).sum(1) / (x * x).sum(1)).max() < 0.6
