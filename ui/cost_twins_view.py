"""The formulas against the loaded model: FLOPs, cache and kept bytes counted, prefill and decode by the clock."""

from __future__ import annotations

import streamlit as st

from figures.cost_twins import (
    counted_tiles,
    kept_sentence,
    kept_tile,
    steps_sentence,
    timed_payload,
    timed_points,
)
from figures.format import group, sig
from figures.roofline import Timed
from figures.twins import tiles_payload
from lmcore.device import DTYPES
from lmcore.kept import tokens_within
from ui import components, guard, measured, models, page, runs, timings
from ui.markdown import plain

POLL_S = 0.5
FIGURE_PX = 320


def section() -> None:
    """Nothing of a model is opened before it is asked for: the calculators above need none."""
    page.section(
        "The same numbers, measured",
        "The sidebar’s model runs the prompt under a FLOP counter, and on demand by the clock beside this machine’s "
        "own roof.",
    )
    opened = models.in_memory()
    if opened is None and not st.session_state.get("cost_open"):
        st.button("Open the sidebar’s model and count", on_click=_ask, key="cost_open_model")
        return
    opened = models.current(height=FIGURE_PX)
    prompt = runs.prompt(opened)
    if not prompt.ids:
        page.empty_prompt()
        return
    counted(opened, prompt.ids)
    timed(opened, prompt.ids)


def _ask() -> None:
    st.session_state["cost_open"] = True


def counted(opened: models.Opened, ids: tuple[int, ...]) -> None:
    place = page.awaited("cost_twins", height=FIGURE_PX)
    cfg, size = opened.config, DTYPES[opened.dtype]
    found = measured.measured_pass(opened, ids)
    tiles = counted_tiles(cfg, len(ids), size, counted=found.flops, cache_bytes=found.cache_used_bytes)
    used = tokens_within(cfg, min(len(ids), measured.KEPT_TOKENS), measured.KEPT_BYTES, itemsize=size)
    held = measured.kept(opened, ids[:used]) if used else None
    tiles.append(
        kept_tile(cfg, used, size, held=held, max_bytes=measured.KEPT_BYTES, fused=opened.device.startswith("cpu"))
    )
    with place():
        components.twins(tiles_payload(tiles), key="cost_twins")
    page.prose(
        f":small[:gray[A prefill of {group(len(ids))} tokens of {plain(opened.name)}, logits at every position.]]"
    )
    if held is not None:
        page.prose(kept_sentence(cfg, used, size, held))


def timed(opened: models.Opened, ids: tuple[int, ...]) -> None:
    """The button, its progress, then the roofline with the discs."""
    busy = timings.running(opened) is not None
    found = timings.found(opened, ids)
    if found is None or busy:
        st.button(
            "Time it on this machine",
            on_click=timings.start,
            args=(opened, ids),
            disabled=busy,
            key="cost_time",
            help="A few seconds: bandwidth and FLOP/s of this machine, then a prefill and decode steps",
        )
        st.fragment(_progress, run_every=POLL_S if busy else None)(opened, busy)
        if (error := timings.failure(opened)) is not None:
            guard.show(error)
        return
    machine, timing, held = found
    forwards = [
        Timed("prefill", timing.prefill, timing.prefill_s),
        Timed("decode", timing.decode, timing.decode_s),
    ]
    roof, name = machine.roof, f"this {machine.device}, {machine.dtype}"
    components.mount("roofline", timed_payload(name, roof, forwards), key="cost_timed")
    page.notice([*timed_points(roof, forwards), steps_sentence(held)])
    page.prose(
        f":small[:gray[Measured: {sig(machine.bytes_per_s / 1e9, 3)} GB/s reading or copying memory, "
        f"{sig(machine.flops_per_s / 1e9, 3)} GFLOP/s on products of {group(machine.width)} × {group(machine.width)}, "
        f"{group(machine.threads)} threads; the fastest of several runs each, as are the forwards. A machine that does "
        "other work meanwhile is slower.]]"
    )
    with page.tools():
        page.source("lmcore.machine.measure_machine", _snippet(opened, ids), key="cost_time_source")


def _progress(opened: models.Opened, busy: bool) -> None:
    page.progress(timings.running(opened), lambda: timings.cancel(opened), busy=busy, key="cost_cancel")


def _snippet(opened: models.Opened, ids: tuple[int, ...]) -> str:
    return f"""
model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
machine = measure_machine(str(model.device), model.dtype)
timing = timed(model, {list(ids[:8])})
timing.prefill_s, timing.prefill.seconds(machine.roof)
"""
