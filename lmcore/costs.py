"""Parameters, KV bytes, FLOPs and trace memory of a config: ints in, ints out, no torch, no model needed.

Conventions: a multiply-add counts as 2 FLOPs; only matrix products are counted (norms, softmax and activations are
not, as in PyTorch's `FlopCounterMode`); attention counts the full T x S rectangle that ordinary kernels execute.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lmcore.config import ModelConfig
from lmcore.errors import InputError
from lmcore.shapes import cache_shapes, layer_shapes, param_shapes, stage_shapes


def _count(name: str, value: int, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} is {value!r}", expected=f"an integer of at least {least}", where=f"argument {name}")
    return value


@dataclass(frozen=True, kw_only=True)
class ParamCounts:
    """Numbers of parameters by component; a tied head counts once, under `embedding`."""

    embedding: int
    attention: int
    ffn: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        return self.embedding + self.attention + self.ffn + self.norms + self.head


def component_of(name: str) -> str:
    """The component (`embedding`, `attention`, `ffn`, `norms`, `head`) that a parameter name belongs to."""
    if "norm" in name:
        return "norms"
    for mark, component in ((".self_attn.", "attention"), (".mlp.", "ffn"), ("embed", "embedding")):
        if mark in name:
            return component
    return "head"


def param_counts(cfg: ModelConfig) -> ParamCounts:
    """Parameters by formula: embedding V D; a layer's attention 2 D H Dh + 2 D K Dh, gated FFN 3 D F; norms D each."""
    a, d, layers = cfg.attention, cfg.d_model, cfg.n_layers
    q, kv = a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim
    attention = 2 * d * q + 2 * d * kv + (q + 2 * kv if a.qkv_bias else 0) + (d if a.out_bias else 0)
    matrices = 3 if cfg.ffn.gated else 2
    ffn = matrices * d * cfg.d_ff + ((matrices - 1) * cfg.d_ff + d if cfg.ffn.bias else 0)
    return ParamCounts(
        embedding=cfg.vocab_size * d,
        attention=layers * attention,
        ffn=layers * ffn,
        norms=(2 * layers + 1) * d,
        head=0 if cfg.tied else cfg.vocab_size * d,
    )


def block_param_count(cfg: ModelConfig) -> int:
    """Parameters of one block, from the shape table."""
    return sum(prod(shape) for shape in layer_shapes(cfg).values())


def weight_bytes(cfg: ModelConfig, itemsize: int) -> int:
    """Bytes of all parameters at `itemsize` bytes each, from the shape table."""
    return _count("itemsize", itemsize, 1) * sum(prod(shape) for shape in param_shapes(cfg).values())


def kv_cache_bytes(cfg: ModelConfig, *, context: int, batch: int = 1, itemsize: int = 2) -> tuple[int, ...]:
    """Bytes of the KV cache, one int per layer: B * min(S, w) * 2 K Dh * itemsize, with w the layer's window."""
    for name, value, least in (("context", context, 0), ("batch", batch, 0), ("itemsize", itemsize, 1)):
        _count(name, value, least)
    sizes = []
    for layer in range(cfg.n_layers):
        per_token = sum(prod(shape) for shape in cache_shapes(cfg, layer).values())
        window = cfg.window_of(layer)
        kept = context if window is None else min(context, window)
        sizes.append(batch * kept * per_token * itemsize)
    return tuple(sizes)


def forward_flops(
    cfg: ModelConfig, *, tokens: int, cached: int = 0, batch: int = 1, logits: int | None = None
) -> dict[str, int]:
    """FLOPs of one forward of `tokens` new tokens after `cached` ones, by component, all layers together.

    projections 2 T (2 D H Dh + 2 D K Dh); scores and mix 2 T S H Dh each, S = cached + T; FFN 6 T D F gated, 4 T D F
    plain; logits 2 D V for each of `logits` positions (all T when None).
    """
    t, b = _count("tokens", tokens), _count("batch", batch)
    s = _count("cached", cached) + t
    kept = t if logits is None else min(t, _count("logits", logits))
    a, d, layers = cfg.attention, cfg.d_model, cfg.n_layers
    heads = a.n_heads * a.head_dim
    return {
        "projections": b * layers * 2 * t * (2 * d * heads + 2 * d * a.n_kv_heads * a.head_dim),
        "scores": b * layers * 2 * t * s * heads,
        "mix": b * layers * 2 * t * s * heads,
        "ffn": b * layers * (6 if cfg.ffn.gated else 4) * t * d * cfg.d_ff,
        "logits": b * 2 * kept * d * cfg.vocab_size,
    }


def trace_bytes(
    cfg: ModelConfig, names: tuple[str, ...], *, layers: int, batch: int, queries: int, keys: int, itemsize: int
) -> int:
    """Bytes that a trace of these stages holds for `layers` layers of a forward of T queries over S keys."""
    shapes = stage_shapes(cfg, batch, queries, keys)
    return itemsize * layers * sum(prod(shapes[name]) for name in names if name in shapes)
