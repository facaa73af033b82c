"""The model of the sidebar, opened once for all sessions, which share it and never change it.

Torch is imported here and nowhere earlier: behind one lock, in the thread that opens the first model, after the page's
head and controls have gone out.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import streamlit as st

from lmcore.errors import Cancelled, InputError, LmcoreError
from ui import guard, state
from ui.job import Job
from ui.lru import ByteLRU
from ui.markdown import plain

if TYPE_CHECKING:
    from lmcore.checkpoint import LoadReport
    from lmcore.config import ModelConfig
    from lmcore.model import Transformer
    from lmcore.tokenizer import Tokenizer

MAX_MODELS = 2
MODEL_BYTES = 16 * 2**30
# The browser fetches its scripts and fonts while the first page paints; an import of torch in that moment delays it.
HEAD_START_S = 0.4

_IMPORTS = Lock()
_LOADING = Lock()


@dataclass(frozen=True, eq=False)
class Opened:
    """A model as it stands in memory: how it was asked for, what it became, and its load report."""

    choice: state.Choice
    key: Hashable
    device: str
    dtype: str
    model: Transformer
    tokenizer: Tokenizer | None
    report: LoadReport

    @property
    def config(self) -> ModelConfig:
        return self.model.cfg

    @property
    def name(self) -> str:
        """What to call the model on a page: its label, or the last part of the typed path."""
        return Path(self.choice.source).name if self.choice.label == state.TYPED else self.choice.label

    @property
    def random_weights(self) -> bool:
        return self.choice.label == state.BUILTIN


def _weight_bytes(opened: Opened) -> int:
    return sum(p.numel() * p.element_size() for p in opened.model.parameters())


def _settle() -> None:
    """Free what is no longer used, then take all that stays out of the sight of the collector's every later pass."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _leave(opened: Opened) -> None:
    for release in _RELEASES:
        release(opened)


_RELEASES: list[Callable[[Opened], None]] = []
_MODELS: ByteLRU[Opened] = ByteLRU(max_entries=MAX_MODELS, max_bytes=MODEL_BYTES, size=_weight_bytes, dropped=_leave)
_JOBS: dict[state.Choice, Job[Opened]] = {}
_JOBS_LOCK = Lock()


def when_one_leaves(release: Callable[[Opened], None]) -> None:
    """Have `release` called with every model that leaves the memory, by whoever holds on to it."""
    _RELEASES.append(release)


def ready() -> bool:
    """Whether torch and the model code are imported."""
    return _imported


_imported = False


def import_torch() -> None:
    """The gate: the first import of torch and the model code, by one thread at a time."""
    global _imported
    with _IMPORTS:
        if _imported:
            return
        import torch

        import lmcore.checkpoint.load
        import lmcore.decode  # noqa: F401

        cores = os.cpu_count() or 1
        torch.set_num_threads(min(torch.get_num_threads(), max(2, cores // 2)))
        _imported = True
    _settle()


def current(*, height: int = 320) -> Opened:
    """The model that the sidebar asks for, opened now if need be, behind a skeleton of `height` and progress in words.

    When it cannot be opened, the error is shown and the session's previous model, if it has one, stays in use.
    """
    slot = st.empty()
    wanted = state.choice()
    try:
        opened = _open(wanted, slot, height)
    except LmcoreError as error:
        previous = st.session_state.get("_model_in_use")
        if previous is None or previous == wanted:
            raise
        guard.show(error)
        st.markdown(f"Below, as before the error: {plain(_label(previous))}.")
        return _open(previous, slot, height)
    st.session_state["_model_in_use"] = wanted
    return opened


def in_memory() -> Opened | None:
    """The model of the sidebar if it is open already; never opens one."""
    return _peek(st.session_state.get("_model_in_use") or state.choice())


def _label(choice: state.Choice) -> str:
    return Path(choice.source).name if choice.label == state.TYPED else choice.label


def _open(choice: state.Choice, slot: Any, height: int) -> Opened:
    if not choice.source:
        raise InputError(
            "no path is given", expected="a folder with a config.json, or a .gguf file", where="the sidebar, under Path"
        )
    opened = _peek(choice)
    if opened is not None:
        return opened
    with slot.container():
        line = st.empty()
        st.skeleton(height=height)
    if not ready():
        time.sleep(HEAD_START_S)
    with _JOBS_LOCK:
        job = _JOBS.get(choice)
        if job is None:
            job = _JOBS[choice] = Job(lambda say: _load(choice, say), name=f"open {choice.label}")
    try:
        return job.wait(lambda words: line.markdown(f":small[:gray[{plain(words)}]]"))
    finally:
        slot.empty()


def _peek(choice: state.Choice) -> Opened | None:
    return _MODELS.peek(_key(choice)) if ready() else None


def _key(choice: state.Choice) -> Hashable:
    """All that the loaded model depends on: the source and its state on disk, the device, the dtype."""
    return (choice.source, *_device_and_dtype(choice), _on_disk(choice.source) if choice.label == state.TYPED else None)


def _device_and_dtype(choice: state.Choice) -> tuple[str, str]:
    from lmcore.device import default_dtype, pick_device

    device = pick_device() if choice.device == state.AUTO else choice.device
    return device, default_dtype(device) if choice.dtype == state.AUTO else choice.dtype


def _on_disk(source: str) -> Hashable:
    """Names, sizes and times of the file, or of the folder's files: a changed checkpoint is another model."""
    path = Path(source).expanduser()
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    try:
        return tuple((file.name, (s := file.stat()).st_size, s.st_mtime_ns) for file in files)
    except OSError:
        return None


def _load(choice: state.Choice, say: Callable[[str], bool]) -> Opened:
    """In the job's thread: imports, then the model, one at a time for the whole server."""
    try:
        if not ready():
            say("Starting PyTorch")
        import_torch()
        with _LOADING:
            key = _key(choice)
            opened = _MODELS.peek(key)
            if opened is None:
                opened = _load_now(choice, key, say)
                _MODELS.put(key, opened)
                _settle()
        return opened
    finally:
        with _JOBS_LOCK:
            _JOBS.pop(choice, None)


def _load_now(choice: state.Choice, key: Hashable, say: Callable[[str], bool]) -> Opened:
    from lmcore.checkpoint import load_pretrained
    from lmcore.device import pick_device

    device, dtype = _device_and_dtype(choice)
    pick_device(device)

    def progress(done: int, total: int, what: str) -> None:
        if not say(f"{what}: {100 * done // total} %" if done < total else what):
            raise Cancelled("nobody waits for this model any more")

    source = choice.source if choice.label != state.TYPED else Path(choice.source).expanduser()
    loaded = load_pretrained(source, dtype=dtype, device=device, progress=progress)
    return Opened(
        choice=choice,
        key=key,
        device=device,
        dtype=dtype,
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        report=loaded.report,
    )
