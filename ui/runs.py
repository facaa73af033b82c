"""The prompt in tokens, and forwards of it, cached within a budget of bytes and shared by all sessions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import numpy as np

from figures.format import bytes_iec, group
from lmcore.errors import InputError
from ui import state
from ui.lru import ByteLRU
from ui.markdown import plain
from ui.models import Opened

if TYPE_CHECKING:
    from torch import Tensor

MAX_PROMPT_TOKENS = 2048
LOGITS_BYTES = 544 * 2**20
"""Of a run that keeps the logits of every position: 2,048 tokens of SmolLM2 are 403 MB, of Gemma 3 2.1 GB."""
LINK_CHARS = 8000
"""What servers in front of others take by default, nginx for one; browsers and Glassbox itself take far more."""
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


def prompt(opened: Opened, *, all_logits: bool = False) -> Prompt:
    """The sidebar's prompt in this model's tokens, or as a chat message; typed token ids, if it has no tokenizer.

    A config without weights runs nothing: its prompt is empty. With `all_logits` it is cut where the logits of every
    position would pass LOGITS_BYTES.
    """
    text = state.prompt()
    if opened.weights is None:
        return Prompt(text=text, ids=(), total=0)
    ids = encode(opened, text)
    limit = longest(opened, all_logits=all_logits)
    return Prompt(text=text, ids=tuple(ids[:limit]) if text else (), total=len(ids) if text else 0)


def encode(opened: Opened, text: str) -> list[int]:
    """A text in this model's tokens as the sidebar would have them: as a chat message, or as typed ids."""
    if opened.tokenizer is None:
        return _example_ids(opened) if text == state.EXAMPLE_PROMPT else _typed_ids(text)
    if has_chat(opened) and state.as_chat() and text:
        return _CHATS.get((opened.key, text), lambda: _chat_ids(opened, text))
    return opened.tokenizer.encode(text)


def longest(opened: Opened, *, all_logits: bool = False) -> int:
    """How many tokens of a prompt are used."""
    limit = min(MAX_PROMPT_TOKENS, opened.config.max_positions)
    return min(limit, LOGITS_BYTES // (4 * opened.config.vocab_size)) if all_logits else limit


def shortened(opened: Opened, found: Prompt) -> str:
    """Why a page that keeps the logits of every position runs fewer tokens than others; empty where it does not."""
    limit = min(MAX_PROMPT_TOKENS, opened.config.max_positions, found.total)
    if len(found.ids) == limit:
        return ""
    return (
        f"Of {group(found.total)} tokens the first {group(len(found.ids))} are run here: with the logits of every "
        f"position {group(limit)} would take {bytes_iec(4 * limit * opened.config.vocab_size)}, and "
        f"{bytes_iec(LOGITS_BYTES)} are kept."
    )


def _example_ids(opened: Opened) -> list[int]:
    return [token for token in state.EXAMPLE_IDS if token < opened.config.vocab_size]


def has_chat(opened: Opened) -> bool:
    """Whether the model has a template for chat messages."""
    return opened.tokenizer is not None and opened.tokenizer.chat_template is not None


def _chat_ids(opened: Opened, text: str) -> list[int]:
    from lmcore.chat import encode_chat

    assert opened.tokenizer is not None
    return encode_chat(opened.tokenizer, [{"role": "user", "content": text}]).ids


_CHATS: ByteLRU[list[int]] = ByteLRU(max_entries=64, max_bytes=2**20, size=lambda ids: 8 * len(ids))


def _typed_ids(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    strange = next((word for word in words if not (word.isascii() and word.isdigit())), None)
    if strange is not None:
        raise InputError(
            f"{strange[:40]!r} in the prompt",
            expected="token ids, since this checkpoint has no tokenizer",
            where="the sidebar, under Prompt",
            todo="Type numbers from 0 up, for instance 1 15 27.",
        )
    return [int(word) for word in words]


def remarks(opened: Opened) -> list[str]:
    """What is to be said beside the prompt, in Markdown: its length, its BOS, that ids are typed."""
    if opened.weights is None:
        return ["A config runs no prompt."]
    said, found = [], prompt(opened)
    if opened.tokenizer is None:
        example = prompt(opened).text == state.EXAMPLE_PROMPT
        shown = f", here {found.ids[0]} to {found.ids[-1]} for the example" if example and found.ids else ""
        said.append(f"No tokenizer: token ids are typed{shown}.")
    elif found.ids and (bos := opened.tokenizer.bos_id) is not None:
        name, report = plain(opened.tokenizer.name(bos)), opened.tokenizer.bos_report(found.ids)
        if report == "doubled":
            said.append(f"**{name} stands twice at the start**: this tokenizer puts one there itself.")
        elif report == "missing":
            said.append(f"**{name} is missing at the start**: the model was trained with it.")
    if found.total > len(found.ids):
        said.append(f"The prompt has {group(found.total)} tokens; the first {group(len(found.ids))} are used.")
    else:
        said.append(f"{group(found.total)} token{'' if found.total == 1 else 's'} in the prompt.")
    if (length := len(quote_plus(found.text))) > LINK_CHARS:
        said.append(
            f"A link holds it in {group(length)} characters; some programs cut links after {group(LINK_CHARS)}."
        )
    return said


@contextmanager
def forwarding() -> Iterator[None]:
    """Room for one forward; at most `FORWARDS_AT_ONCE` run at a time, so that sessions share the cores."""
    with _FORWARDS:
        yield


@contextmanager
def forwarding_if_idle() -> Iterator[bool]:
    """Room for one forward that nobody waits for: whether there is, which is so while no other runs."""
    taken = 0
    try:
        while taken < FORWARDS_AT_ONCE and _FORWARDS.acquire(blocking=False):
            taken += 1
        idle = taken == FORWARDS_AT_ONCE
        if idle:
            _FORWARDS.release(taken - 1)
            taken = 1
        yield idle
    finally:
        if taken:
            _FORWARDS.release(taken)


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
        stages = {name: _stacked([_array(trace.layers[layer][name][0]) for layer in layers]) for name in names}
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


def one_layer(
    opened: Opened, ids: tuple[int, ...], layer: int, *stages: str, stream: Tensor | None = None
) -> tuple[dict[str, np.ndarray], Tensor]:
    """The named stages of one layer, the batch axis dropped, and the residual stream (1, T, D) after it; not kept.

    `stream` is the one before it, without which the layers below are run as well. CapacityError as in `run`.
    """
    import torch

    from lmcore.trace import Capture

    capture = Capture.of(*stages, "resid_post", layers=[layer], max_bytes=RUN_BYTES)
    resume = None if stream is None else (layer, stream)
    with forwarding():
        tokens = torch.tensor([ids], dtype=torch.long, device=opened.model.device)
        output = opened.model.forward(tokens, capture=capture, logits_to_keep=1, depth=layer + 1, resume=resume)
    assert output.trace is not None
    found = output.trace.layers[layer]
    return {name: _array(found[name][0]) for name in stages}, found["resid_post"]


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


def _array(tensor: Tensor) -> np.ndarray:
    """Read-only float32; copied only from a part of a larger memory, so that nothing large is there twice."""
    found = tensor.float().cpu()
    alone = found.is_contiguous() and found.untyped_storage().nbytes() == found.nbytes
    array = found.numpy() if alone else found.numpy().copy()
    array.setflags(write=False)
    return array
