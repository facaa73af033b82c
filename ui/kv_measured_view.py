"""The running cache beside the calculator: bytes used and allocated at every step."""

from __future__ import annotations

import streamlit as st

from figures.format import group
from figures.grid import grid_payload
from figures.kv_measured import STEP_COLUMNS, step_rows, steps_payload
from figures.twins import tile, tiles_payload
from lmcore.kv_costs import kv_cache_bytes
from ui import components, guard, page, runs
from ui.asked import Asked, Tell
from ui.models import Opened

NEW = 24

_STEPS: Asked[tuple] = Asked("cache steps", size=lambda steps: 64 * len(steps))


@guard.fragment
def section(opened: Opened, ids: tuple[int, ...]) -> None:
    """A button; then the tiles, the curve and the table."""
    page.section(
        "The same number in the running model",
        f"The text is prefilled, then {NEW} tokens are decoded; after each forward the bytes are read from the cache’s "
        "own tensors. It starts with room for 32 positions and doubles when it is full: what is allocated runs ahead "
        "of what is used.",
    )
    ids = ids[:40]
    if not ids:
        st.markdown("The text is empty: there is no token to run.")
        return

    def work(tell: Tell) -> tuple:
        from lmcore.cache_steps import cache_steps

        with runs.forwarding():
            return cache_steps(opened.model, ids, NEW, progress=lambda done, of: tell(f"{done} of {of} forwards"))

    steps = _STEPS.button(f"Run {NEW + 1} forwards", (opened.key, ids), work, widget="kv_steps")
    if steps is None:
        return
    size = opened.model.dtype.itemsize

    def formula(context: int) -> int:
        return sum(kv_cache_bytes(opened.config, context=context, itemsize=size))

    last = steps[-1]
    at = f"After {group(last.length)} positions."
    tiles = [
        tile("Cache used", formula(last.length), last.used_bytes, unit="B", how="in the cache", note=at),
        tile(
            "Cache allocated",
            formula(last.capacity),
            last.allocated_bytes,
            unit="B",
            how="in the cache",
            note=f"For {group(last.capacity)} positions.",
        ),
        tile(
            "Steps at which both agree",
            len(steps),
            sum((s.used_bytes, s.allocated_bytes) == (formula(s.length), formula(s.capacity)) for s in steps),
            note="Of all forwards, to the last byte.",
        ),
    ]
    components.twins(tiles_payload(tiles), key="kv_steps_tiles")
    components.mount("lines", steps_payload(steps, formula), key="kv_steps_chart")
    with st.expander("Step by step"):
        payload = grid_payload(
            STEP_COLUMNS, step_rows(steps, formula), label="bytes of the cache after each forward", marks="  cmcm"
        )
        components.mount("grid", payload, key="kv_steps_table")
    with page.tools():
        page.source("lmcore.cache_steps.cache_steps", snippet(opened, ids), key="kv_steps_source")


def snippet(opened: Opened, ids: tuple[int, ...]) -> str:
    return f"""
from lmcore.cache_steps import cache_steps
from lmcore.checkpoint import load_pretrained
from lmcore.kv_costs import kv_cache_bytes

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
for step in cache_steps(model, {list(ids)}, {NEW}):
    size = model.dtype.itemsize
    print(step, sum(kv_cache_bytes(model.cfg, context=step.length, itemsize=size)) - step.used_bytes)
"""
