"""Forwards of the running model with one thing changed, and what each of them measured; shared by all sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from figures.format import group
from ui import heads, runs
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.masks import Mask
    from lmcore.trace import Edits

MAX_TOKENS = 128
"""An experiment runs the first of these only: each keeps all weights and takes the logits of every position."""

OUTCOME_BYTES = 192 * 2**20


def first_of(tokens: int) -> str:
    """Beside an experiment on a longer prompt: how much of it is run. Empty where all of it is."""
    if tokens <= MAX_TOKENS:
        return ""
    return f"The first {group(MAX_TOKENS)} of {group(tokens)} tokens are run here."


@dataclass(frozen=True)
class Change:
    """What a forward does differently, by value: equal changes are equal cache keys. The default changes nothing."""

    mask: Mask | None = None
    scale: float | None = None
    pairing: str = "half-split"
    rotate_values: bool = False
    softmax: str = "safe"

    def edits(self) -> Edits:
        from lmcore.trace import Edits

        return Edits(**vars(self))


PLAIN = Change()


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one forward measured.

    losses (T,) in nats, NaN for position 0; weights (L, H, T, T); logits (V,) of the last position. Over all rows of
    weights: `entropy` in nats, mean; `row_sums` least, mean, largest; `bad_rows` with a NaN or infinity, of `rows`.
    Over all pairs that may be read: `largest` scaled score, `variance` of q.k within a head, mean over heads.
    """

    losses: np.ndarray
    weights: np.ndarray
    logits: np.ndarray
    entropy: float
    row_sums: tuple[float, float, float]
    bad_rows: int
    rows: int
    largest: float
    variance: float

    @property
    def mean_loss(self) -> float:
        """NaN where there is one token, or where the forward gave NaN."""
        return float(self.losses[1:].mean()) if len(self.losses) > 1 else float("nan")

    def probabilities(self) -> np.ndarray:
        """(V,) of the next token, float64; all NaN where a logit is."""
        with np.errstate(invalid="ignore"):
            exp = np.exp(self.logits.astype(np.float64) - self.logits.max())
            return exp / exp.sum()

    def bytes_held(self) -> int:
        return self.losses.nbytes + self.weights.nbytes + self.logits.nbytes


_OUTCOMES: ByteLRU[Outcome] = ByteLRU(max_entries=24, max_bytes=OUTCOME_BYTES, size=Outcome.bytes_held)


def measure(opened: Opened, ids: tuple[int, ...], change: Change = PLAIN) -> Outcome:
    """One forward of at most MAX_TOKENS tokens with this change, run once."""
    return _OUTCOMES.get((opened.key, ids[:MAX_TOKENS], change), lambda: _forward(opened, ids[:MAX_TOKENS], change))


def known(opened: Opened, ids: tuple[int, ...], change: Change) -> bool:
    """Whether `measure` has its answer at hand."""
    return _OUTCOMES.peek((opened.key, ids[:MAX_TOKENS], change)) is not None


def readable(opened: Opened, tokens: int, change: Change = PLAIN) -> np.ndarray:
    """(T, T) bool, true where a query may read a key; (L, T, T) where the layers differ."""
    import torch

    if change.mask is None:
        return heads.readable(opened.config, tokens)
    at = torch.arange(tokens)
    return change.mask.allows(at, at).numpy()


def leak(opened: Opened, ids: tuple[int, ...], change: Change) -> float:
    """By how much the logits of the positions before it move, at most, when the last token is exchanged."""
    import torch

    ids = ids[:MAX_TOKENS]
    other = (*ids[:-1], (ids[-1] + 1) % opened.config.vocab_size)
    with runs.forwarding():
        tokens = torch.tensor([ids, other], device=opened.model.device)
        logits = opened.model.forward(tokens, edits=change.edits()).logits[:, :-1].float()
    return float((logits[0] - logits[1]).abs().max()) if len(ids) > 1 else 0.0


def _forward(opened: Opened, ids: tuple[int, ...], change: Change) -> Outcome:
    import torch

    from lmcore.likelihood import logsumexp
    from lmcore.trace import Capture

    capture = Capture.of("pattern", "scores_raw", max_bytes=runs.RUN_BYTES)
    with runs.forwarding():
        tokens = torch.tensor([ids], device=opened.model.device)
        output = opened.model.forward(tokens, capture=capture, edits=change.edits())
        assert output.trace is not None
        layers = output.trace.layers
        weights = np.stack([layers[at]["pattern"][0].float().cpu().numpy() for at in sorted(layers)])
        raw = np.stack([layers[at]["scores_raw"][0].float().cpu().numpy() for at in sorted(layers)])
        logits = output.logits[0].float().cpu().numpy()
    allowed = np.broadcast_to(readable(opened, len(ids), change), (len(weights), len(ids), len(ids)))
    scale = opened.config.attention.scale if change.scale is None else change.scale
    largest, variance = _scores(raw, allowed)
    losses = np.full(len(ids), np.nan)
    with np.errstate(invalid="ignore"):
        losses[1:] = logsumexp(logits[:-1]) - logits[np.arange(len(ids) - 1), list(ids[1:])]
    return Outcome(losses, weights, logits[-1], *_rows(weights), largest * scale, variance)


def _rows(weights: np.ndarray) -> tuple[float, tuple[float, float, float], int, int]:
    """Mean entropy, the least, mean and largest sum, the rows that are not finite, and how many there are."""
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = weights.sum(-1, dtype=np.float64)
        logarithm = np.log(np.maximum(weights, np.finfo(np.float32).tiny))
        entropy = -np.einsum("lhij,lhij->lhi", weights, logarithm, dtype=np.float64)
    bad = int((~np.isfinite(weights).all(-1)).sum())
    return float(entropy.mean()), (float(sums.min()), float(sums.mean()), float(sums.max())), bad, sums.size


def _scores(raw: np.ndarray, allowed: np.ndarray) -> tuple[float, float]:
    """The largest raw score that may be read, and the variance within a head, mean over heads."""
    variances, largest = [], -np.inf
    for layer, mask in zip(raw, allowed, strict=True):
        read = layer[:, mask]
        largest = max(largest, float(read.max())) if np.isfinite(read).all() else np.nan
        variances.append(float(read.astype(np.float64).var(-1).mean()))
        if np.isnan(largest):
            return np.nan, np.nan
    return largest, float(np.mean(variances))


def offset_spread(
    opened: Opened, ids: tuple[int, ...], *, offset: int = 3, places: int = 64
) -> dict[str, float] | None:
    """How far q_(p + offset) . k_p moves as p goes from 0 to `places`, over |q||k|, by the pairing of q and of k.

    One q and one k of the first layer that turns them, unturned: only their positions change. "half-split" and
    "interleaved": both paired so; "mixed": k alone interleaved. None for latent attention, whose heads turn in part.
    """
    import torch

    from lmcore.rope import rope_table, rotate, rotate_interleaved
    from lmcore.specs import GroupedQuery

    cfg = opened.config
    layer = next((layer for layer in range(cfg.n_layers) if cfg.rope_of(layer) is not None), None)
    if layer is None or not isinstance(cfg.attention, GroupedQuery):
        return None
    rope = cfg.rope_of(layer)
    assert rope is not None
    run = runs.run(opened, ids[:MAX_TOKENS], "q", "k", layers=(layer,), logits_to_keep=1)
    q, k = (torch.from_numpy(run[name][0][0, -1].copy())[None, None, None].double() for name in ("q", "k"))
    at = torch.arange(places + offset)
    cos, sin = rope_table(rope, at, places + offset)
    q, k = q.expand(1, 1, places, -1), k.expand(1, 1, places, -1)
    out = {}
    for name, turn_q, turn_k in (
        ("half-split", rotate, rotate),
        ("interleaved", rotate_interleaved, rotate_interleaved),
        ("mixed", rotate, rotate_interleaved),
    ):
        products = (turn_q(q, cos[offset:], sin[offset:]) * turn_k(k, cos[:places], sin[:places])).sum(-1)
        length = q[0, 0, 0].norm() * k[0, 0, 0].norm()
        out[name] = float((products.max() - products.min()) / length)
    return out
