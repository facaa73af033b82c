"""The training loop: seeded weights and batches, AdamW, a checkpoint from which it goes on as if never stopped."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lmcore.checkpoint.load import assemble
from lmcore.config import ModelConfig
from lmcore.errors import CheckpointError
from lmcore.model import Transformer
from lmcore.shapes import param_shapes

IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a model is trained, and how: the same for every model of a size.

    The learning rate rises in `warmup` steps to `peak` and falls along a cosine to `floor` of it (Loshchilov & Hutter
    2017). Weight decay is for matrices only; gradients are clipped to a norm of `clip`. `std` is the standard deviation
    of the first weights: tables of positions added to the embedding are of size 1, and need an embedding near it.
    `dropout` is the share of the feed-forward sublayers' hidden numbers that a step zeroes (Srivastava et al. 2014): a
    text that is read ten times is learned by heart without it, and a model without positions, which reads them off the
    average of what it attended to, learns too slowly when attention and embedding are thinned as well.
    """

    steps: int = 9600
    batch: int = 4
    context: int = 128
    std: float = 0.08
    dropout: float = 0.1
    peak: float = 2e-3
    floor: float = 0.05
    warmup: int = 200
    decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    seed: int = 0
    every: int = 50

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done)))


class Point(NamedTuple):
    """A point of the loss curve, in nats per token: the training loss is the mean since the point before."""

    step: int
    train: float
    heldout: float


def first_weights(cfg: ModelConfig, seed: int, std: float) -> Iterator[tuple[str, Tensor]]:
    """Seeded weights, drawn by name: what two models have in common begins alike.

    Normal with standard deviation `std`, divided by sqrt(2 L) where a sublayer writes to the residual stream (Radford
    et al. 2019, section 2.3); norms are 1, the relative bias 0.
    """
    for name, shape in param_shapes(cfg).items():
        if len(shape) == 1:
            yield name, torch.ones(shape)
        elif "relative_bias" in name:
            yield name, torch.zeros(shape)
        else:
            draw = np.random.default_rng((seed, zlib.crc32(name.encode()))).standard_normal(shape, dtype=np.float32)
            writes = name.endswith(("o_proj.weight", "down_proj.weight"))
            yield name, torch.from_numpy(draw) * (std / math.sqrt(2 * cfg.n_layers) if writes else std)


class Windows:
    """Batches of a text: windows of `context` + 1 tokens at random places. Step n has the same batch in every run."""

    def __init__(self, tokens: Int[np.ndarray, " N"], budget: Budget) -> None:
        self.tokens, self.budget = tokens, budget

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Tokens (B, T) and those that follow each of them (B, T)."""
        b = self.budget
        rng = np.random.default_rng((b.seed, step))
        starts = rng.integers(0, len(self.tokens) - b.context, b.batch)
        rows = torch.from_numpy(self.tokens[starts[:, None] + np.arange(b.context + 1)])
        return rows[:, :-1], rows[:, 1:]


class Repeats:
    """Batches of random tokens that repeat after a random period: only a model that looks back can predict them.

    The targets of the first period, which nothing could predict, are left out.
    """

    def __init__(self, vocabulary: int, budget: Budget, periods: tuple[int, int] = (8, 64)) -> None:
        self.vocabulary, self.budget, self.periods = vocabulary, budget, periods

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        b = self.budget
        rng = np.random.default_rng((b.seed, step))
        periods = rng.integers(self.periods[0], self.periods[1] + 1, (b.batch, 1))
        once = rng.integers(0, self.vocabulary, (b.batch, self.periods[1]))
        at = np.arange(b.context + 1)[None]
        rows = np.take_along_axis(once, at % periods, axis=1)
        targets = np.where(at[:, 1:] >= periods, rows[:, 1:], IGNORED)
        return torch.from_numpy(rows[:, :-1]), torch.from_numpy(targets)


def loss_of(model: Transformer, tokens: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats of the targets that are not IGNORED."""
    logits = model(tokens).logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def heldout_windows(tokens: Int[np.ndarray, " N"], context: int) -> tuple[Tensor, Tensor]:
    """A held-out text in windows that don't overlap, (W, T), and the targets of each; a shorter end is left out."""
    count = (len(tokens) - 1) // context
    rows = torch.from_numpy(tokens[: count * context + 1])
    return rows[:-1].view(count, context), rows[1:].view(count, context)


@torch.no_grad()
def mean_loss(model: Transformer, tokens: Tensor, targets: Tensor, batch: int = 32) -> float:
    """The mean loss over all windows, in nats per predicted token."""
    training = model.training
    model.eval()
    total, count = 0.0, 0
    for start in range(0, len(tokens), batch):
        some = targets[start : start + batch]
        kept = int((some != IGNORED).sum())
        total += float(loss_of(model, tokens[start : start + batch], some)) * kept
        count += kept
    model.train(training)
    return total / count


class Dropout:
    """Zeroes a share of every feed-forward sublayer's hidden numbers while a model trains, and scales up the rest.

    Step n of a seed zeroes the same numbers in every run, so that a run that was stopped goes on as it would have. One
    random byte decides on each number: the share is a whole number of 256ths.
    """

    def __init__(self, model: Transformer, budget: Budget) -> None:
        self.seed, self.zeroed = budget.seed, round(256 * budget.dropout)
        self.begin(0)
        if self.zeroed:
            for name, part in model.named_modules():
                if name.endswith(".down_proj"):
                    part.register_forward_pre_hook(self._thinned)

    def begin(self, step: int) -> None:
        self.random = np.random.default_rng((self.seed, step, 1))

    def _thinned(self, module: nn.Module, given: tuple[Tensor]) -> Tensor:
        (hidden,) = given
        if not module.training:
            return hidden
        drawn = torch.frombuffer(bytearray(self.random.bytes(hidden.numel())), dtype=torch.uint8)
        return hidden * (drawn >= self.zeroed).view(hidden.shape) * (256 / (256 - self.zeroed))


class Run:
    """One model in training: `step()` takes one step, `save` and `resume` keep and restore everything it depends on."""

    def __init__(self, cfg: ModelConfig, budget: Budget, batches: Windows | Repeats) -> None:
        self.budget, self.batches = budget, batches
        self.model = assemble(cfg, dict(first_weights(cfg, budget.seed, budget.std))).requires_grad_(True).train()
        self.named = dict(self.model.named_parameters())
        matrices = [p for name, p in self.named.items() if p.ndim > 1 and "relative_bias" not in name]
        others = [p for name, p in self.named.items() if p.ndim == 1 or "relative_bias" in name]
        groups = [{"params": matrices, "weight_decay": budget.decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=budget.peak, betas=budget.betas, fused=True)
        self.dropout = Dropout(self.model, budget)
        self.done, self.since, self.curve = 0, [], []

    def step(self) -> float:
        """One step of the optimizer; the loss of its batch before it, in nats."""
        tokens, targets = self.batches(self.done)
        for group in self.optimizer.param_groups:
            group["lr"] = self.budget.rate(self.done)
        self.dropout.begin(self.done)
        loss = loss_of(self.model, tokens, targets)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.named.values(), self.budget.clip)
        self.optimizer.step()
        self.done += 1
        self.since.append(float(loss.detach()))
        return self.since[-1]

    def note(self, heldout: float) -> Point:
        """Put a point on the loss curve."""
        self.curve.append(Point(self.done, math.fsum(self.since) / len(self.since), heldout))
        self.since = []
        return self.curve[-1]

    def save(self, file: Path) -> None:
        """Model, optimizer, curve and step, in one safetensors file that replaces the one before."""
        tensors = {f"model.{name}": p.detach() for name, p in self.named.items()}
        for name, p in self.named.items():
            tensors |= {f"{key}.{name}": value for key, value in self.optimizer.state[p].items()}
        said = {"done": self.done, "since": self.since, "curve": self.curve, "budget": asdict(self.budget)}
        fresh = file.with_suffix(".new")
        save_file(tensors, fresh, metadata={"run": json.dumps(said)})
        os.replace(fresh, file)

    def resume(self, file: Path) -> None:
        """Go on where a run of the same model and budget was saved; CheckpointError for another's."""
        with safe_open(file, "pt") as opened:
            said = json.loads(opened.metadata()["run"])
            if said["budget"] != json.loads(json.dumps(asdict(self.budget))):
                raise CheckpointError(
                    "the saved run has another budget", where=str(file), todo="Delete it to begin anew."
                )
            for name, p in self.named.items():
                with torch.no_grad():
                    p.copy_(opened.get_tensor(f"model.{name}"))
                keys = ("step", "exp_avg", "exp_avg_sq")
                self.optimizer.state[p] = {key: opened.get_tensor(f"{key}.{name}") for key in keys}
        self.done, self.since = said["done"], said["since"]
        self.curve = [Point(*point) for point in said["curve"]]
