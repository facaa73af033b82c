"""The architectures of GGUF files: which `model_type` each is, and what it says beside the keys that all share.

What GGUF has no key for is what llama.cpp has in its code (src/llama-model.cpp): it is written out here and, where it
is a guess about the model, said in `IMPLIED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Shapes = Mapping[str, tuple[int, ...]]
Raw = dict[str, Any]


class File(NamedTuple):
    """What a family reads: its own keys (without the architecture's name), shapes, and the factors RoPE tensors hold.

    Keys that are read are taken out of `own`.
    """

    own: dict[str, Any]
    shapes: Shapes
    factors: Mapping[str, list[float]]

    def has(self, tensor: str) -> bool:
        return f"blk.0.{tensor}" in self.shapes

    def number(self, key: str, default: float) -> Any:
        value = self.own.pop(key, None)
        return default if value is None else value


class Arch(NamedTuple):
    """A GGUF architecture: its `model_type`, its keys by the config's name for them, and what else it implies.

    `partial`: RoPE may turn a part of the head only; elsewhere `rope.dimension_count` has to be the head dim.
    `biases`: the family has a key for biases, which are there when their tensors are.
    """

    model_type: str
    keys: Mapping[str, str]
    more: Callable[[File, Raw], Raw] | None = None
    partial: bool = False
    biases: bool = False


def _llama(file: File, raw: Raw) -> Raw:
    """Mixtral when there are experts, Mistral when there is a window: all are "llama" in GGUF."""
    experts, window = file.number("expert_count", 0), file.number("attention.sliding_window", 0)
    used = file.number("expert_used_count", 0)
    if experts:
        return {"model_type": "mixtral", "num_local_experts": experts, "num_experts_per_tok": used}
    return {"model_type": "mistral", "sliding_window": window} if window else {}


def _gemma2(file: File, raw: Raw) -> Raw:
    scalar = raw["head_dim"] if raw.get("num_hidden_layers") != 46 else width_per_head(raw)
    return {"query_pre_attn_scalar": scalar, "tie_word_embeddings": True}


def _gemma3(file: File, raw: Raw) -> Raw:
    scalar = raw["head_dim"] if raw.get("num_hidden_layers") != 62 else width_per_head(raw)
    found: Raw = {"query_pre_attn_scalar": scalar, "tie_word_embeddings": True}
    pattern = file.own.pop("attention.sliding_window_pattern", 6)
    if isinstance(pattern, list):
        found["layer_types"] = ["sliding_attention" if slides else "full_attention" for slides in pattern]
    else:
        found["sliding_window_pattern"] = pattern
    return found | {"rope_local_base_freq": file.number("rope.freq_base_swa", 10_000.0)}


def width_per_head(raw: Raw) -> int:
    """D / H: the head dim where a file has none of its own, and the scale of the largest Gemmas."""
    return raw["hidden_size"] // raw["num_attention_heads"]


def _moe(file: File, raw: Raw) -> Raw:
    found: Raw = {
        "num_experts": file.number("expert_count", 0),
        "num_experts_per_tok": file.number("expert_used_count", 0),
    }
    width = file.own.pop("expert_feed_forward_length", None)
    if width is None and file.has("ffn_down_exps.weight"):
        width = file.shapes["blk.0.ffn_down_exps.weight"][-1]
    return found | {"moe_intermediate_size": width, "norm_topk_prob": False}


def _qwen2_moe(file: File, raw: Raw) -> Raw:
    shared = file.own.pop("expert_shared_feed_forward_length", None)
    if shared is None and file.has("ffn_down_shexp.weight"):
        shared = file.shapes["blk.0.ffn_down_shexp.weight"][-1]
    return _moe(file, raw) | {"shared_expert_intermediate_size": shared}


def _qwen3_moe(file: File, raw: Raw) -> Raw:
    return _moe(file, raw) | {"norm_topk_prob": True}


def _olmoe(file: File, raw: Raw) -> Raw:
    return _moe(file, raw) | {"moe_intermediate_size": None}


def _granite(file: File, raw: Raw) -> Raw:
    scale = raw["head_dim"] ** -0.5
    return {"attention_multiplier": file.number("attention.scale", 0) or scale}


def _cohere(file: File, raw: Raw) -> Raw:
    return {"use_qk_norm": file.has("attn_q_norm.weight")}


def _glm(file: File, raw: Raw) -> Raw:
    return {"attention_bias": file.has("attn_q.bias")}


def _stablelm(file: File, raw: Raw) -> Raw:
    parallel = not file.has("ffn_norm.weight")
    said = file.own.pop("use_parallel_residual", parallel)
    return {"use_qkv_bias": file.has("attn_q.bias"), "use_parallel_residual": parallel or said}


def _starcoder2(file: File, raw: Raw) -> Raw:
    return {"use_bias": file.has("attn_q.bias"), "sliding_window": None}


def _smollm3(file: File, raw: Raw) -> Raw:
    return {"no_rope_layer_interval": 4}


def _gpt_neox(file: File, raw: Raw) -> Raw:
    return {"attention_bias": file.has("attn_qkv.bias")}


def _gpt2(file: File, raw: Raw) -> Raw:
    return {"n_inner": raw.get("intermediate_size"), "intermediate_size": None}


def _falcon(file: File, raw: Raw) -> Raw:
    heads, two = raw.get("num_key_value_heads", 1), file.has("attn_norm_2.weight")
    found: Raw = {"num_ln_in_parallel_attn": 2 if two else 1, "alibi": False, "bias": file.has("attn_qkv.bias")}
    found |= {"ffn_hidden_size": raw.get("intermediate_size"), "intermediate_size": None, "head_dim": None}
    new = two or heads != 1
    return found | {"new_decoder_architecture": new, "num_kv_heads": heads, "multi_query": not new}


def _bloom(file: File, raw: Raw) -> Raw:
    """The width of its feed-forward is 4 D, always: there is no key for it."""
    return {"intermediate_size": None}


def _mpt(file: File, raw: Raw) -> Raw:
    attention = {"alibi": True, "alibi_bias_max": file.number("attention.max_alibi_bias", 8.0)}
    clip = file.number("attention.clamp_kqv", 0)
    return {"intermediate_size": None, "attn_config": attention | ({"clip_qkv": clip} if clip else {})}


_LAYER_NORM = "attention.layer_norm_epsilon"
_WINDOW = {"attention.sliding_window": "sliding_window"}
_CAPS = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
ARCHITECTURES = {
    "llama": Arch("llama", {}, _llama, biases=True),
    "qwen2": Arch("qwen2", {}),
    "qwen3": Arch("qwen3", {}, biases=True),
    "qwen2moe": Arch("qwen2_moe", {}, _qwen2_moe),
    "qwen3moe": Arch("qwen3_moe", {}, _qwen3_moe),
    "olmoe": Arch("olmoe", {"attention.clamp_kqv": "clip_qkv"}, _olmoe),
    "gemma": Arch("gemma", {}, lambda file, raw: {"tie_word_embeddings": True}),
    "gemma2": Arch("gemma2", _WINDOW | _CAPS, _gemma2),
    "gemma3": Arch("gemma3_text", _WINDOW | _CAPS, _gemma3),
    "phi3": Arch("phi3", _WINDOW, None, partial=True),
    "olmo2": Arch("olmo2", {}, biases=True),
    "smollm3": Arch("smollm3", {}, _smollm3, biases=True),
    "granite": Arch(
        "granite",
        {
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
        _granite,
        biases=True,
    ),
    "command-r": Arch("cohere", {_LAYER_NORM: "layer_norm_eps", "logit_scale": "logit_scale"}, _cohere, biases=True),
    "chatglm": Arch("glm", {}, _glm, partial=True),
    "glm4": Arch("glm4", {}, _glm, partial=True),
    "stablelm": Arch("stablelm", {_LAYER_NORM: "layer_norm_eps"}, _stablelm, partial=True),
    "starcoder2": Arch("starcoder2", {_LAYER_NORM: "norm_epsilon"}, _starcoder2),
    "nemotron": Arch("nemotron", {_LAYER_NORM: "norm_eps"}, None, partial=True, biases=True),
    "phi2": Arch("phi", {_LAYER_NORM: "layer_norm_eps"}, None, partial=True),
    "gpt2": Arch("gpt2", {_LAYER_NORM: "layer_norm_epsilon"}, _gpt2),
    "gptneox": Arch(
        "gpt_neox",
        {_LAYER_NORM: "layer_norm_eps", "use_parallel_residual": "use_parallel_residual"},
        _gpt_neox,
        partial=True,
    ),
    "falcon": Arch("falcon", {_LAYER_NORM: "layer_norm_epsilon"}, _falcon),
    "bloom": Arch("bloom", {_LAYER_NORM: "layer_norm_epsilon"}, _bloom),
    "mpt": Arch("mpt", {_LAYER_NORM: "layer_norm_epsilon"}, _mpt),
}

IMPLIED = {
    "gemma2": "GGUF has no key for which layers slide: every second one is assumed, as llama.cpp does",
    "gemma3": "GGUF has no key for which layers slide or for their RoPE base: five of six and 10,000 are assumed, "
    "as llama.cpp does",
    "smollm3": "GGUF has no key for layers without RoPE: every fourth is assumed, as llama.cpp does",
}
