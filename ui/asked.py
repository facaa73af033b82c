"""Measurements of a running model that take seconds: made when asked for, watched, cancelled, kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import streamlit as st

from lmcore.errors import Cancelled, LmcoreError
from ui import guard, page
from ui.job import Job, Jobs
from ui.lru import ByteLRU
from ui.models import Opened, when_one_leaves

V = TypeVar("V")
POLL_S = 0.4
PATIENCE_S = 120.0

Tell = Callable[[str], None]
"""Says how far the work is; raises Cancelled once nobody wants it."""


class Asked(Generic[V]):
    """One kind of measurement. A key holds all that a result depends on, and begins with the model's own."""

    def __init__(self, name: str, *, size: Callable[[V], int], max_entries: int = 24, max_bytes: int = 2**24) -> None:
        self.name = name
        self._kept: ByteLRU[V] = ByteLRU(max_entries=max_entries, max_bytes=max_bytes, size=size)
        self._jobs: Jobs[V] = Jobs(name, abandoned_after_s=PATIENCE_S)
        when_one_leaves(self._forget)

    def found(self, key: tuple[Hashable, ...]) -> V | None:
        return self._kept.peek(key)

    def running(self, key: tuple[Hashable, ...]) -> Job[V] | None:
        return self._jobs.running(key)

    def start(self, key: tuple[Hashable, ...], work: Callable[[Tell], V]) -> None:
        """Make the result in a thread; nothing if that is under way."""

        def run(say: Callable[[str], bool]) -> V:
            def tell(line: str) -> None:
                if not say(line):
                    raise Cancelled("the measurement was cancelled")

            tell("Starting")
            value = work(tell)
            self._kept.put(key, value)
            return value

        self._jobs.start(key, run)

    def cancel(self, key: tuple[Hashable, ...]) -> None:
        self._jobs.cancel(key)

    def drop(self, key: tuple[Hashable, ...]) -> None:
        """Let go of a result."""
        self._kept.drop(lambda kept: kept == key)

    def failure(self, key: tuple[Hashable, ...]) -> LmcoreError | None:
        """Why the last try gave nothing; any other error than lmcore's is raised."""
        return self._jobs.failure(key)

    def _forget(self, opened: Opened) -> None:
        self._jobs.forget(lambda key: isinstance(key, tuple) and key[0] == opened.key)

    def button(self, label: str, key: tuple[Hashable, ...], work: Callable[[Tell], V], *, widget: str) -> V | None:
        """The button that starts it, progress with a way to cancel, an error; the result once it is there."""
        busy = self.running(key) is not None
        done = self.found(key) is not None
        if not done:
            st.button(label, on_click=self.start, args=(key, work), disabled=busy, key=f"{widget}_run")
        st.fragment(self._progress, run_every=POLL_S if busy else None)(key, busy, widget)
        if not busy and not done and (error := self.failure(key)) is not None:
            guard.show(error)
        return self.found(key)

    def _progress(self, key: tuple[Hashable, ...], busy: bool, widget: str) -> None:
        page.progress(self.running(key), lambda: self.cancel(key), busy=busy, key=f"{widget}_cancel")
