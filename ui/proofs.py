"""Comparisons with transformers: started on demand, one at a time for each model, kept, and told in the sidebar."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from figures.proof import badge
from lmcore.errors import Cancelled, LmcoreError
from ui.job import Job
from ui.lru import ByteLRU
from ui.models import Opened, when_one_leaves

if TYPE_CHECKING:
    from lmcore.proof import Proof

# Whoever started one may look at another page meanwhile.
PATIENCE_S = 600.0
_PROOFS: ByteLRU[Proof] = ByteLRU(max_entries=64, max_bytes=2**20, size=lambda proof: 64 * len(proof.layers))
_JOBS: dict[Hashable, Job[Proof]] = {}
_LOCK = Lock()


def start(opened: Opened, ids: tuple[int, ...], *, noise: bool) -> None:
    """Compare the model with transformers on these tokens, in a thread; nothing if that is under way."""

    def work(say: object) -> Proof:
        from lmcore.checkpoint.export import weights_folder
        from lmcore.proof import compare_with_transformers

        def tell(line: str) -> None:
            if not say(line):  # type: ignore[operator]
                raise Cancelled("the comparison was cancelled")

        with weights_folder(opened.model, opened.report, tell) as folder:
            found = compare_with_transformers(opened.model, folder, ids, noise=noise, progress=tell)
        _PROOFS.put(opened.key, found)
        return found

    with _LOCK:
        job = _JOBS.get(opened.key)
        if job is None or job.done:
            _JOBS[opened.key] = Job(work, name="compare", abandoned_after_s=PATIENCE_S)


def running(opened: Opened) -> Job[Proof] | None:
    """The comparison that is under way."""
    job = _JOBS.get(opened.key)
    return job if job is not None and not job.done else None


def failure(opened: Opened) -> LmcoreError | None:
    """Why the last comparison gave nothing; any other error than lmcore's is raised."""
    job = _JOBS.get(opened.key)
    if job is None or not job.done:
        return None
    try:
        job.result()
    except LmcoreError as error:
        return error
    return None


def cancel(opened: Opened) -> None:
    job = running(opened)
    if job is not None:
        job.give_up()


def found(opened: Opened) -> Proof | None:
    """The last comparison of this model."""
    return _PROOFS.peek(opened.key)


def sentence(opened: Opened) -> str:
    """What the sidebar says of the comparison; nothing for a config without weights."""
    if opened.weights is None:
        return ""
    if (proof := found(opened)) is not None:
        return badge(proof, clock(proof.measured_at))
    return "Comparing with transformers." if running(opened) else "Not compared with transformers."


def clock(moment: float) -> str:
    """Hours and minutes where the reader is."""
    try:
        zone = ZoneInfo(st.context.timezone) if st.context.timezone else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    return datetime.fromtimestamp(moment, zone).strftime("%H:%M")


def _forget(opened: Opened) -> None:
    """A finished comparison holds on to its model; when that leaves the memory, so does the comparison's thread."""
    with _LOCK:
        _JOBS.pop(opened.key, None)


when_one_leaves(_forget)
