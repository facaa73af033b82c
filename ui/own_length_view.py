"""The loaded model beyond its trained length: estimate first, then the loss by position under each scaling tried."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from figures.extrapolation import Curve, curves_payload, doublings, own_said
from figures.format import fixed, group, sig
from ui import components, extrapolating, guard, models, own_length, page, rotary
from ui.markdown import plain
from ui.own_length import OWN, Asked

POLL_S = 0.4
WINDOWS = (1, 2, 4)
BLOCKS = 32
"""Points on a line: the positions of a window fall into so many blocks."""
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


def name_of(kind: str) -> str:
    return extrapolating.NAMES.get(kind, kind)


def section(opened: models.Opened) -> None:
    """Controls, estimate, measurement and chart."""
    st.space("small")
    st.markdown(f"**The loaded model, {plain(opened.name)}.**")
    cfg = opened.config
    if opened.weights is None or opened.tokenizer is None:
        lack = "weights: nothing can be run" if opened.weights is None else "tokenizer: a text has no token ids for it"
        st.info(f"This model comes without {lack}.")
        return
    asked = _controls(opened)
    _run(opened, asked)
    measured = [
        (kind, found)
        for kind in own_length.kinds(cfg)
        if (found := own_length.losses(opened, replace(asked, kind=kind))) is not None
    ]
    if measured:
        _chart(opened, asked, measured)
    if cfg.learned_positions is not None:
        end = cfg.learned_positions - cfg.position_offset
        page.prose(
            f"Its positions are a learned table of {group(end)} rows. At position {group(end)} there is nothing to "
            "look up, so no length beyond can be chosen."
        )


def _controls(opened: models.Opened) -> Asked:
    lengths, kinds = own_length.lengths(opened.config), own_length.kinds(opened.config)
    default = next((length for length in lengths if length > own_length.trained(opened.config)), lengths[-1])
    with st.container(horizontal=True, gap="medium"):
        if len(lengths) > 1:
            length = st.select_slider(
                "Length, in tokens", lengths, default, key="positions_own_length", width=280, format_func=group
            )
        else:
            length = lengths[0]
        windows = st.segmented_control(
            "Windows", WINDOWS, default=2, key="positions_own_windows", required=True, **_LINK
        )
    kind = OWN
    if len(kinds) > 1:
        kind = st.segmented_control(
            "RoPE", kinds, default=OWN, key="positions_own_kind", required=True, format_func=name_of, **_LINK
        )
    if len(rotary.kinds(opened.config)) < 2:
        return Asked(int(length), int(windows), str(kind))
    scaled = rotary.choose(opened.config, "positions_own_layers")
    if said := rotary.reach_said(scaled):
        page.prose(f":small[:gray[{said}]]")
    return Asked(int(length), int(windows), str(kind), scaled.name)


def _run(opened: models.Opened, asked: Asked) -> None:
    """The button that measures, with its price in front of it; the progress of what is under way."""
    if own_length.running(opened) is not None:
        st.fragment(_progress, run_every=POLL_S)(opened)
        return
    if (error := own_length.failure(opened)) is not None:
        guard.show(error)
    if own_length.losses(opened, asked) is not None:
        return
    seconds = own_length.estimated(opened, asked)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if seconds is None:
            st.button("Estimate the time", on_click=own_length.estimate, args=(opened,), key="positions_own_estimate")
            st.markdown(
                f":small[:gray[One forward of {own_length.SAMPLE} tokens, timed.]]",
                width="content",
            )
        else:
            st.button("Measure", on_click=own_length.start, args=(opened, asked), key="positions_own_measure")
            st.markdown(
                f":small[:gray[About {duration(seconds)}: a forward of {own_length.SAMPLE} tokens, timed, times the "
                "ratio of FLOPs.]]",
                width="content",
            )


def duration(seconds: float) -> str:
    """Seconds to two figures, minutes from two on."""
    return f"{sig(seconds, 2)} s" if seconds < 120 else f"{fixed(seconds / 60, 0)} min"


def _progress(opened: models.Opened) -> None:
    cancel = partial(own_length.cancel, opened)
    page.progress(own_length.running(opened), cancel, busy=True, key="positions_own_cancel")


def _chart(opened: models.Opened, asked: Asked, measured: list[tuple[str, np.ndarray]]) -> None:
    from lmcore.extrapolate import blocks

    trained = own_length.trained(opened.config)
    width = max(1, asked.length // BLOCKS)
    order = own_length.kinds(opened.config)
    curves = []
    for kind, losses in measured:
        smooth = blocks(losses, width)
        curves.append(Curve(name_of(kind), order.index(kind), smooth.position, smooth.mean, smooth.error))
    text, _ = own_length.text_of(opened, asked.length * asked.windows)
    spread = "; the band is one standard error of it" if asked.windows > 1 else ""
    payload = curves_payload(
        curves,
        file="own-loss-by-position",
        label="Loss by position, the loaded model",
        x_title="position",
        y_title=f"loss in nats, mean of {group(width)} positions",
        unit="nats",
        width=width,
        first=1,
        x_word="positions",
        x_ticks=doublings(max(1, trained // 4), asked.length),
        x_range=(0, asked.length),
        verticals=((trained, f"trained to {group(trained)}"),) if asked.length > trained else (),
        note=f"Mean over {asked.windows} window{'s' if asked.windows > 1 else ''} of {text}{spread}.",
    )
    components.mount("curves", payload, key="positions_own")
    page.notice([own_said(name_of(kind), losses, trained) for kind, losses in measured][:3])
    with page.tools():
        page.source("lmcore.extrapolate.token_losses", snippet(opened, asked), key="positions_own_source")


def snippet(opened: models.Opened, asked: Asked) -> str:
    rope, layers = own_length.spec(opened.config, asked), own_length.scaled_layers(opened.config, asked)
    only = "" if layers is None else f", layers=frozenset({set(layers)!r})"
    return f"""
from lmcore.checkpoint import load_pretrained
from lmcore.extrapolate import token_losses, windows
from lmcore.specs import Rope

model, tokenizer, _ = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r})
texts = windows(tokenizer.encode(text), {asked.length}, {asked.windows})
token_losses(model, texts, {rope!r}{only})  # (windows, positions) in nats
"""
