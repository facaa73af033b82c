"""GGUF files written at test time with the package's own writer, as llama.cpp's converter lays a LLaMA out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from transformers import LlamaForCausalLM

from lmcore.tokenizer import byte_alphabet

NAMES = {
    "model.embed_tokens.": "token_embd.",
    "model.norm.": "output_norm.",
    "lm_head.": "output.",
    "input_layernorm.": "attn_norm.",
    "post_attention_layernorm.": "ffn_norm.",
    "self_attn.q_proj.": "attn_q.",
    "self_attn.k_proj.": "attn_k.",
    "self_attn.v_proj.": "attn_v.",
    "self_attn.o_proj.": "attn_output.",
    "mlp.gate_proj.": "ffn_gate.",
    "mlp.up_proj.": "ffn_up.",
    "mlp.down_proj.": "ffn_down.",
    "model.layers.": "blk.",
}


def byte_tokens() -> dict[str, list]:
    """A vocabulary of two special tokens and 256 bytes, with two merges."""
    letters = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)
    return {
        "tokens": ["<s>", "</s>", *letters, "th", "the"],
        "types": [3, 3] + [1] * 258,
        "merges": ["t h", "th e"],
    }


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """Half-split rotary rows as llama.cpp's converter reorders them: pairs next to each other."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(
    path: Path,
    model: LlamaForCausalLM,
    *,
    qtype: GGMLQuantizationType = GGMLQuantizationType.F32,
    tokenizer: str | None = "gpt2",
    extra: Mapping[str, object] = {},
    interleaved: bool = True,
) -> dict[str, np.ndarray]:
    """Write the file; returns the float32 weights it holds, by their Hugging Face names, dequantised."""
    c: Any = model.config
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_key_length(c.head_dim)
    writer.add_vocab_size(c.vocab_size)
    if tokenizer == "gpt2":
        parts = byte_tokens()
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(parts["tokens"])
        writer.add_token_types(parts["types"])
        writer.add_token_merges(parts["merges"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
    for key, value in extra.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](key, value)  # type: ignore[operator]
    held = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        data = tensor.numpy().copy()
        kind = qtype if data.ndim == 2 else GGMLQuantizationType.F32
        packed = quants.quantize(data, kind)
        held[name] = quants.dequantize(packed, kind).reshape(data.shape)
        heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}
        for part, count in heads.items():
            if part in name and interleaved:
                # Rows are permuted whole, so packing before or after is the same.
                packed = interleave(packed, count)
        stored = name
        for theirs, short in NAMES.items():
            stored = stored.replace(theirs, short)
        writer.add_tensor(stored, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held
