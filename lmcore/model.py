"""The Transformer: bottom up, one forward, a pure function of its arguments."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmcore.attention import Reads
from lmcore.block import Backbone
from lmcore.cache import KVCache, Turned
from lmcore.config import ModelConfig
from lmcore.costs import trace_bytes
from lmcore.errors import CapacityError, InputError
from lmcore.frequencies import same_frequencies
from lmcore.masks import Mask
from lmcore.positions import alibi_slopes, sinusoidal_rows
from lmcore.rope import Turn, rope_table
from lmcore.specs import Rope
from lmcore.trace import NO_EDITS, Capture, Edits, Tap, Trace


class Output(NamedTuple):
    """Logits (B, T or `logits_to_keep`, V), and the trace when one was asked for."""

    logits: Tensor
    trace: Trace | None


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
        """What enters the first block: token rows, scaled, plus a table's positions, normed, as the model has it."""
        x = self.model.embed_tokens(tokens)
        if self.cfg.embedding_scale != 1:
            x = x * torch.tensor(self.cfg.embedding_scale, dtype=x.dtype)
        if self.cfg.learned_positions is not None:
            x = x + self.model.embed_positions(positions + self.cfg.position_offset)
        if self.cfg.sinusoidal:
            rows = sinusoidal_rows(positions.cpu().numpy(), self.cfg.d_model)
            x = x + torch.from_numpy(rows).to(x)
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
        resume: tuple[int, Tensor] | None = None,
    ) -> Output:
        """Logits for each of T new tokens, which follow the `cache.length` tokens already in the cache.

        `positions` replaces the positions that RoPE or a table sees (default: cache length onwards); masks, ALiBi and
        T5's bias go by order in the sequence, whatever the positions. `logits_to_keep` = n gives logits for the last n
        tokens only, 0 for all. `depth` = n runs the first n layers only, and the head on their result. `resume`
        = (n, x) begins at layer n with the residual stream x (B, T, D) before it, without a cache: one layer again, or
        layer by layer. Gradients are recorded in training mode (`train()`) only; a model starts in evaluation mode.
        Raises InputError for ids outside the vocabulary and for positions beyond a learned table, CapacityError for a
        trace over `capture.max_bytes` or a full cache; the cache is then unchanged.
        """
        with torch.inference_mode(not self.training):
            assert resume is None or cache is None
            return self._forward(tokens, positions, cache, capture, edits or NO_EDITS, logits_to_keep, depth, resume)

    def _forward(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, " T"] | None,
        cache: KVCache | None,
        capture: Capture | None,
        edits: Edits,
        logits_to_keep: int,
        depth: int | None,
        resume: tuple[int, Tensor] | None,
    ) -> Output:
        t = tokens.shape[1]
        past = cache.length if cache is not None else 0
        self._check(tokens, past, capture)
        at = torch.arange(past, past + t, device=self.device) if positions is None else positions
        self._check_positions(at)
        if cache is not None:
            cache.reserve(t)
        length = self._follow(tokens, at, cache, edits)
        trace = Trace() if capture is not None else None
        x = self._blocks(tokens, at, length, cache, capture, edits, depth, trace, resume)
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
        resume: tuple[int, Tensor] | None = None,
    ) -> Tensor:
        """The residual stream of the tokens after the last block."""
        past = cache.length if cache is not None else 0
        index = torch.arange(past, past + tokens.shape[1], device=self.device)
        turns = {rope: self._turn(rope, at, max(length, past + tokens.shape[1]), edits) for rope in self._ropes(edits)}
        reads = {kind: self._reads(kind, past, index, cache, edits) for kind in sorted(set(self.cfg.layer_types))}
        x = self.embed(tokens, at)
        if trace is not None:
            trace.embedding = x
        first = 0
        if resume is not None:
            first, x = resume
        for layer, block in enumerate(self.model.layers[first:depth], first):
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

    def _check_positions(self, at: Tensor) -> None:
        """A learned table has a row for each position it was trained with, and for no other."""
        if self.cfg.learned_positions is None:
            return
        rows, last = self.cfg.learned_positions - self.cfg.position_offset, int(at.max())
        if last >= rows:
            raise InputError(
                f"position {last} has no row in the model's learned table of {rows}",
                expected=f"positions from 0 to {rows - 1}",
                where="the prompt",
                todo=f"Shorten it to {rows} tokens, or take a model whose positions are computed.",
            )

    def _rope_of(self, layer: int, edits: Edits) -> Rope | None:
        own = self.cfg.rope_of(layer)
        changed = edits.rope is not None and (edits.rope_layers is None or layer in edits.rope_layers)
        return edits.rope if own is not None and changed else own

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
        plain = edits.mask is None and self.slopes is None and self.cfg.relative_bias is None and chunk is None
        if plain and (window is None or s <= window) and (t == 1 or t == s):
            kernel = "all" if t == 1 else "causal"
        keys = torch.arange(first, first + s, device=index.device)
        mask = edits.mask or Mask(window=window, chunk=chunk)
        table = None if self.cfg.relative_bias is None else self.model.relative_bias.weight
        return Reads(mask, index, keys, kernel, self.slopes, self.cfg.relative_bias, table)
