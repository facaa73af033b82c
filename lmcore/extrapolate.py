"""What a text costs beyond the length a model was trained at: the loss of each position, and what attention does there.

Nothing is changed on the model: another rotary spec is an argument of the forward. Windows are runs of tokens, each
from position 0; a long one goes through in pieces on a KV cache, so that memory stays bounded by the piece.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64

from lmcore.cache import KVCache
from lmcore.config import ModelConfig
from lmcore.costs import forward_flops, kv_cache_bytes
from lmcore.errors import CapacityError, InputError, NotInModel
from lmcore.model import Transformer
from lmcore.scalings import at_length
from lmcore.specs import Rope
from lmcore.trace import Capture, Edits

PIECE = 1024
"""Tokens that go through at once; a longer window takes several pieces on a cache."""
PATTERN_BYTES = 48 * 2**20
"""Attention weights held at once while their rows are summed up."""

Losses = Float[np.ndarray, "W T"]
Progress = Callable[[int, int], object]


def _untold(done: int, total: int) -> None:
    pass


def trained_length(cfg: ModelConfig) -> int:
    """Positions that the model was trained at before any scaling, as its config tells."""
    rope = cfg.rope
    original = None if rope is None else rope.original_max_positions
    return cfg.max_positions if original is None else min(original, cfg.max_positions)


def longest(cfg: ModelConfig) -> int | None:
    """Positions after which the model has nothing to look up; None where there is no such end."""
    return None if cfg.learned_positions is None else cfg.learned_positions - cfg.position_offset


def windows(ids: Sequence[int], length: int, count: int) -> Int64[np.ndarray, "W T"]:
    """`count` windows of `length` tokens that do not overlap, spread evenly over a text. InputError if it is short."""
    if length < 2 or count < 1:
        raise InputError(f"{count} windows of {length} tokens", expected="at least one of two", where="the windows")
    if len(ids) < length * count:
        raise InputError(
            f"the text has {len(ids):,} tokens",
            expected=f"{count} × {length:,} = {count * length:,}",
            where="the text that is measured",
            todo="Choose fewer windows or a shorter length.",
        )
    starts = np.linspace(0, len(ids) - length, count).round().astype(int) if count > 1 else [0]
    return np.stack([np.asarray(ids[start : start + length], np.int64) for start in starts])


def token_losses(
    model: Transformer,
    texts: Int64[np.ndarray, "W T"],
    rope: Rope | None = None,
    *,
    layers: frozenset[int] | None = None,
    piece: int = PIECE,
    progress: Progress = _untold,
) -> Losses:
    """`-log p` of each token in nats, float32; NaN at position 0, which nothing predicts.

    With `rope`, under that spec in every rotary layer, or in those of `layers`, at the frequencies that it has for the
    whole length T.
    `progress(tokens done, of)` is called after each piece; what it raises passes through. NotInModel beyond a table of
    learned positions; CapacityError when the cache does not fit.
    """
    count, length = texts.shape
    _check_end(model.cfg, length)
    edits = Edits(rope=None if rope is None else at_length(rope, length), rope_layers=layers)
    out = np.full((count, length), np.nan, np.float32)
    for row in range(0, count, at_once := max(1, piece // length)):
        tokens = torch.from_numpy(texts[row : row + at_once]).to(model.device)
        cache = None if length <= piece else KVCache.empty(model.cfg, length, dtype=model.dtype, device=model.device)
        for start in range(0, length, piece):
            stop = min(length, start + piece)
            logits = model.forward(tokens[:, start:stop], cache=cache, edits=edits).logits
            known = logits[:, : min(stop, length - 1) - start].float()
            after = slice(start + 1, start + 1 + known.shape[1])
            loss = F.cross_entropy(known.transpose(1, 2), tokens[:, after], reduction="none")
            out[row : row + at_once, after] = loss.cpu().numpy()
            progress((row + len(tokens) - 1) * length + stop, count * length)
    return out


def losses_in_pieces(
    model: Transformer, texts: Int64[np.ndarray, "W T"], size: int, *, progress: Progress = _untold
) -> Losses:
    """As `token_losses`, but no token sees more than `size` positions: read in pieces that overlap by half of that.

    Each piece begins at position 0, and of all but the first its second half counts. The same tokens as in the whole
    text, at positions that the model knows: what a length beyond `size` is to be measured against.
    """
    length, half = texts.shape[1], size // 2
    starts = [*range(0, max(1, length - size), half), max(0, length - size)]
    pieces = np.concatenate([texts[:, at : at + size] for at in starts])
    found = token_losses(model, pieces, progress=progress).reshape(len(starts), *texts[:, :size].shape)
    out = np.full(texts.shape, np.nan, np.float32)
    for at, losses in zip(starts, found, strict=True):
        first = half if at else 0
        out[:, at + first : at + size] = losses[:, first:]
    return out


def losses_as_it_grows(
    model: Transformer,
    texts: Int64[np.ndarray, "W T"],
    rope: Rope,
    *,
    step: int,
    progress: Progress = _untold,
) -> Losses:
    """As `token_losses`, each position in a text that ends with its stretch of `step` positions.

    That is what a scaling which follows the length does while a text grows; for any other the two are the same.
    """
    count, length = texts.shape
    out = np.full((count, length), np.nan, np.float32)
    ends = [*range(step, length, step), length]
    same = [at_length(rope, end) for end in ends]
    total, done = sum(end for at, end in enumerate(ends) if _last_of(same, at)), 0
    filled = 0
    for at, end in enumerate(ends):
        if not _last_of(same, at):
            continue
        found = token_losses(
            model,
            texts[:, :end],
            same[at],
            progress=lambda part, whole, done=done, end=end: progress(done + end * part // whole, total),
        )
        out[:, filled:end] = found[:, filled:end]
        filled, done = end, done + end
    return out


def _last_of(specs: Sequence[Rope], at: int) -> bool:
    """Whether the next stretch has other frequencies: one forward serves all that have the same."""
    return at == len(specs) - 1 or specs[at] != specs[at + 1]


class Reading(NamedTuple):
    """Of each query, mean over all heads of a layer: the entropy of its weights in nats, and the weight of key 0."""

    entropy: Float64[np.ndarray, "L T"]
    first: Float64[np.ndarray, "L T"]


def attention_by_position(
    model: Transformer,
    text: Int64[np.ndarray, " T"],
    rope: Rope | None = None,
    *,
    max_bytes: int = PATTERN_BYTES,
    progress: Progress = _untold,
) -> Reading:
    """Entropy and first-key weight of every row of every layer, a few queries at a time: `max_bytes` of weights."""
    cfg, length = model.cfg, len(text)
    _check_end(cfg, length)
    edits = Edits(rope=None if rope is None else at_length(rope, length))
    row = cfg.n_layers * cfg.n_heads * length * model.dtype.itemsize
    piece = max(1, min(length, max_bytes // row))
    cache = KVCache.empty(cfg, length, dtype=model.dtype, device=model.device)
    tokens = torch.from_numpy(text)[None].to(model.device)
    entropy, first = np.zeros((cfg.n_layers, length)), np.zeros((cfg.n_layers, length))
    for start in range(0, length, piece):
        stop = min(length, start + piece)
        # A sliding layer hands back its window's keys only: then key 0 has no weight.
        starts = [cache.layers[layer].start for layer in range(cfg.n_layers)]
        out = model.forward(
            tokens[:, start:stop], cache=cache, edits=edits, capture=Capture.of("pattern"), logits_to_keep=1
        )
        assert out.trace is not None
        for layer, record in out.trace.layers.items():
            weights = record["pattern"][0].float()
            entropy[layer, start:stop] = torch.special.entr(weights).sum(-1).mean(0).cpu().numpy()
            if starts[layer] == 0:
                first[layer, start:stop] = weights[..., 0].mean(0).cpu().numpy()
        progress(stop, length)
    return Reading(entropy, first)


class Blocks(NamedTuple):
    """A loss smoothed: the middle of each block of positions, the mean over windows, and its standard error."""

    position: Float64[np.ndarray, " N"]
    mean: Float64[np.ndarray, " N"]
    error: Float64[np.ndarray, " N"]


def blocks(losses: Losses, width: int) -> Blocks:
    """Means over blocks of `width` positions, window by window, then over windows.

    The standard error is that of the mean over W windows, `sd / sqrt(W)`; NaN for one window. No block crosses a
    multiple of `width`, so that none mixes positions within a trained length of such a multiple with those beyond.
    """
    length = losses.shape[1]
    starts = np.arange(0, length, width)
    each = np.stack([np.nanmean(losses[:, at : at + width].astype(np.float64), axis=1) for at in starts], axis=1)
    middle = np.array([(at + min(length, at + width) - 1) / 2 for at in starts])
    return Blocks(middle, each.mean(0), standard_error(each))


def standard_error(values: Float64[np.ndarray, "W ..."]) -> Float64[np.ndarray, "..."]:
    """Of the mean over the first axis; NaN of one value."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(0, ddof=1) / math.sqrt(len(values)))


def beyond(losses: Losses, trained: int) -> Float64[np.ndarray, " W"]:
    """Each window's mean loss over the positions from `trained` on; NaN where there are none."""
    past = losses[:, trained:].astype(np.float64)
    return past.mean(1) if past.shape[1] else np.full(len(losses), np.nan)


def within(losses: Losses, trained: int) -> Float64[np.ndarray, " W"]:
    """Each window's mean loss over the second half of the trained length, where context is long and positions known."""
    return losses[:, max(1, trained // 2) : trained].astype(np.float64).mean(1)


def needed_bytes(cfg: ModelConfig, length: int, itemsize: int, piece: int = PIECE) -> int:
    """Memory that `token_losses` takes at its height: the cache, and logits, mask and widest activation of a piece."""
    piece = min(piece, length)
    cache = sum(kv_cache_bytes(cfg, context=length, itemsize=itemsize)) if length > piece else 0
    scores = piece * length * (4 * cfg.n_heads if cfg.alibi is not None else 1)
    return cache + 3 * 4 * piece * cfg.vocab_size + scores + 4 * itemsize * piece * (cfg.d_ff + 4 * cfg.d_model)


def refuse_too_long(cfg: ModelConfig, length: int, itemsize: int, free: int) -> None:
    """CapacityError, with both numbers, for a length whose forward does not fit into `free` bytes."""
    needed = needed_bytes(cfg, length, itemsize)
    if needed > free:
        raise CapacityError(
            f"{length:,} positions need {needed:,} bytes beside the weights and {free:,} are free",
            expected="a length that fits",
            where="the memory of this machine",
            todo="Choose a shorter length.",
        )


def estimated_seconds(model: Transformer, length: int, count: int, *, sample: int = 128) -> float:
    """How long `token_losses` will take: a forward of `sample` tokens, timed, times the ratio of FLOPs."""
    sample = min(sample, length)
    tokens = torch.zeros((1, sample), dtype=torch.long, device=model.device)
    model.forward(tokens)
    begun = time.perf_counter()
    model.forward(tokens)
    took = time.perf_counter() - begun
    short, long = (sum(forward_flops(model.cfg, tokens=n).values()) for n in (sample, length))
    return took * count * long / short


def _check_end(cfg: ModelConfig, length: int) -> None:
    end = longest(cfg)
    if end is not None and length > end:
        raise NotInModel(
            f"This model's positions are a learned table of {end:,} rows: at position {end:,} there is nothing to "
            "look up",
            todo=f"Choose at most {end:,} positions.",
        )
