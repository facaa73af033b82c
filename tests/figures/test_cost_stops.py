"""What the page Cost shows while a slider moves: at every stop the figure that is made for that setting."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from figures.cost import Setting, costs_payload, table_payload
from figures.cost_stops import BATCH, BATCHES, CONTEXT, CONTEXTS, RANK, RANKS, followed, followed_on
from figures.payload import unpack
from figures.roofline import machine_roofline, machines_payload, sweep_payload
from figures.stops import at_stop
from lmcore import presets
from lmcore.errors import InputError
from lmcore.hardware import accelerator

H100 = accelerator("H100 SXM")
CONFIGS = ("deepseek-v3", "gemma-3-27b-text", "gpt2")
SETTINGS = {
    "deepseek-v3": Setting(context=4096, batch=1),
    "gemma-3-27b-text": Setting(context=1, batch=4096, macs=True, decimal=True, attention="useful", weights="fp8"),
    "gpt2": Setting(context=2**20, batch=8, scores="written", recompute="all", cache="q4_0"),
}


def lengths(setting: Setting) -> list[tuple[str, int, Setting]]:
    """Every stop of context and batch: the slider, the stop, the setting."""
    contexts = [(CONTEXT, stop, replace(setting, context=n)) for stop, n in enumerate(CONTEXTS)]
    return contexts + [(BATCH, stop, replace(setting, batch=n)) for stop, n in enumerate(BATCHES)]


def assert_same(blob: bytes, places: dict[str, int], made: bytes) -> None:
    found = at_stop(blob, places)
    assert found is not None, places
    meta, arrays = unpack(made)
    assert found[0] == meta, places
    assert len(arrays) <= len(found[1])
    assert all(np.array_equal(mine, other) for mine, other in zip(found[1], arrays, strict=False)), places


@pytest.mark.parametrize("name", CONFIGS)
def test_bars_and_table_at_every_stop(name: str) -> None:
    cfg, now = presets.shipped(name).config, SETTINGS[name]

    def bars(setting: Setting) -> bytes:
        return costs_payload(cfg, setting, to_copy=setting == now)

    for make in (bars, partial(table_payload, cfg)):
        blob = followed(make, now)
        for slider, stop, setting in lengths(now):
            assert_same(blob, {slider: stop}, make(setting))
        assert len(blob) < 64_000


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_machine_makes_of_it_at_every_stop(name: str) -> None:
    cfg, now, ranks = presets.shipped(name).config, SETTINGS[name], 1

    def table(setting: Setting, ranks: int) -> bytes:
        return machines_payload(cfg, setting, H100, ranks, to_copy=(setting, ranks) == (now, 1))

    def roof(setting: Setting, ranks: int) -> bytes:
        return machine_roofline(cfg, setting, H100, ranks)

    for make in (roof, table):
        blob = followed_on(make, now, ranks)
        for slider, stop, setting in lengths(now):
            assert_same(blob, {slider: stop}, make(setting, 1))
        for stop, n in enumerate(RANKS):
            try:
                made = make(now, n)
            except InputError:
                assert at_stop(blob, {RANK: stop}) is None
            else:
                assert_same(blob, {RANK: stop}, made)
        assert at_stop(blob, {CONTEXT: 3, BATCH: 2}) is None
        assert len(blob) < 100_000


@pytest.mark.parametrize(("over", "slider", "other"), [("batch", BATCH, CONTEXT), ("context", CONTEXT, BATCH)])
def test_on_the_curves_the_mark_moves_whatever_else_has_moved(over: str, slider: str, other: str) -> None:
    """Along the axis that a slider stands for it moves the mark alone; both sliders together are therefore known."""
    cfg, now = presets.shipped("deepseek-v3").config, SETTINGS["deepseek-v3"]
    make = partial(sweep_payload, cfg)
    blob = followed_on(lambda setting, ranks: make(setting, H100, ranks, over), now, 1, apart=[slider])
    there = replace(now, context=CONTEXTS[9], batch=BATCHES[3])
    assert_same(blob, {CONTEXT: 9, BATCH: 3}, make(there, H100, 1, over))
    assert_same(blob, {RANK: 3, slider: 3}, make(replace(now, **{over: 8}), H100, 8, over))
    assert at_stop(blob, {RANK: 3, other: 3}) is None
