"""Normalisation layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lmcore.specs import Norm, QKNorm


class Normalise(nn.Module):
    """RMSNorm `x / sqrt(mean(x^2) + eps) * w` (Zhang & Sennrich 2019, eq. 4), or LayerNorm, which also subtracts the
    mean and may add a bias (Ba et al. 2016, eq. 4); over the last dim, eps inside the root, 1 + w with `unit_offset`.

    PyTorch takes mean and variance in float32 whatever the dtype of x.
    """

    def __init__(self, dim: int | tuple[int, ...], spec: Norm) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim) if spec.unit_offset else torch.ones(dim))
        if spec.bias:
            self.bias = nn.Parameter(torch.zeros(dim))
        self.spec = spec

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        weight = 1 + self.weight if self.spec.unit_offset else self.weight
        bias = self.bias if self.spec.bias else None
        if weight.ndim > 1:
            x = _normalised(x, self.spec) * weight
            return x if bias is None else x + bias
        if self.spec.kind == "rms":
            x = F.rms_norm(x, weight.shape, weight, self.spec.eps)
            return x if bias is None else x + bias
        return F.layer_norm(x, weight.shape, weight, bias, self.spec.eps)


def _normalised(x: Tensor, spec: Norm) -> Tensor:
    if spec.kind == "rms":
        return F.rms_norm(x, x.shape[-1:], None, spec.eps)
    return F.layer_norm(x, x.shape[-1:], None, None, spec.eps)


class HeadNorm(nn.Module):
    """The norm of q or of k, on a projection (B, T, N * Dh), before RoPE; see `QKNorm` for what it runs over."""

    def __init__(self, heads: int, head_dim: int, spec: QKNorm) -> None:
        super().__init__()
        dims = {"head": (head_dim,), "each": (heads, head_dim), "width": (heads * head_dim,)}[spec.over]
        inner = Normalise(dims, spec.norm)
        self.weight = inner.weight
        if spec.norm.bias:
            self.bias = inner.bias
        self.heads, self.over, self.spec = heads, spec.over, spec.norm

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        if self.over != "width":
            x = x.view(*x.shape[:2], self.heads, -1)
        weight = 1 + self.weight if self.spec.unit_offset else self.weight
        x = _normalised(x, self.spec) * weight
        return (x + self.bias if self.spec.bias else x).flatten(2)
