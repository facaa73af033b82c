"""Scaled dot-product attention (Vaswani et al. 2017, eq. 1) with shared KV heads (Ainslie et al. 2023).

Two paths, equal to rounding: `attend` writes every stage out, `attend_fused` hands the same product to PyTorch's kernel
when no stage between q k^T and the weights is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lmcore.cache import KVCache
from lmcore.config import GroupedQuery
from lmcore.masks import Mask, additive
from lmcore.rope import rotate
from lmcore.trace import Edits, Tap

Queries = Float[Tensor, "B H T Dh"]
Keys = Float[Tensor, "B K S Dh"]
Weights = Float[Tensor, "B H T S"]


@dataclass(frozen=True)
class Reads:
    """Which of S keys each of T queries may read: worked out once per forward for each kind of layer.

    `kernel` is "causal" (j <= i and T = S) or "all" when the fused kernel can be told in a word, else "mask".
    """

    mask: Mask
    query: Int[Tensor, " T"]
    key: Int[Tensor, " S"]
    kernel: str

    @cached_property
    def allowed(self) -> Bool[Tensor, "T S"]:
        return self.mask.allows(self.query, self.key)

    @cached_property
    def bias(self) -> Float[Tensor, "T S"]:
        """0 where a query may read and -inf where not: added to the scaled scores before the softmax."""
        return additive(self.allowed)

    @cached_property
    def blind(self) -> Bool[Tensor, "T 1"] | None:
        """The queries that may read nothing, or None when there are none (as under every causal mask)."""
        rows = ~self.allowed.any(-1, keepdim=True)
        return rows if bool(rows.any()) else None


def softmax(scores: Weights, blind: Bool[Tensor, "T 1"] | None = None) -> Weights:
    """Row by row `exp(s - max) / sum exp(s - max)`, in float32; a `blind` row, all -inf, gives zeros, not NaN."""
    weights = scores.softmax(-1, dtype=torch.float32)
    return weights if blind is None else weights.masked_fill(blind, 0.0)


def softmax_unsafe(scores: Weights) -> Weights:
    """`exp(s) / sum exp(s)` in float16 without subtracting the maximum, to show it overflow from s = 11.1 on."""
    exp = scores.to(torch.float16).exp()
    return (exp / exp.sum(-1, keepdim=True, dtype=torch.float16)).float()


def attend(q: Queries, k: Keys, v: Keys, reads: Reads, scale: float, tap: Tap, variant: str = "safe") -> Queries:
    """`softmax(q k^T * scale + mask) v`, every stage through the tap; query head h reads KV head h // (H / K).

    Shared heads are not copied: the G query heads of one KV head are stacked on the query axis. A stage that nobody
    keeps is overwritten by the next: at T = 512 fresh memory costs as much as the arithmetic.
    """
    b, h, t, dim = q.shape
    kv_heads, s = k.shape[1], k.shape[2]
    grouped = q.reshape(b, kv_heads, h // kv_heads * t, dim)
    scores = tap("scores_raw", (grouped @ k.mT).view(b, h, t, s))
    scores = tap("scores_scaled", torch.mul(scores, scale, out=None if tap.keeps("scores_raw") else scores))
    if variant == "mask_after":
        pattern = softmax(tap("scores_masked", scores)) * reads.allowed
    else:
        out = None if tap.keeps("scores_scaled") else scores
        scores = tap("scores_masked", torch.add(scores, reads.bias.to(scores.dtype), out=out))
        pattern = softmax_unsafe(scores) if variant == "unsafe_float16" else softmax(scores, reads.blind)
    pattern = tap("pattern", pattern.to(v.dtype))
    mixed = pattern.reshape(b, kv_heads, h // kv_heads * t, s) @ v
    return mixed.view(b, h, t, dim)


def attend_fused(q: Queries, k: Keys, v: Keys, reads: Reads, scale: float) -> Queries:
    """The same z from `scaled_dot_product_attention`, which never holds the T x S weights."""
    b, h, t, dim = q.shape
    if t == 1 and reads.kernel == "all":
        stacked = q.reshape(b, k.shape[1], h // k.shape[1], dim)
        return F.scaled_dot_product_attention(stacked, k, v, scale=scale).reshape(b, h, 1, dim)
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=reads.allowed if reads.kernel == "mask" else None,
        is_causal=reads.kernel == "causal",
        scale=scale,
        enable_gqa=h != k.shape[1],
    )


class Attention(nn.Module):
    """MHA, GQA and MQA in one class: they differ in `n_kv_heads` only."""

    def __init__(self, d_model: int, spec: GroupedQuery) -> None:
        super().__init__()
        queries, shared = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
        self.q_proj = nn.Linear(d_model, queries, bias=spec.qkv_bias)
        self.k_proj = nn.Linear(d_model, shared, bias=spec.qkv_bias)
        self.v_proj = nn.Linear(d_model, shared, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(queries, d_model, bias=spec.out_bias)
        self.spec = spec

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        turn: tuple[Tensor, Tensor] | None,
        reads: Reads,
        cache: KVCache | None,
        tap: Tap,
        edits: Edits,
    ) -> Float[Tensor, "B T D"]:
        q, k, v = (
            tap(name, split_heads(project(x), self.spec.head_dim))
            for name, project in (("q", self.q_proj), ("k", self.k_proj), ("v", self.v_proj))
        )
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        q, k = tap("rot_q", q), tap("rot_k", k)
        if cache is not None:
            k, v, _ = cache.append(tap.layer, k, v)
        scale = self.spec.scale if edits.scale is None else edits.scale
        if tap.needs_scores:
            z = attend(q, k, v, reads, scale, tap, edits.softmax)
        else:
            z = attend_fused(q, k, v, reads, scale)
        off = [head for layer, head in edits.zero_heads if layer == tap.layer]
        if off:
            z = z.index_fill(1, torch.tensor(off, device=z.device), 0.0)
        return tap("attn_out", self.o_proj(join_heads(tap("z", z))))


def split_heads(x: Float[Tensor, "B T E"], head_dim: int) -> Float[Tensor, "B N T Dh"]:
    """(B, T, N * Dh) as (B, N, T, Dh)."""
    return x.view(x.shape[0], x.shape[1], -1, head_dim).transpose(1, 2)


def join_heads(z: Float[Tensor, "B N T Dh"]) -> Float[Tensor, "B T E"]:
    """(B, N, T, Dh) as (B, T, N * Dh), heads side by side as W_O expects them."""
    return z.transpose(1, 2).reshape(z.shape[0], z.shape[2], -1)
