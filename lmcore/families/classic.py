"""Families with LayerNorm and a plain feed-forward: GPT-2 and its descendants."""

from __future__ import annotations

from lmcore.config import ModelConfig
from lmcore.families.shared import (
    everywhere,
    layer_norm_fields,
    llama_like,
    sizes,
    window_fields,
)
from lmcore.reading import Reader, rope_from
from lmcore.specs import Wiring


def phi(read: Reader) -> ModelConfig:
    read.refuse("qk_layernorm", True)
    return llama_like(
        read,
        activation="gelu_new",
        attention={"qkv_bias": True, "out_bias": True},
        ffn={"gated": False, "bias": True},
        norm=layer_norm_fields(read, "layer_norm_eps"),
        rope={"fraction": 0.5},
        wiring=Wiring(parallel=True, shared_norm=True),
        head_bias=True,
    )


def starcoder2(read: Reader) -> ModelConfig:
    bias = read.flag("use_bias", default=True)
    return llama_like(
        read,
        tied=True,
        activation="gelu_pytorch_tanh",
        attention={"qkv_bias": bias, "out_bias": bias},
        ffn={"gated": False, "bias": bias},
        norm=layer_norm_fields(read, "norm_epsilon"),
        **window_fields(read, pattern=everywhere),
    )


def nemotron(read: Reader) -> ModelConfig:
    return llama_like(
        read,
        activation="relu2",
        ffn={"gated": False, "bias": read.flag("mlp_bias")},
        norm=layer_norm_fields(read, "norm_eps", unit_offset=True),
        rope={"fraction": 0.5},
    )


def gpt2(read: Reader) -> ModelConfig:
    read.refuse("scale_attn_by_inverse_layer_idx", True)
    scaled = read.flag("scale_attn_weights", default=True)
    d_model, _, _, _, head_dim = sizes(read)
    inner = read.integer("n_inner", default=4 * d_model)
    positions = read.integer("n_positions", "max_position_embeddings", default=1024)
    return llama_like(
        read,
        tied=True,
        activation="gelu_new",
        attention={"qkv_bias": True, "out_bias": True, "scale": head_dim**-0.5 if scaled else 1.0},
        ffn={"d_ff": inner, "gated": False, "bias": True},
        norm=layer_norm_fields(read, "layer_norm_epsilon"),
        rope=None,
        learned_positions=positions,
        max_positions=positions,
    )


def gpt_neox(read: Reader) -> ModelConfig:
    bias = read.flag("attention_bias", default=True)
    return llama_like(
        read,
        activation="gelu",
        attention={"qkv_bias": bias, "out_bias": bias},
        ffn={"gated": False, "bias": True},
        norm=layer_norm_fields(read, "layer_norm_eps"),
        rope={"fraction": 0.25},
        wiring=Wiring(parallel=read.flag("use_parallel_residual", default=True)),
    )


def gptj(read: Reader) -> ModelConfig:
    d_model, _, _, _, head_dim = sizes(read)
    dims = read.integer("rotary_dim", default=64)
    return llama_like(
        read,
        activation="gelu_new",
        ffn={"d_ff": read.integer("n_inner", default=4 * d_model), "gated": False, "bias": True},
        norm=layer_norm_fields(read, "layer_norm_epsilon"),
        rope={"fraction": min(dims, head_dim) / head_dim},
        wiring=Wiring(parallel=True, shared_norm=True),
        head_bias=True,
    )


def opt(read: Reader) -> ModelConfig:
    d_model = read.integer("hidden_size")
    if read.integer("word_embed_proj_dim", default=d_model) != d_model:
        raise read.fail("word_embed_proj_dim", "it differs from hidden_size, which lmcore does not run", "hidden_size")
    read.refuse("layer_norm_elementwise_affine", False)
    before, bias = read.flag("do_layer_norm_before", default=True), read.flag("enable_bias", default=True)
    without_final = read.flag("_remove_final_layer_norm")
    positions = read.integer("max_position_embeddings", default=2048)
    return llama_like(
        read,
        tied=True,
        activation="relu",
        attention={"qkv_bias": bias, "out_bias": bias},
        ffn={"d_ff": read.integer("ffn_dim", default=3072), "gated": False, "bias": bias},
        norm={"kind": "layer", "bias": True, "eps": 1e-5},
        rope=None,
        learned_positions=positions + 2,
        position_offset=2,
        wiring=Wiring(order="pre" if before else "post"),
        final_norm=before and not without_final,
    )


def falcon(read: Reader) -> ModelConfig:
    read.refuse("alibi", True)
    d_model, _, n_heads, _, head_dim = sizes(read)
    new = read.flag("new_decoder_architecture")
    if new:
        kv_heads = read.integer("num_kv_heads", default=n_heads)
    else:
        kv_heads = 1 if read.flag("multi_query", default=True) else n_heads
    read.used |= {"num_kv_heads", "multi_query", "num_ln_in_parallel_attn", "parallel_attn"}
    norms = read.integer("num_ln_in_parallel_attn", default=2 if new else 1)
    parallel = new or read.flag("parallel_attn", default=True)
    bias = read.flag("bias")
    shared = parallel and norms == 1
    return llama_like(
        read.with_values(num_key_value_heads=kv_heads),
        tied=True,
        activation=read.text("activation", default="gelu"),
        attention={"qkv_bias": bias, "out_bias": bias},
        ffn={"d_ff": read.integer("ffn_hidden_size", default=4 * d_model), "gated": False, "bias": bias},
        norm=layer_norm_fields(read, "layer_norm_epsilon"),
        rope=rope_from(read, head_dim),
        wiring=Wiring(parallel=parallel, shared_norm=shared),
    )


def bloom(read: Reader) -> ModelConfig:
    read.refuse("apply_residual_connection_post_layernorm", True)
    d_model = read.integer("hidden_size", "n_embed")
    return llama_like(
        read,
        tied=True,
        activation="gelu_new",
        attention={"qkv_bias": True, "out_bias": True},
        ffn={"d_ff": 4 * d_model, "gated": False, "bias": True},
        norm=layer_norm_fields(read, "layer_norm_epsilon"),
        rope=None,
        alibi=8.0,
        embedding_norm=True,
        max_positions=read.integer("seq_length", default=2048),
    )


def mpt(read: Reader) -> ModelConfig:
    attention = read.part("attn_config")
    attention.refuse("qk_ln", True)
    attention.refuse("prefix_lm", True)
    attention.refuse("attn_type", "multiquery_attention")
    read.refuse("logit_scale", "inv_sqrt_d_model")
    read.refuse("no_bias", False)
    d_model, _, _, _, head_dim = sizes(read)
    read.used |= {"expansion_ratio", "learned_pos_emb", "embedding_fraction", "norm_type"}
    return llama_like(
        read,
        tied=True,
        activation="gelu",
        attention={
            "scale": attention.number("softmax_scale", default=head_dim**-0.5),
            "clip": attention.maybe("clip_qkv"),
        },
        # The reference implementation takes 4 D whatever expansion_ratio says.
        ffn={"d_ff": 4 * d_model, "gated": False},
        norm=layer_norm_fields(read, "layer_norm_epsilon", bias=False),
        rope=None,
        alibi=attention.number("alibi_bias_max", default=8.0),
    )
