"""The calculator's three figures, each with what it would be at every stop of the page's sliders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from figures.format import group
from figures.grid import grid_payload
from figures.kv import (
    Setting,
    Sizes,
    context_payload,
    context_text,
    fit_rows,
    fits,
    model_columns,
    model_rows,
    size_text,
    sizes,
)
from figures.kv_changed import UNCHANGED, Change, with_change
from figures.stops import Stops, with_stops
from lmcore.config import ModelConfig
from lmcore.errors import LmcoreError
from lmcore.hardware import ACCELERATORS, Accelerator

Model = tuple[str, ModelConfig]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Where every control of the calculator stands: the models as chosen, what is changed of the first, and the rest.

    `machine` is drawn in the chart and marked in the table; `weights` (as stored) and `reserve` (percent of the memory
    kept free) belong to that table.
    """

    chosen: tuple[Model, ...]
    setting: Setting
    change: Change = UNCHANGED
    unit: str = "GiB"
    machine: Accelerator | None = None
    weights: str = "16 bit"
    reserve: int = 10

    def models(self) -> tuple[Model, ...]:
        """The chosen ones, the first after the change. Raises ConfigError where there is no such model."""
        (name, cfg), *others = self.chosen
        own = with_change(cfg, self.change)
        return ((name if own == cfg else f"{name}, changed", own), *others)

    @cached_property
    def sized(self) -> list[tuple[str, ModelConfig, Sizes]]:
        """The models that the setting suits, with their bytes.

        Worked out once: whether a stop suits the models is asked before its figure is made of the same bytes.
        """
        return [found for found in map(self._sized, self.models()) if found is not None]

    def _sized(self, model: Model) -> tuple[str, ModelConfig, Sizes] | None:
        try:
            return (*model, sizes(model[1], self.setting))
        except LmcoreError:
            return None


@dataclass(frozen=True)
class Control:
    """A slider: its label, the field of Asked ("setting.context") and the values of its stops.

    `first` is the number by which the browser calls the first stop. `shown` says whether the slider is on the page.
    """

    name: str
    field: str
    values: tuple[Any, ...]
    first: int = 0
    shown: Callable[[Asked], bool] = lambda asked: True

    def value(self, asked: Asked) -> Any:
        for name in self.field.split("."):
            asked = getattr(asked, name)
        return asked

    def place(self, asked: Asked) -> int:
        return self.first + self.values.index(self.value(asked))

    def others(self, asked: Asked) -> Iterable[tuple[int, Asked]]:
        """Every other stop: its place, and what is asked there."""
        whole, _, part = self.field.rpartition(".")
        for place, value in enumerate(self.values, self.first):
            if value != self.value(asked):
                inner = {part: value}
                yield place, replace(asked, **({whole: replace(getattr(asked, whole), **inner)} if whole else inner))


def _powers(first: int, last: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(first, last + 1))


def _latent(asked: Asked) -> bool:
    return asked.change.cached == "latent"


def _windowed(asked: Asked) -> bool:
    return asked.change.windows == "sliding"


CONTEXT = Control("Context S", "setting.context", _powers(7, 20))
BATCH = Control("Batch B", "setting.batch", _powers(0, 10))
BEAMS = Control("Beams", "setting.beams", tuple(range(1, 9)), first=1)
RANKS = Control("Tensor-parallel ranks", "setting.ranks", _powers(0, 7))
PAGE = Control("Page, in positions", "setting.page", (1, 8, 16, 32, 64, 128, 256, 512))
LATENT = Control("Rank of the latent r", "change.kv_rank", _powers(6, 11), shown=_latent)
ROTARY = Control("Rotary key", "change.rope_dim", (16, 32, 64, 96, 128), shown=_latent)
WINDOW = Control("Window w", "change.window", _powers(7, 16), shown=_windowed)
EVERY = Control("Full layers", "change.every", (0, 2, 3, 4, 6, 8), shown=_windowed)
RESERVE = Control("Kept free, in %", "reserve", tuple(range(41)))
CONTROLS = (CONTEXT, BATCH, BEAMS, RANKS, PAGE, LATENT, ROTARY, WINDOW, EVERY)


def chart(asked: Asked) -> bytes:
    """The curves over the context. The Context slider moves the mark and nothing else, so that it goes with others."""
    return _followed(asked, chart_at, CONTROLS, apart=CONTEXT)


def rows(asked: Asked) -> bytes:
    """A row a model."""
    return _followed(asked, rows_at, CONTROLS)


def fit(asked: Asked) -> bytes:
    """What each accelerator holds beside the weights of the first model."""
    return _followed(asked, fit_at, (*CONTROLS, RESERVE))


def _followed(
    asked: Asked, make: Callable[[Asked], bytes], controls: Iterable[Control], apart: Control | None = None
) -> bytes:
    """The figure and its stops. Where a setting does not suit a model the page says so: that stop waits for it."""
    drawn = len(asked.sized)

    def made(other: Asked) -> bytes | None:
        try:
            return make(other) if len(other.sized) == drawn else None
        except LmcoreError:
            return None

    sliders = []
    for control in controls:
        if control.shown(asked):
            found = {place: blob for place, other in control.others(asked) if (blob := made(other)) is not None}
            sliders.append(Stops(control.name, control.place(asked), found, apart=control is apart))
    return with_stops(make(asked), sliders)


def chart_at(asked: Asked) -> bytes:
    """The curves where the sliders stand, and the memory of the machine."""
    machine, limit = asked.machine, None
    if machine is not None:
        limit = (machine.memory_bytes, f"{machine.name}: {size_text(machine.memory_bytes, asked.unit)}")
    models = [(name, cfg) for name, cfg, _ in asked.sized]
    return context_payload(models, asked.setting, unit=asked.unit, limit=limit)


def rows_at(asked: Asked) -> bytes:
    """The rows where the sliders stand."""
    columns = model_columns(asked.setting)
    made = model_rows(asked.sized, asked.setting, asked.unit)
    return grid_payload(columns, made, label="KV bytes of each model", words=2, marks="  " + "c" * (len(columns) - 2))


def fit_at(asked: Asked) -> bytes:
    """The accelerators where the sliders stand."""
    setting, machine = asked.setting, asked.machine
    (_, cfg, _), *_ = asked.sized
    own = [machine] if machine is not None and machine.name == "custom" else []
    found = fits(cfg, setting, [*own, *ACCELERATORS], stored=asked.weights, reserve=asked.reserve)
    each = " each" if setting.ranks > 1 else ""
    columns = [
        "accelerator",
        f"memory{each}",
        f"weights{each}",
        "left for the cache",
        f"longest context of {group(setting.batch * setting.beams)}",
        f"largest batch at {context_text(setting.context)}",
    ]
    chosen = [at for at, one in enumerate(found) if machine is not None and one.machine.name == machine.name]
    return grid_payload(columns, fit_rows(found, asked.unit), label="what fits", marks="  cccc", bold=chosen)
