"""From the names in a GGUF file to those of the Hugging Face folder of the same model, by `general.architecture`.

A conversion writes such a folder, so one set of family rules (`names`) serves both formats, and `transformers` can read
what was converted. Names: ggml-org/llama.cpp, gguf-py/gguf/constants.py; what its converter does to the numbers on the
way (q and k rows reordered, 1 added to norms, experts stacked) is undone here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from lmcore.checkpoint.gguf import ROPE_TENSORS
from lmcore.checkpoint.rules import EMBEDDING, HEAD, Rule, Transform
from lmcore.checkpoint.tables import half_split
from lmcore.config import ModelConfig

Parts = tuple[Tensor, ...]
_ROPE_NOTE = "the RoPE factors stored in the file are part of the config"


def rotary_rows_of_q(rows: Tensor, cfg: ModelConfig) -> Parts:
    """llama.cpp stores q of LLaMA models with interleaved rotary pairs; Hugging Face's are half-split."""
    return (half_split(rows, cfg.n_heads),)


def rotary_rows_of_k(rows: Tensor, cfg: ModelConfig) -> Parts:
    """As `rotary_rows_of_q`, for the KV heads."""
    return (half_split(rows, cfg.n_kv_heads),)


def minus_one(weight: Tensor, cfg: ModelConfig) -> Parts:
    """The file holds 1 + w of norms that multiply by 1 + w."""
    return (weight - 1,)


def transposed(weight: Tensor, cfg: ModelConfig) -> Parts:
    """GPT-2's linear weights are (in, out) in its own files and (out, in) in GGUF."""
    return (weight.mT if weight.ndim == 2 else weight,)


def each_expert(stacked: Tensor, cfg: ModelConfig) -> Parts:
    """(E, out, in) as one weight for each expert."""
    return tuple(stacked)


def one_row(weight: Tensor, cfg: ModelConfig) -> Parts:
    """(D,) as a linear weight with one row."""
    return (weight.reshape(1, -1),)


def runs_of_heads(rows: Tensor, cfg: ModelConfig) -> Parts:
    """Rows of all q heads, of all k, of all v, put into runs of one KV head: the q heads that read it, its k, its v."""
    kv, dim, rest = cfg.n_kv_heads, cfg.head_dim, rows.shape[1:]
    q, k, v = rows.split([cfg.n_heads * dim, kv * dim, kv * dim])
    parts = [part.reshape(kv, -1, *rest) for part in (q, k, v)]
    return (torch.cat(parts, dim=1).reshape(rows.shape),)


def _rules(
    names: Mapping[str, str], prefix: str = "", transforms: Mapping[str, Transform] | None = None
) -> tuple[Rule, ...]:
    """Rules for `blk.{n}.<short>.{p}` (or a name outside the layers) by short name; targets begin with `prefix`."""
    found = []
    for short, target in names.items():
        transform = (transforms or {}).get(short)
        outside = short.startswith(("token_", "output", "position_"))
        source = f"{short}.{{p}}" if outside else f"blk.{{n}}.{short}.{{p}}"
        full = target if outside or not prefix else f"{prefix}{target}"
        found.append(Rule(source, (f"{full}.{{p}}",), transform))
    return tuple(found)


def _rotary(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules, with the rows of q and k put back into their order."""
    order = {"blk.{n}.attn_q.{p}": rotary_rows_of_q, "blk.{n}.attn_k.{p}": rotary_rows_of_k}
    return tuple(rule._replace(transform=order.get(rule.source, rule.transform)) for rule in rules)


def _minus_one(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules, with 1 taken from the weights (not the biases) of all norms."""
    found: list[Rule] = []
    for rule in rules:
        if "norm" in rule.source:
            weight = rule.source.replace("{p}", "weight")
            found.append(Rule(weight, tuple(t.replace("{p}", "weight") for t in rule.targets), minus_one))
        found.append(rule)
    return tuple(found)


_LAYER = "model.layers.{n}."
_OUTSIDE = {
    "token_embd": EMBEDDING.removesuffix(".weight"),
    "output_norm": "model.norm",
    "output": HEAD.removesuffix(".weight"),
}
_ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
}
_FFN = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_FUSED_FFN = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
_PLAIN = _rules(_OUTSIDE | _ATTENTION | _FFN, _LAYER)
_LLAMA = _rotary(_PLAIN)
# Norms before and after each sublayer.
_SANDWICH = _rules(
    _OUTSIDE
    | _ATTENTION
    | _FFN
    | {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm"}
    | {"post_ffw_norm": "post_feedforward_layernorm"},
    _LAYER,
)
_GLM = _rules(_OUTSIDE | _ATTENTION | _FUSED_FFN, _LAYER)


def _experts(gate: str, names: Mapping[str, str]) -> tuple[Rule, ...]:
    """Rules of a router and of stacked experts; `names` gives what gate, up and down are called in an expert."""
    rules = [Rule("blk.{n}.ffn_gate_inp.weight", (f"{_LAYER}{gate}.gate.weight",))]
    for part, name in names.items():
        rules.append(
            Rule(f"blk.{{n}}.ffn_{part}_exps.weight", (f"{_LAYER}{gate}.experts.{{e}}.{name}.weight",), each_expert)
        )
    return tuple(rules)


_PROJ = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_MLP_EXPERTS = _experts("mlp", _PROJ)
_SHARED = (
    *_rules({f"ffn_{part}_shexp": f"mlp.shared_expert.{name}" for part, name in _PROJ.items()}, _LAYER),
    Rule("blk.{n}.ffn_gate_inp_shexp.weight", (_LAYER + "mlp.shared_expert_gate.weight",), one_row),
)
_OUTSIDE_H = {"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "output": "lm_head"}
_H = "transformer.h.{n}."
_FALCON_FFN = {
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
_RUNS: dict[str, Transform] = {"attn_qkv": runs_of_heads}

GGUF_RULES: dict[str, tuple[Rule, ...]] = {
    "llama": (*_LLAMA, *_experts("block_sparse_moe", {"gate": "w1", "up": "w3", "down": "w2"})),
    "qwen2": _PLAIN,
    "qwen3": _PLAIN,
    "qwen2moe": (*_PLAIN, *_MLP_EXPERTS, *_SHARED),
    "qwen3moe": (*_PLAIN, *_MLP_EXPERTS),
    "olmoe": (*_PLAIN, *_MLP_EXPERTS),
    "gemma": _minus_one(_PLAIN),
    "gemma2": _minus_one(_SANDWICH),
    "gemma3": _minus_one(_SANDWICH),
    "phi3": _rules(_OUTSIDE | _ATTENTION | _FUSED_FFN | {"attn_qkv": "self_attn.qkv_proj"}, _LAYER),
    "olmo2": _SANDWICH,
    "smollm3": _LLAMA,
    "granite": _LLAMA,
    "command-r": _PLAIN,
    "chatglm": _GLM,
    "glm4": (
        *_GLM,
        *_rules({"post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm"}, _LAYER),
    ),
    "stablelm": _PLAIN,
    "starcoder2": _rules(
        _OUTSIDE | _ATTENTION | {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        _LAYER,
    ),
    "nemotron": _minus_one(_PLAIN),
    "phi2": _rules(
        _OUTSIDE
        | _ATTENTION
        | {"output_norm": "model.final_layernorm", "attn_output": "self_attn.dense"}
        | {"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
        _LAYER,
    ),
    "gpt2": _rules(
        {
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        _H,
        dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), transposed),
    ),
    "gptneox": _rules(
        {
            "token_embd": "gpt_neox.embed_in",
            "output_norm": "gpt_neox.final_layer_norm",
            "output": "embed_out",
            "attn_norm": "input_layernorm",
            "attn_qkv": "attention.query_key_value",
            "attn_output": "attention.dense",
            "ffn_norm": "post_attention_layernorm",
            "ffn_up": "mlp.dense_h_to_4h",
            "ffn_down": "mlp.dense_4h_to_h",
        },
        "gpt_neox.layers.{n}.",
        _RUNS,
    ),
    "bloom": _rules(
        _OUTSIDE_H
        | {"token_embd_norm": "transformer.word_embeddings_layernorm", "attn_norm": "input_layernorm"}
        | {"ffn_norm": "post_attention_layernorm"}
        | _FALCON_FFN,
        _H,
        _RUNS,
    ),
    "falcon": _rules(_OUTSIDE_H | {"attn_norm": "input_layernorm"} | _FALCON_FFN, _H, _RUNS),
    "mpt": _rules(
        {
            "token_embd": "transformer.wte",
            "output_norm": "transformer.norm_f",
            "output": "lm_head",
            "attn_norm": "norm_1",
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.out_proj",
            "ffn_norm": "norm_2",
            "ffn_up": "ffn.up_proj",
            "ffn_down": "ffn.down_proj",
        },
        "transformer.blocks.{n}.",
    ),
}
GGUF_ARCHITECTURES = tuple(GGUF_RULES)


def gguf_rules(arch: str, names: Iterable[str]) -> tuple[Rule, ...]:
    """The rules for a file of this architecture that holds tensors of these names."""
    rules = GGUF_RULES[arch]
    if arch == "falcon" and "blk.0.attn_norm_2.weight" in names:
        two = _rules({"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}, _H)
        rules = (*two, *(rule for rule in rules if "attn_norm" not in rule.source))
    return (*rules, *(Rule(name, (), note=_ROPE_NOTE) for name in ROPE_TENSORS))
