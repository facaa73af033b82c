"""A config without weights turned into a model with random ones: how its parts work, not what it has learned."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from lmcore.checkpoint import builtin
from lmcore.checkpoint.load import Loaded, assemble
from lmcore.checkpoint.rules import LoadReport, Mapped
from lmcore.costs import param_counts, weight_bytes
from lmcore.device import DTYPES, available_bytes
from lmcore.presets import Described
from lmcore.shapes import param_shapes

MAX_BYTES = 1_500_000_000


def comfortable(described: Described, *, dtype: str, device: str) -> bool:
    """Whether random weights are worth their memory: at most 1.5 GB and a quarter of what is free, one tensor twice."""
    needed = weight_bytes(described.config, DTYPES[dtype])
    return needed <= min(MAX_BYTES, available_bytes(device) // 4)


def random_model(
    described: Described,
    *,
    source: str,
    dtype: str,
    device: str,
    progress: Callable[[int, int, str], None] | None = None,
) -> Loaded:
    """The config's model with seeded random weights and no tokenizer. What `progress` raises cancels."""
    started, cfg = time.perf_counter(), described.config
    total, done, tensors = weight_bytes(cfg, 1), 0, {}
    for name, tensor in builtin.weights(cfg):
        if progress is not None:
            progress(done, total, "Drawing random weights")
        tensors[name] = tensor.to(device, getattr(torch, dtype))
        done += tensor.numel()
    model = assemble(cfg, tensors)
    return Loaded(model, None, report_of(described, source=source, dtype=dtype, started=started))


def report_of(described: Described, *, source: str, dtype: str, started: float | None = None) -> LoadReport:
    """What there is to say of a config: with random weights, when `started` tells how long they took, or without."""
    drawn = started is not None
    names = tuple(param_shapes(described.config)) if drawn else ()
    return LoadReport(
        source=source,
        path="",
        architecture=described.architecture,
        parameter_count=param_counts(described.config).total,
        tensor_count=len(names),
        mapped=tuple(Mapped(name, (name,), "as it is") for name in names),
        unused=(),
        missing=(),
        dtype=dtype,
        stored_dtype="",
        quantisation=None,
        assumptions=(*described.notes, builtin.NOTE if drawn else "there are no weights"),
        bytes_read=0,
        seconds=0.0 if started is None else time.perf_counter() - started,
    )
