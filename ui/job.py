"""Long work in a thread of its own, watched by any number of script runs.

A script run is abandoned and started again whenever its user touches something. Work that takes seconds must outlive
that, and a second session that wants the same thing must join in instead of starting it again.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread
from time import monotonic
from typing import Generic, TypeVar

V = TypeVar("V")

POLL_S = 0.1
ABANDONED_AFTER_S = 5.0


class Job(Generic[V]):
    """Runs `work(say)` once; `say(line)` tells those who wait how far it is.

    `say` returns False once nobody has waited for `ABANDONED_AFTER_S`: the work may then stop by raising.
    """

    def __init__(self, work: Callable[[Callable[[str], bool]], V], name: str) -> None:
        self._lock, self._done = Lock(), Event()
        self._watchers, self._last_watched = 0, monotonic()
        self._line = ""
        self._value: V | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[Callable[[str], bool]], V]) -> None:
        try:
            self._value = work(self._say)
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def _say(self, line: str) -> bool:
        self._line = line
        with self._lock:
            return self._watchers > 0 or monotonic() - self._last_watched < ABANDONED_AFTER_S

    def wait(self, show: Callable[[str], object]) -> V:
        """The result; `show` gets each new line meanwhile and may raise, which leaves the work running."""
        with self._lock:
            self._watchers += 1
        try:
            shown = ""
            while not self._done.wait(POLL_S):
                if self._line != shown:
                    shown = self._line
                    show(shown)
        finally:
            with self._lock:
                self._watchers -= 1
                self._last_watched = monotonic()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
