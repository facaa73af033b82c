"""LLaMA and the families closest to it: gated feed-forward, RoPE, one block after the other."""

from __future__ import annotations

from typing import Any

from lmcore.config import ModelConfig
from lmcore.families.shared import (
    everywhere,
    layer_norm_fields,
    layers_without_rope,
    llama_like,
    norm_per_head,
    qwen_windows,
    window_fields,
)
from lmcore.reading import Reader, rope_from
from lmcore.specs import Dense, Norm, QKNorm, Rope, Wiring


def llama(read: Reader) -> ModelConfig:
    bias = read.flag("mlp_bias")
    return llama_like(read, ffn={"bias": bias})


def mistral(read: Reader) -> ModelConfig:
    return llama_like(read, **window_fields(read, default=4096, pattern=everywhere))


def qwen2(read: Reader) -> ModelConfig:
    return llama_like(read, attention={"qkv_bias": True, "out_bias": False}, **qwen_windows(read))


def qwen3(read: Reader) -> ModelConfig:
    return llama_like(read, head_dim=128, attention={"qk_norm": norm_per_head(read)}, **qwen_windows(read))


def _gemma_like(read: Reader, **fields: Any) -> ModelConfig:
    """Gemma: weights as 1 + w in the norms, embedding times sqrt(D), GELU by tanh, tied, head dim 256."""
    eps = read.number("rms_norm_eps", default=1e-6)
    name = read.text("hidden_activation", "hidden_act", default="gelu_pytorch_tanh")
    # The first Gemma files say "gelu" and mean the tanh form.
    act = "gelu_tanh" if name == "gelu" else read.activation("hidden_activation", "hidden_act", default=name)
    read.refuse("use_bidirectional_attention", True)
    made = llama_like(
        read,
        head_dim=256,
        tied=True,
        norm={"eps": eps, "unit_offset": True},
        embedding_scale=read.integer("hidden_size") ** 0.5,
        **fields,
    )
    return made.changed(ffn=Dense(d_ff=made.ffn.d_ff, activation=act))


def gemma(read: Reader) -> ModelConfig:
    return _gemma_like(read)


def gemma2(read: Reader) -> ModelConfig:
    return _gemma_like(
        read,
        attention={
            "scale": read.number("query_pre_attn_scalar", default=256.0) ** -0.5,
            "softcap": read.maybe("attn_logit_softcapping") if "attn_logit_softcapping" in read.raw else 50.0,
        },
        logit_softcap=read.maybe("final_logit_softcapping") if "final_logit_softcapping" in read.raw else 30.0,
        wiring=Wiring(order="sandwich"),
        **window_fields(read, default=4096, pattern=lambda layer: layer % 2 == 0),
    )


def gemma3(read: Reader) -> ModelConfig:
    head_dim = read.integer("head_dim", default=256)
    every = read.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    by_kind = read.part("rope_parameters").raw.get("sliding_attention") is not None
    local = rope_from(read, head_dim, kind="sliding") if by_kind else None
    if local is None:
        local = Rope(rotary_dim=head_dim, base=read.number("rope_local_base_freq", default=10_000.0))
    return _gemma_like(
        read,
        attention={
            "scale": read.number("query_pre_attn_scalar", default=256.0) ** -0.5,
            "softcap": read.maybe("attn_logit_softcapping"),
            "qk_norm": norm_per_head(read, unit_offset=True),
        },
        rope={"base": 1_000_000.0},
        local_rope=local,
        logit_softcap=read.maybe("final_logit_softcapping"),
        wiring=Wiring(order="sandwich"),
        **window_fields(read, default=4096, pattern=lambda layer: (layer + 1) % every != 0),
    )


def phi3(read: Reader) -> ModelConfig:
    return llama_like(read, eps=1e-5, **window_fields(read, pattern=everywhere))


def olmo2(read: Reader) -> ModelConfig:
    norm = Norm(eps=read.number("rms_norm_eps", default=1e-5))
    attention = {"qk_norm": QKNorm(over="width", norm=norm)}
    return llama_like(read, eps=1e-5, attention=attention, wiring=Wiring(order="output"))


def smollm3(read: Reader) -> ModelConfig:
    nope = layers_without_rope(read)
    windows = window_fields(read, on=read.flag("use_sliding_window"), pattern=lambda layer: layer not in nope)
    return llama_like(
        read, tied=True, rope={"base": 2_000_000.0}, ffn={"bias": read.flag("mlp_bias")}, nope_layers=nope, **windows
    )


def granite(read: Reader) -> ModelConfig:
    return llama_like(
        read,
        attention={"scale": read.number("attention_multiplier", default=1.0)}
        | {key: read.flag("attention_bias") for key in ("qkv_bias", "out_bias")},
        ffn={"bias": read.flag("mlp_bias")},
        embedding_scale=read.number("embedding_multiplier", default=1.0),
        logit_scale=1 / read.number("logits_scaling", default=1.0),
        wiring=Wiring(residual_scale=read.number("residual_multiplier", default=1.0)),
    )


def cohere(read: Reader) -> ModelConfig:
    norm = layer_norm_fields(read, "layer_norm_eps", bias=False)
    qk_norm = QKNorm(over="each", norm=Norm(**norm)) if read.flag("use_qk_norm") else None
    return llama_like(
        read,
        tied=True,
        attention={"qk_norm": qk_norm},
        norm=norm,
        logit_scale=read.number("logit_scale", default=0.0625),
        wiring=Wiring(parallel=True, shared_norm=True),
    )


def glm(read: Reader) -> ModelConfig:
    bias = {"qkv_bias": read.flag("attention_bias", default=True), "out_bias": False}
    return llama_like(read, head_dim=128, eps=1.5625e-7, attention=bias, rope={"fraction": 0.5})


def glm4(read: Reader) -> ModelConfig:
    return glm(read).changed(wiring=Wiring(order="sandwich"))


def stablelm(read: Reader) -> ModelConfig:
    read.refuse("qk_layernorm", True)
    parallel = read.flag("use_parallel_residual")
    return llama_like(
        read,
        attention={"qkv_bias": read.flag("use_qkv_bias"), "out_bias": False},
        norm=layer_norm_fields(read, "layer_norm_eps"),
        rope={"fraction": 0.25},
        wiring=Wiring(parallel=parallel, shared_norm=parallel),
    )
