"""Multi-head latent attention (DeepSeek-V2, section 2.1.2): the cache keeps a latent, not keys and values.

Two ways to the same z. Expanded: keys and values of every head are computed from the latents, as the equations have
it. Absorbed: W_UK moves into the query and W_UV behind the weights, so that the latents themselves are read, as one KV
head that all query heads share; a step then costs no re-expansion of the whole cache.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmcore.attention import Outputs, Queries, Reads, Scoring, join_heads, mix, split_heads, without_heads
from lmcore.cache import KVCache
from lmcore.norms import Normalise
from lmcore.rope import Turn
from lmcore.specs import Latent, Norm
from lmcore.trace import Edits, Tap

Latents = Float[Tensor, "B one S r"]
RopeKeys = Float[Tensor, "B one S Dr"]


class LatentAttention(nn.Module):
    """MLA: q = [q_nope, q_rope], k = [W_UK c, k_rope shared by all heads], v = W_UV c, with c the normed latent."""

    def __init__(self, d_model: int, spec: Latent) -> None:
        super().__init__()
        queries, norm = spec.n_heads * spec.head_dim, Norm(eps=spec.eps)
        if spec.q_rank is None:
            self.q_proj = nn.Linear(d_model, queries, bias=False)
        else:
            self.q_a_proj = nn.Linear(d_model, spec.q_rank, bias=spec.bias)
            self.q_a_layernorm = Normalise(spec.q_rank, norm)
            self.q_b_proj = nn.Linear(spec.q_rank, queries, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(d_model, spec.kv_rank + spec.rope_dim, bias=spec.bias)
        self.kv_a_layernorm = Normalise(spec.kv_rank, norm)
        self.kv_b_proj = nn.Linear(spec.kv_rank, spec.n_heads * (spec.nope_dim + spec.value_dim), bias=False)
        self.o_proj = nn.Linear(spec.n_heads * spec.value_dim, d_model, bias=spec.bias)
        self.spec = spec

    def forward(
        self, x: Float[Tensor, "B T D"], turn: Turn | None, reads: Reads, cache: KVCache | None, tap: Tap, edits: Edits
    ) -> Float[Tensor, "B T D"]:
        s = self.spec
        q = self.q_proj(x) if s.q_rank is None else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = tap("q", split_heads(q, s.head_dim))
        latent, rope_key = self.kv_a_proj_with_mqa(x)[:, None].split([s.kv_rank, s.rope_dim], dim=-1)
        latent = self.kv_a_layernorm(latent)  # (B, 1, T, r)
        if tap.takes("k", "v", "rot_k"):
            self._tap_new(latent, rope_key, turn, tap)
        if turn is not None:
            q = torch.cat((q[..., : s.nope_dim], turn.new(q[..., s.nope_dim :])), dim=-1)
            rope_key = turn.new(rope_key)
        q = tap("rot_q", q)
        if cache is not None:
            latent, rope_key = cache.append(tap.layer, latent, rope_key)
        how = Scoring(scale=s.scale if edits.scale is None else edits.scale, variant=edits.softmax)
        path = self.absorbed if q.shape[2] < latent.shape[2] else self.expanded
        z = without_heads(path(q, latent, rope_key, reads, how, tap), tap.layer, edits)
        return tap("attn_out", self.o_proj(join_heads(tap("z", z))))

    def expanded(
        self, q: Queries, latent: Latents, rope_key: RopeKeys, reads: Reads, how: Scoring, tap: Tap
    ) -> Outputs:
        """z with the keys and values of every head written out."""
        k, v = self._expand(latent, rope_key)
        return mix(q, k, v, reads, how, tap)

    def absorbed(
        self, q: Queries, latent: Latents, rope_key: RopeKeys, reads: Reads, how: Scoring, tap: Tap
    ) -> Outputs:
        """z from the latents: (q_nope W_UK) . c + q_rope . k_rope, then W_UV on the mixed latents."""
        s = self.spec
        up = self.kv_b_proj.weight.view(s.n_heads, s.nope_dim + s.value_dim, s.kv_rank)
        to_key, to_value = up.split([s.nope_dim, s.value_dim], dim=1)
        q = torch.cat((q[..., : s.nope_dim] @ to_key, q[..., s.nope_dim :]), dim=-1)  # (B, H, T, r + d_rope)
        return mix(q, torch.cat((latent, rope_key), dim=-1), latent, reads, how, tap) @ to_value.mT

    def _expand(self, latent: Latents, rope_key: RopeKeys) -> tuple[Tensor, Tensor]:
        s = self.spec
        up = split_heads(self.kv_b_proj(latent[:, 0]), s.nope_dim + s.value_dim)
        nope, v = up.split([s.nope_dim, s.value_dim], dim=-1)
        return torch.cat((nope, rope_key.expand(-1, s.n_heads, -1, -1)), dim=-1), v

    def _tap_new(self, latent: Latents, rope_key: RopeKeys, turn: Turn | None, tap: Tap) -> None:
        """Show keys and values of the new positions, which the absorbed path never forms."""
        k, v = self._expand(latent, rope_key)
        tap("k", k)
        tap("v", v)
        turned = rope_key if turn is None else turn.new(rope_key)
        tap("rot_k", self._expand(latent, turned)[0])
