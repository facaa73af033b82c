"""The calculator's figures at every stop of every slider: what the browser draws is what the page would have made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from figures import kv_stops
from figures.kv import Setting
from figures.kv_changed import UNCHANGED, Change
from figures.kv_stops import CONTROLS, RESERVE, Asked, Control
from figures.payload import unpack
from figures.stops import at_stop
from lmcore import presets
from lmcore.hardware import accelerator, custom
from lmcore.kv_costs import kv_cache_bytes

Figure = tuple[Callable[[Asked], bytes], Callable[[Asked], bytes], tuple[Control, ...]]
FIGURES: dict[str, Figure] = {
    "chart": (kv_stops.chart, kv_stops.chart_at, CONTROLS),
    "rows": (kv_stops.rows, kv_stops.rows_at, CONTROLS),
    "fit": (kv_stops.fit, kv_stops.fit_at, (*CONTROLS, RESERVE)),
}
WINDOWED, LATENT, PLAIN = "gemma-3-27b-text", "deepseek-v3", "llama-3.3-70b"


def asked(*names: str, change: Change = UNCHANGED, **setting: Any) -> Asked:
    return Asked(
        chosen=tuple((name, presets.shipped(name).config) for name in names),
        setting=Setting(**{"context": 8192, **setting}),
        change=change,
        machine=accelerator("H100 SXM"),
    )


CASES = {
    "sliding windows": asked(WINDOWED, batch=4, keep="past"),
    "MLA": asked(LATENT, beams=2),
    "plain, quantised, paged": asked(PLAIN, LATENT, format="KIVI 2 bit", page=16),
    "plain, on ranks": replace(asked(PLAIN, WINDOWED, ranks=4), machine=custom(memory_gb=48, gb_per_s=1, tflops=None)),
    "a latent and windows put in": asked(PLAIN, change=Change(cached="latent", windows="sliding")),
}


def same(found: tuple[dict[str, Any], list[np.ndarray]] | None, blob: bytes) -> bool:
    assert found is not None
    meta, arrays = unpack(blob)
    return found[0] == meta and all(map(np.array_equal, found[1], arrays))


@pytest.mark.parametrize("figure", list(FIGURES))
@pytest.mark.parametrize("case", list(CASES))
def test_every_stop_is_the_figure_made_there(case: str, figure: str) -> None:
    """All stops of all sliders; where not every model can be split over the ranks, the browser waits."""
    whole, alone, controls = FIGURES[figure]
    here = CASES[case]
    blob = whole(here)
    assert same(at_stop(blob, {}), alone(here))
    shown = [control for control in controls if control.shown(here)]
    assert [slider["name"] for slider in unpack(blob)[0]["sliders"]] == [control.name for control in shown]
    for control in shown:
        for place, there in control.others(here):
            found = at_stop(blob, {control.name: place})
            if len(there.sized) < len(here.sized):
                assert found is None
            else:
                assert same(found, alone(there)), (control.name, place)


def test_a_stop_says_what_lmcore_says() -> None:
    """The curve after a move of the batch, against the formula; and not what it was before."""
    here = asked(WINDOWED)
    blob = kv_stops.chart(here)
    found = at_stop(blob, {"Batch B": 3})
    assert found is not None
    cfg = presets.shipped(WINDOWED).config
    for at, drawn in zip(*found[1][:2], strict=True):
        assert drawn == pytest.approx(sum(kv_cache_bytes(cfg, context=int(at), batch=8)) / 2**30)
    assert not same(found, kv_stops.chart_at(here))


def test_two_sliders() -> None:
    """In the chart the context moves the mark alone, whatever else has moved; of two others, and in the tables, nothing
    is known."""
    here = asked(PLAIN)
    there = replace(here, setting=replace(here.setting, context=2**20, batch=4))
    moved = {"Context S": 13, "Batch B": 2}
    assert same(at_stop(kv_stops.chart(here), moved), kv_stops.chart_at(there))
    assert at_stop(kv_stops.chart(here), {"Beams": 3, "Batch B": 2}) is None
    assert at_stop(kv_stops.rows(here), moved) is None
    assert at_stop(kv_stops.fit(here), moved) is None


def test_a_model_that_cannot_be_split_waits_for_the_page() -> None:
    """64 query heads go on 64 ranks, on 128 they do not."""
    blob = kv_stops.chart(asked(PLAIN))
    assert at_stop(blob, {"Tensor-parallel ranks": 6}) is not None
    assert at_stop(blob, {"Tensor-parallel ranks": 7}) is None


def test_four_models_and_every_stop_are_small() -> None:
    here = asked(LATENT, "llama-3.1-405b", WINDOWED, "qwen3-30b-a3b")
    for (whole, _, _), limit in zip(FIGURES.values(), (40e3, 20e3, 120e3), strict=True):
        assert len(whole(here)) < limit
