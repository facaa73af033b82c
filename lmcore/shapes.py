"""The one table of shapes: it sizes the parameters, allocates the cache and feeds the calculators. Ints only."""

from __future__ import annotations

from lmcore.config import ModelConfig

Shape = tuple[int, ...]


def layer_shapes(cfg: ModelConfig) -> dict[str, Shape]:
    """Parameters of one block by their name inside the layer; a linear weight is (out, in), as PyTorch stores it."""
    a, d, f = cfg.attention, cfg.d_model, cfg.d_ff
    q, kv = a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (d,),
        "self_attn.q_proj.weight": (q, d),
        "self_attn.k_proj.weight": (kv, d),
        "self_attn.v_proj.weight": (kv, d),
        "self_attn.o_proj.weight": (d, q),
    }
    if a.qkv_bias:
        shapes |= {f"self_attn.{p}_proj.bias": (n,) for p, n in (("q", q), ("k", kv), ("v", kv))}
    if a.out_bias:
        shapes["self_attn.o_proj.bias"] = (d,)
    shapes["post_attention_layernorm.weight"] = (d,)
    if cfg.ffn.gated:
        shapes["mlp.gate_proj.weight"] = (f, d)
    shapes["mlp.up_proj.weight"] = (f, d)
    shapes["mlp.down_proj.weight"] = (d, f)
    if cfg.ffn.bias:
        if cfg.ffn.gated:
            shapes["mlp.gate_proj.bias"] = (f,)
        shapes |= {"mlp.up_proj.bias": (f,), "mlp.down_proj.bias": (d,)}
    return shapes


def param_shapes(cfg: ModelConfig) -> dict[str, Shape]:
    """Every parameter by its Hugging Face name. A tied head is the embedding and has no row of its own."""
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (cfg.vocab_size, cfg.d_model)}
    block = layer_shapes(cfg)
    for layer in range(cfg.n_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    shapes["model.norm.weight"] = (cfg.d_model,)
    if not cfg.tied:
        shapes["lm_head.weight"] = (cfg.vocab_size, cfg.d_model)
    return shapes


def cache_shapes(cfg: ModelConfig, layer: int) -> dict[str, Shape]:
    """What the cache keeps for one position of one layer and one sequence: `k` and `v`, each (K, Dh)."""
    assert 0 <= layer < cfg.n_layers
    kept = (cfg.n_kv_heads, cfg.head_dim)
    return {"k": kept, "v": kept}


def stage_shapes(cfg: ModelConfig, batch: int, queries: int, keys: int) -> dict[str, Shape]:
    """Shapes of the named intermediates of one layer (`lmcore.trace.LayerTrace`): B x T queries that read S keys."""
    a = cfg.attention
    resid = (batch, queries, cfg.d_model)
    query = (batch, a.n_heads, queries, a.head_dim)
    new_key = (batch, a.n_kv_heads, queries, a.head_dim)
    scores = (batch, a.n_heads, queries, keys)
    hidden = (batch, queries, cfg.d_ff)
    shapes: dict[str, Shape] = {"resid_pre": resid, "normed": resid}
    shapes |= {"q": query, "k": new_key, "v": new_key, "rot_q": query, "rot_k": new_key}
    shapes |= {"scores_raw": scores, "scores_scaled": scores, "scores_masked": scores, "pattern": scores}
    shapes |= {"z": query, "attn_out": resid, "resid_mid": resid, "ffn_normed": resid}
    shapes |= {"ffn_gate": hidden} if cfg.ffn.gated else {}
    shapes |= {"ffn_up": hidden, "ffn_act": hidden, "ffn_out": resid, "resid_post": resid}
    return shapes
