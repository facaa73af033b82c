"""The Transformer: bottom up, one forward, a pure function of its arguments."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmcore.attention import Attention, Reads
from lmcore.cache import KVCache, Turned
from lmcore.config import ModelConfig
from lmcore.costs import trace_bytes
from lmcore.errors import CapacityError, InputError
from lmcore.ffn import FeedForward, Mixture
from lmcore.frequencies import same_frequencies
from lmcore.masks import Mask
from lmcore.mla import LatentAttention
from lmcore.norms import Normalise
from lmcore.positions import alibi_slopes
from lmcore.rope import Turn, rope_table
from lmcore.specs import Latent, MoE, Rope
from lmcore.trace import NO_EDITS, Capture, Edits, Tap, Trace


class Output(NamedTuple):
    """Logits (B, T or `logits_to_keep`, V), and the trace when one was asked for."""

    logits: Tensor
    trace: Trace | None


class Block(nn.Module):
    """Attention and feed-forward around the residual stream, in the order that `Wiring` names."""

    def __init__(self, cfg: ModelConfig, layer: int) -> None:
        super().__init__()
        wiring, attention, ffn = cfg.wiring, cfg.attention, cfg.ffn_of(layer)
        if wiring.norms_input:
            self.input_layernorm = Normalise(cfg.d_model, cfg.norm)
            if not wiring.shared_norm:
                self.post_attention_layernorm = Normalise(cfg.d_model, cfg.norm)
        if wiring.norms_output:
            self.post_self_attn_layernorm = Normalise(cfg.d_model, cfg.norm)
            self.post_mlp_layernorm = Normalise(cfg.d_model, cfg.norm)
        if isinstance(attention, Latent):
            self.self_attn = LatentAttention(cfg.d_model, attention)
        else:
            self.self_attn = Attention(cfg.d_model, attention)
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


class Backbone(nn.Module):
    """Everything but the head, under the names that Hugging Face gives it in LLaMA."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.d_model)
        if cfg.learned_positions is not None:
            self.embed_positions = nn.Embedding(cfg.learned_positions, cfg.d_model)
        if cfg.embedding_norm:
            self.embed_norm = Normalise(cfg.d_model, cfg.norm)
        self.layers = nn.ModuleList(Block(cfg, layer) for layer in range(cfg.n_layers))
        if cfg.final_norm:
            self.norm = Normalise(cfg.d_model, cfg.norm)


class Transformer(nn.Module):
    """A decoder-only Transformer. Parameter names are Hugging Face's, so that LLaMA-shaped files need no map."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.model = Backbone(cfg)
        if not cfg.tied:
            self.lm_head = nn.Linear(cfg.d_model, cfg.vocab_size, bias=cfg.head_bias)
        self.eval()

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embed_tokens.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.model.embed_tokens.weight.device

    @property
    def slopes(self) -> Float[Tensor, " H"] | None:
        """ALiBi's slope of each head, where the model has them."""
        if self.cfg.alibi is None:
            return None
        return torch.from_numpy(alibi_slopes(self.cfg.n_heads, self.cfg.alibi)).float().to(self.device)

    @property
    def unembedding(self) -> Float[Tensor, "V D"]:
        """The rows that the final residual is compared with: the embedding itself when tied."""
        return self.model.embed_tokens.weight if self.cfg.tied else self.lm_head.weight

    def unembed(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """Logits of a residual stream: final norm, then `logits`."""
        return self.logits(self.final_norm(x))

    def final_norm(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.model.norm(x) if self.cfg.final_norm else x

    def logits(self, normed: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """A dot product with each row of the unembedding, scaled and soft-capped where the model does so."""
        cfg = self.cfg
        z = F.linear(normed, self.unembedding, self.lm_head.bias if cfg.head_bias else None)
        if cfg.logit_scale != 1:
            z = z * cfg.logit_scale
        return z if cfg.logit_softcap is None else cfg.logit_softcap * torch.tanh(z / cfg.logit_softcap)

    def embed(self, tokens: Int[Tensor, "B T"], positions: Int[Tensor, " T"]) -> Float[Tensor, "B T D"]:
        """What enters the first block: token rows, scaled, plus learned positions, normed, as the model has it."""
        x = self.model.embed_tokens(tokens)
        if self.cfg.embedding_scale != 1:
            x = x * torch.tensor(self.cfg.embedding_scale, dtype=x.dtype)
        if self.cfg.learned_positions is not None:
            x = x + self.model.embed_positions(positions + self.cfg.position_offset)
        return self.model.embed_norm(x) if self.cfg.embedding_norm else x

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, " T"] | None = None,
        cache: KVCache | None = None,
        capture: Capture | None = None,
        edits: Edits | None = None,
        logits_to_keep: int = 0,
        depth: int | None = None,
    ) -> Output:
        """Logits for each of T new tokens, which follow the `cache.length` tokens already in the cache.

        `positions` replaces the positions that RoPE or a learned table sees (default: cache length onwards); masks and
        ALiBi go by order in the sequence, whatever the positions. `logits_to_keep` = n gives logits for the last n
        tokens only, 0 for all. `depth` = n runs the first n layers only, and the head on their result. Gradients are
        recorded in training mode (`train()`) only; a model starts in evaluation mode.
        Raises InputError for ids outside the vocabulary, CapacityError for a trace over `capture.max_bytes` or a full
        cache; the cache is then unchanged.
        """
        with torch.inference_mode(not self.training):
            return self._forward(tokens, positions, cache, capture, edits or NO_EDITS, logits_to_keep, depth)

    def _forward(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, " T"] | None,
        cache: KVCache | None,
        capture: Capture | None,
        edits: Edits,
        logits_to_keep: int,
        depth: int | None,
    ) -> Output:
        t = tokens.shape[1]
        past = cache.length if cache is not None else 0
        self._check(tokens, past, capture)
        if cache is not None:
            cache.reserve(t)
        at = torch.arange(past, past + t, device=self.device) if positions is None else positions
        length = self._follow(tokens, at, cache, edits)
        trace = Trace() if capture is not None else None
        x = self._blocks(tokens, at, length, cache, capture, edits, depth, trace)
        if trace is not None:
            x = trace.final_normed = self.final_norm(x)
            return Output(self.logits(x[:, -logits_to_keep:].contiguous()), trace)
        return Output(self.unembed(x[:, -logits_to_keep:].contiguous()), None)

    def _follow(self, tokens: Tensor, at: Tensor, cache: KVCache | None, edits: Edits) -> int:
        """The total length that frequencies may follow; what the cache holds is run again when it has moved them.

        Rotating the held keys anew would not do: above the first layer they come of attention with other frequencies.
        """
        length = int(at.max()) + 1
        following = [rope for rope in self._ropes(edits) if rope.follows_length]
        if cache is None or not following:
            return length
        held, cache.turned = cache.turned, None
        new = Turned(tokens, at, length)
        if held is not None and held.positions.shape[0]:
            length = max(length, int(held.positions.max()) + 1)
            if any(not same_frequencies(rope, held.length, length) for rope in following):
                cache.truncate(0)
                self._blocks(held.tokens, held.positions, length, cache, None, edits, None, None)
            new = Turned(torch.cat((held.tokens, tokens), 1), torch.cat((held.positions, at)), length)
        cache.turned = new
        return length

    def _blocks(
        self,
        tokens: Tensor,
        at: Tensor,
        length: int,
        cache: KVCache | None,
        capture: Capture | None,
        edits: Edits,
        depth: int | None,
        trace: Trace | None,
    ) -> Tensor:
        """The residual stream of the tokens after the last block."""
        past = cache.length if cache is not None else 0
        index = torch.arange(past, past + tokens.shape[1], device=self.device)
        turns = {rope: self._turn(rope, at, max(length, past + tokens.shape[1]), edits) for rope in self._ropes(edits)}
        reads = {kind: self._reads(kind, past, index, cache, edits) for kind in sorted(set(self.cfg.layer_types))}
        x = self.embed(tokens, at)
        if trace is not None:
            trace.embedding = x
        for layer, block in enumerate(self.model.layers[:depth]):
            tap = Tap(layer, capture, edits)
            rope = self._rope_of(layer, edits)
            turn = None if rope is None else turns[rope]
            x = block(x, turn, reads[self.cfg.layer_types[layer]], cache, tap, edits)
            if trace is not None and tap.record is not None:
                trace.layers[layer] = tap.record
        return x

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

    def _rope_of(self, layer: int, edits: Edits) -> Rope | None:
        own = self.cfg.rope_of(layer)
        return edits.rope if own is not None and edits.rope is not None else own

    def _ropes(self, edits: Edits) -> set[Rope]:
        return {rope for layer in range(self.cfg.n_layers) if (rope := self._rope_of(layer, edits)) is not None}

    def _turn(self, rope: Rope, positions: Tensor, length: int, edits: Edits) -> Turn:
        """The rotation of the new positions at a total length."""
        cos, sin = rope_table(rope, positions, length)
        return Turn(cos, sin, interleaved=edits.pairing == "interleaved")

    def _reads(self, kind: str, past: int, index: Tensor, cache: KVCache | None, edits: Edits) -> Reads:
        """Who may read whom in the layers of one kind, over the keys that their cache will hand back."""
        window = self.cfg.window if kind == "sliding" else None
        chunk = self.cfg.chunk if kind == "chunked" else None
        first = cache.layers[self.cfg.layer_types.index(kind)].start if cache is not None else 0
        t, s = index.shape[0], past + index.shape[0] - first
        kernel = "mask"
        plain = edits.mask is None and self.slopes is None and chunk is None
        if plain and (window is None or s <= window) and (t == 1 or t == s):
            kernel = "all" if t == 1 else "causal"
        keys = torch.arange(first, first + s, device=index.device)
        return Reads(edits.mask or Mask(window=window, chunk=chunk), index, keys, kernel, self.slopes)
