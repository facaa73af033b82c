"""The rows of rules, by format: only what a file names, orders or stores differently from our parameters."""

from __future__ import annotations

from torch import Tensor

from lmcore.checkpoint.rules import EMBEDDING, HEAD, Rule
from lmcore.config import ModelConfig


def half_split(rows: Tensor, heads: int) -> Tensor:
    """Rows (heads * Dh, ...) whose rotary pairs are dims 2i and 2i+1, reordered head by head to i and i + Dh/2."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def rotary_rows_of_q(rows: Tensor, cfg: ModelConfig) -> tuple[Tensor, ...]:
    """llama.cpp stores q of LLaMA models with interleaved rotary pairs; lmcore turns half-split ones."""
    return (half_split(rows, cfg.n_heads),)


def rotary_rows_of_k(rows: Tensor, cfg: ModelConfig) -> tuple[Tensor, ...]:
    """As `rotary_rows_of_q`, for the KV heads."""
    return (half_split(rows, cfg.n_kv_heads),)


_ANGLES = "rotary_emb.inv_freq is a copy of the RoPE frequencies, which lmcore takes from the config"
HF_RULES = (
    Rule("model.layers.{n}.self_attn.rotary_emb.inv_freq", (), note=_ANGLES),
    Rule("model.rotary_emb.inv_freq", (), note=_ANGLES),
)

_LAYER = "model.layers.{n}."
GGUF_RULES = {
    "llama": (
        Rule("token_embd.weight", (EMBEDDING,)),
        Rule("output_norm.weight", ("model.norm.weight",)),
        Rule("output.weight", (HEAD,)),
        Rule("blk.{n}.attn_norm.weight", (_LAYER + "input_layernorm.weight",)),
        Rule("blk.{n}.attn_q.{p}", (_LAYER + "self_attn.q_proj.{p}",), rotary_rows_of_q),
        Rule("blk.{n}.attn_k.{p}", (_LAYER + "self_attn.k_proj.{p}",), rotary_rows_of_k),
        Rule("blk.{n}.attn_v.{p}", (_LAYER + "self_attn.v_proj.{p}",)),
        Rule("blk.{n}.attn_output.{p}", (_LAYER + "self_attn.o_proj.{p}",)),
        Rule("blk.{n}.ffn_norm.weight", (_LAYER + "post_attention_layernorm.weight",)),
        Rule("blk.{n}.ffn_gate.{p}", (_LAYER + "mlp.gate_proj.{p}",)),
        Rule("blk.{n}.ffn_up.{p}", (_LAYER + "mlp.up_proj.{p}",)),
        Rule("blk.{n}.ffn_down.{p}", (_LAYER + "mlp.down_proj.{p}",)),
    )
}
