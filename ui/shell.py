"""Round every page: navigation, the sidebar, the guard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import streamlit as st

from figures.format import group
from ui import models, runs, state
from ui.guard import guard
from ui.markdown import plain

_ROOT = Path(__file__).parent.parent
_LOGO = _ROOT / "assets" / "logo"
SIDEBAR_PX = 276

# File, title, path in the address; the first is the landing page.
PAGES = (
    ("overview", "Overview", ""),
    ("tokens", "Tokens and logits", "tokens"),
    ("attention", "Attention", "attention"),
    ("decode", "Decode, step by step", "decode"),
)

_THREAD = threading.local()


def main() -> None:
    """The whole app, once per run: app.py calls this and nothing else."""
    with _running():
        page = _frame()
        with st.container():
            state.warn_of_link()
        with st.sidebar:
            state.controls()
            note = st.empty()
        told = _tell(note)
        with guard():
            page.run()
        if models.in_memory() is not told:
            _tell(note)


def ensure() -> None:
    """Every page begins with this. On the first visit to a fresh server that is not to the landing page, Streamlit
    finds the folder pages/ and runs the page's file alone; the page then hands over to the whole app."""
    if not getattr(_THREAD, "running", False):
        _frame()
        st.rerun()


def _frame() -> Any:
    st.set_page_config(
        page_title="Glassbox",
        page_icon=str(_LOGO / "icon.svg"),
        layout="wide",
        initial_sidebar_state=SIDEBAR_PX,
    )
    st.logo(str(_LOGO / f"logo-{st.context.theme.type or 'light'}.svg"), size="large")
    return st.navigation(
        [
            st.Page(str(_ROOT / "pages" / f"{name}.py"), title=title, url_path=path or None, default=not path)
            for name, title, path in PAGES
        ]
    )


@contextmanager
def _running() -> Iterator[None]:
    _THREAD.running = True
    try:
        yield
    finally:
        _THREAD.running = False


def _tell(note: Any) -> models.Opened | None:
    """Under the controls: one sentence of the load report and the prompt's length. Returns the model it tells of."""
    opened = models.in_memory()
    if opened is None:
        return None
    report = opened.report
    counts = f"{group(report.parameter_count)} parameters in {group(report.tensor_count)} tensors"
    loose = f"{_count(report.missing)} missing, {_count(report.unused)} unused"
    if opened.random_weights:
        loose = "random weights, so its predictions mean nothing"
    words = f"{counts}; {loose}. {opened.device}, {opened.dtype}."
    with note.container(), guard():
        st.markdown(f":small[:gray[{plain(words)} {plain(_length(opened))}]]")
    return opened


def _count(names: Any) -> str:
    return group(len(names)) if names else "none"


def _length(opened: models.Opened) -> str:
    prompt = runs.prompt(opened)
    if prompt.total > len(prompt.ids):
        return f"The prompt has {group(prompt.total)} tokens; the first {group(len(prompt.ids))} are used."
    return f"{group(prompt.total)} token{'' if prompt.total == 1 else 's'} in the prompt."
