"""Families with a mixture of experts."""

from __future__ import annotations

from typing import Any

from lmcore.config import ModelConfig
from lmcore.families.shared import (
    FULL,
    everywhere,
    expert_count,
    layer_count,
    layers_without_rope,
    llama_like,
    norm_per_head,
    qwen_windows,
    sizes,
    sparse_layers,
    window_fields,
)
from lmcore.reading import Reader, rope_from
from lmcore.specs import Dense, Latent, MoE, Norm, QKNorm, Tuning


def mixtral(read: Reader) -> ModelConfig:
    d_ff = read.integer("intermediate_size")
    moe = MoE(
        n_experts=expert_count(read, "num_local_experts", "num_experts", default=8),
        top_k=expert_count(read, "num_experts_per_tok", default=2),
        d_ff=d_ff,
        activation=read.activation("hidden_act", default="silu"),
        normalise=True,
    )
    windows = window_fields(read, pattern=everywhere)
    return llama_like(read, eps=1e-5, moe=moe, moe_layers=tuple(range(layer_count(read))), **windows)


def qwen2_moe(read: Reader) -> ModelConfig:
    bias = read.flag("qkv_bias", default=True)
    moe = MoE(
        n_experts=expert_count(read, "num_experts", "num_local_experts", default=60),
        top_k=expert_count(read, "num_experts_per_tok", default=4),
        d_ff=read.integer("moe_intermediate_size", default=1408),
        activation=read.activation("hidden_act", default="silu"),
        normalise=read.flag("norm_topk_prob"),
        shared_d_ff=read.integer("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
    )
    attention = {"qkv_bias": bias, "out_bias": False}
    return llama_like(read, attention=attention, moe=moe, moe_layers=sparse_layers(read), **qwen_windows(read))


def qwen3_moe(read: Reader) -> ModelConfig:
    moe = MoE(
        n_experts=expert_count(read, "num_experts", "num_local_experts", default=128),
        top_k=expert_count(read, "num_experts_per_tok", default=8),
        d_ff=read.integer("moe_intermediate_size", default=768),
        activation=read.activation("hidden_act", default="silu"),
        normalise=read.flag("norm_topk_prob"),
    )
    windows = window_fields(read, on=read.flag("use_sliding_window"), default=4096, pattern=everywhere)
    attention = {"qk_norm": norm_per_head(read)}
    return llama_like(read, attention=attention, moe=moe, moe_layers=sparse_layers(read), **windows)


def olmoe(read: Reader) -> ModelConfig:
    norm = Norm(eps=read.number("rms_norm_eps", default=1e-5))
    moe = MoE(
        n_experts=expert_count(read, "num_experts", "num_local_experts", default=64),
        top_k=expert_count(read, "num_experts_per_tok", default=8),
        d_ff=read.integer("intermediate_size"),
        activation=read.activation("hidden_act", default="silu"),
        normalise=read.flag("norm_topk_prob"),
    )
    attention = {"qk_norm": QKNorm(over="width", norm=norm), "clip": read.maybe("clip_qkv")}
    return llama_like(read, eps=1e-5, attention=attention, moe=moe, moe_layers=tuple(range(layer_count(read))))


def gpt_oss(read: Reader) -> ModelConfig:
    bias = read.flag("attention_bias", default=True)
    moe = MoE(
        n_experts=expert_count(read, "num_local_experts", "num_experts", default=128),
        top_k=expert_count(read, "num_experts_per_tok", "experts_per_token", default=4),
        d_ff=read.integer("intermediate_size"),
        score="softmax_after",
        router_bias=True,
        bias=True,
        limit=read.number("swiglu_limit", default=7.0),
        alpha=read.number("swiglu_alpha", default=1.702),
    )
    return llama_like(
        read,
        head_dim=64,
        eps=1e-5,
        attention={"qkv_bias": bias, "out_bias": bias, "sinks": True},
        rope={"base": 150_000.0},
        moe=moe,
        moe_layers=tuple(range(layer_count(read))),
        **window_fields(read, default=128, pattern=lambda layer: layer % 2 == 0),
    )


def _deepseek(read: Reader, q_rank: int, **router: Any) -> ModelConfig:
    """DeepSeek-V2 and V3: MLA, dense first layers, then a mixture with shared experts."""
    from lmcore.frequencies import mscale

    _, n_layers, n_heads, _, _ = sizes(read.with_values(num_key_value_heads=None, head_dim=1))
    read.used |= {"num_key_value_heads", "head_dim", "qk_head_dim", "topk_method", "scoring_func", "rope_interleave"}
    rope_dim = read.integer("qk_rope_head_dim", default=64)
    rope = rope_from(read, rope_dim)
    stretch = mscale(rope.factor, rope.mscale_all_dim) if rope.type == "yarn" and rope.mscale_all_dim else 1.0
    nope_dim = read.integer("qk_nope_head_dim", default=128)
    rank = read.integer("q_lora_rank", default=q_rank) if read.raw.get("q_lora_rank", q_rank) is not None else None
    read.used.add("q_lora_rank")
    expert, shared = read.integer("moe_intermediate_size", default=2048), read.integer("n_shared_experts", default=1)
    dense = 0 if read.value("first_k_dense_replace") is None else read.count("first_k_dense_replace")
    moe = MoE(
        n_experts=expert_count(read, "n_routed_experts", "num_local_experts"),
        top_k=expert_count(read, "num_experts_per_tok", default=8),
        d_ff=expert,
        activation=read.activation("hidden_act", default="silu"),
        scale=read.number("routed_scaling_factor", default=1.0),
        shared_d_ff=expert * shared,
        **router,
    )
    return ModelConfig(
        vocab_size=read.integer("vocab_size"),
        d_model=read.integer("hidden_size"),
        n_layers=n_layers,
        max_positions=read.integer("max_position_embeddings", default=2048),
        attention=Latent(
            n_heads=n_heads,
            kv_rank=read.integer("kv_lora_rank", default=512),
            nope_dim=nope_dim,
            rope_dim=rope_dim,
            value_dim=read.integer("v_head_dim", default=128),
            q_rank=rank,
            scale=(nope_dim + rope_dim) ** -0.5 * stretch**2,
            bias=read.flag("attention_bias"),
        ),
        ffn=Dense(
            d_ff=read.integer("intermediate_size"),
            activation=read.activation("hidden_act", default="silu"),
            bias=read.flag("mlp_bias"),
        ),
        norm=Norm(eps=read.number("rms_norm_eps", default=1e-6)),
        rope=rope,
        tied=read.flag("tie_word_embeddings"),
        layer_types=("full",) * n_layers,
        moe=moe,
        moe_layers=tuple(range(dense, n_layers)),
    )


def deepseek_v2(read: Reader) -> ModelConfig:
    grouped = read.text("topk_method", default="greedy") == "group_limited_greedy"
    read.used |= {"n_group", "topk_group", "norm_topk_prob"}
    groups = (
        {
            "groups": read.integer("n_group", default=1),
            "top_groups": read.integer("topk_group", default=1),
        }
        if grouped
        else {}
    )
    return _deepseek(read, 1536, **groups)


def deepseek_v3(read: Reader) -> ModelConfig:
    return _deepseek(
        read,
        1536,
        score="sigmoid",
        normalise=read.flag("norm_topk_prob", default=True),
        groups=read.integer("n_group", default=8),
        top_groups=read.integer("topk_group", default=4),
        group_rank="top2",
        choice_bias=True,
    )


def llama4(read: Reader) -> ModelConfig:
    n_layers = layer_count(read)
    expert = read.integer("intermediate_size", default=8192)
    step = read.integer("interleave_moe_layer_step", default=1)
    given = read.layers("moe_layers")
    sparse = tuple(range(step - 1, n_layers, step)) if given is None else given
    nope, chunk = layers_without_rope(read), read.integer("attention_chunk_size", default=8192)
    kinds = read.listed("layer_types", n_layers)
    if kinds is None:
        kinds = ["full_attention" if layer in nope else "chunked_attention" for layer in range(n_layers)]
    eps = read.number("rms_norm_eps", default=1e-5)
    tuning = Tuning(scale=read.number("attn_scale", default=0.1), floor=read.number("floor_scale", default=8192.0))
    moe = MoE(
        n_experts=expert_count(read, "num_local_experts", default=16),
        top_k=expert_count(read, "num_experts_per_tok", default=1),
        d_ff=expert,
        activation=read.activation("hidden_act", default="silu"),
        score="sigmoid",
        scale_input=True,
        shared_d_ff=expert,
    )
    return llama_like(
        read,
        head_dim=128,
        eps=1e-5,
        attention={
            "qk_norm": QKNorm(over="unit", norm=Norm(eps=eps)) if read.flag("use_qk_norm", default=True) else None,
            "tuning": tuning if read.flag("attn_temperature_tuning", default=True) else None,
        },
        ffn={"d_ff": read.integer("intermediate_size_mlp", default=16384)},
        rope={"base": 500_000.0},
        nope_layers=nope,
        chunk=chunk,
        layer_types=tuple(FULL.get(str(kind), str(kind)) for kind in kinds),
        moe=moe,
        moe_layers=sparse,
    )
