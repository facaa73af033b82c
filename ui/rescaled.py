"""The prompt run with another rotary spec beside the model's own: what moved, kept within a budget for all sessions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmcore.specs import Rope
from ui import runs
from ui.lru import ByteLRU
from ui.models import Opened


@dataclass(frozen=True, eq=False)
class Rescaled:
    """Both runs: losses (2, T) in nats, NaN at position 0; probabilities (2, V) of the next token, float64; the logit
    that moved most, `largest` by how much, after `position` for `token`. Row 0 is the model's own."""

    losses: np.ndarray
    probabilities: np.ndarray
    largest: float
    position: int
    token: int

    @property
    def mean_losses(self) -> tuple[float, float]:
        """NaN for a single token."""
        own, new = (float(row[1:].mean()) if len(row) > 1 else float("nan") for row in self.losses)
        return own, new


_KEPT: ByteLRU[Rescaled] = ByteLRU(
    max_entries=24, max_bytes=32 * 2**20, size=lambda kept: kept.losses.nbytes + kept.probabilities.nbytes
)


def compare(opened: Opened, ids: tuple[int, ...], rope: Rope, layers: frozenset[int] | None = None) -> Rescaled:
    """One forward with `rope` in every layer that has one, or in those of `layers`, beside the plain one; the weights
    are not touched."""
    return _KEPT.get((opened.key, ids, rope, layers), lambda: _compare(opened, ids, rope, layers))


def _compare(opened: Opened, ids: tuple[int, ...], rope: Rope, layers: frozenset[int] | None) -> Rescaled:
    import torch

    from lmcore.trace import Edits

    own = runs.run(opened, ids, layers=()).logits
    with runs.forwarding():
        tokens = torch.tensor([ids], device=opened.model.device)
        new = opened.model.forward(tokens, edits=Edits(rope=rope, rope_layers=layers)).logits[0].float().cpu().numpy()
    moved = np.abs(new - own)
    position, token = np.unravel_index(int(np.nanargmax(moved)) if np.isfinite(moved).any() else 0, moved.shape)
    return Rescaled(
        losses=np.stack([_losses(logits, ids) for logits in (own, new)]),
        probabilities=np.stack([_softmax(logits[-1]) for logits in (own, new)]),
        largest=float(moved[position, token]),
        position=int(position),
        token=int(token),
    )


def _losses(logits: np.ndarray, ids: tuple[int, ...]) -> np.ndarray:
    from lmcore.likelihood import logsumexp

    losses = np.full(len(ids), np.nan)
    losses[1:] = logsumexp(logits[:-1]) - logits[np.arange(len(ids) - 1), list(ids[1:])]
    return losses


def _softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits.astype(np.float64) - logits.max())
    return exp / exp.sum()
