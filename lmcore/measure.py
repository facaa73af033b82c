"""Twins of the formulas, read off a model that runs: FLOPs, cache bytes, sums of attention rows, loss, dot products.

Numbers come back as Python ints and numpy arrays. A multiply-add counts as 2 FLOPs, and only operations in PyTorch's
own table (`torch.utils.flop_counter.flop_registry`, the matrix products) are counted, as in `lmcore.costs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from lmcore.cache import KVCache
from lmcore.costs import component_of
from lmcore.model import Transformer
from lmcore.trace import Capture

LOSS_ROWS = 256


class FlopCount(TorchDispatchMode):
    """Counts the FLOPs of what this thread runs inside it, by component, in `flops`.

    A product with a parameter belongs to the component of that parameter, known by its memory, and any other product to
    "attention products" (q k^T and the mix). PyTorch's `FlopCounterMode` tells modules apart by hooks on every module
    of the process, which other threads that run the same model would set off; this one touches no other thread.
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        names = {"embedding": "logits", "head": "logits", "attention": "projections", "ffn": "ffn"}
        self._owner = {p.data_ptr(): names.get(component_of(name), "other") for name, p in model.named_parameters()}
        self.flops: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in flop_registry:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if packet in flop_registry:
            owners = [self._owner.get(a.data_ptr()) for a in args if isinstance(a, torch.Tensor)]
            part = next((owner for owner in owners if owner), "attention products")
            self.flops[part] = self.flops.get(part, 0) + flop_registry[packet](*args, **kwargs, out_val=result)
        return result


class Pass(NamedTuple):
    """What one written-out forward was measured to do.

    `rows` attention rows (a query of a head of a layer) were summed, in float64: the least and the largest sum.
    """

    flops: dict[str, int]
    cache_used_bytes: int
    rows: int
    least_row_sum: float
    largest_row_sum: float


def measured_pass(model: Transformer, tokens: Sequence[int], *, max_bytes: int | None = None) -> Pass:
    """One prefill of these tokens with every product written out, into a cache, under the FLOP counter.

    The counter sees nothing inside a fused kernel, hence the written-out attention. CapacityError when the attention
    weights of all layers would take more than `max_bytes`.
    """
    batch = torch.tensor([list(tokens)], dtype=torch.long, device=model.device)
    cache = KVCache.empty(model.cfg, batch.shape[1], dtype=model.dtype, device=model.device)
    with FlopCount(model) as counter:
        trace = model(batch, cache=cache, capture=Capture.of("pattern", max_bytes=max_bytes)).trace
    sums = [trace.layers[layer]["pattern"].sum(-1, dtype=_widest(model)) for layer in sorted(trace.layers)]
    return Pass(
        flops=counter.flops,
        cache_used_bytes=cache.used_bytes,
        rows=sum(s.numel() for s in sums),
        least_row_sum=min(float(s.min()) for s in sums),
        largest_row_sum=max(float(s.max()) for s in sums),
    )


def counted_flops(model: Transformer, tokens: Sequence[int]) -> dict[str, int]:
    """FLOPs of one forward of these tokens, counted while it runs: projections, attention products, ffn, logits."""
    return measured_pass(model, tokens).flops


def counted_parameters(model: Transformer) -> dict[str, int]:
    """Numbers in the loaded tensors by component (`lmcore.costs.component_of`)."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        component = component_of(name)
        counts[component] = counts.get(component, 0) + parameter.numel()
    return counts


def mean_cross_entropy(logits: Float[np.ndarray, "T V"], tokens: Sequence[int]) -> float:
    """PyTorch's own mean loss, in nats, of tokens 1 to T - 1, each predicted by the logits before it; NaN for T = 1."""
    if len(tokens) < 2:
        return float("nan")
    total = 0.0
    with torch.inference_mode():
        for first in range(0, len(tokens) - 1, LOSS_ROWS):  # a copy of all logits of a long prompt may not fit
            given = torch.from_numpy(np.array(logits[first : min(first + LOSS_ROWS, len(tokens) - 1)]))
            ids = torch.tensor(list(tokens[first + 1 : first + 1 + len(given)]))
            total += float(F.cross_entropy(given, ids, reduction="sum"))
    return total / (len(tokens) - 1)


class Dots(NamedTuple):
    """The logits of k tokens at each of T positions as dot products in float64, and what they are made of.

    `product` is h . w; `logit` is what the model makes of it: plus bias, times scale, soft-capped, where it has these;
    `normed_length` |h| and `row_length` |w| give the cosine as product / (|h| |w|).
    """

    product: Float64[np.ndarray, "T k"]
    logit: Float64[np.ndarray, "T k"]
    normed_length: Float64[np.ndarray, " T"]
    row_length: Float64[np.ndarray, "T k"]


def dot_products(model: Transformer, normed: Float[np.ndarray, "T D"], ids: Int[np.ndarray, "T k"]) -> Dots:
    """Each final normed residual h with the unembedding rows w of its k tokens, a second derivation of the logits."""
    cfg = model.cfg
    used, places = np.unique(ids, return_inverse=True)
    places = places.reshape(ids.shape)
    index = torch.from_numpy(used.astype(np.int64)).to(model.device)
    rows = model.unembedding[index].detach().float().cpu().numpy()
    product = np.empty(ids.shape)
    for position, h in enumerate(normed):
        product[position] = rows[places[position]].astype(np.float64) @ h.astype(np.float64)
    logit = product
    if cfg.head_bias:
        logit = logit + model.lm_head.bias[index].detach().float().cpu().numpy().astype(np.float64)[places]
    logit = logit * cfg.logit_scale
    if cfg.logit_softcap is not None:
        logit = cfg.logit_softcap * np.tanh(logit / cfg.logit_softcap)
    lengths = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
    return Dots(product, logit, np.sqrt((normed.astype(np.float64) ** 2).sum(axis=1)), lengths[places])


def _widest(model: Transformer) -> torch.dtype:
    """float64 where the device has it: the sum must not add a rounding of its own."""
    return torch.float32 if model.device.type == "mps" else torch.float64
