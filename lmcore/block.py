"""One block, and everything of a Transformer but its head."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmcore.attention import Attention, Reads
from lmcore.cache import KVCache
from lmcore.config import ModelConfig
from lmcore.ffn import FeedForward, Mixture
from lmcore.mla import LatentAttention
from lmcore.norms import Normalise
from lmcore.rope import Turn
from lmcore.specs import Dense, Latent, MoE
from lmcore.trace import Edits, Tap


class Block(nn.Module):
    """Attention and feed-forward around the residual stream, in the order that `Wiring` names."""

    def __init__(self, cfg: ModelConfig, layer: int) -> None:
        super().__init__()
        wiring, attention, ffn = cfg.wiring, cfg.attention, cfg.ffn_of(layer)
        self.attention_only = isinstance(ffn, Dense) and not ffn.d_ff
        if wiring.norms_input:
            self.input_layernorm = Normalise(cfg.d_model, cfg.norm)
            if not wiring.shared_norm and not self.attention_only:
                self.post_attention_layernorm = Normalise(cfg.d_model, cfg.norm)
        if wiring.norms_output:
            self.post_self_attn_layernorm = Normalise(cfg.d_model, cfg.norm)
            if not self.attention_only:
                self.post_mlp_layernorm = Normalise(cfg.d_model, cfg.norm)
        if isinstance(attention, Latent):
            self.self_attn = LatentAttention(cfg.d_model, attention)
        else:
            self.self_attn = Attention(cfg.d_model, attention)
        if not self.attention_only:
            self.mlp = Mixture(cfg.d_model, ffn) if isinstance(ffn, MoE) else FeedForward(cfg.d_model, ffn)
        self.wiring = wiring

    def forward(
        self, x: Float[Tensor, "B T D"], turn: Turn | None, reads: Reads, cache: KVCache | None, tap: Tap, edits: Edits
    ) -> Float[Tensor, "B T D"]:
        w = self.wiring
        start = x = tap("resid_pre", x)
        normed = tap("normed", self.input_layernorm(x) if w.norms_input else x)
        out = self.self_attn(normed, turn, reads, cache, tap, edits)
        if tap.layer not in edits.zero_attention:
            x = self._add(x, out, "post_self_attn_layernorm")
        x = tap("resid_mid", x)
        if self.attention_only:
            return tap("resid_post", _without_ffn(x, tap))
        base = start if w.parallel else x
        if w.shared_norm:
            normed = tap("ffn_normed", normed)
        else:
            normed = tap("ffn_normed", self.post_attention_layernorm(base) if w.norms_input else base)
        out = self.mlp(normed, tap)
        if tap.layer not in edits.zero_ffn:
            x = self._add(x, out, "post_mlp_layernorm")
        return tap("resid_post", x)

    def _add(self, x: Tensor, out: Tensor, norm: str) -> Tensor:
        """What the residual stream is after a sublayer."""
        w = self.wiring
        if w.order == "post":
            return getattr(self, norm)(x + out)
        if w.norms_output:
            out = getattr(self, norm)(out)
        return x + (out if w.residual_scale == 1 else out * w.residual_scale)


def _without_ffn(x: Tensor, tap: Tap) -> Tensor:
    """x as it is; the stages of the sublayer that isn't there are zeros, and no hidden numbers."""
    if tap.names:
        for name in ("ffn_gate", "ffn_up", "ffn_act"):
            tap(name, x[..., :0])
        for name in ("ffn_normed", "ffn_out"):
            tap(name, torch.zeros_like(x))
    return x


class Backbone(nn.Module):
    """Everything but the head, under the names that Hugging Face gives it in LLaMA."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.d_model)
        if cfg.learned_positions is not None:
            self.embed_positions = nn.Embedding(cfg.learned_positions, cfg.d_model)
        if cfg.relative_bias is not None:
            self.relative_bias = nn.Embedding(cfg.relative_bias.buckets, cfg.n_heads)
        if cfg.embedding_norm:
            self.embed_norm = Normalise(cfg.d_model, cfg.norm)
        self.layers = nn.ModuleList(Block(cfg, layer) for layer in range(cfg.n_layers))
        if cfg.final_norm:
            self.norm = Normalise(cfg.d_model, cfg.norm)
