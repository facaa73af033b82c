"""This machine's rates and the loaded model's times: measured on demand, kept, shared by all sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from lmcore.errors import Cancelled, LmcoreError
from ui import runs
from ui.job import Job, Jobs
from ui.lru import ByteLRU
from ui.models import Opened, when_one_leaves

if TYPE_CHECKING:
    from lmcore.machine import Machine
    from lmcore.timed import Held, Timing

MAX_TOKENS = 256
MAX_STEPS = 32
# Whoever started it may look at another page meanwhile.
PATIENCE_S = 60.0


class Found(NamedTuple):
    """What one measurement gave: the machine, the model's times, and its cache at every step."""

    machine: Machine
    timing: Timing
    held: list[Held]


_MACHINES: ByteLRU[Machine] = ByteLRU(max_entries=8, max_bytes=2**16, size=lambda machine: 256)
_FOUND: ByteLRU[Found] = ByteLRU(max_entries=32, max_bytes=2**20, size=lambda found: 256 + 64 * len(found.held))
_JOBS: Jobs[Found] = Jobs("timings", abandoned_after_s=PATIENCE_S)


def key_of(opened: Opened, ids: tuple[int, ...]) -> tuple[Any, ...]:
    return (opened.key, ids[:MAX_TOKENS])


def start(opened: Opened, ids: tuple[int, ...]) -> None:
    """Measure the machine, unless it is known, and time the model on these tokens; nothing if that is under way."""
    key = key_of(opened, ids)

    def work(say: Callable[[str], bool]) -> Found:
        from lmcore.machine import measure_machine
        from lmcore.timed import cache_by_step, timed

        def tell(line: str) -> None:
            if not say(line):
                raise Cancelled("the measurement was cancelled")

        model = opened.model
        # One forward's room for all of it: a model that runs beside the clock would be what is measured.
        with runs.forwarding():
            machine = _MACHINES.get(
                (str(model.device), str(model.dtype)),
                lambda: measure_machine(str(model.device), model.dtype, progress=tell),
            )
            timing = timed(model, key[1], progress=tell)
            tell("the cache at every step")
            held = cache_by_step(model, key[1][:MAX_STEPS])
        found = Found(machine, timing, held)
        _FOUND.put(key, found)
        return found

    _JOBS.start(opened.key, work)


def running(opened: Opened) -> Job[Found] | None:
    """The measurement that is under way."""
    return _JOBS.running(opened.key)


def failure(opened: Opened) -> LmcoreError | None:
    """Why the last measurement gave nothing; any other error than lmcore's is raised."""
    return _JOBS.failure(opened.key)


def cancel(opened: Opened) -> None:
    _JOBS.cancel(opened.key)


def found(opened: Opened, ids: tuple[int, ...]) -> Found | None:
    """What was measured of this model on these tokens."""
    return _FOUND.peek(key_of(opened, ids))


def _forget(opened: Opened) -> None:
    _JOBS.forget(lambda key: key == opened.key)


when_one_leaves(_forget)
