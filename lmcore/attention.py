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
from lmcore.masks import Mask, additive
from lmcore.norms import HeadNorm
from lmcore.positions import t5_buckets
from lmcore.rope import Turn
from lmcore.specs import GroupedQuery, RelativeBias
from lmcore.trace import Edits, Tap

Queries = Float[Tensor, "B H T Dh"]
Keys = Float[Tensor, "B K S Dh"]
Values = Float[Tensor, "B K S Dv"]
Outputs = Float[Tensor, "B H T Dv"]
Weights = Float[Tensor, "B H T S"]


@dataclass(frozen=True)
class Reads:
    """Which of S keys each of T queries may read: worked out once per forward for each kind of layer.

    `kernel` is "causal" (j <= i and T = S) or "all" when the fused kernel can be told in a word, else "mask". With
    `slopes` (H,) scores get ALiBi's bias `-slope * (i - j)` (Press et al. 2022); with `buckets` and their `table`
    (buckets, H) T5's, `table[bucket of i - j]` (Raffel et al. 2020).
    """

    mask: Mask
    query: Int[Tensor, " T"]
    key: Int[Tensor, " S"]
    kernel: str
    slopes: Float[Tensor, " H"] | None = None
    buckets: RelativeBias | None = None
    table: Float[Tensor, "buckets H"] | None = None

    @cached_property
    def allowed(self) -> Bool[Tensor, "T S"]:
        return self.mask.allows(self.query, self.key)

    @cached_property
    def bias(self) -> Float[Tensor, "... T S"]:
        """What is added to the scaled scores: 0 where a query may read and -inf where not, and the bias of distance."""
        hidden, distance = additive(self.allowed), self.distance_bias
        return hidden if distance is None else hidden + distance

    @property
    def distance_bias(self) -> Float[Tensor, "H T S"] | None:
        """ALiBi's or T5's bias, by order in the sequence; None where the model has neither."""
        relative = self.key[None, :] - self.query[:, None]
        if self.slopes is not None:
            return self.slopes[:, None, None] * relative
        if self.buckets is None or self.table is None:
            return None
        rows = t5_buckets(relative.cpu().numpy(), self.buckets.buckets, self.buckets.max_distance)
        return self.table[torch.from_numpy(rows).to(self.table.device)].permute(2, 0, 1)

    @property
    def biased(self) -> bool:
        return self.slopes is not None or self.table is not None

    @cached_property
    def blind(self) -> Bool[Tensor, "T 1"] | None:
        """The queries that may read nothing, or None when there are none (as under every causal mask)."""
        rows = ~self.allowed.any(-1, keepdim=True)
        return rows if bool(rows.any()) else None


@dataclass(frozen=True)
class Scoring:
    """How scores become weights: `scale`, then soft-capping, mask, sinks and the softmax variant."""

    scale: float
    softcap: float | None = None
    sinks: Float[Tensor, " H"] | None = None
    variant: str = "safe"

    @property
    def written_out(self) -> bool:
        """Whether the fused kernel cannot do it."""
        return self.softcap is not None or self.sinks is not None or self.variant != "safe"


def softmax(scores: Weights, blind: Bool[Tensor, "T 1"] | None = None) -> Weights:
    """Row by row `exp(s - max) / sum exp(s - max)`, in float32; a `blind` row, all -inf, gives zeros, not NaN."""
    weights = scores.softmax(-1, dtype=torch.float32)
    return weights if blind is None else weights.masked_fill(blind, 0.0)


def softmax_unsafe(scores: Weights) -> Weights:
    """`exp(s) / sum exp(s)` in float16 without subtracting the maximum, to show it overflow from s = 11.1 on."""
    exp = scores.to(torch.float16).exp()
    return (exp / exp.sum(-1, keepdim=True, dtype=torch.float16)).float()


def with_sinks(scores: Weights, sinks: Float[Tensor, " H"]) -> Weights:
    """Softmax over the keys and one learned logit per head, whose share is then dropped: rows sum to less than one."""
    b, h, t, _ = scores.shape
    column = sinks.view(1, h, 1, 1).expand(b, h, t, 1).to(scores.dtype)
    return torch.cat((scores, column), dim=-1).softmax(-1, dtype=torch.float32)[..., :-1]


def attend(q: Queries, k: Keys, v: Values, reads: Reads, how: Scoring, tap: Tap) -> Outputs:
    """`softmax(q k^T * scale + mask) v`, every stage through the tap; query head h reads KV head h // (H / K).

    `scores_scaled` is after scale and soft-cap, `scores_masked` after mask and bias. Shared heads are not copied: the
    G query heads of one KV head are stacked on the query axis. A stage that nobody keeps is overwritten by the next: at
    T = 512 fresh memory costs as much as the arithmetic.
    """
    b, h, t, dim = q.shape
    kv_heads, s = k.shape[1], k.shape[2]
    grouped = q.reshape(b, kv_heads, h // kv_heads * t, dim)
    scores = tap("scores_raw", (grouped @ k.mT).view(b, h, t, s))
    spare = not scores.requires_grad
    scores = torch.mul(scores, how.scale, out=scores if spare and not tap.keeps("scores_raw") else None)
    scores = tap("scores_scaled", scores if how.softcap is None else how.softcap * torch.tanh(scores / how.softcap))
    if how.variant == "mask_after":
        pattern = softmax(tap("scores_masked", scores)) * reads.allowed
    else:
        out = scores if spare and not tap.keeps("scores_scaled") else None
        scores = tap("scores_masked", torch.add(scores, reads.bias.to(scores.dtype), out=out))
        if how.sinks is not None:
            pattern = with_sinks(scores, how.sinks)
        else:
            pattern = softmax_unsafe(scores) if how.variant == "unsafe_float16" else softmax(scores, reads.blind)
    pattern = tap("pattern", pattern.to(v.dtype))
    mixed = pattern.reshape(b, kv_heads, h // kv_heads * t, s) @ v
    return mixed.view(b, h, t, v.shape[-1])


def attend_fused(q: Queries, k: Keys, v: Values, reads: Reads, scale: float) -> Outputs:
    """The same z from `scaled_dot_product_attention`, which never holds the T x S weights."""
    b, h, t, dim = q.shape
    if t == 1 and reads.kernel == "all":
        stacked = q.reshape(b, k.shape[1], h // k.shape[1], dim)
        return F.scaled_dot_product_attention(stacked, k, v, scale=scale).reshape(b, h, 1, v.shape[-1])
    mask = None
    if reads.kernel == "mask":
        mask = reads.bias.to(q.dtype) if reads.biased else reads.allowed
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=reads.kernel == "causal", scale=scale, enable_gqa=h != k.shape[1]
    )


def mix(q: Queries, k: Keys, v: Values, reads: Reads, how: Scoring, tap: Tap) -> Outputs:
    """z by the fused kernel, or written out where a stage is asked for or the kernel cannot do it."""
    if tap.needs_scores or how.written_out:
        return attend(q, k, v, reads, how, tap)
    return attend_fused(q, k, v, reads, how.scale)


class Attention(nn.Module):
    """MHA, GQA and MQA in one class: they differ in `n_kv_heads` only."""

    def __init__(self, d_model: int, spec: GroupedQuery) -> None:
        super().__init__()
        queries, shared = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
        self.q_proj = nn.Linear(d_model, queries, bias=spec.qkv_bias)
        self.k_proj = nn.Linear(d_model, shared, bias=spec.qkv_bias)
        self.v_proj = nn.Linear(d_model, shared, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(queries, d_model, bias=spec.out_bias)
        if spec.qk_norm is not None and spec.qk_norm.over != "unit":
            self.q_norm = HeadNorm(spec.n_heads, spec.head_dim, spec.qk_norm)
            self.k_norm = HeadNorm(spec.n_kv_heads, spec.head_dim, spec.qk_norm)
        if spec.sinks:
            self.sinks = nn.Parameter(torch.zeros(spec.n_heads))
        self.spec = spec

    def forward(
        self, x: Float[Tensor, "B T D"], turn: Turn | None, reads: Reads, cache: KVCache | None, tap: Tap, edits: Edits
    ) -> Float[Tensor, "B T D"]:
        q, k, v = self.project(x, tap)
        if turn is None:
            q, k = tap("rot_q", self.tuned(q, reads)), tap("rot_k", k)
            if cache is not None:
                k, v = cache.append(tap.layer, k, v)
        else:
            q = tap("rot_q", self.unit(turn.new(q)))
            k, v = self._turned_keys(k, turn.new(v) if edits.rotate_values else v, turn, cache, tap)
        how = Scoring(
            scale=self.spec.scale if edits.scale is None else edits.scale,
            softcap=self.spec.softcap,
            sinks=self.sinks if self.spec.sinks else None,
            variant=edits.softmax,
        )
        z = without_heads(mix(q, k, v, reads, how, tap), tap.layer, edits)
        return tap("attn_out", self.o_proj(join_heads(tap("z", z))))

    def project(self, x: Tensor, tap: Tap) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, T, Dh), k and v (B, K, T, Dh), normed and clipped where the model does so."""
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.spec.qk_norm is not None and self.spec.qk_norm.over != "unit":
            q, k = self.q_norm(q), self.k_norm(k)
        if self.spec.clip is not None:
            q, k, v = (t.clamp(-self.spec.clip, self.spec.clip) for t in (q, k, v))
        dim = self.spec.head_dim
        return tap("q", split_heads(q, dim)), tap("k", split_heads(k, dim)), tap("v", split_heads(v, dim))

    def _turned_keys(self, k: Tensor, v: Tensor, turn: Turn, cache: KVCache | None, tap: Tap) -> tuple[Tensor, Tensor]:
        """Keys rotated, which is how the cache stores them."""
        rotated = tap("rot_k", self.unit(turn.new(k)))
        return (rotated, v) if cache is None else cache.append(tap.layer, rotated, v)

    def unit(self, x: Tensor) -> Tensor:
        """x over its root mean square, in models that do so after RoPE."""
        if self.spec.qk_norm is None or self.spec.qk_norm.over != "unit":
            return x
        return F.rms_norm(x, x.shape[-1:], None, self.spec.qk_norm.norm.eps)

    def tuned(self, q: Tensor, reads: Reads) -> Tensor:
        """q of a layer without RoPE, scaled by the logarithm of its position in models that do so."""
        if self.spec.tuning is None:
            return q
        steps = torch.floor((reads.query.float() + 1) / self.spec.tuning.floor)
        return (q * (torch.log1p(steps) * self.spec.tuning.scale + 1)[:, None]).to(q.dtype)


def without_heads(z: Outputs, layer: int, edits: Edits) -> Outputs:
    """z with the heads that the edits ablate in this layer set to zero."""
    off = [head for at, head in edits.zero_heads if at == layer]
    return z.index_fill(1, torch.tensor(off, device=z.device), 0.0) if off else z


def split_heads(x: Float[Tensor, "B T E"], head_dim: int) -> Float[Tensor, "B N T Dh"]:
    """(B, T, N * Dh) as (B, N, T, Dh)."""
    return x.view(x.shape[0], x.shape[1], -1, head_dim).transpose(1, 2)


def join_heads(z: Float[Tensor, "B N T Dh"]) -> Float[Tensor, "B T E"]:
    """(B, N, T, Dh) as (B, T, N * Dh), heads side by side as W_O expects them."""
    return z.transpose(1, 2).reshape(z.shape[0], z.shape[2], -1)
