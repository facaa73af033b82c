"""Forwards of the running model with one thing changed, and what each of them measured; shared by all sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from figures.format import bytes_iec, group, sig
from lmcore.costs import forward_flops
from ui import heads, runs
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from torch import Tensor

    from lmcore.masks import Mask
    from lmcore.trace import Edits

MAX_TOKENS = 512
"""An experiment runs the first of these only, or fewer: `cut`."""
LEAST_TOKENS = 128
"""As many are run however slow the model is."""
RUN_S = 5.0
"""What a forward of the prompt may be expected to take; an experiment makes several."""
WEIGHT_BYTES = 144 * 2**20
"""Weights of all heads that are kept of one experiment. SmolLM2 at 373 tokens."""
ROWS = 64
"""Positions whose logits are in memory at a time."""


@dataclass(frozen=True)
class Cut:
    """The tokens that an experiment runs, and a sentence that says so where they are not all; else empty."""

    ids: tuple[int, ...]
    said: str


def cut(opened: Opened, ids: tuple[int, ...], *, keeps_weights: bool = True) -> Cut:
    """The first tokens of a prompt that experiments run: what stays within bytes and seconds, by this prompt's own run.

    `keeps_weights`: for an experiment of which the weights of all heads are kept, which bounds it by memory as well.
    """
    count, why = len(ids), ""
    per_pair = 4 * opened.config.n_layers * opened.config.n_heads
    if (most := int((WEIGHT_BYTES / per_pair) ** 0.5)) < min(count, MAX_TOKENS) and keeps_weights:
        why = f"the weights of every head would take {bytes_iec(per_pair * min(len(ids), MAX_TOKENS) ** 2)}"
        count = most
    if count > MAX_TOKENS:
        count, why = MAX_TOKENS, ""
    expected = _expected_s(opened, ids, count) if count > LEAST_TOKENS else 0.0
    if expected > RUN_S:
        why = f"one forward of {group(count)} would take about {sig(expected, 2)} s"
        count = max(LEAST_TOKENS, int(count * RUN_S / expected))
    if count == len(ids):
        return Cut(ids, "")
    because = f": {why}" if why else ""
    return Cut(ids[:count], f"The first {group(count)} of {group(len(ids))} tokens are run here{because}.")


def _expected_s(opened: Opened, ids: tuple[int, ...], count: int) -> float:
    """What a forward of the first `count` tokens takes: that of all of them, timed, times the ratio of FLOPs."""
    flops = [sum(forward_flops(opened.config, tokens=n, logits=1).values()) for n in (count, len(ids))]
    return (heads.seconds(opened, ids) or 0.0) * flops[0] / flops[1]


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

    losses (T,) in nats, NaN for position 0; logits (V,) of the last position. Over all rows of weights: `entropy` in
    nats, mean; `row_sums` least, mean, largest; `bad_rows` with a NaN or infinity, of `rows`, the first of them in
    `bad_layer` (None where there is none). Over all pairs that may be read: `largest` scaled score, `variance` of q.k
    within a head, mean over heads. `seconds`: of the forward and of measuring it.
    """

    losses: np.ndarray
    logits: np.ndarray
    entropy: float
    row_sums: tuple[float, float, float]
    bad_rows: int
    bad_layer: int | None
    rows: int
    largest: float
    variance: float
    seconds: float

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
        return self.losses.nbytes + self.logits.nbytes


_OUTCOMES: ByteLRU[Outcome] = ByteLRU(max_entries=64, max_bytes=64 * 2**20, size=Outcome.bytes_held)
_WEIGHTS: ByteLRU[np.ndarray] = ByteLRU(max_entries=24, max_bytes=2 * WEIGHT_BYTES, size=lambda array: array.nbytes)

Say = Callable[[int], object]


def measure(opened: Opened, ids: tuple[int, ...], change: Change = PLAIN, say: Say = lambda layer: None) -> Outcome:
    """One forward of these tokens with this change, run once; `say` hears of each layer. Its weights are not kept."""
    return _OUTCOMES.get((opened.key, ids, change), lambda: _run(opened, ids, change, say))


def weights(opened: Opened, ids: tuple[int, ...], change: Change = PLAIN) -> np.ndarray:
    """(L, H, T, T) float32, the weights of that forward, kept as long as there is room; of a `cut` that keeps them."""

    def make() -> np.ndarray:
        keep = np.empty((opened.config.n_layers, opened.config.n_heads, len(ids), len(ids)), np.float32)
        _OUTCOMES.put((opened.key, ids, change), _run(opened, ids, change, lambda layer: None, keep))
        keep.setflags(write=False)
        return keep

    return _WEIGHTS.get((opened.key, ids, change), make)


def known(opened: Opened, ids: tuple[int, ...], change: Change) -> bool:
    """Whether `measure` has its answer at hand."""
    return _OUTCOMES.peek((opened.key, ids, change)) is not None


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

    from lmcore.trace import Capture

    other = (*ids[:-1], (ids[-1] + 1) % opened.config.vocab_size)
    with runs.forwarding():
        tokens = torch.tensor([ids, other], device=opened.model.device)
        output = opened.model.forward(tokens, edits=change.edits(), capture=Capture.of(), logits_to_keep=1)
    assert output.trace is not None
    normed, worst = output.trace.final_normed, 0.0
    assert normed is not None
    with torch.inference_mode():
        for first in range(0, len(ids) - 1, ROWS):
            logits = opened.model.logits(normed[:, first : min(first + ROWS, len(ids) - 1)]).float()
            worst = max(worst, float((logits[0] - logits[1]).abs().max()))
    return worst


def _run(opened: Opened, ids: tuple[int, ...], change: Change, say: Say, keep: np.ndarray | None = None) -> Outcome:
    """Layer by layer, so that the weights and scores of one are in memory at a time; `keep` is filled with weights."""
    import torch

    from lmcore.trace import Capture

    begun, model, allowed = perf_counter(), opened.model, readable(opened, len(ids), change)
    tokens, edits = torch.tensor([ids], device=model.device), change.edits()
    rows, scores, resume = [], [], None
    for layer in range(opened.config.n_layers):
        say(layer)
        capture = Capture.of("pattern", "scores_raw", "resid_post", layers=[layer], max_bytes=runs.RUN_BYTES)
        with runs.forwarding():
            out = model.forward(tokens, capture=capture, edits=edits, logits_to_keep=1, depth=layer + 1, resume=resume)
            assert out.trace is not None
            found = out.trace.layers[layer]
            weights, raw = (found[name][0].float().cpu().numpy() for name in ("pattern", "scores_raw"))
        resume = (layer + 1, found["resid_post"])
        if keep is not None:
            keep[layer] = weights
        rows.append(_rows(weights))
        scores.append(_scores(raw, allowed if allowed.ndim == 2 else allowed[layer]))
    assert resume is not None
    losses, last = _losses(opened, ids, resume[1])
    entropy, least, mean, most, bad = np.array(rows).T
    largest, variance = np.array(scores).T
    scale = opened.config.attention.scale if change.scale is None else change.scale
    return Outcome(
        losses,
        last,
        entropy=float(entropy.mean()),
        row_sums=(float(least.min()), float(mean.mean()), float(most.max())),
        bad_rows=int(bad.sum()),
        bad_layer=int(bad.argmax()) if bad.any() else None,
        rows=len(rows) * opened.config.n_heads * len(ids),
        largest=float(largest.max()) * scale,
        variance=float(variance.mean()),
        seconds=perf_counter() - begun,
    )


def _losses(opened: Opened, ids: tuple[int, ...], stream: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The loss of each token (NaN of the first), and the logits of the last position, from the last layer's stream."""
    import torch

    from lmcore.likelihood import logsumexp

    losses, last = np.full(len(ids), np.nan), np.empty(0, np.float32)
    for first in range(0, len(ids), ROWS):
        with runs.forwarding(), torch.inference_mode():
            logits = opened.model.unembed(stream[:, first : first + ROWS])[0].float().cpu().numpy()
        following = list(ids[first + 1 : first + 1 + len(logits)])
        at = np.arange(len(following))
        with np.errstate(invalid="ignore"):
            losses[first + 1 + at] = logsumexp(logits)[at] - logits[at, following]
        last = logits[-1].copy()
    return losses, last


def _rows(weights: np.ndarray) -> tuple[float, float, float, float, int]:
    """Of one layer's weights: mean entropy, the least, mean and largest sum of a row, and the rows not finite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = weights.sum(-1, dtype=np.float64)
        logarithm = np.log(np.maximum(weights, np.finfo(np.float32).tiny))
        entropy = -np.einsum("hij,hij->hi", weights, logarithm, dtype=np.float64)
    bad = int((~np.isfinite(weights).all(-1)).sum())
    return float(entropy.mean()), float(sums.min()), float(sums.mean()), float(sums.max()), bad


def _scores(raw: np.ndarray, allowed: np.ndarray) -> tuple[float, float]:
    """Of one layer: the largest raw score that may be read, and the variance within a head, mean over heads."""
    read = raw[:, allowed]
    if not np.isfinite(read).all():
        return np.nan, np.nan
    return float(read.max()), float(read.astype(np.float64).var(-1).mean())


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
    run = runs.run(opened, ids[:LEAST_TOKENS], "q", "k", layers=(layer,), logits_to_keep=1)
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
