"""Any family as the GGUF file that llama.cpp's converter would write: names by the `gguf` package's own table.

What the converter does to the numbers is written again here, from its Python (convert_hf_to_gguf.py), as directly as
can be: it must not share a line with what undoes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import transformers
from gguf import MODEL_ARCH_NAMES, GGUFWriter, get_tensor_name_map

from tests.lmcore.family_models import VARIANTS, build


class Written(NamedTuple):
    """How one variant is written: its architecture, and keys beyond those that every file has."""

    variant: str
    arch: str
    keys: dict[str, Any]


SWA = {"attention.sliding_window": 5}
EXPERTS = {"expert_count": 5, "expert_used_count": 2, "expert_feed_forward_length": 24}
FILES = {
    "llama": Written("llama tied", "llama", {}),
    "llama biased": Written("llama", "llama", {}),
    "mistral": Written("mistral", "llama", SWA),
    "mixtral": Written("mixtral", "llama", {"expert_count": 4, "expert_used_count": 2}),
    "qwen2": Written("qwen2", "qwen2", {}),
    "qwen3": Written("qwen3", "qwen3", {}),
    "qwen2moe": Written("qwen2_moe", "qwen2moe", EXPERTS | {"expert_shared_feed_forward_length": 20}),
    "qwen3moe": Written("qwen3_moe", "qwen3moe", EXPERTS),
    "olmoe": Written("olmoe", "olmoe", {"expert_count": 5, "expert_used_count": 2, "attention.clamp_kqv": 1.5}),
    "gemma": Written("gemma", "gemma", {}),
    "gemma2": Written(
        "gemma2 by head", "gemma2", SWA | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 30.0}
    ),
    "gemma3": Written("gemma3 by six", "gemma3", SWA | {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
    "gemma3 with a pattern": Written(
        "gemma3 by two", "gemma3", SWA | {"attention.sliding_window_pattern": 2, "rope.freq_base_swa": 50.0}
    ),
    "phi3": Written("phi3", "phi3", SWA),
    "phi3 partial": Written("phi3 partial", "phi3", {"rope.dimension_count": 4}),
    "olmo2": Written("olmo2", "olmo2", {}),
    "smollm3": Written("smollm3 by four", "smollm3", {}),
    "granite": Written(
        "granite",
        "granite",
        {"embedding_scale": 3.0, "attention.scale": 0.2, "residual_scale": 0.4, "logit_scale": 2.0},
    ),
    "command-r": Written("cohere", "command-r", {"logit_scale": 0.3}),
    "chatglm": Written("glm biased", "chatglm", {"rope.dimension_count": 4}),
    "glm4": Written("glm4", "glm4", {"rope.dimension_count": 4}),
    "stablelm": Written("stablelm", "stablelm", {"rope.dimension_count": 2, "use_parallel_residual": False}),
    "stablelm parallel": Written("stablelm parallel", "stablelm", {"rope.dimension_count": 2}),
    "starcoder2": Written("starcoder2 full", "starcoder2", {}),
    "nemotron": Written("nemotron", "nemotron", {"rope.dimension_count": 4}),
    "phi2": Written("phi", "phi2", {"rope.dimension_count": 4}),
    "gpt2": Written("gpt2", "gpt2", {}),
    "gptneox": Written("gpt_neox", "gptneox", {"rope.dimension_count": 4, "use_parallel_residual": True}),
    "falcon": Written("falcon", "falcon", {}),
    "falcon with two norms": Written("falcon new", "falcon", {}),
    "falcon with one norm": Written("falcon new, one norm", "falcon", {}),
    "bloom": Written("bloom", "bloom", {}),
    "mpt": Written("mpt", "mpt", {"attention.max_alibi_bias": 8.0}),
}
# Variants in which what GGUF leaves unsaid has the value that llama.cpp takes it to have.
_GEMMA3 = {"head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 12}
_ROPE3 = {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0}
OTHERS = {
    "gemma2 by head": VARIANTS["gemma2"].config | {"query_pre_attn_scalar": 12},
    "gemma3 by six": _GEMMA3
    | {"num_hidden_layers": 7}
    | {"rope_parameters": {"full_attention": _ROPE3, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    "gemma3 by two": _GEMMA3
    | {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    | {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        }
    },
    "smollm3 by four": {"num_hidden_layers": 5},
    "glm biased": VARIANTS["glm"].config | {"attention_bias": True},
    "starcoder2 full": {"sliding_window": None},
}
LIKE = {"gemma2 by head": "gemma2", "gemma3 by six": "gemma3", "gemma3 by two": "gemma3"}
LIKE |= {"smollm3 by four": "smollm3", "glm biased": "glm", "starcoder2 full": "starcoder2"}
PERMUTED = ("llama", "smollm3", "granite")
ONE_ADDED = ("gemma", "gemma2", "gemma3", "nemotron")


def model_of(written: Written) -> transformers.PreTrainedModel:
    if written.variant in OTHERS:
        return build(VARIANTS[LIKE[written.variant]]._replace(config=OTHERS[written.variant]))
    return build(VARIANTS[written.variant])


def hf_tensors(model: transformers.PreTrainedModel, folder: Path) -> dict[str, np.ndarray]:
    """The tensors as the reference saves them, which is what a converter reads."""
    from safetensors.torch import load_file

    model.save_pretrained(folder)
    return {name: tensor.numpy() for name, tensor in load_file(folder / "model.safetensors").items()}


def _side_by_side(rows: np.ndarray, heads: int) -> np.ndarray:
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _q_then_k_then_v(rows: np.ndarray, config: Any, arch: str) -> np.ndarray:
    """Falcon, BLOOM and GPT-NeoX: runs of heads taken apart, as the converter does before it writes attn_qkv."""
    heads = config.num_attention_heads
    kv = heads if arch != "falcon" else (config.num_kv_heads if config.new_decoder_architecture else 1)
    runs = rows.reshape(kv, heads // kv + 2, -1, *rows.shape[1:])
    q, k, v = runs[:, :-2], runs[:, [-2]], runs[:, [-1]]
    return np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in (q, k, v)])


def _changed(name: str, data: np.ndarray, config: Any, arch: str) -> np.ndarray:
    if arch in PERMUTED and ("q_proj" in name or "k_proj" in name):
        return _side_by_side(data, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
    if arch in ONE_ADDED and name.endswith("norm.weight"):
        return data + 1
    if arch in ("falcon", "bloom", "gptneox") and "query_key_value" in name:
        return _q_then_k_then_v(data, config, arch)
    if arch == "gpt2" and data.ndim == 2 and ".h." in name:
        return np.ascontiguousarray(data.T)
    return data[0] if name.endswith("shared_expert_gate.weight") else data


def _stacked(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The experts' weights, stacked under the names that the converter gives the stack."""
    out = {name: data for name, data in tensors.items() if ".experts." not in name}
    one = sorted({name for name in tensors if ".experts.0." in name})
    for name in one:
        count = sum(name.replace(".experts.0.", f".experts.{e}.") in tensors for e in range(64))
        stack = np.stack([tensors[name.replace(".experts.0.", f".experts.{e}.")] for e in range(count)])
        merged = name.replace("block_sparse_moe.experts.0.", "mlp.experts.").replace(".experts.0.", ".experts.")
        for short, long in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")):
            merged = merged.replace(f".{short}.", f".{long}.")
        out[merged] = stack
    return out


def write_arch(path: Path, written: Written, *, changed: bool = True) -> transformers.PreTrainedModel:
    """Write the file; `changed` false leaves out what the converter does to the numbers, which must show."""
    model = model_of(written)
    config: Any = model.config
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == written.arch)
    writer = GGUFWriter(path, written.arch)
    heads, kv = config.num_attention_heads, getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if written.arch == "falcon":
        kv = config.num_kv_heads if config.new_decoder_architecture else 1
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    head_dim = getattr(config, "head_dim", None)
    if head_dim not in (None, config.hidden_size // heads):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    eps = next(
        getattr(config, key)
        for key in ("rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon", "layer_norm_epsilon")
        if getattr(config, key, None) is not None
    )
    (writer.add_layer_norm_rms_eps if hasattr(config, "rms_norm_eps") else writer.add_layer_norm_eps)(eps)
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    if "rope_theta" in rope:
        writer.add_rope_freq_base(rope["rope_theta"])
    for key, value in written.keys.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"{written.arch}.{key}", value)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    folder = path.with_suffix("")
    tensors = _stacked(hf_tensors(model, folder))
    for name, data in tensors.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if changed:
            data = _changed(name, data, config, written.arch)
        elif name.endswith("shared_expert_gate.weight"):
            data = data[0]
        plain = name.removeprefix("transformer.") if written.arch == "bloom" else name
        short = names.get_name(plain, try_suffixes=(".weight", ".bias"))
        assert short is not None, name
        writer.add_tensor(short, np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
