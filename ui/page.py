"""What every page is made of: its head, its sections, formulas, the row of quiet buttons, the running source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from figures.format import unbroken
from ui import state
from ui.guard import fragment
from ui.job import Job
from ui.markdown import plain

PROSE_WIDTH = 680
_ROOT = Path(__file__).parent.parent
_EYEBROW = (
    "font:500 0.75rem/1.2 'IBM Plex Sans',sans-serif;letter-spacing:.055em;text-transform:uppercase;"
    "opacity:.72;margin:0"
)
_IDEA = (
    "font:400 1.25rem/1.45 Newsreader,Georgia,serif;max-width:46rem;text-wrap:balance;"
    "margin:.25rem 0 .75rem;opacity:.86"
)


def head(eyebrow: str, title: str, idea: str) -> None:
    """Chapter (or model and pass), title, and the idea in a sentence; eyebrow and idea are plain text."""
    if st.session_state.get("_page") != title:
        st.session_state["_page"], st.session_state["_drawn"] = title, set()
    with st.container(gap=None):
        st.html(f'<p style="{_EYEBROW}">{escape(eyebrow)}</p>')
        st.title(title, anchor=False)
        st.html(f'<p style="{_IDEA}">{escape(idea)}</p>')


def section(title: str, text: str = "") -> None:
    """Space, a heading that says what is shown, and prose (Markdown of our own writing) at reading width."""
    st.space("small")
    st.subheader(title, anchor=False)
    if text:
        prose(text)


def prose(text: str) -> None:
    """Markdown of our own writing at reading width. Text from outside goes through `ui.markdown.plain` first."""
    with st.container(width=PROSE_WIDTH):
        st.markdown(unbroken(text))


def notice(points: list[str]) -> None:
    """What to notice: up to three sentences about this run, computed and not written beforehand."""
    prose("\n".join(f"- {point}" for point in points[:3]))


def formula(*lines: str) -> None:
    """One formula a line, in LaTeX."""
    with st.container(width=PROSE_WIDTH):
        for line in lines:
            st.latex(line, width="content")


def awaited(key: str, *, height: int, phone: int | None = None) -> Callable[[], DeltaGenerator]:
    """Keeps the place of a figure that takes time; what is returned is called, and entered, once it can be drawn.

    The first time on this page a skeleton of its `height` stands there. From then on the figure before stays, dimmed by
    Streamlit, and takes the new data where it is: replaced by a skeleton it would forget what was selected in it.
    `phone`: its height on a phone. While the browser then fetches the figure's script, `at_least` keeps the place.
    """
    drawn = st.session_state.setdefault("_drawn", set())
    if key in drawn:
        box = st.container()
        return lambda: box
    slot = st.empty()
    # No block: what is drawn in a block's place would inherit its children.
    slot.skeleton(height=_by_device(height, phone))

    def place() -> DeltaGenerator:
        drawn.add(key)
        return slot.container()

    return place


@contextmanager
def at_least(height: int, phone: int | None = None) -> Iterator[None]:
    """Keeps `height` pixels for what is inside (`phone`: on a phone) while the browser still fetches the scripts
    that draw it, so that what stands below does not jump when they arrive. What is inside may be taller."""
    # A thin column beside it holds the row open; the components that stand here reach over it, `components.KEPT`.
    row = st.container(horizontal=True, horizontal_alignment="right", gap=None)
    inside = row.container()
    row.container(width=1, height=_by_device(height, phone), border=False).space(1)
    with inside:
        yield


def _by_device(height: int, phone: int | None) -> int:
    on_phone = "Mobi" in (st.context.headers.get("User-Agent") or "")
    return phone if phone is not None and on_phone else height


def progress(job: Job | None, cancel: Callable[[], None], *, busy: bool, key: str) -> None:
    """The line of work that is under way, with a button that cancels it, in a fragment that looks again by itself.

    `busy`: the work was under way when the page ran, which then runs again as soon as it has ended.
    """
    if job is None:
        if busy:
            st.rerun()
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown(f":small[:gray[{plain(job.look())}]]", width="content")
        st.button("Cancel", type="tertiary", on_click=cancel, key=key)


def tools() -> DeltaGenerator:
    """The row for the quiet buttons under a figure: Source, CSV, PNG."""
    return st.container(horizontal=True, gap="small")


def source(function: str, snippet: str, *, key: str) -> None:
    """A popover with the code that runs: `function` ("lmcore.attention.attend") as it stands on disk, read when opened,
    and a snippet that makes the figure's numbers again in a notebook."""
    with st.container(width="content"):
        _source(function, snippet, key)


def csv(text: str, name: str, *, key: str, label: str = "CSV") -> None:
    """A quiet button that saves the figure's numbers (`figures.table.csv_text`) under a file name."""
    st.download_button(
        label, text, file_name=name, mime="text/csv", type="tertiary", on_click="ignore", width="content", key=key
    )


@fragment
def _source(function: str, snippet: str, key: str) -> None:
    with st.popover("Source", type="tertiary", key=key, on_change="rerun") as popover:
        if not popover.open:
            return
        found = resolve(function)
        lines, first = inspect.getsourcelines(found)
        file = Path(inspect.getsourcefile(found) or "").resolve().relative_to(_ROOT)
        st.markdown(f":small[:gray[`{file}`, from line {first}]]")
        st.code(_dedented(lines), language="python")
        st.markdown(":small[:gray[The same numbers in a notebook]]")
        st.code(snippet.strip(), language="python")


def resolve(dotted: str) -> Callable[..., object]:
    """The function or class that a dotted name of lmcore stands for, as it runs (wrappers taken off)."""
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: object = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        assert callable(found), dotted
        return inspect.unwrap(found)
    raise ModuleNotFoundError(dotted)


def _dedented(lines: list[str]) -> str:
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "".join(line[indent:] if line.strip() else "\n" for line in lines)


def empty_prompt() -> None:
    """What stands in a figure's place while the prompt is empty: one sentence and the control that fills it."""

    def fill() -> None:
        st.session_state["prompt"] = state.EXAMPLE_PROMPT

    st.markdown("The prompt is empty: there is no token to run. Type one in the sidebar, or take the example.")
    st.button("Use the example prompt", on_click=fill, key="empty_prompt")
