"""Comparisons with transformers: started on demand, one at a time for each model, kept, and told in the sidebar."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from figures.proof import badge
from lmcore.errors import Cancelled, LmcoreError
from ui.job import Job, Jobs
from ui.lru import ByteLRU
from ui.models import Opened, when_one_leaves

if TYPE_CHECKING:
    from lmcore.proof import Proof

# Whoever started one may look at another page meanwhile.
PATIENCE_S = 600.0
_PROOFS: ByteLRU[Proof] = ByteLRU(max_entries=64, max_bytes=2**20, size=lambda proof: 64 * len(proof.layers))
_JOBS: Jobs[Proof] = Jobs("compare", abandoned_after_s=PATIENCE_S)


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

    _JOBS.start(opened.key, work)


def running(opened: Opened) -> Job[Proof] | None:
    """The comparison that is under way."""
    return _JOBS.running(opened.key)


def failure(opened: Opened) -> LmcoreError | None:
    """Why the last comparison gave nothing; any other error than lmcore's is raised."""
    return _JOBS.failure(opened.key)


def cancel(opened: Opened) -> None:
    _JOBS.cancel(opened.key)


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
    _JOBS.forget(lambda key: key == opened.key)


when_one_leaves(_forget)
