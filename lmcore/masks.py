"""Which key a query may read, as one small frozen vocabulary: causal, window, prefix, sinks, packed documents."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lmcore.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Mask:
    """Query i may read key j when every clause that is set allows it (i, j are indices into the whole sequence).

    - `causal`: j <= i; with `prefix` = p also j < p for i < p, i.e. the prefix reads itself both ways (prefix-LM).
    - `window` = w: i - w < j, so that a query reads w keys, its own included; the first `sinks` keys stay readable.
      Without `causal` the window is two-sided: |i - j| < w.
    - `chunk` = c: i and j lie in the same run of c positions, floor(i / c) = floor(j / c) (Llama 4).
    - `documents`: the starts of packed documents after the first; a query reads only keys of its own document.
    """

    causal: bool = True
    window: int | None = None
    sinks: int = 0
    prefix: int = 0
    chunk: int | None = None
    documents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ConfigError(f"window is {self.window}", expected="at least 1", where="field window of the mask")
        if min(self.sinks, self.prefix, *self.documents, 0) < 0:
            raise ConfigError("a mask field is negative", expected="0 or more", where="fields sinks, prefix, documents")

    def allows(self, query: Int[Tensor, " T"], key: Int[Tensor, " S"]) -> Bool[Tensor, "T S"]:
        """True where the query at index i may read the key at index j."""
        i, j = query[:, None], key[None, :]
        allowed = torch.ones(i.shape[0], j.shape[1], dtype=torch.bool, device=query.device)
        if self.causal:
            allowed &= (j <= i) | ((j < self.prefix) & (i < self.prefix))
        if self.window is not None:
            near = (i - j < self.window) if self.causal else ((i - j).abs() < self.window)
            allowed &= near | (j < self.sinks)
        if self.chunk is not None:
            allowed &= i // self.chunk == j // self.chunk
        if self.documents:
            starts = torch.tensor(sorted(self.documents), device=query.device)
            allowed &= torch.bucketize(i, starts, right=True) == torch.bucketize(j, starts, right=True)
        return allowed


CAUSAL = Mask()


def additive(allowed: Bool[Tensor, "T S"]) -> Float[Tensor, "T S"]:
    """0 where reading is allowed and -inf where not: what is added to the scaled scores before the softmax."""
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill_(~allowed, float("-inf"))
