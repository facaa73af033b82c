"""The prompt in tokens, and forwards of it, cached within a budget of bytes and shared by all sessions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Any

import numpy as np

from lmcore.errors import InputError
from ui import state
from ui.lru import ByteLRU
from ui.models import Opened

MAX_PROMPT_TOKENS = 512
MAX_RUNS = 32
RUN_BYTES = 768 * 2**20
FORWARDS_AT_ONCE = 2

_FORWARDS = BoundedSemaphore(FORWARDS_AT_ONCE)


@dataclass(frozen=True)
class Prompt:
    """The prompt in tokens: at most `MAX_PROMPT_TOKENS` (or the trained limit) of the `total` it has."""

    text: str
    ids: tuple[int, ...]
    total: int


@dataclass(frozen=True, eq=False)
class Run:
    """One forward in read-only float32 arrays, the batch axis dropped.

    logits (T or as many as were kept, V); embedding and final_normed (T, D); `run["pattern"]` and any other captured
    stage (number of captured layers, ...), in the order of `layers`.
    """

    tokens: tuple[int, ...]
    logits: np.ndarray
    embedding: np.ndarray
    final_normed: np.ndarray
    layers: tuple[int, ...]
    stages: dict[str, np.ndarray]
    seconds: float

    def __getitem__(self, stage: str) -> np.ndarray:
        return self.stages[stage]

    def bytes_held(self) -> int:
        arrays = (self.logits, self.embedding, self.final_normed, *self.stages.values())
        return sum(array.nbytes for array in arrays)


_RUNS: ByteLRU[Run] = ByteLRU(max_entries=MAX_RUNS, max_bytes=RUN_BYTES, size=Run.bytes_held)


def prompt(opened: Opened) -> Prompt:
    """The sidebar's prompt in this model's tokens; token ids, if the model has no tokenizer."""
    text = state.prompt()
    ids = opened.tokenizer.encode(text) if opened.tokenizer is not None else _typed_ids(text)
    limit = min(MAX_PROMPT_TOKENS, opened.config.max_positions)
    return Prompt(text=text, ids=tuple(ids[:limit]) if text else (), total=len(ids) if text else 0)


def _typed_ids(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    strange = next((word for word in words if not (word.isascii() and word.isdigit())), None)
    if strange is not None:
        raise InputError(
            f"{strange[:40]!r} in the prompt",
            expected="token ids, since this checkpoint has no tokenizer",
            where="the sidebar, under Prompt",
            todo="Type numbers, for instance 1 15 27.",
        )
    return [int(word) for word in words]


@contextmanager
def forwarding() -> Iterator[None]:
    """Room for one forward; at most `FORWARDS_AT_ONCE` run at a time, so that sessions share the cores."""
    with _FORWARDS:
        yield


def run(
    opened: Opened,
    tokens: Iterable[int],
    *stages: str,
    layers: Iterable[int] | None = None,
    logits_to_keep: int = 0,
) -> Run:
    """One forward of these tokens, with the named stages of all layers or of those given; computed once, then read.

    `logits_to_keep` = n keeps the logits of the last n positions only, 0 of all. CapacityError when the trace would be
    larger than the whole cache of runs.
    """
    ids = tuple(int(token) for token in tokens)
    names = tuple(sorted(set(stages)))
    chosen = tuple(range(opened.config.n_layers)) if layers is None else tuple(sorted(set(layers)))
    key = (opened.key, ids, names, chosen, logits_to_keep)
    return _RUNS.get(key, lambda: _forward(opened, ids, names, chosen, logits_to_keep))


def _forward(
    opened: Opened, ids: tuple[int, ...], names: tuple[str, ...], layers: tuple[int, ...], logits_to_keep: int
) -> Run:
    import torch

    from lmcore.trace import Capture

    capture = Capture.of(*names, layers=layers, max_bytes=RUN_BYTES)
    with forwarding():
        tokens = torch.tensor([ids], dtype=torch.long, device=opened.model.device)
        begun = time.perf_counter()
        output = opened.model.forward(tokens, capture=capture, logits_to_keep=logits_to_keep)
        trace = output.trace
        assert trace is not None
        assert trace.embedding is not None
        assert trace.final_normed is not None
        logits = _array(output.logits[0])
        seconds = time.perf_counter() - begun
        stages = {name: np.stack([_array(trace.layers[layer][name][0]) for layer in layers]) for name in names}
    for array in stages.values():
        array.setflags(write=False)
    return Run(
        tokens=ids,
        logits=logits,
        embedding=_array(trace.embedding[0]),
        final_normed=_array(trace.final_normed[0]),
        layers=layers,
        stages=stages,
        seconds=seconds,
    )


def _array(tensor: Any) -> np.ndarray:
    array = tensor.float().cpu().numpy().copy()
    array.setflags(write=False)
    return array
