"""Normalisation layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lmcore.config import Norm


class RMSNorm(nn.Module):
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dim; eps inside the root (Zhang & Sennrich 2019, eq. 4).

    PyTorch takes the mean in float32 whatever the dtype of x.
    """

    def __init__(self, dim: int, spec: Norm) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = spec.eps

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
