"""One tiny random model of `transformers` for each variant of each family, and a mistake for each that must show.

Weights are redrawn so that they hide nothing (see `tiny.refill`): attention is sharp, norms are away from 1, biases
from 0, routers have an opinion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import transformers

from lmcore.config import ModelConfig, Rope
from lmcore.specs import GroupedQuery, Latent

VOCABULARY = 96
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# Sizes that these classes have other names for, or none.
NOT_THEIRS = {
    "GPTNeoX": ("num_key_value_heads",),
    **dict.fromkeys(("GPT2", "GPTJ", "OPT", "Falcon"), ("num_key_value_heads", "intermediate_size")),
    **dict.fromkeys(("Bloom", "Mpt"), tuple(SIZES)[1:7]),
}
OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY}
WINDOW = {"sliding_window": 5}
SMALL_MOE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
DEEPSEEK = {
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "routed_scaling_factor": 1.7,
}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA4 = {
    "head_dim": 8,
    "num_hidden_layers": 4,
    "intermediate_size_mlp": 40,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 5,
    "no_rope_layers": [1, 1, 1, 0],
    "floor_scale": 4,
    "attn_scale": 0.3,
}
GEMMA3_V5 = {
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
    }
}
Change = Callable[[ModelConfig], ModelConfig]


class Variant(NamedTuple):
    """`cls`: the name of the class in `transformers` without its end; `wrong`: a config that must give other logits."""

    cls: str
    config: dict[str, Any]
    wrong: Change
    head: str = "ForCausalLM"


def _attention(**fields: Any) -> Change:
    def change(cfg: ModelConfig) -> ModelConfig:
        assert isinstance(cfg.attention, GroupedQuery | Latent)
        return cfg.changed(attention=replace(cfg.attention, **fields))

    return change


def _moe(**fields: Any) -> Change:
    def change(cfg: ModelConfig) -> ModelConfig:
        assert cfg.moe is not None
        return cfg.changed(moe=replace(cfg.moe, **fields))

    return change


def _wiring(**fields: Any) -> Change:
    return lambda cfg: cfg.changed(wiring=replace(cfg.wiring, **fields))


def _rope(**fields: Any) -> Change:
    def change(cfg: ModelConfig) -> ModelConfig:
        assert cfg.rope is not None
        return cfg.changed(rope=replace(cfg.rope, **fields))

    return change


def _full(cfg: ModelConfig) -> ModelConfig:
    assert "sliding" in cfg.layer_types
    return cfg.changed(layer_types=("full",) * cfg.n_layers)


def _whole_head(cfg: ModelConfig) -> ModelConfig:
    assert cfg.rope is not None
    assert cfg.rope.rotary_dim < cfg.head_dim
    return cfg.changed(rope=Rope(rotary_dim=cfg.head_dim, base=cfg.rope.base))


def _sets(**fields: Any) -> Change:
    return lambda cfg: cfg.changed(**fields)


def _no_offset(cfg: ModelConfig) -> ModelConfig:
    return cfg.changed(norm=replace(cfg.norm, unit_offset=False))


def _exact_gelu(cfg: ModelConfig) -> ModelConfig:
    return cfg.changed(ffn=replace(cfg.ffn, activation="relu"))


def _wider(cfg: ModelConfig) -> ModelConfig:
    assert cfg.window is not None
    return cfg.changed(window=cfg.window + 1)


def _inverted(cfg: ModelConfig) -> ModelConfig:
    others = tuple(layer for layer in range(cfg.n_layers) if layer not in cfg.nope_layers)
    return cfg.changed(nope_layers=others)


VARIANTS = {
    "llama": Variant("Llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 10}, _rope(base=500.0)),
    "llama tied": Variant("Llama", {"tie_word_embeddings": True, "rms_norm_eps": 0.1}, _sets(rope=None)),
    "mistral": Variant("Mistral", WINDOW, _wider),
    "mistral full": Variant("Mistral", {"sliding_window": None}, _attention(scale=0.5)),
    "qwen2": Variant("Qwen2", {"use_sliding_window": False, **WINDOW}, _attention(qkv_bias=False)),
    "qwen2 sliding": Variant("Qwen2", {"use_sliding_window": True, "max_window_layers": 1, **WINDOW}, _full),
    "qwen3": Variant("Qwen3", {"head_dim": 12}, _attention(qk_norm=None)),
    "qwen3 tied": Variant("Qwen3", {"head_dim": 8, "tie_word_embeddings": True}, _attention(qk_norm=None)),
    "gemma": Variant("Gemma", {"head_dim": 12}, _no_offset),
    "gemma2": Variant(
        "Gemma2",
        {"head_dim": 12, "query_pre_attn_scalar": 20, **WINDOW, "attn_logit_softcapping": 3.0},
        _attention(softcap=None),
    ),
    "gemma2 uncapped": Variant(
        "Gemma2",
        {"head_dim": 12, "attn_logit_softcapping": None, "final_logit_softcapping": 5.0, **WINDOW},
        _sets(logit_softcap=None),
    ),
    "gemma3": Variant(
        "Gemma3",
        {"head_dim": 12, "num_hidden_layers": 4, "query_pre_attn_scalar": 20, **WINDOW, **GEMMA3_V5}
        | {"layer_types": ["sliding_attention", "full_attention"] * 2},
        _sets(local_rope=None),
    ),
    "phi": Variant("Phi", {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}, _whole_head),
    "phi3": Variant("Phi3", WINDOW, _full),
    "phi3 partial": Variant("Phi3", {"partial_rotary_factor": 0.5, "sliding_window": None}, _whole_head),
    "olmo2": Variant("Olmo2", {}, _attention(qk_norm=None)),
    "smollm3": Variant("SmolLM3", {"num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 1]}, _inverted),
    "smollm3 interval": Variant("SmolLM3", {"num_hidden_layers": 4, "no_rope_layer_interval": 2}, _inverted),
    "granite": Variant(
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.4,
            "logits_scaling": 2.0,
            "attention_bias": True,
        },
        _wiring(residual_scale=1.0),
    ),
    "cohere": Variant("Cohere", {"logit_scale": 0.3, "tie_word_embeddings": True}, _sets(logit_scale=1.0)),
    "cohere normed": Variant("Cohere", {"use_qk_norm": True}, _attention(qk_norm=None)),
    "glm": Variant("Glm", {"head_dim": 8, "partial_rotary_factor": 0.5}, _whole_head),
    "glm4": Variant(
        "Glm4", {"head_dim": 8, "partial_rotary_factor": 0.5, "attention_bias": True}, _wiring(order="pre")
    ),
    "stablelm": Variant("StableLm", {"use_qkv_bias": True}, _whole_head),
    "stablelm parallel": Variant("StableLm", {"use_parallel_residual": True}, _whole_head),
    "starcoder2": Variant("Starcoder2", {**WINDOW, "use_bias": True}, _full),
    "nemotron": Variant("Nemotron", {"partial_rotary_factor": 0.5, "norm_eps": 1e-5}, _no_offset),
    "gpt2": Variant("GPT2", OLD, _attention(scale=0.9), "LMHeadModel"),
    "gpt2 unscaled": Variant("GPT2", OLD | {"scale_attn_weights": False, "n_inner": 40}, _exact_gelu, "LMHeadModel"),
    "gpt_neox": Variant("GPTNeoX", {"rotary_pct": 0.5}, _whole_head),
    "gpt_neox serial": Variant("GPTNeoX", {"use_parallel_residual": False}, _wiring(parallel=True)),
    "gptj": Variant("GPTJ", OLD | {"rotary_dim": 4}, _whole_head),
    "opt": Variant(
        "OPT", {"ffn_dim": 48, "word_embed_proj_dim": 32, "activation_function": "relu"}, _sets(position_offset=0)
    ),
    "opt post": Variant(
        "OPT", {"ffn_dim": 48, "word_embed_proj_dim": 32, "do_layer_norm_before": False}, _wiring(order="output")
    ),
    "falcon": Variant("Falcon", {"multi_query": True, "alibi": False, "bias": True}, _attention(qkv_bias=False)),
    "falcon serial": Variant(
        "Falcon", {"multi_query": False, "parallel_attn": False, "alibi": False}, _wiring(parallel=True)
    ),
    "falcon new": Variant(
        "Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False}, _wiring(parallel=False)
    ),
    "falcon new, one norm": Variant(
        "Falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "alibi": False},
        _rope(base=500.0),
    ),
    "bloom": Variant("Bloom", {"n_head": 6, "hidden_size": 36, "n_layer": 2}, _sets(alibi=4.0)),
    "mpt": Variant(
        "Mpt",
        {
            "vocab_size": VOCABULARY,
            "n_heads": 6,
            "d_model": 36,
            "n_layers": 2,
            "max_seq_len": 64,
            "attn_config": {"attn_impl": "eager"},
        },
        _sets(alibi=4.0),
    ),
    "mixtral": Variant("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, _moe(normalise=False)),
    "qwen2_moe": Variant("Qwen2Moe", SMALL_MOE | {"shared_expert_intermediate_size": 20}, _moe(shared_gate=False)),
    "qwen2_moe some dense": Variant(
        "Qwen2Moe",
        SMALL_MOE
        | {"num_hidden_layers": 3, "mlp_only_layers": [1], "norm_topk_prob": True}
        | {"shared_expert_intermediate_size": 20},
        _moe(normalise=False),
    ),
    "qwen3_moe": Variant("Qwen3Moe", SMALL_MOE | {"norm_topk_prob": True, "head_dim": 12}, _moe(normalise=False)),
    "olmoe": Variant("Olmoe", {"num_experts": 5, "num_experts_per_tok": 2, "clip_qkv": 1.5}, _attention(clip=None)),
    "gpt_oss": Variant(
        "GptOss",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "intermediate_size": 32, **WINDOW}
        | {"rope_parameters": YARN | {"truncate": False}},
        _attention(sinks=False),
    ),
    "deepseek_v2": Variant(
        "DeepseekV2",
        DEEPSEEK | {"q_lora_rank": 14, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2},
        _moe(top_groups=4),
    ),
    "deepseek_v2 greedy": Variant(
        "DeepseekV2",
        DEEPSEEK
        | {"q_lora_rank": None, "topk_method": "greedy"}
        | {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.7}},
        _attention(scale=12**-0.5),
    ),
    "deepseek_v3": Variant(
        "DeepseekV3",
        DEEPSEEK | {"q_lora_rank": 14, "n_group": 2, "topk_group": 1, "norm_topk_prob": True},
        _moe(choice_bias=False),
    ),
    "llama4_text": Variant("Llama4", LLAMA4, _attention(tuning=None)),
    "llama4_text unnormed": Variant("Llama4", LLAMA4 | {"use_qk_norm": False}, _sets(chunk=64)),
}


def config_of(variant: Variant) -> transformers.PretrainedConfig:
    name = {"Gemma3": "Gemma3TextConfig", "Llama4": "Llama4TextConfig"}.get(variant.cls, f"{variant.cls}Config")
    sizes = {key: value for key, value in SIZES.items() if key not in NOT_THEIRS.get(variant.cls, ())}
    return getattr(transformers, name)(**sizes | variant.config)


def sharpen(model: torch.nn.Module, seed: int = 0) -> None:
    """Redraw every number, the buffer that chooses DeepSeek-V3's experts included."""
    random = torch.Generator().manual_seed(seed)
    tensors = [*model.named_parameters(), *(b for b in model.named_buffers() if "correction_bias" in b[0])]
    for name, tensor in tensors:
        noise = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
        if "correction_bias" in name:
            noise = 0.2 * noise
        elif "norm" in name or ".ln" in name or "ln_" in name:
            # 1 + w where the family adds the 1 itself: still away from it.
            noise = 1 + 0.3 * noise if name.endswith("weight") else 0.3 * noise
        elif tensor.ndim >= 2:
            noise = noise * 1.6 / tensor.shape[-1] ** 0.5
        else:
            noise = 0.5 * noise
        tensor.data.copy_(noise)


def build(variant: Variant) -> transformers.PreTrainedModel:
    """The model in eager float32 (its fast experts know no float64), its weights redrawn."""
    cls = getattr(transformers, f"{variant.cls}{variant.head}")
    options: dict[str, Any] = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = cls._from_config(config_of(variant), dtype=torch.float32, **options).eval()
    sharpen(model)
    return model
