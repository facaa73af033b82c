"""The one place that catches errors and shows them: lmcore's in their own words, any other with an apology."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import streamlit as st

from lmcore.errors import Cancelled, LmcoreError, NotInModel
from ui.markdown import plain

MODEL_PAGE = "pages/model.py"
F = TypeVar("F", bound=Callable[..., Any])

APOLOGY = (
    "**Glassbox itself failed here; your input is not to blame.** "
    "What was loaded stays loaded. The details are in the terminal that runs the app."
)


def message(error: LmcoreError) -> str:
    """The error as Markdown: found (bold), expected, where, what to do, in that order, every word of it escaped."""
    found = plain(error.found).rstrip(".")
    text = f"**{found}"
    text += f", expected {plain(error.expected)}.**" if error.expected else ".**"
    if error.where:
        text += f" In {plain(error.where)}."
    return f"{text} {plain(error.todo)}".strip()


def show(error: LmcoreError) -> None:
    """Show an error of lmcore in place of a figure; that the model lacks a thing, or that the user stopped, is none."""
    if isinstance(error, Cancelled):
        st.info(message(error))
        return
    if isinstance(error, NotInModel):
        st.info(message(error))
        st.page_link(MODEL_PAGE, label="Choose another model", width="content")
        return
    st.error(message(error), icon=":material/error:")


@contextmanager
def guard() -> Iterator[None]:
    """Whatever fails inside is shown here, and what was drawn before stays.

    Streamlit's own signals (rerun, stop) are no `Exception` and pass through.
    """
    try:
        yield
    except LmcoreError as error:
        show(error)
    except Exception:
        traceback.print_exc(file=sys.stderr)
        st.error(APOLOGY, icon=":material/error:")


def fragment(draw: F, *, key: str | None = None) -> F:
    """`st.fragment` with the guard inside, since a fragment runs again without the shell round it.

    A callback may run it again by its `key`, without the page.
    """

    @wraps(draw)
    def guarded(*args: Any, **kwargs: Any) -> None:
        with guard():
            draw(*args, **kwargs)

    return st.fragment(guarded, key=key)  # type: ignore[return-value]
