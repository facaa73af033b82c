"""How families name, order and store what LLaMA's names stand for: one table of rules each, by `model_type`."""

from __future__ import annotations

import torch
from torch import Tensor

from lmcore.checkpoint.rules import EMBEDDING, HEAD, Rule
from lmcore.checkpoint.tables import half_split
from lmcore.config import ModelConfig
from lmcore.specs import Latent, MoE

Parts = tuple[Tensor, ...]
LAYER = "model.layers.{n}."
ATTENTION, MLP = LAYER + "self_attn.", LAYER + "mlp."
QKV = tuple(f"{ATTENTION}{p}_proj.{{p}}" for p in "qkv")
FINAL = "model.norm.{p}"


def transposed(weight: Tensor, cfg: ModelConfig) -> Parts:
    """GPT-2 stores its linear weights (in, out)."""
    return (weight.mT if weight.ndim == 2 else weight,)


def split_q_k_v(rows: Tensor, cfg: ModelConfig) -> Parts:
    """Rows of all q heads, then of all k, then of all v."""
    kv = cfg.n_kv_heads * cfg.head_dim
    return rows.split([cfg.n_heads * cfg.head_dim, kv, kv])


def split_transposed_q_k_v(weight: Tensor, cfg: ModelConfig) -> Parts:
    """As `split_q_k_v`, stored (in, out)."""
    return split_q_k_v(weight.mT if weight.ndim == 2 else weight, cfg)


def split_groups_of_heads(rows: Tensor, cfg: ModelConfig) -> Parts:
    """Rows in runs of one KV head: the q heads that read it, its k, its v. With K = H a run is q, k, v of one head."""
    g, rest = cfg.attention.group_size, rows.shape[1:]
    runs = rows.reshape(cfg.n_kv_heads, g + 2, cfg.head_dim, *rest)
    return tuple(part.reshape(-1, *rest) for part in (runs[:, :g], runs[:, g], runs[:, g + 1]))


def split_gate_up(rows: Tensor, cfg: ModelConfig) -> Parts:
    """Rows of the gate, then of up."""
    return rows.chunk(2)


def _interleaved(rows: Tensor, heads: int, dims: int) -> Tensor:
    """Each head's first `dims` rows from pairs (2i, 2i + 1) to pairs (i, i + dims / 2)."""
    by_head = rows.reshape(heads, -1, *rows.shape[1:])
    turned = half_split(by_head[:, :dims].reshape(heads * dims, *rows.shape[1:]), heads)
    turned = turned.reshape(heads, dims, *rows.shape[1:])
    return torch.cat((turned, by_head[:, dims:]), dim=1).reshape(rows.shape)


def _rotary(cfg: ModelConfig) -> int:
    assert cfg.rope is not None
    return cfg.rope.rotary_dim


def interleaved_q_rows(rows: Tensor, cfg: ModelConfig) -> Parts:
    """The file's rotary pairs are dims 2i and 2i + 1; lmcore turns i and i + d/2."""
    return _half_split_heads(rows, cfg.n_heads, cfg)


def interleaved_k_rows(rows: Tensor, cfg: ModelConfig) -> Parts:
    """As `interleaved_q_rows`, for the KV heads."""
    return _half_split_heads(rows, cfg.n_kv_heads, cfg)


def _half_split_heads(rows: Tensor, heads: int, cfg: ModelConfig) -> Parts:
    flat = rows.reshape(-1, *rows.shape[2:]) if _per_head(rows, cfg) else rows
    return (_interleaved(flat, heads, _rotary(cfg)).reshape(rows.shape),)


def _per_head(rows: Tensor, cfg: ModelConfig) -> bool:
    """Whether this is a norm weight (heads, Dh) rather than rows of a projection."""
    return rows.ndim == 2 and rows.shape[1] == cfg.head_dim and rows.shape[0] in (cfg.n_heads, cfg.n_kv_heads)


def interleaved_latent_q_rows(rows: Tensor, cfg: ModelConfig) -> Parts:
    """The last `rope_dim` rows of each head, interleaved in the file."""
    a = cfg.attention
    assert isinstance(a, Latent)
    by_head = rows.reshape(a.n_heads, a.head_dim, *rows.shape[1:])
    tail = by_head[:, a.nope_dim :].reshape(a.n_heads * a.rope_dim, *rows.shape[1:])
    tail = half_split(tail, a.n_heads).reshape(a.n_heads, a.rope_dim, *rows.shape[1:])
    return (torch.cat((by_head[:, : a.nope_dim], tail), dim=1).reshape(rows.shape),)


def interleaved_latent_key_rows(rows: Tensor, cfg: ModelConfig) -> Parts:
    """The shared rotary key, the last `rope_dim` rows beside the latent's, interleaved in the file."""
    a = cfg.attention
    assert isinstance(a, Latent)
    return (torch.cat((rows[: a.kv_rank], half_split(rows[a.kv_rank :], 1))),)


def _experts(cfg: ModelConfig) -> MoE:
    assert cfg.moe is not None
    return cfg.moe


def experts_gate_up_alternating(stacked: Tensor, cfg: ModelConfig) -> Parts:
    """gpt-oss: (E, D, 2F), gate and up in alternating columns; biases (E, 2F) likewise."""
    return (*(_rows(e[..., ::2]) for e in stacked), *(_rows(e[..., 1::2]) for e in stacked))


def experts_gate_up(stacked: Tensor, cfg: ModelConfig) -> Parts:
    """Llama 4: (E, D, 2F), columns of the gate, then of up."""
    halves = stacked.chunk(2, dim=-1)
    return tuple(_rows(e) for half in halves for e in half)


def experts_down(stacked: Tensor, cfg: ModelConfig) -> Parts:
    """(E, F, D), stored (in, out); biases (E, D)."""
    return tuple(_rows(e) for e in stacked)


def _rows(part: Tensor) -> Tensor:
    return part.mT if part.ndim == 2 else part


GEMMA_NORMS = (
    Rule(LAYER + "post_attention_layernorm.weight", (LAYER + "post_self_attn_layernorm.weight",)),
    Rule(LAYER + "pre_feedforward_layernorm.weight", (LAYER + "post_attention_layernorm.weight",)),
    Rule(LAYER + "post_feedforward_layernorm.weight", (LAYER + "post_mlp_layernorm.weight",)),
)
INTERLEAVED = (
    Rule(ATTENTION + "q_proj.{p}", (ATTENTION + "q_proj.{p}",), interleaved_q_rows),
    Rule(ATTENTION + "k_proj.{p}", (ATTENTION + "k_proj.{p}",), interleaved_k_rows),
    Rule(ATTENTION + "q_norm.{p}", (ATTENTION + "q_norm.{p}",), interleaved_q_rows),
    Rule(ATTENTION + "k_norm.{p}", (ATTENTION + "k_norm.{p}",), interleaved_k_rows),
)
FUSED = (
    Rule(ATTENTION + "qkv_proj.{p}", QKV, split_q_k_v),
    Rule(MLP + "gate_up_proj.{p}", (MLP + "gate_proj.{p}", MLP + "up_proj.{p}"), split_gate_up),
)
DEEPSEEK = (
    Rule(ATTENTION + "q_proj.{p}", (ATTENTION + "q_proj.{p}",), interleaved_latent_q_rows),
    Rule(ATTENTION + "q_b_proj.{p}", (ATTENTION + "q_b_proj.{p}",), interleaved_latent_q_rows),
    Rule(ATTENTION + "kv_a_proj_with_mqa.{p}", (ATTENTION + "kv_a_proj_with_mqa.{p}",), interleaved_latent_key_rows),
)
_BUFFER = "attention masks and position ids stored in the file are no weights"


def _renamed(prefix: str, names: dict[str, str], *more: Rule) -> tuple[Rule, ...]:
    """Rules for a family whose names begin with `prefix`, which some files leave out."""
    found: list[Rule] = []
    for start in (prefix, "") if prefix else ("",):
        found += [Rule(f"{start}{name}.{{p}}", (f"{target}.{{p}}",)) for name, target in names.items()]
        found += [rule._replace(source=start + rule.source) for rule in more]
    return tuple(found)


BLOOM_NAMES = {
    "word_embeddings": "model.embed_tokens",
    "word_embeddings_layernorm": "model.embed_norm",
    "ln_f": "model.norm",
    "h.{n}.input_layernorm": LAYER + "input_layernorm",
    "h.{n}.post_attention_layernorm": LAYER + "post_attention_layernorm",
    "h.{n}.ln_attn": LAYER + "input_layernorm",
    "h.{n}.ln_mlp": LAYER + "post_attention_layernorm",
    "h.{n}.self_attention.dense": ATTENTION + "o_proj",
    "h.{n}.mlp.dense_h_to_4h": MLP + "up_proj",
    "h.{n}.mlp.dense_4h_to_h": MLP + "down_proj",
}
BLOOM = _renamed(
    "transformer.", BLOOM_NAMES, Rule("h.{n}.self_attention.query_key_value.{p}", QKV, split_groups_of_heads)
)

FAMILY_RULES: dict[str, tuple[Rule, ...]] = {
    "mixtral": (
        Rule(LAYER + "block_sparse_moe.gate.weight", (MLP + "gate.weight",)),
        Rule(LAYER + "block_sparse_moe.experts.{m}.w1.weight", (MLP + "experts.{m}.gate_proj.weight",)),
        Rule(LAYER + "block_sparse_moe.experts.{m}.w3.weight", (MLP + "experts.{m}.up_proj.weight",)),
        Rule(LAYER + "block_sparse_moe.experts.{m}.w2.weight", (MLP + "experts.{m}.down_proj.weight",)),
    ),
    "qwen2_moe": tuple(
        Rule(MLP + f"shared_expert.{part}.weight", (MLP + f"shared_experts.{part}.weight",))
        for part in ("gate_proj", "up_proj", "down_proj")
    ),
    "gemma2": GEMMA_NORMS,
    "gemma3_text": GEMMA_NORMS,
    "olmo2": (GEMMA_NORMS[0], GEMMA_NORMS[2]),
    "phi3": FUSED,
    "glm": FUSED + INTERLEAVED,
    "glm4": FUSED + INTERLEAVED,
    "cohere": INTERLEAVED,
    "phi": (
        Rule("model.final_layernorm.{p}", (FINAL,)),
        Rule(ATTENTION + "dense.{p}", (ATTENTION + "o_proj.{p}",)),
        Rule(MLP + "fc1.{p}", (MLP + "up_proj.{p}",)),
        Rule(MLP + "fc2.{p}", (MLP + "down_proj.{p}",)),
    ),
    "starcoder2": (
        Rule(MLP + "c_fc.{p}", (MLP + "up_proj.{p}",)),
        Rule(MLP + "c_proj.{p}", (MLP + "down_proj.{p}",)),
    ),
    "gpt2": _renamed(
        "transformer.",
        {
            "wte": "model.embed_tokens",
            "wpe": "model.embed_positions",
            "ln_f": "model.norm",
            "h.{n}.ln_1": LAYER + "input_layernorm",
            "h.{n}.ln_2": LAYER + "post_attention_layernorm",
        },
        Rule("h.{n}.attn.c_attn.{p}", QKV, split_transposed_q_k_v),
        Rule("h.{n}.attn.c_proj.{p}", (ATTENTION + "o_proj.{p}",), transposed),
        Rule("h.{n}.mlp.c_fc.{p}", (MLP + "up_proj.{p}",), transposed),
        Rule("h.{n}.mlp.c_proj.{p}", (MLP + "down_proj.{p}",), transposed),
        Rule("h.{n}.attn.bias", (), note=_BUFFER),
        Rule("h.{n}.attn.masked_bias", (), note=_BUFFER),
    ),
    "gpt_neox": (
        Rule("gpt_neox.embed_in.weight", (EMBEDDING,)),
        Rule("embed_out.weight", (HEAD,)),
        Rule("gpt_neox.final_layer_norm.{p}", (FINAL,)),
        Rule("gpt_neox.layers.{n}.input_layernorm.{p}", (LAYER + "input_layernorm.{p}",)),
        Rule("gpt_neox.layers.{n}.post_attention_layernorm.{p}", (LAYER + "post_attention_layernorm.{p}",)),
        Rule("gpt_neox.layers.{n}.attention.query_key_value.{p}", QKV, split_groups_of_heads),
        Rule("gpt_neox.layers.{n}.attention.dense.{p}", (ATTENTION + "o_proj.{p}",)),
        Rule("gpt_neox.layers.{n}.mlp.dense_h_to_4h.{p}", (MLP + "up_proj.{p}",)),
        Rule("gpt_neox.layers.{n}.mlp.dense_4h_to_h.{p}", (MLP + "down_proj.{p}",)),
        Rule("gpt_neox.layers.{n}.attention.bias", (), note=_BUFFER),
        Rule("gpt_neox.layers.{n}.attention.masked_bias", (), note=_BUFFER),
        Rule("gpt_neox.layers.{n}.attention.rotary_emb.inv_freq", (), note=_BUFFER),
    ),
    "gptj": _renamed(
        "transformer.",
        {
            "wte": "model.embed_tokens",
            "ln_f": "model.norm",
            "h.{n}.ln_1": LAYER + "input_layernorm",
            "h.{n}.attn.v_proj": ATTENTION + "v_proj",
            "h.{n}.attn.out_proj": ATTENTION + "o_proj",
            "h.{n}.mlp.fc_in": MLP + "up_proj",
            "h.{n}.mlp.fc_out": MLP + "down_proj",
        },
        Rule("h.{n}.attn.q_proj.{p}", (ATTENTION + "q_proj.{p}",), interleaved_q_rows),
        Rule("h.{n}.attn.k_proj.{p}", (ATTENTION + "k_proj.{p}",), interleaved_k_rows),
        Rule("h.{n}.attn.bias", (), note=_BUFFER),
        Rule("h.{n}.attn.masked_bias", (), note=_BUFFER),
    ),
    "falcon": BLOOM,
    "bloom": BLOOM,
    "mpt": (
        Rule("transformer.wte.weight", (EMBEDDING,)),
        Rule("transformer.norm_f.weight", ("model.norm.weight",)),
        Rule("transformer.blocks.{n}.norm_1.weight", (LAYER + "input_layernorm.weight",)),
        Rule("transformer.blocks.{n}.norm_2.weight", (LAYER + "post_attention_layernorm.weight",)),
        Rule("transformer.blocks.{n}.attn.Wqkv.{p}", QKV, split_q_k_v),
        Rule("transformer.blocks.{n}.attn.out_proj.{p}", (ATTENTION + "o_proj.{p}",)),
        Rule("transformer.blocks.{n}.ffn.up_proj.{p}", (MLP + "up_proj.{p}",)),
        Rule("transformer.blocks.{n}.ffn.down_proj.{p}", (MLP + "down_proj.{p}",)),
    ),
    "gpt_oss": (
        Rule(MLP + "router.{p}", (MLP + "gate.{p}",)),
        Rule(
            MLP + "experts.gate_up_proj",
            (MLP + "experts.{e}.gate_proj.weight", MLP + "experts.{e}.up_proj.weight"),
            experts_gate_up_alternating,
        ),
        Rule(
            MLP + "experts.gate_up_proj_bias",
            (MLP + "experts.{e}.gate_proj.bias", MLP + "experts.{e}.up_proj.bias"),
            experts_gate_up_alternating,
        ),
        Rule(MLP + "experts.down_proj", (MLP + "experts.{e}.down_proj.weight",), experts_down),
        Rule(MLP + "experts.down_proj_bias", (MLP + "experts.{e}.down_proj.bias",), experts_down),
    ),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "llama4_text": (
        *INTERLEAVED,
        *(Rule(LAYER + f"feed_forward.{p}_proj.weight", (MLP + f"{p}_proj.weight",)) for p in ("gate", "up", "down")),
        *(
            Rule(LAYER + f"feed_forward.shared_expert.{p}_proj.weight", (MLP + f"shared_experts.{p}_proj.weight",))
            for p in ("gate", "up", "down")
        ),
        Rule(LAYER + "feed_forward.router.weight", (MLP + "gate.weight",)),
        Rule(
            LAYER + "feed_forward.experts.gate_up_proj",
            (MLP + "experts.{e}.gate_proj.weight", MLP + "experts.{e}.up_proj.weight"),
            experts_gate_up,
        ),
        Rule(LAYER + "feed_forward.experts.down_proj", (MLP + "experts.{e}.down_proj.weight",), experts_down),
    ),
}


def _opt(cfg: ModelConfig) -> tuple[Rule, ...]:
    """OPT's norms stand before or after their sublayers, under the same names."""
    first, second = (
        ("input_layernorm", "post_attention_layernorm")
        if cfg.wiring.order == "pre"
        else ("post_self_attn_layernorm", "post_mlp_layernorm")
    )
    names = {
        "embed_tokens": "model.embed_tokens",
        "embed_positions": "model.embed_positions",
        "final_layer_norm": "model.norm",
        "layers.{n}.self_attn.out_proj": ATTENTION + "o_proj",
        "layers.{n}.self_attn_layer_norm": LAYER + first,
        "layers.{n}.final_layer_norm": LAYER + second,
        "layers.{n}.fc1": MLP + "up_proj",
        "layers.{n}.fc2": MLP + "down_proj",
    } | {f"layers.{{n}}.self_attn.{p}_proj": f"{ATTENTION}{p}_proj" for p in "qkv"}
    return _renamed("model.decoder.", names) + _renamed("decoder.", names)


def rules_for(family: str, cfg: ModelConfig) -> tuple[Rule, ...]:
    """The rules of a family's files, in the order in which they are tried."""
    if family == "opt":
        return _opt(cfg)
    return FAMILY_RULES.get(family, ())
