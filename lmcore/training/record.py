"""What came of a training run, in numbers: record.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import log
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lmcore.effects import planted_scores
from lmcore.model import Transformer
from lmcore.teaching import CONTEXT, Teaching
from lmcore.training.loop import Repeats, Run, Windows, heldout_windows, mean_loss
from lmcore.training.ngram import KneserNey
from lmcore.training.text import Corpus

ORDERS = (2, 3, 4, 5)
# Steps that no run reaches: their batches of repeats are held out.
LATER, UNSEEN = 10**6, 16


def rounded(model: Transformer) -> Transformer:
    """The model with the weights that its file will have, float16's, in float32."""
    for p in model.parameters():
        p.data = p.data.half().float()
    return model.requires_grad_(False).eval()


def unseen(batches: Windows | Repeats, data: Corpus) -> tuple[Tensor, Tensor]:
    """Windows (W, T) that a run doesn't train on, and their targets: the held-out text, or later batches of repeats."""
    if isinstance(batches, Windows):
        return heldout_windows(data.heldout, batches.budget.context)
    later = [batches(LATER + n) for n in range(UNSEEN)]
    return torch.cat([tokens for tokens, _ in later]), torch.cat([targets for _, targets in later])


def record_of(teaching: Teaching, run: Run, data: Corpus, ngram: dict[str, Any], threads: int) -> dict[str, Any]:
    """How the model was trained and what came of it, measured with the weights that its file will have."""
    model = rounded(run.model)
    made: dict[str, Any] = {
        "name": teaching.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": model.cfg.vocab_size,
        "budget": asdict(run.budget),
        "threads": threads,
        "torch": torch.__version__,
        "curve": [{"step": p.step, "train": round(p.train, 4), "heldout": round(p.heldout, 4)} for p in run.curve],
    }
    if isinstance(run.batches, Windows):
        made["text"] = {"sha256": data.sha256, "train_tokens": len(data.train), "heldout_tokens": len(data.heldout)}
        return made | {"heldout": heldout(model, data), "ngram": ngram}
    loss = mean_loss(model, *unseen(run.batches, data))
    scores = planted_scores(model).induction
    layer, head = np.unravel_index(scores.argmax(), scores.shape)
    made["periods"] = list(run.batches.periods)
    made["repeats"] = {"nats_per_token": round(loss, 4), "chance": round(log(model.cfg.vocab_size), 4)}
    return made | {"planted": {"induction": round(float(scores.max()), 4), "layer": int(layer), "head": int(head)}}


def heldout(model: Transformer, data: Corpus) -> dict[str, Any]:
    """The model's loss on the held-out text, and on the excerpt of it that is shipped, in windows of its context."""
    tokens, targets = heldout_windows(data.heldout, CONTEXT)
    return _measured(mean_loss(model, tokens, targets), data, targets.numel()) | {
        "excerpt": round(mean_loss(model, *heldout_windows(data.excerpt, CONTEXT)), 4)
    }


def baseline(data: Corpus, orders: Sequence[int] = ORDERS) -> dict[str, Any]:
    """n-gram models of the training tokens on the tokens that the models are measured on; the best order counts."""
    models = {order: KneserNey(data.train.tolist(), order, len(data.token_bytes)) for order in orders}
    losses = {order: _ngram_loss(model, data.heldout) for order, model in models.items()}
    best = min(losses, key=lambda order: losses[order])
    return (
        {"order": best}
        | _measured(losses[best], data, _predicted(data.heldout))
        | {"excerpt": round(_ngram_loss(models[best], data.excerpt), 4)}
        | {"orders": {str(order): round(loss, 4) for order, loss in losses.items()}}
    )


def _predicted(tokens: Int[np.ndarray, " M"]) -> int:
    """How many tokens the windows of a text predict."""
    return (len(tokens) - 1) // CONTEXT * CONTEXT


def _ngram_loss(model: KneserNey, tokens: Int[np.ndarray, " M"]) -> float:
    return model.loss(tokens.tolist(), range(1, _predicted(tokens) + 1))


def _measured(loss: float, data: Corpus, tokens: int) -> dict[str, Any]:
    """A loss over the first `tokens` predicted tokens of the held-out text, in nats per token and bits per byte."""
    size = int(data.token_bytes[data.heldout[1 : tokens + 1]].sum())
    bits = loss * tokens / size / log(2)
    return {"nats_per_token": round(loss, 4), "bits_per_byte": round(bits, 4), "tokens": tokens, "bytes": size}
