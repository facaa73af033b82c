"""The Transformer: bottom up, one forward, a pure function of its arguments."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmcore.attention import Attention, Reads
from lmcore.cache import KVCache
from lmcore.config import ModelConfig
from lmcore.costs import trace_bytes
from lmcore.errors import CapacityError, InputError
from lmcore.ffn import FeedForward
from lmcore.masks import Mask
from lmcore.norms import RMSNorm
from lmcore.rope import rope_table
from lmcore.trace import NO_EDITS, Capture, Edits, Tap, Trace


class Output(NamedTuple):
    """Logits (B, T or `logits_to_keep`, V), and the trace when one was asked for."""

    logits: Tensor
    trace: Trace | None


class Block(nn.Module):
    """Pre-norm block: `x + attention(norm(x))`, then `x + ffn(norm(x))` (Xiong et al. 2020)."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(cfg.d_model, cfg.norm)
        self.self_attn = Attention(cfg.d_model, cfg.attention)
        self.post_attention_layernorm = RMSNorm(cfg.d_model, cfg.norm)
        self.mlp = FeedForward(cfg.d_model, cfg.ffn)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        turn: tuple[Tensor, Tensor] | None,
        reads: Reads,
        cache: KVCache | None,
        tap: Tap,
        edits: Edits,
    ) -> Float[Tensor, "B T D"]:
        x = tap("resid_pre", x)
        out = self.self_attn(tap("normed", self.input_layernorm(x)), turn, reads, cache, tap, edits)
        x = tap("resid_mid", x if tap.layer in edits.zero_attention else x + out)
        out = self.mlp(tap("ffn_normed", self.post_attention_layernorm(x)), tap)
        return tap("resid_post", x if tap.layer in edits.zero_ffn else x + out)


class Backbone(nn.Module):
    """Everything but the head, under the names that Hugging Face gives it."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.d_model)
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layers))
        self.norm = RMSNorm(cfg.d_model, cfg.norm)


class Transformer(nn.Module):
    """A decoder-only Transformer. Parameter names are Hugging Face's, so that LLaMA-shaped files need no map."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.model = Backbone(cfg)
        if not cfg.tied:
            self.lm_head = nn.Linear(cfg.d_model, cfg.vocab_size, bias=False)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embed_tokens.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.model.embed_tokens.weight.device

    @property
    def unembedding(self) -> Float[Tensor, "V D"]:
        """The rows that the final residual is compared with: the embedding itself when tied."""
        return self.model.embed_tokens.weight if self.cfg.tied else self.lm_head.weight

    def unembed(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """Logits of a residual stream: final norm, then a dot product with each row of the unembedding."""
        return F.linear(self.model.norm(x), self.unembedding)

    @torch.inference_mode()
    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, " T"] | None = None,
        cache: KVCache | None = None,
        capture: Capture | None = None,
        edits: Edits | None = None,
        logits_to_keep: int = 0,
    ) -> Output:
        """Logits for each of T new tokens, which follow the `cache.length` tokens already in the cache.

        `positions` replaces the positions that RoPE sees (default: cache length onwards); masks go by order in the
        sequence, whatever the positions. `logits_to_keep` = n gives logits for the last n tokens only, 0 for all.
        Raises InputError for ids outside the vocabulary, CapacityError for a trace over `capture.max_bytes` or a full
        cache; the cache is then unchanged.
        """
        t = tokens.shape[1]
        edits = edits or NO_EDITS
        past = cache.length if cache is not None else 0
        self._check(tokens, past, capture)
        if cache is not None:
            cache.reserve(t)
        index = torch.arange(past, past + t, device=self.device)
        turn = self._turn(index if positions is None else positions, edits)
        reads = {kind: self._reads(kind, past, index, cache, edits) for kind in sorted(set(self.cfg.layer_types))}
        trace = Trace() if capture is not None else None
        x = self.model.embed_tokens(tokens)
        if trace is not None:
            trace.embedding = x
        for layer, block in enumerate(self.model.layers):
            tap = Tap(layer, capture, edits)
            x = block(x, turn, reads[self.cfg.layer_types[layer]], cache, tap, edits)
            if trace is not None and tap.record is not None:
                trace.layers[layer] = tap.record
        if logits_to_keep and trace is None:
            x = x[:, -logits_to_keep:].contiguous()
        x = self.model.norm(x)
        if trace is not None:
            trace.final_normed = x
            x = x[:, -logits_to_keep:].contiguous()
        return Output(F.linear(x, self.unembedding), trace)

    def _check(self, tokens: Tensor, past: int, capture: Capture | None) -> None:
        b, t = tokens.shape
        if t == 0:
            raise InputError("there are no tokens", expected="at least one", where="the prompt", todo="Type some text.")
        low, high = (int(x) for x in tokens.aminmax())
        if low < 0 or high >= self.cfg.vocab_size:
            raise InputError(
                f"token id {low if low < 0 else high} is outside the vocabulary",
                expected=f"ids from 0 to {self.cfg.vocab_size - 1}",
                where="the prompt",
            )
        if capture is not None and capture.max_bytes is not None:
            layers = self.cfg.n_layers if capture.layers is None else len(capture.layers)
            size = trace_bytes(
                self.cfg, capture.names, layers=layers, batch=b, queries=t, keys=past + t, itemsize=self.dtype.itemsize
            )
            if size > capture.max_bytes:
                raise CapacityError(
                    f"the trace would take {size:,} bytes",
                    expected=f"at most {capture.max_bytes:,}",
                    where=f"the capture of {', '.join(capture.names)} in {layers} layers",
                    todo="Capture fewer layers or stages, or shorten the prompt.",
                )

    def _turn(self, positions: Tensor, edits: Edits) -> tuple[Tensor, Tensor] | None:
        rope = edits.rope or self.cfg.rope
        if rope is None:
            return None
        return rope_table(rope, positions, int(positions.max()) + 1)

    def _reads(self, kind: str, past: int, index: Tensor, cache: KVCache | None, edits: Edits) -> Reads:
        """Who may read whom in the layers of one kind, over the keys that their cache will hand back."""
        window = self.cfg.window if kind == "sliding" else None
        first = cache.layers[self.cfg.layer_types.index(kind)].start if cache is not None else 0
        t, s = index.shape[0], past + index.shape[0] - first
        kernel = "mask"
        if edits.mask is None and (window is None or s <= window) and (t == 1 or t == s):
            kernel = "all" if t == 1 else "causal"
        keys = torch.arange(first, first + s, device=index.device)
        return Reads(edits.mask or Mask(window=window), index, keys, kernel)
