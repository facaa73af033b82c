"""Heads and the KV cache: who reads whom, what it costs to store, and what is lost by storing less."""

import streamlit as st

from ui import (
    kv_calculator_view,
    kv_measured_view,
    kv_text,
    models,
    page,
    quantise_view,
    shell,
    state,
    surgery_view,
    who_reads_view,
)
from ui.markdown import plain

OPEN = "kv_open"


def measured() -> None:
    """What needs a forward: at once where the model is open already, else when it is asked for."""
    held = models.in_memory()
    if held is None and st.query_params.get(OPEN) != "true":
        name = plain(models.name_of(state.choice()))
        page.section(
            "On the running model",
            "Everything above follows from configs. Below, the same numbers are read off a running model’s cache, its "
            "heads are merged and its cache is quantised.",
        )
        st.button(f"Open {name}", on_click=lambda: st.query_params.update({OPEN: "true"}), key="kv_open_model")
        return
    opened = models.current(height=320)
    page.section("The text that is read", "By the running model, in what follows.")
    ids = kv_text.choose(opened)
    kv_measured_view.section(opened, ids)
    surgery_view.section(opened, ids)
    quantise_view.section(opened, ids)


shell.ensure()
page.head(
    "Chapter 5",
    "Heads and the KV cache",
    "Every token leaves its keys and values behind for those that follow. How many, decides how long a text may be.",
)
who_reads_view.section()
kv_calculator_view.section()
measured()
