"""Long work in a thread of its own, watched by any number of script runs.

A script run is abandoned and started again whenever its user touches something. Work that takes seconds must outlive
that, and a second session that wants the same thing must join in instead of starting it again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Event, Lock, Thread, current_thread
from time import monotonic
from typing import Generic, TypeVar

from lmcore.errors import LmcoreError

V = TypeVar("V")

POLL_S = 0.1
ABANDONED_AFTER_S = 5.0
# How often a line that has not changed is shown again: a script run notices only then that its user wants another.
HEARTBEAT_S = 0.4


class Job(Generic[V]):
    """Runs `work(say)` once; `say(line)` tells those who wait how far it is.

    `say` returns False once nobody has waited for `abandoned_after_s`, or at once after `give_up` with nobody waiting:
    the work may then stop by raising.
    """

    def __init__(
        self,
        work: Callable[[Callable[[str], bool]], V],
        name: str,
        *,
        abandoned_after_s: float | None = None,
    ) -> None:
        self._lock, self._done = Lock(), Event()
        self._watchers, self._last_watched, self._given_up = 0, monotonic(), False
        self._patience_s = ABANDONED_AFTER_S if abandoned_after_s is None else abandoned_after_s
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
            abandoned = self._given_up or monotonic() - self._last_watched >= self._patience_s
            return self._watchers > 0 or not abandoned

    def wait(self, show: Callable[[str], object]) -> V:
        """The result; `show` gets the line meanwhile, several times a second, and may raise, which leaves the work
        running."""
        with self._lock:
            self._watchers += 1
        try:
            shown, shown_at = "", 0.0
            while not self._done.wait(POLL_S):
                if self._line != shown or (shown and monotonic() - shown_at > HEARTBEAT_S):
                    shown, shown_at = self._line, monotonic()
                    show(shown)
        finally:
            with self._lock:
                self._watchers -= 1
                self._last_watched = monotonic()
        return self.result()

    def is_this_thread(self) -> bool:
        """Whether the caller is the work itself."""
        return current_thread() is self._thread

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def look(self) -> str:
        """The last line, by someone who looks in instead of waiting."""
        with self._lock:
            self._last_watched = monotonic()
        return self._line

    def result(self) -> V:
        """What the finished work returned; what it raised, if it did."""
        assert self.done
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def give_up(self) -> None:
        """Whoever calls this wants the work no more: it ends at its next line unless others wait for it."""
        self._given_up = True


class Jobs(Generic[V]):
    """One job at a time for each key. A finished one stays, for what it raised, until it is forgotten."""

    def __init__(self, name: str, *, abandoned_after_s: float) -> None:
        self._name, self._patience_s = name, abandoned_after_s
        self._lock = Lock()
        self._jobs: dict[Hashable, Job[V]] = {}

    def start(self, key: Hashable, work: Callable[[Callable[[str], bool]], V]) -> None:
        """Begin the work in a thread; nothing if a job of this key is under way."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.done:
                self._jobs[key] = Job(work, name=self._name, abandoned_after_s=self._patience_s)

    def running(self, key: Hashable) -> Job[V] | None:
        """The job that is under way."""
        job = self._jobs.get(key)
        return job if job is not None and not job.done else None

    def failure(self, key: Hashable) -> LmcoreError | None:
        """Why the last job gave nothing; any other error than lmcore's is raised."""
        job = self._jobs.get(key)
        if job is None or not job.done:
            return None
        try:
            job.result()
        except LmcoreError as error:
            return error
        return None

    def cancel(self, key: Hashable) -> None:
        job = self.running(key)
        if job is not None:
            job.give_up()

    def forget(self, which: Callable[[Hashable], bool]) -> None:
        """Let go of the jobs under the keys that `which` names: a finished one holds on to what its work held."""
        with self._lock:
            for key in [key for key in self._jobs if which(key)]:
                del self._jobs[key]
