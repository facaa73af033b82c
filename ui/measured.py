"""What was measured on the running model beside a run, kept within a budget and shared by all sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from figures.loss import logit_edges
from figures.overview import residual_lengths
from ui.lru import ByteLRU
from ui.models import Opened
from ui.runs import RUN_BYTES, Run, forwarding

if TYPE_CHECKING:
    from lmcore.likelihood import Prediction
    from lmcore.measure import Dots, Pass

V = TypeVar("V")

_KEPT: ByteLRU[Any] = ByteLRU(max_entries=64, max_bytes=64 * 2**20, size=lambda value: _bytes(value))
CANDIDATES = 10
# What a training forward may hold, in bytes, and the tokens that it reads at most.
KEPT_BYTES, KEPT_TOKENS = 256 * 2**20, 128


def measured_pass(opened: Opened, ids: tuple[int, ...]) -> Pass:
    """FLOPs, cache bytes and attention row sums of one prefill; CapacityError when its weights pass the budget."""

    def make() -> Pass:
        from lmcore.measure import measured_pass

        with forwarding():
            return measured_pass(opened.model, ids, max_bytes=RUN_BYTES)

    return _kept(("pass", opened.key, ids), make)


def kept(opened: Opened, ids: tuple[int, ...]) -> dict[str, int]:
    """Bytes that a training forward of these tokens keeps, by component; CapacityError over KEPT_BYTES."""

    def make() -> dict[str, int]:
        from lmcore.kept_measured import measured_kept_bytes

        with forwarding():
            return measured_kept_bytes(opened.model, ids, max_bytes=KEPT_BYTES)

    return _kept(("kept", opened.key, ids), make)


def prediction(opened: Opened, run: Run) -> Prediction:
    """Loss, rank and likeliest next tokens of a run that kept all logits."""
    from lmcore.likelihood import predict

    return _kept(("prediction", opened.key, run.tokens), lambda: predict(run.logits, run.tokens, top=CANDIDATES))


def dots(opened: Opened, run: Run, ids: np.ndarray) -> Dots:
    """The logits of the tokens `ids` (T, k) after each position, as dot products."""

    def make() -> Dots:
        from lmcore.measure import dot_products

        return dot_products(opened.model, run.final_normed, ids)

    return _kept(("dots", opened.key, run.tokens, ids.tobytes()), make)


def logit_counts(opened: Opened, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """How many entries of the vocabulary have which logit after each position, (T, bins), and the bins' edges."""
    from lmcore.likelihood import histogram

    def make() -> tuple[np.ndarray, np.ndarray]:
        sums = prediction(opened, run).logsumexp
        highest = max(float(run.logits.max()), float(np.nanmax(sums, initial=-np.inf)))
        edges = logit_edges(float(run.logits.min()), highest)
        return histogram(run.logits, edges), edges

    return _kept(("counts", opened.key, run.tokens), make)


def mean_loss(opened: Opened, run: Run) -> float:
    """The mean loss of a run as PyTorch computes it."""

    def make() -> float:
        from lmcore.measure import mean_cross_entropy

        return mean_cross_entropy(run.logits, run.tokens)

    return _kept(("loss", opened.key, run.tokens), make)


def lengths(opened: Opened, run: Run) -> np.ndarray:
    """(L + 1, T): how long the residual vector is after the embedding and after each block."""
    return _kept(("lengths", opened.key, run.tokens), lambda: residual_lengths(run.embedding, run["resid_post"]))


def parameters(opened: Opened) -> dict[str, int]:
    """Numbers in the loaded tensors by component; of a config alone, in a model built without memory."""

    def make() -> dict[str, int]:
        from lmcore.checkpoint.load import on_meta
        from lmcore.measure import counted_parameters

        return counted_parameters(on_meta(opened.config) if opened.weights is None else opened.weights)

    return _kept(("parameters", opened.key), make)


def weight_bytes(opened: Opened) -> int:
    """Bytes of the loaded tensors, what is stored with the parameters included."""
    return sum(tensor.numel() * tensor.element_size() for tensor in opened.model.state_dict().values())


def _kept(key: tuple[Any, ...], make: Callable[[], V]) -> V:
    return _KEPT.get(key, make)


def _bytes(value: Any) -> int:
    parts = value if isinstance(value, tuple) else (value,)
    return sum(len(part) if isinstance(part, bytes) else getattr(part, "nbytes", 64) for part in parts)
