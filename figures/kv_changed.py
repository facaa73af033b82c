"""What if: a config with other KV heads, a latent, another pattern of windows. Torch-free, for the calculators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from lmcore.config import ModelConfig
from lmcore.specs import GroupedQuery, Latent


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is changed of a config, all of it together; None (and "" for what is cached and for windows) leaves it.

    `cached` is "heads" or "latent", `windows` "none" or "sliding"; the fields that the others belong to are named by
    the functions below.
    """

    cached: str = ""
    n_kv_heads: int | None = None
    head_dim: int | None = None
    kv_rank: int = 512
    rope_dim: int = 64
    layers: int | None = None
    windows: str = ""
    window: int = 1024
    every: int = 6


UNCHANGED = Change()


@lru_cache(maxsize=256)
def with_change(cfg: ModelConfig, change: Change) -> ModelConfig:
    """The config after the change. Raises ConfigError, naming the field, where there is no such model."""
    if change.cached == "heads":
        cfg = with_heads(cfg, change.n_kv_heads, change.head_dim)
    elif change.cached == "latent":
        cfg = with_latent(cfg, change.kv_rank, change.rope_dim)
    if change.layers is not None:
        cfg = with_layers(cfg, change.layers)
    if change.windows:
        cfg = without_window(cfg) if change.windows == "none" else with_window(cfg, change.window, change.every)
    return cfg


def with_heads(cfg: ModelConfig, n_kv_heads: int | None, head_dim: int | None) -> ModelConfig:
    """The config with other KV heads or head dims; an MLA model becomes one with KV heads of its unrotated dims."""
    a = cfg.attention
    if isinstance(a, Latent):
        dim = head_dim or a.nope_dim
        grouped = GroupedQuery(n_heads=a.n_heads, n_kv_heads=n_kv_heads or a.n_heads, head_dim=dim, scale=dim**-0.5)
    else:
        grouped = replace(a, n_kv_heads=n_kv_heads or a.n_kv_heads, head_dim=head_dim or a.head_dim)
    return _turnable(cfg, grouped)


def with_latent(cfg: ModelConfig, kv_rank: int, rope_dim: int) -> ModelConfig:
    """The config with multi-head latent attention of this rank and rotary key in the place of its heads."""
    a = cfg.attention
    if isinstance(a, Latent):
        return _turnable(cfg, replace(a, kv_rank=kv_rank, rope_dim=rope_dim))
    latent = Latent(
        n_heads=a.n_heads,
        kv_rank=kv_rank,
        nope_dim=a.head_dim,
        rope_dim=rope_dim,
        value_dim=a.head_dim,
        scale=a.scale,
    )
    return _turnable(cfg, latent)


def _turnable(cfg: ModelConfig, attention: GroupedQuery | Latent) -> ModelConfig:
    """The config with this attention; RoPE turns no more dims than its heads have."""
    room = attention.rotary_room // 2 * 2

    def within(rope: Any) -> Any:
        return None if rope is None else replace(rope, rotary_dim=min(rope.rotary_dim, room))

    return cfg.changed(attention=attention, rope=within(cfg.rope), local_rope=within(cfg.local_rope))


def with_window(cfg: ModelConfig, window: int, every: int) -> ModelConfig:
    """The config with a sliding window in all layers but every `every`-th, which reads everything; 0: in all layers."""
    kinds = tuple("full" if every and (layer + 1) % every == 0 else "sliding" for layer in range(cfg.n_layers))
    return cfg.changed(window=window, layer_types=kinds)


def without_window(cfg: ModelConfig) -> ModelConfig:
    """The config with every layer reading everything."""
    return cfg.changed(layer_types=("full",) * cfg.n_layers)


def with_layers(cfg: ModelConfig, layers: int) -> ModelConfig:
    """The config with so many layers, their kinds repeated in order."""
    kinds = tuple(cfg.layer_types[layer % cfg.n_layers] for layer in range(layers))
    keep = {name: tuple(at for at in getattr(cfg, name) if at < layers) for name in ("nope_layers", "moe_layers")}
    return cfg.changed(n_layers=layers, layer_types=kinds, **keep)
