"""Positions and RoPE: how a query and a key know how far apart they are, and what stretching the positions does."""

from __future__ import annotations

import streamlit as st

from lmcore.config import ModelConfig
from ui import (
    encodings_view,
    extrapolation_view,
    models,
    page,
    pairs_view,
    relative_view,
    runs,
    scalings_view,
    shell,
    state,
    turned,
    turning_view,
)
from ui.guard import guard


def without_rope(opened: models.Opened) -> None:
    """What stands here for a model whose q and k nothing turns, with a way to one that has RoPE."""
    st.info(f"This model has no RoPE: {instead(opened.config)}.")
    other = state.default_model()
    if other == opened.choice.label:
        other = state.BUILTIN
    wanted = state.Choice(label=other, source=state.SOURCES[other])
    st.button(f"Open {other}, which has RoPE", on_click=state.choose, args=(wanted,), key="positions_other_model")


def instead(cfg: ModelConfig) -> str:
    """How a model without RoPE tells its positions apart, as the end of a sentence."""
    if cfg.learned_positions:
        return "its positions are a learned table, added to the embedding"
    if cfg.sinusoidal:
        return "its positions are a fixed table of sines, added to the embedding"
    if cfg.relative_bias is not None:
        return "a learned bias for each distance is added to the scores, as in T5"
    if cfg.alibi is not None:
        return "ALiBi takes a head’s slope times the distance off each score"
    return "no q and no k is turned by its position"


def calculated(opened: models.Opened, prompt: runs.Prompt) -> None:
    """The sections about the model's own RoPE: two that need a run, and two that its config is enough for."""
    if prompt.ids:
        turning_view.section(opened, prompt)
    elif opened.weights is not None:
        page.empty_prompt()
    pairs_view.section(opened)
    if prompt.ids:
        relative_view.section(opened, prompt)
    scalings_view.section(opened, prompt)


def main() -> None:
    page.head(
        "Chapter 4",
        "Positions and RoPE",
        "Each pair of numbers in a query and a key turns with its position, like the hands of many clocks. "
        "Their product then knows only how far apart the two stand.",
    )
    opened = models.current(height=420, config_only=True)
    prompt = runs.prompt(opened)
    with guard():
        if turned.layers(opened.config):
            calculated(opened, prompt)
        else:
            without_rope(opened)
    extrapolation_view.section(opened)
    encodings_view.section(opened)


shell.ensure()
main()
