"""The page Cost's figures at every stop of its sliders, so that the browser repaints them while a thumb moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from figures.cost import Setting
from figures.stops import Stops, with_stops
from lmcore.errors import LmcoreError

CONTEXT, BATCH, RANK = "Context, in tokens", "Batch, in sequences", "How many, in tensor parallel"
CONTEXTS = [2**power for power in range(21)]
BATCHES = [2**power for power in range(13)]
RANKS = [1, 2, 4, 8, 16, 32, 64]


def followed(make: Callable[[Setting], bytes], setting: Setting) -> bytes:
    """`make(setting)` with what it is at every other stop of context and batch."""
    return with_stops(make(setting), _lengths(make, setting))


def followed_on(
    make: Callable[[Setting, int], bytes], setting: Setting, ranks: int, apart: Iterable[str] = ()
) -> bytes:
    """`make(setting, ranks)` with what it is at every other stop of context, batch and ranks; sliders named in `apart`
    change nothing that another changes."""
    sliders = [
        *_lengths(lambda given: make(given, ranks), setting),
        _stops(RANK, RANKS, ranks, lambda value: make(setting, value)),
    ]
    return with_stops(make(setting, ranks), [replace(each, apart=each.name in apart) for each in sliders])


def _lengths(make: Callable[[Setting], bytes], setting: Setting) -> list[Stops]:
    return [
        _stops(CONTEXT, CONTEXTS, setting.context, lambda value: make(replace(setting, context=value))),
        _stops(BATCH, BATCHES, setting.batch, lambda value: make(replace(setting, batch=value))),
    ]


def _stops(name: str, values: Sequence[int], now: int, make: Callable[[int], bytes]) -> Stops:
    """A slider's stops; what is refused at one is left to the page, which says why."""
    payloads = {}
    for place, value in enumerate(values):
        if value == now:
            continue
        try:
            payloads[place] = make(value)
        except LmcoreError:
            continue
    return Stops(name, values.index(now), payloads)
