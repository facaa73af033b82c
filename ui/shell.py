"""Round every page: navigation, the sidebar, the guard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from figures.format import group
from lmcore import teaching
from ui import components, models, proofs, runs, state
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
    ("positions", "Positions and RoPE", "positions"),
    ("kv", "Heads and the KV cache", "kv"),
    ("cost", "Cost", "cost"),
    ("decode", "Decode, step by step", "decode"),
    ("model", "Model", "model"),
)

_THREAD = threading.local()


def main() -> None:
    """The whole app, once per run: app.py calls this and nothing else."""
    with _running():
        page = _frame()
        with st.container():
            state.warn_of_link()
        with st.sidebar:
            notes = _Notes(state.controls(), st.empty())
            # The first component of a page waits for Streamlit's script of components; this one sends for it early.
            components.copylink({"model": state.choice().label, "prompt": state.prompt()})
        settled = models.settled()
        told = notes.tell(choices=settled)
        with guard():
            page.run()
        if models.in_memory() is not told or not settled:
            notes.tell(choices=told is None or not settled)


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


class _Notes(NamedTuple):
    """The places in the sidebar that are filled once the model is known."""

    under_prompt: DeltaGenerator
    at_the_end: DeltaGenerator

    def tell(self, *, choices: bool) -> models.Opened | None:
        """Of the model in use: the load report in a sentence, the comparison, the prompt. Returns that model.

        With `choices` what may be chosen for the prompt of this model is drawn, too: once in a run.
        """
        opened = models.in_memory()
        if opened is None:
            return None
        with self.at_the_end.container():
            lines = [_loaded(opened), proofs.sentence(opened)]
            st.markdown(f":small[:gray[{plain(' '.join(line for line in lines if line))}]]")
        with self.under_prompt.container(gap="xsmall"), guard():
            if choices and runs.has_chat(opened):
                st.checkbox("as a chat message", key="chat", bind="query-params")
            for line in runs.remarks(opened):
                st.markdown(f":small[:gray[{line}]]")
        return opened


def _loaded(opened: models.Opened) -> str:
    report = opened.report
    if opened.weights is None:
        return f"{group(report.parameter_count)} parameters by its config, without weights."
    counts = f"{group(report.parameter_count)} parameters in {group(report.tensor_count)} tensors"
    loose = f"{_count(report.missing)} missing, {_count(report.unused)} unused"
    if opened.random_weights:
        loose = "random weights, so its predictions mean nothing"
    return f"{counts}; {loose}. {opened.device}, {opened.dtype}.{_trained(opened)}"


def _trained(opened: models.Opened) -> str:
    """What a teaching model reached, and what an n-gram model of the same text does."""
    kind, _, name = opened.choice.source.partition(":")
    if kind != "teaching":
        return ""
    record = teaching.record(name)
    if "planted" in record:
        return f" Trained to copy: planted induction score {record['planted']['induction']:.2f}."
    loss, ngram = (record[of]["nats_per_token"] for of in ("heldout", "ngram"))
    return f" Held-out loss {loss:.2f} nats; {ngram:.2f} for a {record['ngram']['order']}-gram model of the same text."


def _count(names: Any) -> str:
    return group(len(names)) if names else "none"
