"""Parameters, KV bytes, FLOPs and trace memory of a config: ints in, ints out, no torch, no model needed.

Conventions: a multiply-add counts as 2 FLOPs; only matrix products are counted (norms, softmax and activations are
not, as in PyTorch's `FlopCounterMode`); attention counts the full T x S rectangle that ordinary kernels execute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from lmcore.config import ModelConfig
from lmcore.errors import InputError
from lmcore.shapes import BUFFERS, cache_shapes, layer_shapes, param_shapes, stage_shapes
from lmcore.specs import Dense, Latent, MoE


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
    for mark, component in (("self_attn.", "attention"), ("mlp.", "ffn"), ("embed_", "embedding")):
        if mark in name:
            return component
    return "head"


def param_counts(cfg: ModelConfig) -> ParamCounts:
    """Parameters by component: the products of the shapes (V D; D H Dh, ...), every expert counted."""
    counts = {"embedding": 0, "attention": 0, "ffn": 0, "norms": 0, "head": 0}
    for name, shape, times in _shapes(cfg):
        if name not in BUFFERS:
            counts[component_of(name)] += times * prod(shape)
    return ParamCounts(**counts)


def block_param_count(cfg: ModelConfig, layer: int = 0) -> int:
    """Parameters of one block, from the shape table."""
    return sum(prod(shape) for name, shape in layer_shapes(cfg, layer).items() if name not in BUFFERS)


def weight_bytes(cfg: ModelConfig, itemsize: int) -> int:
    """Bytes of all stored tensors at `itemsize` bytes a number, from the shape table."""
    return _count("itemsize", itemsize, 1) * sum(times * prod(shape) for _, shape, times in _shapes(cfg))


def _shapes(cfg: ModelConfig) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Every row of the shape table, layers with the same feed-forward once: name, shape, how many layers have it."""
    outside = param_shapes(cfg.changed(n_layers=1, layer_types=cfg.layer_types[:1], moe=None, moe_layers=()))
    yield from ((name, shape, 1) for name, shape in outside.items() if not name.startswith("model.layers."))
    kinds: dict[bool, list[int]] = {}
    for layer in range(cfg.n_layers):
        kinds.setdefault(isinstance(cfg.ffn_of(layer), MoE), []).append(layer)
    for layers in kinds.values():
        yield from ((name, shape, len(layers)) for name, shape in layer_shapes(cfg, layers[0]).items())


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

    projections 2 T per weight of q, k, v and o; scores 2 T S H Dh and mix 2 T S H Dv a layer, S = cached + T. Layers
    with a window w execute the masked cells of a prefill, too, and read min(S, w + T) keys after cached tokens, w of
    them from the cache. FFN 2 T per weight, of the chosen experts only in a mixture; logits 2 D V for each of `logits`
    positions (all T when None). MLA after cached tokens: the absorbed path, in which a head's q and mix are as wide as
    the latent (r + d_rope, r).
    """
    t, b = _count("tokens", tokens), _count("batch", batch)
    s = _count("cached", cached) + t
    kept = t if logits is None else min(t, _count("logits", logits))
    a, d = cfg.attention, cfg.d_model
    projections = sum(prod(x) for name, x in layer_shapes(cfg).items() if _is_projection(name))
    # Absorbed, the up-projection of the latent is applied to q and to the mix of the new positions, expanded to the
    # latents of the new positions: T times its weights both ways.
    absorbed = isinstance(a, Latent) and s > t
    query, value = (
        (a.kv_rank + a.rope_dim, a.kv_rank) if isinstance(a, Latent) and absorbed else (a.head_dim, a.value_dim)
    )
    windows = (cfg.window_of(layer) for layer in range(cfg.n_layers))
    keys = sum(s if w is None or s == t else min(s, w + t) for w in windows)
    return {
        "projections": b * cfg.n_layers * 2 * t * projections,
        "scores": b * 2 * t * keys * a.n_heads * query,
        "mix": b * 2 * t * keys * a.n_heads * value,
        "ffn": b * 2 * t * sum(_ffn_weights_used(cfg.ffn_of(layer), d) for layer in range(cfg.n_layers)),
        "logits": b * 2 * kept * d * cfg.vocab_size,
    }


def _is_projection(name: str) -> bool:
    return name.startswith("self_attn.") and "proj" in name and name.endswith(".weight")


def _ffn_weights_used(f: Dense | MoE, d: int) -> int:
    """Matrix weights of the feed-forward sublayer that one token meets."""
    if isinstance(f, MoE):
        return d * (f.n_experts + 3 * f.top_k * f.d_ff + 3 * f.shared_d_ff + int(f.shared_gate))
    return (3 if f.gated else 2) * d * f.d_ff


def trace_bytes(
    cfg: ModelConfig, names: tuple[str, ...], *, layers: int, batch: int, queries: int, keys: int, itemsize: int
) -> int:
    """Bytes that a trace of these stages holds for `layers` layers of a forward of T queries over S keys."""
    shapes = stage_shapes(cfg, batch, queries, keys)
    return itemsize * layers * sum(prod(shapes[name]) for name in names if name in shapes)
