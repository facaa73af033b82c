"""Past the trained length: measured on the teaching family on demand, and on the loaded model."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from figures.format import group
from lmcore import teaching
from ui import extrapolating, extrapolation_charts, guard, models, own_length_view, page

POLL_S = 0.4
TRAINED, LENGTH = teaching.CONTEXT, extrapolating.LENGTH
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@guard.fragment
def section(opened: models.Opened) -> None:
    """The measurement on a button, and what of it is there."""
    page.section(
        "Past the trained length",
        f"The teaching models saw {TRAINED} positions in training and nothing further on. Here they read windows of "
        f"{group(LENGTH)} tokens of a text that none of them was trained on, and each position’s loss is measured.",
    )
    if not extrapolating.encodings():
        st.info("The teaching models are not in this installation: there is nothing to measure.")
    else:
        _family()
    own_length_view.section(opened)


def _family() -> None:
    factor = st.select_slider(
        "Factor s of the scalings", extrapolating.FACTORS, 8, key="positions_extend", width=280, **_LINK
    )
    wanted = extrapolating.everything(factor)
    left, busy = extrapolating.missing(wanted), extrapolating.running(factor) is not None
    if left and not busy:
        if (error := extrapolating.failure(factor)) is not None:
            guard.show(error)
        st.button(
            f"Measure {group(len(left))} runs of {extrapolating.WINDOWS} × {group(LENGTH)} tokens",
            on_click=extrapolating.start,
            args=(factor,),
            key="positions_measure",
        )
        st.markdown(":small[:gray[It takes some twenty seconds on a laptop; then it is kept.]]")
    if busy:
        st.fragment(_progress, run_every=POLL_S)(factor, len(left))
    extrapolation_charts.encodings()
    extrapolation_charts.scalings(factor)
    extrapolation_charts.pairs(factor)
    extrapolation_charts.attention(factor)


def _progress(factor: int, left: int) -> None:
    """The line of a measurement under way; when a run has ended, the page runs again."""
    if len(extrapolating.missing(extrapolating.everything(factor))) < left:
        st.rerun()
    cancel = partial(extrapolating.cancel, factor)
    page.progress(extrapolating.running(factor), cancel, busy=True, key="positions_cancel")
