"""Bytes that a forward moves between memory and processor, and what training holds besides: ints only.

Conventions of `bytes_moved`: each matrix product reads its operands once and writes its result once; norms, rotation,
activations and residual additions are fused into the products beside them and move nothing of their own; attention is
one kernel that reads q and the cache and writes z, unless its T x T scores are written out.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from lmcore.bounds import count, one_of
from lmcore.config import ModelConfig
from lmcore.costs import param_counts
from lmcore.flops import LATENT, RECOMPUTE, keys_read
from lmcore.formats import Quantised
from lmcore.kv_costs import Storage, kv_cache_bytes
from lmcore.layer_kinds import LayerKind, Row, layer_kinds, outer_rows
from lmcore.specs import Latent, MoE

EXPERTS = ("expected", "least", "most")
SCORES = ("fused", "written")


def bytes_moved(
    cfg: ModelConfig,
    *,
    tokens: int,
    cached: int = 0,
    batch: int = 1,
    logits: int | None = None,
    itemsize: int = 2,
    weight_itemsize: int = 2,
    quantised_weights: Quantised | None = None,
    cache_itemsize: int = 2,
    quantised_cache: Storage | None = None,
    keep: str = "window",
    tensor_parallel: int = 1,
    scores: str = "fused",
    experts: str = "expected",
    latent: str = "as run",
) -> dict[str, int]:
    """Bytes moved by one forward of T new tokens after `cached` ones in each of B sequences, by what they are.

    On all ranks together: those of `tensor_parallel` share weights and activations, and repeat KV heads when there are
    fewer. What they send to each other is not counted.

    - "weights": every matrix, norm and bias met, once, whatever the batch; of the embedding the rows looked up; of a
      mixture the experts that any of the B T tokens chose: `experts` "least" k, "most" min(E, k B T), "expected"
      E (1 - (1 - k / E)^(B T)) rounded up, as if choices were even and independent (real routers are neither).
    - "cache read": keys and values of the S positions (latents, in MLA); "cache written": those of the T new ones.
    - "activations": inputs and outputs of the products, q and z, and the logits kept.
    - "scores": 0, or for "written" the T x S scores written, read and written by the softmax, read by the mix.
    """
    t, b = count("tokens", tokens), count("batch", batch)
    s = count("cached", cached) + t
    kept = t if logits is None else min(t, count("logits", logits))
    size = count("itemsize", itemsize, 1, 16)
    one_of("scores", scores, SCORES)
    one_of("experts", experts, EXPERTS)
    expand = s - t if isinstance(cfg.attention, Latent) and one_of("latent", latent, LATENT) == "expanded" else 0
    stored: dict[str, Any] = {"batch": b, "itemsize": cache_itemsize, "quantised": quantised_cache}
    stored["tensor_parallel"] = tensor_parallel
    one = tensor_parallel * sum(kv_cache_bytes(cfg, context=1, **stored))
    old = tensor_parallel * sum(kv_cache_bytes(cfg, context=s - t, keep=keep, **stored))
    a = cfg.attention
    sides = pairs = 0
    for kind in layer_kinds(cfg):
        sides += kind.count * (t * (_sides(kind) + a.n_heads * (a.head_dim + a.value_dim)) + expand * _up_sides(kind))
        pairs += kind.count * keys_read(kind, tokens=t, cached=s - t)
    return {
        "weights": _weights_read(
            cfg, b * t, b * kept, count("weight_itemsize", weight_itemsize, 1, 16), quantised_weights, experts
        ),
        "cache read": old + t * one,
        "cache written": t * one,
        "activations": size * b * (sides + kept * (cfg.d_model + cfg.vocab_size)),
        "scores": 4 * size * b * pairs * a.n_heads if scores == "written" else 0,
    }


def experts_met(moe: MoE, tokens: int, experts: str = "expected") -> int:
    """How many of a mixture's experts a batch of `tokens` reads (see `bytes_moved`); 0 for no tokens."""
    if not tokens:
        return 0
    most = min(moe.n_experts, moe.top_k * tokens)
    if experts == "expected":
        return min(most, ceil(moe.n_experts * (1 - (1 - moe.top_k / moe.n_experts) ** tokens)))
    return most if experts == "most" else moe.top_k


def activation_bytes(
    cfg: ModelConfig,
    *,
    tokens: int,
    batch: int = 1,
    itemsize: int = 2,
    scores: str = "fused",
    recompute: str = "none",
) -> dict[str, int]:
    """Bytes of activations that a training step keeps for its backward, by component, all layers together.

    Kept a layer and token: the residual stream before each sublayer and its norm (4 D), rotated q and k, v and z, MLA's
    latents, gate, up and their product (in the chosen experts); "scores": the T x T weights of all H heads when
    `scores` is "written", else one float32 normaliser a head (Dao et al. 2022, section 3.1). "logits": V float32 and
    the last residual. Dropout masks and copies made by a framework are not counted.
    `recompute`: "attention" drops the T x T weights but for one layer's at a time; "all" keeps the stream entering each
    layer and, while one is run again, that layer's own.
    """
    t, b, size = count("tokens", tokens), count("batch", batch), count("itemsize", itemsize, 1, 16)
    one_of("scores", scores, SCORES)
    one_of("recompute", recompute, RECOMPUTE)
    d, kinds, totals, largest = cfg.d_model, layer_kinds(cfg), {}, {}
    for kind in kinds:
        mine = _kept_a_layer(cfg, kind, t, size, scores)
        for name, held in mine.items():
            totals[name] = totals.get(name, 0) + kind.count * b * held
            largest[name] = max(largest.get(name, 0), b * held)
    if recompute == "attention":
        totals["scores"] = largest["scores"]
    elif recompute == "all":
        stream = cfg.n_layers * b * t * d * size
        totals = {name: held + (stream if name == "residual stream" else 0) for name, held in largest.items()}
    return totals | {"logits": b * t * (4 * cfg.vocab_size + size * d)}


def training_state_bytes(
    cfg: ModelConfig,
    *,
    itemsize: int = 2,
    gradient_itemsize: int = 2,
    master_itemsize: int = 4,
    moment_itemsize: int = 4,
) -> dict[str, int]:
    """Bytes of weights, gradients and AdamW's state: 2 + 2 + 4 + 4 + 4 = 16 a parameter in mixed precision
    (Rajbhandari et al. 2020, section 3.1). `master_itemsize` 0: no second copy of the weights."""
    n = param_counts(cfg).total
    return {
        "weights": n * count("itemsize", itemsize, 1, 16),
        "gradients": n * count("gradient_itemsize", gradient_itemsize, 1, 16),
        "master weights": n * count("master_itemsize", master_itemsize, 0, 16),
        "first moment": n * count("moment_itemsize", moment_itemsize, 0, 16),
        "second moment": n * count("moment_itemsize", moment_itemsize, 0, 16),
    }


def score_bytes(cfg: ModelConfig, *, queries: int, keys: int, batch: int = 1, itemsize: int = 2) -> int:
    """Bytes of the T x S attention weights of one layer, written out: B H T S * itemsize."""
    pairs = count("queries", queries) * count("keys", keys)
    return count("batch", batch) * cfg.n_heads * pairs * count("itemsize", itemsize, 1, 16)


def _weights_read(
    cfg: ModelConfig, tokens: int, heads: int, itemsize: int, quantised: Quantised | None, experts: str
) -> int:
    """Bytes of the weights that `tokens` tokens, `heads` of them with logits, are multiplied by."""
    total = tokens * cfg.d_model * itemsize
    if cfg.learned_positions is not None:
        total += tokens * cfg.d_model * itemsize
    for row in outer_rows(cfg):
        if "embed_tokens" not in row.name and "embed_positions" not in row.name and not row.name.startswith("lm_head"):
            total += itemsize * row.numbers
    if heads:
        total += itemsize * cfg.vocab_size * (cfg.d_model + int(cfg.head_bias))
    for kind in layer_kinds(cfg):
        met = experts_met(kind.ffn, tokens, experts) if isinstance(kind.ffn, MoE) else 1
        for row in kind.rows:
            small = quantised is not None and row.is_matrix
            one = quantised.bytes_of(1, row.numbers) if quantised and small else itemsize * row.numbers
            total += kind.count * (met if row.times > 1 else 1) * one
    return total


def _sides(kind: LayerKind) -> int:
    """Numbers that go into and come out of the matrix products of one token in one layer."""
    return sum(_times(kind, row) * row.sides for row in kind.rows if row.is_matrix)


def _up_sides(kind: LayerKind) -> int:
    return sum(row.sides for row in kind.rows if row.name == "self_attn.kv_b_proj.weight")


def _times(kind: LayerKind, row: Row) -> int:
    return kind.ffn.top_k if isinstance(kind.ffn, MoE) and row.times > 1 else 1


def _kept_a_layer(cfg: ModelConfig, kind: LayerKind, t: int, size: int, scores: str) -> dict[str, int]:
    """Bytes that the backward of one layer needs for one sequence."""
    a, f, d = cfg.attention, kind.ffn, cfg.d_model
    heads = a.n_heads * (a.head_dim + a.value_dim) + a.n_kv_heads * (a.head_dim + a.value_dim)
    if isinstance(a, Latent):
        heads += (a.q_rank or 0) + a.kv_rank + a.rope_dim
    hidden = 3 * (f.top_k * f.d_ff + f.shared_d_ff) if isinstance(f, MoE) else (3 if f.gated else 2) * f.d_ff
    weights = size * a.n_heads * t * t if scores == "written" else 4 * a.n_heads * t
    return {"residual stream": 4 * t * d * size, "heads": t * heads * size, "ffn": t * hidden * size, "scores": weights}
