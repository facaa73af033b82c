"""The model of the sidebar, opened once for all sessions, which share it and never change it.

Torch is imported by the gate and nowhere earlier: in the thread that opens the first model, after the page's head and
controls have gone out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import streamlit as st

from lmcore.errors import Cancelled, InputError, LmcoreError, NotInModel
from ui import guard, state
from ui.gate import import_torch, ready, settle
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

_LOADING = Lock()


@dataclass(frozen=True, eq=False)
class Opened:
    """A model as it stands in memory: how it was asked for, what it became, and its load report.

    Of a config alone there is everything but `weights`: `config` says what such a model would be.
    """

    choice: state.Choice
    key: Hashable
    device: str
    dtype: str
    config: ModelConfig
    weights: Transformer | None
    tokenizer: Tokenizer | None
    report: LoadReport

    @property
    def model(self) -> Transformer:
        """The model that runs. NotInModel when there is only a config."""
        if self.weights is None:
            raise NotInModel(
                "This is a config without weights",
                todo="Its shapes, parameters and costs are on the pages Overview and Model. "
                "A forward needs a model with weights.",
            )
        return self.weights

    @property
    def name(self) -> str:
        """What to call the model on a page: its label, or the last part of what was typed or picked."""
        return name_of(self.choice)

    @property
    def random_weights(self) -> bool:
        return self.weights is not None and self.choice.label in (state.BUILTIN, state.CONFIG)


def name_of(choice: state.Choice) -> str:
    """What to call a choice before it is opened."""
    if choice.label == state.CONFIG:
        titles = {f"config:{name}": title for title, name in state.CONFIGS.items()}
        return titles.get(choice.source, "The pasted config")
    if choice.label in state.SOURCES or not choice.source:
        return choice.label
    return Path(choice.source.partition("@")[0]).name or choice.source


def require_model(opened: Opened) -> Transformer:
    """The model, for a page that needs a forward; without weights NotInModel says so, with a way to a model."""
    return opened.model


def _weight_bytes(opened: Opened) -> int:
    return 0 if opened.weights is None else sum(p.numel() * p.element_size() for p in opened.weights.parameters())


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


def current(*, height: int = 320, config_only: bool = False) -> Opened:
    """The model that the sidebar asks for, opened now if need be, behind a skeleton of `height` and progress in words.

    When it cannot be opened, the error is shown and the session's previous model, if it has one, stays in use. A page
    that has something to show of a config without weights asks for `config_only`; for any other that is NotInModel.
    """
    slot = st.empty()
    wanted = state.choice()
    try:
        opened = _open(wanted, slot, height)
        st.session_state["_model_in_use"] = wanted
    except LmcoreError as error:
        previous = st.session_state.get("_model_in_use")
        if previous is None or previous == wanted:
            raise
        guard.show(error)
        st.markdown(f"Below, as before the error: {plain(name_of(previous))}.")
        opened = _open(previous, slot, height)
    if not config_only:
        require_model(opened)
    return opened


def settled() -> bool:
    """Whether the model that the sidebar asks for is the one in use, or the first that this session asks for."""
    return st.session_state.get("_model_in_use") in (None, state.choice())


def in_memory() -> Opened | None:
    """The model of the sidebar if it is open already; never opens one."""
    return _peek(st.session_state.get("_model_in_use") or state.choice())


def _cancel(choice: state.Choice) -> None:
    """Callback: the load is wanted no more by this session, which goes back to the model it had."""
    with _JOBS_LOCK:
        job = _JOBS.pop(choice, None)
    if job is not None:
        job.give_up()
    previous = st.session_state.get("_model_in_use")
    if previous is None:
        st.session_state["_cancelled"] = choice
    else:
        state.choose(previous)


def _again() -> None:
    """Callback: open after all what was cancelled."""
    st.session_state["_cancelled"] = None


def _open(choice: state.Choice, slot: Any, height: int) -> Opened:
    if not choice.source:
        raise InputError(**_MISSING[choice.label])
    opened = _peek(choice)
    if opened is not None:
        return opened
    if st.session_state.get("_cancelled") == choice:
        st.button("Open it after all", on_click=_again, key="open_again")
        raise Cancelled(f"opening {name_of(choice)} was cancelled", todo="Choose another model, or open it after all.")
    with slot.container():
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            line = st.empty()
            st.button("Cancel", type="tertiary", on_click=_cancel, args=(choice,), key="cancel_load", width="content")
        st.skeleton(height=height)
    if not ready():
        time.sleep(HEAD_START_S)
    with _JOBS_LOCK:
        job = _JOBS.get(choice)
        if job is None:
            job = _JOBS[choice] = Job(lambda say: _load(choice, say), name=f"open {choice.label}")
    try:
        return job.wait(lambda words: line.markdown(f":small[:gray[{plain(words)}]]", width="content"))
    finally:
        slot.empty()


_MISSING: dict[str, dict[str, str]] = {
    state.TYPED: {
        "found": "no path is given",
        "expected": "a folder with a config.json, or a .gguf file",
        "where": "the sidebar, under Path",
    },
    state.HUB: {
        "found": "no hub id is given",
        "expected": "owner/name, as the hub spells it",
        "where": "the sidebar, under Hub id",
    },
    state.UPLOAD: {
        "found": "no file is uploaded",
        "expected": "a GGUF file, or config.json with safetensors",
        "where": "this session",
        "todo": "Choose the files on the page Model. An upload belongs to one session: a link cannot carry it.",
    },
}


def _peek(choice: state.Choice) -> Opened | None:
    return _MODELS.peek(_key(choice)) if ready() else None


def _key(choice: state.Choice) -> Hashable:
    """All that the loaded model depends on: the source and its state on disk, the device, the dtype."""
    state_on_disk = on_disk(choice.source) if choice.label in (state.TYPED, state.UPLOAD) else None
    return (choice.source, *_device_and_dtype(choice), state_on_disk)


def _device_and_dtype(choice: state.Choice) -> tuple[str, str]:
    from lmcore.device import default_dtype, pick_device

    device = pick_device() if choice.device == state.AUTO else choice.device
    return device, default_dtype(device) if choice.dtype == state.AUTO else choice.dtype


def on_disk(source: str) -> Hashable:
    """Names, sizes and times of the file, or of the folder's files: a changed checkpoint is another model."""
    try:
        path = Path(source).expanduser()
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return tuple((file.name, (s := file.stat()).st_size, s.st_mtime_ns) for file in files)
    except (OSError, ValueError, RuntimeError):
        return None


def _load(choice: state.Choice, say: Callable[[str], bool]) -> Opened:
    """In the job's thread: imports, then the model, one at a time for the whole server."""

    def tell(words: str) -> None:
        if not say(words):
            raise Cancelled("nobody waits for this model any more")

    try:
        if not ready():
            tell("Starting PyTorch")
        import_torch()
        while not _LOADING.acquire(timeout=0.2):
            tell("Waiting for another model to be opened")
        try:
            key = _key(choice)
            opened = _MODELS.peek(key)
            if opened is None:
                opened = _load_now(choice, key, tell)
                _MODELS.put(key, opened)
                settle()
        finally:
            _LOADING.release()
        return opened
    finally:
        with _JOBS_LOCK:
            if (job := _JOBS.get(choice)) is not None and job.is_this_thread():
                del _JOBS[choice]


def _load_now(choice: state.Choice, key: Hashable, tell: Callable[[str], object]) -> Opened:
    from lmcore.checkpoint import load_pretrained
    from lmcore.device import pick_device, pick_dtype

    device, dtype = _device_and_dtype(choice)
    pick_device(device)

    def progress(done: int, total: int, what: str) -> None:
        tell(f"{what}: {100 * done // total} %" if done < total else what)

    def opened(config: ModelConfig, model: Any, tokenizer: Any, report: LoadReport) -> Opened:
        return Opened(
            choice=choice,
            key=key,
            device=device,
            dtype=dtype,
            config=config,
            weights=model,
            tokenizer=tokenizer,
            report=report,
        )

    if choice.label == state.CONFIG:
        from lmcore import presets
        from lmcore.checkpoint import fresh

        kind, _, rest = choice.source.partition(":")
        described = presets.shipped(rest) if kind == "config" else presets.pasted(rest)
        pick_dtype(dtype, device)
        if not fresh.comfortable(described, dtype=dtype, device=device):
            report = fresh.report_of(described, source=name_of(choice), dtype=dtype)
            return opened(described.config, None, None, report)
        loaded = fresh.random_model(described, source=name_of(choice), dtype=dtype, device=device, progress=progress)
    else:
        source = Path(choice.source).expanduser() if choice.label == state.UPLOAD else choice.source
        loaded = load_pretrained(source, dtype=dtype, device=device, progress=progress)
    return opened(loaded.model.cfg, loaded.model, loaded.tokenizer, loaded.report)
