"""The one table of shapes: it sizes the parameters, allocates the cache and feeds the calculators. Ints only."""

from __future__ import annotations

from lmcore.config import ModelConfig
from lmcore.specs import Dense, GroupedQuery, Latent, MoE, Norm

Shape = tuple[int, ...]
Shapes = dict[str, Shape]


# Rows of the table that are no parameters: DeepSeek-V3 moves this bias by its load balancing, not by gradients.
BUFFERS = frozenset({"mlp.gate.e_score_correction_bias"})


def _linear(name: str, out: int, into: int, bias: bool) -> Shapes:
    """A linear weight is (out, in), as PyTorch stores it."""
    return {f"{name}.weight": (out, into)} | ({f"{name}.bias": (out,)} if bias else {})


def _norm(name: str, dim: int, spec: Norm) -> Shapes:
    return {f"{name}.weight": (dim,)} | ({f"{name}.bias": (dim,)} if spec.bias else {})


def _grouped(d: int, a: GroupedQuery) -> Shapes:
    q, kv = a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim
    shapes: Shapes = {}
    for name, out in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
        shapes |= _linear(name, out, d, a.qkv_bias)
    shapes |= _linear("o_proj", d, q, a.out_bias)
    if a.qk_norm is not None and a.qk_norm.over != "unit":
        for name, heads in (("q_norm", a.n_heads), ("k_norm", a.n_kv_heads)):
            dims = {"head": (a.head_dim,), "each": (heads, a.head_dim), "width": (heads * a.head_dim,)}[a.qk_norm.over]
            shapes[f"{name}.weight"] = dims
            if a.qk_norm.norm.bias:
                shapes[f"{name}.bias"] = dims
    if a.sinks:
        shapes["sinks"] = (a.n_heads,)
    return shapes


def _latent(d: int, a: Latent) -> Shapes:
    q = a.n_heads * a.head_dim
    if a.q_rank is None:
        shapes = _linear("q_proj", q, d, False)
    else:
        shapes = _linear("q_a_proj", a.q_rank, d, a.bias) | {"q_a_layernorm.weight": (a.q_rank,)}
        shapes |= _linear("q_b_proj", q, a.q_rank, False)
    shapes |= _linear("kv_a_proj_with_mqa", a.kv_rank + a.rope_dim, d, a.bias) | {"kv_a_layernorm.weight": (a.kv_rank,)}
    shapes |= _linear("kv_b_proj", a.n_heads * (a.nope_dim + a.value_dim), a.kv_rank, False)
    return shapes | _linear("o_proj", d, a.n_heads * a.value_dim, a.bias)


def _dense(d: int, f: Dense) -> Shapes:
    if not f.d_ff:
        return {}
    shapes = _linear("gate_proj", f.d_ff, d, f.bias) if f.gated else {}
    return shapes | _linear("up_proj", f.d_ff, d, f.bias) | _linear("down_proj", d, f.d_ff, f.bias)


def _moe(d: int, m: MoE) -> Shapes:
    shapes = _linear("gate", m.n_experts, d, m.router_bias)
    if m.choice_bias:
        shapes["gate.e_score_correction_bias"] = (m.n_experts,)
    expert = _dense(d, Dense(d_ff=m.d_ff, bias=m.bias))
    for index in range(m.n_experts):
        shapes |= {f"experts.{index}.{name}": shape for name, shape in expert.items()}
    if m.shared_d_ff:
        shared = _dense(d, Dense(d_ff=m.shared_d_ff))
        shapes |= {f"shared_experts.{name}": shape for name, shape in shared.items()}
    if m.shared_gate:
        shapes["shared_expert_gate.weight"] = (1, d)
    return shapes


def layer_shapes(cfg: ModelConfig, layer: int = 0) -> Shapes:
    """Parameters of one block by their name inside the layer."""
    d, a, f = cfg.d_model, cfg.attention, cfg.ffn_of(layer)
    attention = _latent(d, a) if isinstance(a, Latent) else _grouped(d, a)
    ffn = _moe(d, f) if isinstance(f, MoE) else _dense(d, f)
    shapes: Shapes = {}
    if cfg.wiring.norms_input:
        shapes |= _norm("input_layernorm", d, cfg.norm)
    shapes |= {f"self_attn.{name}": shape for name, shape in attention.items()}
    if cfg.wiring.norms_output:
        shapes |= _norm("post_self_attn_layernorm", d, cfg.norm)
    if cfg.wiring.norms_input and not cfg.wiring.shared_norm and ffn:
        shapes |= _norm("post_attention_layernorm", d, cfg.norm)
    shapes |= {f"mlp.{name}": shape for name, shape in ffn.items()}
    if cfg.wiring.norms_output and ffn:
        shapes |= _norm("post_mlp_layernorm", d, cfg.norm)
    return shapes


def param_shapes(cfg: ModelConfig) -> Shapes:
    """Every parameter by its Hugging Face name (LLaMA's). A tied head is the embedding and has no row of its own."""
    d = cfg.d_model
    shapes: Shapes = {"model.embed_tokens.weight": (cfg.vocab_size, d)}
    if cfg.learned_positions is not None:
        shapes["model.embed_positions.weight"] = (cfg.learned_positions, d)
    if cfg.relative_bias is not None:
        shapes["model.relative_bias.weight"] = (cfg.relative_bias.buckets, cfg.n_heads)
    if cfg.embedding_norm:
        shapes |= _norm("model.embed_norm", d, cfg.norm)
    kinds: dict[bool, Shapes] = {}
    for layer in range(cfg.n_layers):
        sparse = isinstance(cfg.ffn_of(layer), MoE)
        if sparse not in kinds:
            kinds[sparse] = layer_shapes(cfg, layer)
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in kinds[sparse].items()}
    if cfg.final_norm:
        shapes |= _norm("model.norm", d, cfg.norm)
    if not cfg.tied:
        shapes["lm_head.weight"] = (cfg.vocab_size, d)
    if cfg.head_bias:
        shapes["lm_head.bias"] = (cfg.vocab_size,)
    return shapes


def cache_shapes(cfg: ModelConfig, layer: int) -> Shapes:
    """What the cache keeps for one position of one layer and one sequence.

    Grouped heads: `k` and `v`, each (K, Dh). MLA: the `latent` (1, r) and the shared `rope_key` (1, d_rope).
    """
    assert 0 <= layer < cfg.n_layers
    a = cfg.attention
    if isinstance(a, Latent):
        return {"latent": (1, a.kv_rank), "rope_key": (1, a.rope_dim)}
    kept = (a.n_kv_heads, a.head_dim)
    return {"k": kept, "v": kept}


def stage_shapes(cfg: ModelConfig, batch: int, queries: int, keys: int) -> Shapes:
    """Shapes of the named intermediates of one layer (`lmcore.trace.LayerTrace`): B x T queries that read S keys.

    A mixture of experts has no ffn_gate, ffn_up, ffn_act: each token's hidden layer is another expert's.
    """
    a = cfg.attention
    resid = (batch, queries, cfg.d_model)
    query = (batch, a.n_heads, queries, a.head_dim)
    new_key = (batch, a.n_kv_heads, queries, a.head_dim)
    scores = (batch, a.n_heads, queries, keys)
    hidden = (batch, queries, cfg.d_ff)
    shapes: Shapes = {"resid_pre": resid, "normed": resid}
    shapes |= {"q": query, "k": new_key, "v": (*new_key[:3], a.value_dim), "rot_q": query, "rot_k": new_key}
    shapes |= {"scores_raw": scores, "scores_scaled": scores, "scores_masked": scores, "pattern": scores}
    shapes |= {"z": (*query[:3], a.value_dim), "attn_out": resid, "resid_mid": resid, "ffn_normed": resid}
    shapes |= {"ffn_gate": hidden} if cfg.ffn.gated else {}
    return shapes | {"ffn_up": hidden, "ffn_act": hidden, "ffn_out": resid, "resid_post": resid}
