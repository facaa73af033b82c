"""The payload of the stage-by-stage component: every matrix between a layer's normed input and its residual add.

One payload holds the query heads of one KV head, and is bounded whatever the model and the prompt:

- at most MAX_TOKENS positions: a longer prompt is cut to its first HEAD_TOKENS and the others round the chosen query;
- at most MAX_COLUMNS columns of a matrix as wide as the model: wider ones are pooled to the value of largest magnitude
  of each block of dims, which keeps its dim;
- as many heads of the group as fit into HEADS_BYTES, and whole into MAPS_BYTES, and at least one.

Together that is under MAX_BYTES, apart from the tokens' text and 8 bytes a head and position for what each position
reads most. Sums of rows and the softmax's denominators are of whole rows, also of the keys that were cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from figures.format import group
from figures.payload import pack
from figures.stage_words import Stage, notes_of, stages_of
from figures.tokens import Token
from lmcore.config import ModelConfig
from lmcore.specs import Latent

MAX_TOKENS = 128
HEAD_TOKENS = 16
MAX_COLUMNS = 1024
HEADS_BYTES = 6 * 2**20
MAX_BYTES = 12 * 2**20
MAPS_BYTES = 256 * 2**20
"""Of the whole maps from which the rows of a payload are cut: four of 17 MB a head at T = 2,048."""
_PERCENTILE = 99.5


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """What one layer computed for G query heads of one KV head, in float32: the names of lmcore's trace.

    normed attn_out resid_pre resid_mid (T, D); q rot_q (G, T, Dh); k rot_k (T, Dh); v (T, Dv); scores_* pattern
    (G, T, T); z (G, T, Dv); allowed (T, T) bool. `writes` (G, N, D) is each head's z through its part of W_O, of the
    N `shown_positions` only.
    """

    normed: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    rot_q: np.ndarray
    rot_k: np.ndarray
    scores_raw: np.ndarray
    scores_scaled: np.ndarray
    scores_masked: np.ndarray
    pattern: np.ndarray
    z: np.ndarray
    writes: np.ndarray
    attn_out: np.ndarray
    resid_pre: np.ndarray
    resid_mid: np.ndarray
    allowed: np.ndarray


@dataclass(frozen=True, slots=True)
class Place:
    """The layer, the query head and the query that the payload is for, and the key that is read."""

    layer: int
    head: int
    query: int
    key: int = 0


def shown_positions(tokens: int, query: int) -> np.ndarray:
    """The positions that a payload holds: all, or the first HEAD_TOKENS and a run that holds the query."""
    if tokens <= MAX_TOKENS:
        return np.arange(tokens)
    run = MAX_TOKENS - HEAD_TOKENS
    start = min(max(query - run // 2, HEAD_TOKENS), tokens - run)
    return np.concatenate([np.arange(HEAD_TOKENS), np.arange(start, start + run)])


def shown_heads(cfg: ModelConfig, head: int, tokens: int) -> range:
    """The query heads that a payload holds: those of the head's KV head, or as many of them as fit."""
    n, a = min(tokens, MAX_TOKENS), cfg.attention
    head_bytes = 4 * n * (4 * n + 2 * a.head_dim + a.value_dim + min(cfg.d_model, MAX_COLUMNS))
    fits = max(1, min(HEADS_BYTES // head_bytes, MAPS_BYTES // (16 * tokens**2)))
    first = head // a.group_size * a.group_size
    start = first + (head - first) // fits * fits
    return range(start, min(start + fits, first + a.group_size))


def pooled(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns of (..., D) as they are, and no dims; of more than MAX_COLUMNS the largest magnitude of each block
    and its dim (int32). NaN is larger than any number."""
    width = x.shape[-1]
    if width <= MAX_COLUMNS:
        return x, np.zeros(0, np.int32)
    block = _block(width)
    starts = range(0, width, block)
    best = [start + np.abs(x[..., start : start + block]).argmax(-1) for start in starts]
    dims = np.stack(best, -1).astype(np.int32)
    return np.take_along_axis(x, dims, -1), dims


def stages_payload(found: Group, tokens: Sequence[Token], cfg: ModelConfig, place: Place) -> bytes:
    """The component's payload. `found` holds the heads `shown_heads(cfg, place.head, T)` over all T positions."""
    at = shown_positions(len(tokens), place.query)
    heads = shown_heads(cfg, place.head, len(tokens))
    assert len(found.q) == len(heads)
    stages = stages_of(cfg, place.layer)
    whole = found.pattern.astype(np.float64)
    row_sums = found.pattern.sum(-1)[:, at]
    peak = np.where(found.allowed, found.scores_masked, -np.inf).max(-1)
    with np.errstate(invalid="ignore"):
        exp = np.exp(np.where(found.allowed, found.scores_masked - peak[..., None], -np.inf).astype(np.float64))
    readable = np.where(found.allowed, np.nan_to_num(whole, nan=-1.0), -1.0)
    top_key = readable.argmax(-1).astype(np.int32)
    top_weight = np.take_along_axis(found.pattern, top_key[..., None].astype(np.int64), -1)[..., 0]
    cut = _cut(found, at)
    normed, normed_dims = pooled(cut.normed)
    writes, writes_dims = pooled(cut.writes)
    out, out_dims = pooled(cut.attn_out)
    mid, mid_dims = pooled(cut.resid_mid)
    # before and after the add are shown at the same dims, so that the sum can be read off
    pre, added = cut.resid_pre, cut.attn_out
    if mid_dims.size:
        pre, added = np.take_along_axis(pre, mid_dims, -1), np.take_along_axis(added, mid_dims, -1)
    arrays = {
        "normed": normed,
        "q": cut.q,
        "k": cut.k,
        "v": cut.v,
        "rot_q": cut.rot_q,
        "rot_k": cut.rot_k,
        "raw": cut.scores_raw,
        "scaled": cut.scores_scaled,
        "masked": cut.scores_masked,
        "softmax": cut.pattern,
        "z": cut.z,
        "write": writes,
        "attn_out": out,
        "resid_mid": mid,
        "resid_pre": pre,
        "added": added,
        "normed_dims": normed_dims,
        "write_dims": writes_dims,
        "attn_out_dims": out_dims,
        "resid_mid_dims": mid_dims,
        "allowed": cut.allowed.astype(np.uint8),
        "row_sums": row_sums,
        "peaks": peak[:, at].astype(np.float32),
        "denominators": exp.sum(-1)[:, at].astype(np.float32),
        "top_key": top_key,
        "top_weight": top_weight,
    }
    meta = {
        "tokens": [token.parts for token in tokens],
        "positions": at.tolist(),
        "layers": cfg.n_layers,
        "n_heads": cfg.n_heads,
        "group_size": cfg.attention.group_size,
        "layer": place.layer,
        "first_head": heads.start,
        "heads": len(heads),
        "d_model": cfg.d_model,
        "block": _block(cfg.d_model),
        "scale": cfg.attention.scale,
        "rotary": _rotary(cfg, place.layer),
        "sinks": bool(getattr(cfg.attention, "sinks", False)),
        "stages": [{**asdict(stage), "limit": _limit(stage, arrays[stage.key])} for stage in stages],
        "notes": [*notes_of(cfg, place.layer), *_cut_notes(cfg, len(tokens), at, heads)],
        "names": list(arrays),
        "view": {"layer": place.layer, "head": place.head, "query": place.query, "key": place.key},
    }
    return pack(meta, *arrays.values())


def _block(width: int) -> int:
    return -(-width // MAX_COLUMNS)


def _cut(found: Group, at: np.ndarray) -> Group:
    """The rows of these positions, and of the maps the columns."""
    if len(at) == found.normed.shape[0]:
        return found
    wide = ("normed", "k", "v", "rot_k", "attn_out", "resid_pre", "resid_mid")
    heads = ("q", "rot_q", "z")
    maps = ("scores_raw", "scores_scaled", "scores_masked", "pattern", "allowed")
    cuts = {name: getattr(found, name)[at] for name in wide}
    cuts |= {name: getattr(found, name)[:, at] for name in heads}
    cuts |= {name: getattr(found, name)[..., at[:, None], at] for name in maps}
    return replace(found, **cuts)


def _limit(stage: Stage, values: np.ndarray) -> float | None:
    """Both ends of a signed stage's colour bar: the largest magnitude, or the 99.5th percentile of a wide matrix."""
    if stage.field == "weight":
        return None
    size = np.abs(values[np.isfinite(values)])
    if not size.size:
        return 1.0
    limit = float(np.percentile(size, _PERCENTILE) if stage.columns == "model" else size.max())
    return limit or float(size.max()) or 1.0


def _rotary(cfg: ModelConfig, layer: int) -> dict[str, int] | None:
    """The dims of a head that turn: `start` and how many; dim start + i turns with start + i + dims / 2."""
    rope = cfg.rope_of(layer)
    if rope is None:
        return None
    start = cfg.attention.nope_dim if isinstance(cfg.attention, Latent) else 0
    return {"start": start, "dims": rope.rotary_dim}


def _cut_notes(cfg: ModelConfig, tokens: int, at: np.ndarray, heads: range) -> list[str]:
    notes = []
    if len(at) < tokens:
        notes.append(
            f"Shown are positions 0 to {HEAD_TOKENS - 1} and {at[HEAD_TOKENS]} to {at[-1]} of {group(tokens)}, "
            "with a line where some are left out; sums of rows are of all keys."
        )
    if _block(cfg.d_model) > 1:
        notes.append(
            f"Of each {_block(cfg.d_model)} of the model’s {group(cfg.d_model)} dims the largest magnitude is kept."
        )
    if len(heads) < cfg.attention.group_size:
        shared = cfg.attention.group_size
        notes.append(f"Shown are heads {heads.start} to {heads.stop - 1} of the {shared} that share this KV head.")
    return notes
