"""What RoPE promises about q . k, measured: at a fixed offset it stays, whatever the position, and lengths are kept.

Shapes: q and k (d,) of one token each, before they are turned; d is the head dim, of which the first `rotary_dim` turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Complex, Float64
from torch import Tensor

from lmcore.frequencies import frequencies
from lmcore.rope import rope_table, rotate
from lmcore.specs import Rope

ARITHMETIC = ("float32", "float32 angles", "bf16 cos and sin", "bf16 positions")
"""What is rounded on the way to cos and sin; q, k and their product are float32 in all of them.

"float32": angles in float64, cos and sin in float32, as lmcore does it. "float32 angles": position times theta in
float32, which at position 32,768 is off by up to 0.002 rad. "bf16 cos and sin": the table rounded to 8 significant
bits. "bf16 positions": the position itself rounded, to a multiple of 2 from 256 on and of 128 from 16,384 on.
"""


def tables(rope: Rope, positions: Tensor, arithmetic: str) -> tuple[Tensor, Tensor]:
    """cos and sin (M, d/2) in float32 of integer positions (M,), rounded on the way as `arithmetic` says."""
    length = int(positions.max()) + 1
    if arithmetic in ("float32", "bf16 cos and sin"):
        cos, sin = rope_table(rope, positions, length)
        return (cos, sin) if arithmetic == "float32" else (cos.bfloat16().float(), sin.bfloat16().float())
    assert arithmetic in ARITHMETIC, arithmetic
    theta, factor = frequencies(rope, length)
    at = positions.bfloat16().float() if arithmetic == "bf16 positions" else positions.float()
    angles = at[:, None] * torch.from_numpy(theta).float()
    return angles.cos() * factor, angles.sin() * factor


@dataclass(frozen=True, eq=False)
class Slide:
    """q . k at one offset while both positions slide.

    `positions` (M,) of the key; the query stands `offset` later. `products`: (M,) by arithmetic, float64 sums of
    float32 parts. `exact`: the product by complex numbers in float64. `length`: |q| |k|. `norms`: the largest relative
    change of |q| or |k| by turning, by arithmetic.
    """

    offset: int
    positions: np.ndarray
    products: dict[str, np.ndarray]
    norms: dict[str, float]
    exact: float
    length: float

    def spread(self, arithmetic: str) -> float:
        """How far the product gets from the exact one at any position, over |q| |k|."""
        return float(np.abs(self.products[arithmetic] - self.exact).max() / self.length)


def slide(q: Tensor, k: Tensor, rope: Rope, *, offset: int, positions: Tensor) -> Slide:
    """Turn q to m + offset and k to m for each m of the integer `positions` (M,), in every arithmetic.

    The scaling is taken at the largest length throughout, so that one that follows the length is one function, too.
    """
    rope_at = _fixed(rope, int(positions.max()) + offset + 1)
    products, norms = {}, {}
    for arithmetic in ARITHMETIC:
        turned_q, turned_k = (
            _turned(x, rope_at, at, arithmetic) for x, at in ((q, positions + offset), (k, positions))
        )
        products[arithmetic] = (turned_q * turned_k).double().sum(-1).numpy()
        norms[arithmetic] = max(_norm_change(q, turned_q, rope_at), _norm_change(k, turned_k, rope_at))
    return Slide(
        offset=offset,
        positions=positions.numpy(),
        products=products,
        norms=norms,
        exact=float(at_distance(q[None].numpy(), k[None].numpy(), rope_at, np.array([offset]))[0, 0]),
        length=float(q.double().norm() * k.double().norm()),
    )


def _fixed(rope: Rope, length: int) -> Rope:
    """A spec of the same frequencies and factor as `rope` has at this length, which no longer follows the length."""
    if not rope.follows_length:
        return rope
    theta, factor = frequencies(rope, length)
    plain = frequencies(Rope(rotary_dim=rope.rotary_dim, base=rope.base), length)[0]
    return Rope(
        rotary_dim=rope.rotary_dim,
        base=rope.base,
        type="longrope",
        original_max_positions=2**40,
        short_factor=tuple(plain / theta),
        long_factor=tuple(plain / theta),
        attention_factor=factor,
    )


def _turned(x: Tensor, rope: Rope, positions: Tensor, arithmetic: str) -> Tensor:
    cos, sin = tables(rope, positions, arithmetic)
    return rotate(x.float().expand(1, 1, len(positions), -1), cos, sin)[0, 0]


def _norm_change(x: Tensor, turned: Tensor, rope: Rope) -> float:
    """The largest relative change of the length of the turned dims, the factor on cos and sin taken off."""
    factor = frequencies(rope, 1)[1]
    before = x[: rope.rotary_dim].double().norm()
    after = turned[:, : rope.rotary_dim].double().norm(dim=-1) / factor
    return float((after / before - 1).abs().max())


def pairs_of(x: np.ndarray, rope: Rope) -> Complex[np.ndarray, "T pairs"]:
    """Vectors (T, d) as complex numbers, one for each pair: x_i + i x_(i + d/2), half-split."""
    half = rope.rotary_dim // 2
    return x[:, :half].astype(np.float64) + 1j * x[:, half : 2 * half].astype(np.float64)


def at_distance(
    q: np.ndarray, k: np.ndarray, rope: Rope, distances: np.ndarray, length: int = 1
) -> Float64[np.ndarray, "N D"]:
    """q_n . k_n (N, d) each, as if the key stood `distances` (D,) before the query; (N, D) in float64.

    Re sum_i z_q,i conj(z_k,i) e^(i D theta_i), times the square of the factor on cos and sin, and the dims that do not
    turn (Su et al. 2021, eq. 16). `length` is the context that a scaling which follows the length sees.
    """
    theta, factor = frequencies(rope, length)
    products = pairs_of(q, rope) * pairs_of(k, rope).conj() * factor**2
    angles = np.outer(theta, distances)
    rest = (q[:, rope.rotary_dim :].astype(np.float64) * k[:, rope.rotary_dim :]).sum(-1)
    return np.real(products) @ np.cos(angles) - np.imag(products) @ np.sin(angles) + rest[:, None]


def random_like(x: np.ndarray, seed: int) -> np.ndarray:
    """Random directions of the same lengths as the rows of x (T, d): a seeded Gaussian, rescaled."""
    drawn = np.random.default_rng(seed).standard_normal(x.shape)
    return drawn * (np.linalg.norm(x, axis=-1, keepdims=True) / np.linalg.norm(drawn, axis=-1, keepdims=True))
