"""A model's config in rows of facts, and what follows from it alone: parameters, KV bytes, FLOPs."""

from __future__ import annotations

from collections import Counter

from figures.facts import Fact
from figures.format import bytes_iec, group, sig
from figures.twins import Tile, tile
from lmcore.config import ModelConfig
from lmcore.costs import forward_flops, kv_cache_bytes, param_counts, weight_bytes
from lmcore.specs import GroupedQuery, Latent


def config_facts(cfg: ModelConfig) -> list[Fact]:
    """What the config says, in the field's words."""
    return [
        Fact("Layers", group(cfg.n_layers), _kinds(cfg)),
        Fact("d_model", group(cfg.d_model)),
        Fact("Attention", *_attention(cfg.attention)),
        Fact("Feed-forward", *_ffn(cfg)),
        Fact("Positions", *_positions(cfg)),
        Fact("Norm", "RMSNorm" if cfg.norm.kind == "rms" else "LayerNorm", f"eps {sig(cfg.norm.eps, 3)}"),
        Fact("Vocabulary", group(cfg.vocab_size), "head tied to the embedding" if cfg.tied else "untied head"),
        Fact("Trained context", group(cfg.max_positions), "positions"),
    ]


def _attention(a: GroupedQuery | Latent) -> tuple[str, str]:
    if isinstance(a, Latent):
        return "MLA", f"{group(a.n_heads)} heads, latent {group(a.kv_rank)}, rotary key {group(a.rope_dim)}"
    kind = "MHA" if a.n_kv_heads == a.n_heads else "MQA" if a.n_kv_heads == 1 else "GQA"
    return kind, f"{group(a.n_heads)} query heads on {group(a.n_kv_heads)} KV heads of {group(a.head_dim)} dims"


def _ffn(cfg: ModelConfig) -> tuple[str, str]:
    if not cfg.d_ff:
        return "none", "attention only"
    dense = f"d_ff {group(cfg.ffn.d_ff)}, {cfg.ffn.activation}{', gated' if cfg.ffn.gated else ''}"
    if cfg.moe is None:
        return "dense", dense
    m, sparse = cfg.moe, len(cfg.moe_layers)
    where = "every layer" if sparse == cfg.n_layers else f"{group(sparse)} of {group(cfg.n_layers)} layers"
    return "experts", f"{group(m.top_k)} of {group(m.n_experts)} in {where}, d_ff {group(m.d_ff)} each"


def _positions(cfg: ModelConfig) -> tuple[str, str]:
    if cfg.rope is not None:
        kind = "RoPE" if cfg.rope.type == "default" else f"RoPE, {cfg.rope.type}"
        none = f", none in {len(cfg.nope_layers)} layers" if cfg.nope_layers else ""
        return kind, f"base {group(int(cfg.rope.base))}, {group(cfg.rope.rotary_dim)} dims turn{none}"
    if cfg.alibi is not None:
        return "ALiBi", "a bias by distance"
    if cfg.learned_positions is not None:
        return "learned", f"{group(cfg.learned_positions)} rows"
    if cfg.sinusoidal:
        return "sinusoidal", "a fixed table"
    if cfg.relative_bias is not None:
        return "T5 bias", f"{group(cfg.relative_bias.buckets)} buckets of distance"
    return "none", ""


def _kinds(cfg: ModelConfig) -> str:
    counts = Counter(cfg.layer_types)
    if set(counts) == {"full"}:
        return "all with full attention"
    length = cfg.window if cfg.window is not None else cfg.chunk
    return ", ".join(f"{group(n)} {kind}" for kind, n in counts.most_common()) + f" of {group(length or 0)}"


def cost_tiles(
    cfg: ModelConfig, *, context: int, itemsize: int, dtype: str, counted: int, held_bytes: int | None
) -> list[Tile]:
    """Parameters by formula and counted; bytes of weights, held where a model is loaded; KV bytes and FLOPs of the next
    token at a context."""
    per_token = sum(kv_cache_bytes(cfg, context=1, itemsize=itemsize))
    whole = sum(kv_cache_bytes(cfg, context=context, itemsize=itemsize))
    step = sum(forward_flops(cfg, tokens=1, cached=context - 1).values())
    weights = weight_bytes(cfg, itemsize)
    return [
        tile("Parameters", param_counts(cfg).total, counted, unit="parameters"),
        tile("Weights", weights, held_bytes, unit="B", how="in memory", missing="not loaded", note=f"In {dtype}."),
        tile(
            f"KV cache, {group(context)} positions",
            whole,
            unit="B",
            missing="not run",
            note=f"The first adds {bytes_iec(per_token)}, in all layers.",
        ),
        tile(
            "FLOPs of the next token",
            step,
            unit="FLOP",
            missing="not run",
            note=f"After {group(context - 1)} cached.",
        ),
    ]
