"""Positions that are no rotation: tables and biases against their papers' formulas and transformers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from lmcore.errors import ConfigError
from lmcore.positions import sinusoidal_rows, sinusoidal_table, t5_buckets


@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (16, 64), (64, 256), (8, 20), (2, 3)])
def test_t5_buckets_are_transformers(buckets: int, distance: int) -> None:
    relative = np.arange(-1000, 6)
    theirs = T5Attention._relative_position_bucket(torch.from_numpy(relative), False, buckets, distance)
    assert np.array_equal(t5_buckets(relative, buckets, distance), theirs.numpy())


def test_t5_buckets_as_the_paper_has_them() -> None:
    """One a distance below 16, one for all from 128 on, never falling, and nothing skipped."""
    of = t5_buckets(-np.arange(400))
    assert of[:16].tolist() == list(range(16))
    assert set(of[128:].tolist()) == {31}
    assert set(np.diff(of).tolist()) == {0, 1}
    assert t5_buckets(np.array([0, 1, 70])).tolist() == [0, 0, 0]


def test_t5_buckets_keep_the_shape() -> None:
    at = np.arange(9)
    square = t5_buckets(at[None, :] - at[:, None])
    assert square.shape == (9, 9)
    assert square[8, 0] == 8


@pytest.mark.parametrize(("buckets", "distance"), [(1, 128), (32, 16), (0, 5)])
def test_t5_buckets_that_cannot_be(buckets: int, distance: int) -> None:
    with pytest.raises(ConfigError, match="buckets"):
        t5_buckets(np.arange(3), buckets, distance)


@pytest.mark.parametrize("width", [2, 8, 128])
def test_sinusoids_are_the_papers(width: int) -> None:
    """Each number by the formula of section 3.5, one at a time."""
    table = sinusoidal_table(7, width)
    assert table.shape == (7, width)
    for position in range(7):
        for pair in range(width // 2):
            angle = position / 10_000 ** (2 * pair / width)
            assert table[position, 2 * pair] == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[position, 2 * pair + 1] == pytest.approx(math.cos(angle), abs=1e-12)


def test_sinusoids_of_a_shifted_position_are_a_rotation_of_its_pairs() -> None:
    """What the paper gives as its reason: PE(p + k) is linear in PE(p), whatever p is."""
    table = sinusoidal_table(300, 16)
    dots = [table[p] @ table[p + 5] for p in (0, 17, 290)]
    assert dots == pytest.approx([dots[0]] * 3, abs=1e-9)
    assert table[0] @ table[6] != pytest.approx(dots[0], abs=1e-3)


def test_sinusoids_of_any_position() -> None:
    assert np.array_equal(sinusoidal_rows(np.array([40, 3]), 8), sinusoidal_table(41, 8)[[40, 3]])
    with pytest.raises(ConfigError, match="even"):
        sinusoidal_table(3, 7)
