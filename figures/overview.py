"""A model's architecture, drawn from its config: nodes with the shapes of this prompt, a measured trace, parameters.

The diagram is a list of nodes, so that another family (a second norm, learned positions, experts) is another list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from figures.format import group
from figures.payload import pack
from figures.tokens import Parts
from lmcore.config import ModelConfig
from lmcore.costs import block_param_count, component_of, param_counts
from lmcore.shapes import Shape, layer_shapes, stage_shapes
from lmcore.specs import Latent

MAX_VALUES = 2**18
"""Residual lengths in one payload; longer prompts keep position 0 and the last ones."""

Node = dict[str, Any]


def arch_payload(
    cfg: ModelConfig,
    *,
    tokens: int,
    pages: Mapping[str, str],
    pieces: Sequence[Parts] = (),
    residual: np.ndarray | None = None,
    counted: Mapping[str, int] | None = None,
    url: str | None = None,
) -> bytes:
    """The payload of the arch component.

    `tokens`: T of the current prompt, 0 if it is empty. `pages`: the url path of the page of a node, for the nodes that
    have one; nodes are ids, embedding, attention_norm, attention, ffn_norm, ffn, final_norm, head, logits, sampler, and
    positions, which is a line under the node where the model's positions come in.
    `residual`: (L + 1, T) float32, the length of the residual vector at each position, row 0 after the embedding and
    row l + 1 after block l; None where nothing ran. `pieces`: the parts of the T tokens.
    `counted`: parameters by component (`lmcore.costs.component_of`) summed over the loaded tensors; None without any.
    `url`: the name in the address under which the chosen position stands, shared with the token strip.
    At most 1 MiB of residual lengths and some 60 bytes a token.
    """
    norms = _kept_positions(cfg, tokens, residual)
    meta = _diagram(cfg, tokens)
    for node in [
        *meta["before"],
        *(n for part in meta["block"]["sublayers"] for n in part),
        *meta["after"],
        meta["sampler"],
    ]:
        node["page"] = pages.get(node["id"])
        if node["positions"] is not None:
            node["positions"]["page"] = pages.get("positions")
    meta |= {
        "tokens": tokens,
        "url": url,
        "layers": cfg.n_layers,
        "positions": [0, *range(tokens - norms.shape[1] + 1, tokens)] if norms.shape[1] else [],
        "pieces": list(pieces),
        "shares": _shares(cfg, counted),
    }
    return pack(meta, norms)


def ffn_name(cfg: ModelConfig) -> str:
    """What the literature calls this feed-forward layer (Shazeer 2020 for the gated ones)."""
    if not cfg.ffn.gated:
        return "FFN"
    return {"silu": "SwiGLU", "relu": "ReGLU"}.get(cfg.ffn.activation, "GeGLU")


def _diagram(cfg: ModelConfig, tokens: int) -> dict[str, Any]:
    """Nodes in the order of the forward path; the block stands once, for all layers."""
    residual = (1, tokens, cfg.d_model)
    counts = param_counts(cfg)
    before = [
        _node("ids", "token ids", lines=[_shape((1, tokens))]),
        _node(
            "embedding",
            "embedding",
            f"{group(cfg.vocab_size)} × {group(cfg.d_model)}",
            counts.embedding,
            positions=_positions_added(cfg),
        ),
    ]
    shown = next(iter(cfg.moe_layers), 0)
    parts = _by_component(layer_shapes(cfg, shown))
    sublayers = [
        _wired("attention_norm", _attention(cfg, tokens, parts["attention"]), cfg),
        _wired("ffn_norm", _ffn(cfg, tokens, parts["ffn"]), cfg),
    ]
    if cfg.wiring.shared_norm:
        del sublayers[1][0]
    if not cfg.d_ff:
        del sublayers[1]
    head = _node(
        "head", "unembed", "tied" if cfg.tied else f"{group(cfg.d_model)} × {group(cfg.vocab_size)}", counts.head
    )
    final = [_norm("final_norm", cfg)] if cfg.final_norm else []
    after = [*final, head, _node("logits", "logits", lines=[_shape((1, tokens, cfg.vocab_size))])]
    block = {
        "count": cfg.n_layers,
        "parameters": group(block_param_count(cfg, shown)),
        "note": _block_note(cfg),
        "sublayers": sublayers,
    }
    sampler = _node("sampler", "sampler", "next token")
    return {"before": before, "block": block, "after": after, "sampler": sampler, "residual": _shape(residual)}


def _node(
    key: str,
    name: str,
    detail: str = "",
    parameters: int | None = None,
    lines: Sequence[str] = (),
    positions: str = "",
) -> Node:
    written = None if parameters is None else group(parameters)
    node: Node = {"id": key, "name": name, "detail": detail, "parameters": written, "lines": list(lines)}
    return node | {"positions": {"id": "positions", "text": positions} if positions else None}


def _norm(key: str, cfg: ModelConfig) -> Node:
    return _node(key, "norm", "RMS" if cfg.norm.kind == "rms" else "Layer", cfg.d_model * (2 if cfg.norm.bias else 1))


def _wired(norm: str, sublayer: Node, cfg: ModelConfig) -> list[Node]:
    """A sublayer with its norms where the family has them: before, after, or both."""
    before = [_norm(norm, cfg)] if cfg.wiring.norms_input else []
    after = [_norm(f"{norm}_after", cfg)] if cfg.wiring.norms_output else []
    return [*before, sublayer, *after]


def _by_component(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Parameters of one block's attention and feed-forward."""
    parts = {"attention": 0, "ffn": 0}
    for name, shape in shapes.items():
        component = component_of(name)
        if component in parts:
            parts[component] += prod(shape)
    return parts


def _block_note(cfg: ModelConfig) -> str:
    """What the picture of one block cannot show of all of them."""
    said = []
    if cfg.wiring.parallel:
        norm = " through one norm" if cfg.wiring.shared_norm else ""
        said.append(f"both sublayers read what enters the block{norm}")
    if cfg.wiring.order == "post":
        said.append("the norm runs on the sum")
    dense = cfg.n_layers - len(cfg.moe_layers)
    if cfg.moe is not None and dense:
        said.append(f"{dense} of {cfg.n_layers} are dense, d_ff {group(cfg.d_ff)}")
    return "; ".join(said)


def _positions_added(cfg: ModelConfig) -> str:
    """What is added to the embedding to tell positions apart, if anything is."""
    if cfg.learned_positions:
        return f"and {group(cfg.learned_positions)} positions"
    return "and sines of the position" if cfg.sinusoidal else ""


def _positions_in_scores(cfg: ModelConfig) -> str:
    """What makes the scores of attention depend on positions; that nothing does, if the embedding has none either."""
    turned = sum(cfg.rope_of(layer) is not None for layer in range(cfg.n_layers))
    if turned:
        return "RoPE on q and k" if turned == cfg.n_layers else f"RoPE in {turned} of {cfg.n_layers} layers"
    if cfg.alibi is not None:
        return "ALiBi bias"
    if cfg.relative_bias is not None:
        return "T5’s bias by distance"
    return "" if _positions_added(cfg) else "no positions but the mask"


def _attention(cfg: ModelConfig, tokens: int, parameters: int) -> Node:
    heads, kv = cfg.n_heads, cfg.n_kv_heads
    detail = f"{heads} heads × {cfg.head_dim}" if heads == kv else f"{heads} Q, {kv} KV × {cfg.head_dim}"
    shapes = stage_shapes(cfg, 1, tokens, tokens)
    lines = [f"q {_shape(shapes['q'])}", f"k, v {_shape(shapes['k'])}", f"weights {_shape(shapes['pattern'])}"]
    if isinstance(cfg.attention, Latent):
        detail = f"{heads} heads × {cfg.head_dim}"
        lines.insert(0, f"latent {_shape((1, tokens, cfg.attention.kv_rank))}")
    sliding = cfg.layer_types.count("sliding")
    if sliding:
        where = "all layers" if sliding == cfg.n_layers else f"{sliding} of {cfg.n_layers} layers"
        lines.append(f"window {group(cfg.window or 0)} in {where}")
    return _node("attention", "attention", detail, parameters, lines, _positions_in_scores(cfg))


def _ffn(cfg: ModelConfig, tokens: int, parameters: int) -> Node:
    if cfg.moe is not None:
        moe = cfg.moe
        lines = [f"{moe.top_k} of {moe.n_experts} for each token"]
        if moe.shared_d_ff:
            lines.append(f"and one for all, {group(moe.shared_d_ff)} wide")
        return _node("ffn", "experts", f"{group(moe.n_experts)} × {group(moe.d_ff)} wide", parameters, lines)
    lines = [f"hidden {_shape((1, tokens, cfg.d_ff))}"]
    if not cfg.ffn.gated:
        lines.insert(0, {"gelu_tanh": "GELU, tanh form"}.get(cfg.ffn.activation, cfg.ffn.activation))
    return _node(
        "ffn", ffn_name(cfg), " → ".join(group(n) for n in (cfg.d_model, cfg.d_ff, cfg.d_model)), parameters, lines
    )


def _shares(cfg: ModelConfig, counted: Mapping[str, int] | None) -> list[dict[str, Any]]:
    """Components with their parameters, the largest first; `counted` is None for all or for none."""
    counts = param_counts(cfg)
    names = {
        "ffn": "experts and FFN" if cfg.moe is not None else ffn_name(cfg),
        "embedding": "embedding = unembedding" if cfg.tied else "embedding",
        "attention": "attention",
        "head": "unembedding",
        "norms": "norms",
    }
    shares = []
    for key, name in names.items():
        calculated = getattr(counts, key)
        found = None if counted is None else counted.get(key, 0)
        if calculated or found:
            shares.append({"name": name, "calculated": calculated, "counted": found})
    return sorted(shares, key=lambda share: -share["calculated"])


def _kept_positions(cfg: ModelConfig, tokens: int, residual: np.ndarray | None) -> np.ndarray:
    rows = cfg.n_layers + 1
    if residual is None or not tokens:
        return np.zeros((rows, 0), np.float32)
    assert residual.shape == (rows, tokens), f"residual lengths are {residual.shape}, expected {(rows, tokens)}"
    last = min(tokens, MAX_VALUES // rows) - 1
    return np.concatenate([residual[:, :1], residual[:, tokens - last :]], axis=1).astype(np.float32)


def _shape(shape: Shape) -> str:
    return f"({', '.join(group(n) for n in shape)})"


def residual_lengths(embedding: np.ndarray, resid_post: np.ndarray) -> np.ndarray:
    """(L + 1, T): the Euclidean length of the residual vector after the embedding (T, D) and each block (L, T, D)."""
    rows = (embedding, *resid_post)
    return np.stack([np.sqrt(np.square(row, dtype=np.float64).sum(axis=-1)) for row in rows]).astype(np.float32)
