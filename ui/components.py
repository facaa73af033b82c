"""The canvas components: every folder of assets/components registered once, and a mount function for each.

A component is hand-written ES modules without a build step. Its module is the shared scripts, then the folder's own in
the order of their names, with main.js (which holds the `export default function`) last; its style is shared.css, then
style.css. Scripts therefore see each other's top-level names, and only main.js exports.

The payload, one blob of bytes made by `figures`, is the whole of a component's data: bytes inside a dict would become
text without an error. View state (which layer, which head) stays in the browser and in the page's address; only what
Python must act on comes back, as a value that lasts (state) under the component's key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from figures.payload import pack

FOLDER = Path(__file__).parent.parent / "assets" / "components"
_SHARED = FOLDER / "shared"
KEPT = {"arch", "attention", "decode", "loss", "strip", "turning"}
"""Components that pages mount in `page.at_least`: they reach over the strip that stands beside them there."""


def scripts(name: str) -> list[Path]:
    """The script files of a component in the order in which they are joined into one module."""
    own = sorted((FOLDER / name).glob("*.js"), key=lambda path: (path.name == "main.js", path.name))
    return [*sorted(_SHARED.glob("*.js")), *own]


def styles(name: str) -> list[Path]:
    """The style files of a component in the order in which they apply."""
    return [_SHARED / "shared.css", *sorted((FOLDER / name).glob("*.css"))]


def _joined(files: list[Path]) -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


_RENDERERS: Mapping[str, Callable[..., Any]] = {
    folder.name: component(
        f"glassbox_{folder.name}",
        html=f'<div class="gb{" kept" if folder.name in KEPT else ""}"></div>',
        css=_joined(styles(folder.name)),
        js=_joined(scripts(folder.name)),
    )
    for folder in sorted(FOLDER.iterdir())
    if (folder / "main.js").is_file()
}


def mount(
    name: str, payload: bytes, *, key: str, values: Mapping[str, Any] | None = None, triggers: Sequence[str] = ()
) -> Any:
    """Mounts the component of that folder name and returns its result, with an attribute for each value and trigger.

    `values` names what the component may send back with `setStateValue(name, value)` and what each is until then.
    `triggers` names what it may send with `setTriggerValue(name, value)`: there for one run, None in all others.
    Every such message runs the page (or the fragment) again.
    """
    given = dict(values or {})
    callbacks: dict[str, Any] = {f"on_{name}_change": _nothing for name in (*given, *triggers)}
    return _RENDERERS[name](key=key, data=payload, default=given, **callbacks)


def sent(key: str, name: str, default: Any = None) -> Any:
    """What a component mounted under `key` last sent back under `name`; `default` before it did.

    For a page whose payload depends on the answer, which is needed before the component is mounted again.
    """
    state = st.session_state.get(key)
    if state is None:
        return default
    value = state.get(name)
    return default if value is None else value


def strip(payload: bytes, *, key: str) -> int | None:
    """The token strip (payload: `figures.strip.strip_payload`); the selected position, if the payload asks for it."""
    return _whole_number(mount("strip", payload, key=key, values={"position": None}).position)


def copylink(always: Mapping[str, str], *, key: str = "copy_link") -> None:
    """A button that copies the address as it stands; `always` are choices that a link names even where it need not."""
    mount("copylink", pack({"always": dict(always)}), key=key)


def arch(payload: bytes, *, key: str) -> str | None:
    """The architecture diagram (payload: `figures.overview.arch_payload`); the url path of the page that was clicked.

    A page that switches to it keeps the session; one that does not sees the browser load that page's address.
    """
    page = mount("arch", payload, key=key, triggers=("page",)).page
    return page if isinstance(page, str) else None


def twins(payload: bytes, *, key: str) -> str | None:
    """Number tiles (payload: `figures.twins.tiles_payload`); the name of the tile whose measurement was asked for."""
    name = mount("twins", payload, key=key, triggers=("run",)).run
    return name if isinstance(name, str) else None


def cache(payload: bytes, *, key: str) -> None:
    """The KV cache as it fills (payload: `figures.cache.cache_payload`)."""
    mount("cache", payload, key=key)


def decode(payload: bytes, *, key: str) -> tuple[int, int] | None:
    """The steps so far (payload: `figures.decode.decode_payload`); (step, token id) where another token was chosen.

    Step counts from 0. The caller checks both against its own steps and vocabulary.
    """
    chosen = mount("decode", payload, key=key, triggers=("choose",)).choose
    if not isinstance(chosen, Mapping):
        return None
    step, token = _whole_number(chosen.get("step")), _whole_number(chosen.get("token"))
    return None if step is None or token is None else (step, token)


def attention(payload: bytes, *, key: str) -> None:
    """The attention maps (payload: `figures.attention.attention_payload`).

    The layer and head asked for, of which the payload does not hold the exact weights, are read before mounting, by
    `attention_view`.
    """
    mount("attention", payload, key=key, values={"wanted": None})


def attention_view(key: str, *, layer: int, head: int) -> tuple[int, int]:
    """The layer and head whose exact weights the next payload must hold: those asked for, in the address, or given."""
    wanted = sent(key, "wanted", st.query_params)
    if not isinstance(wanted, Mapping):
        return layer, head
    asked_layer, asked_head = _whole_number(wanted.get("layer")), _whole_number(wanted.get("head"))
    return (layer if asked_layer is None else asked_layer), (head if asked_head is None else asked_head)


def _whole_number(value: object) -> int | None:
    """What the browser sent, if it is a whole number that is not negative: it is not to be trusted."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**53 and value == int(value) else None


def _nothing() -> None:
    """Streamlit creates a value only where there is a callback for it."""
