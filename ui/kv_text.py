"""The text that a changed model or cache is measured on: a held-out excerpt, the prompt, or one's own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import streamlit as st

from figures.format import group
from lmcore import teaching
from ui import runs
from ui.models import Opened

MAX_TOKENS = 128
HELDOUT, PROMPT, OWN = "Held-out excerpt", "The prompt", "Your text"
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


def choose(opened: Opened) -> tuple[int, ...]:
    """The choice, and the first MAX_TOKENS ids of what was chosen; none where the text is empty."""
    limit = min(MAX_TOKENS, opened.config.max_positions)
    if opened.tokenizer is None:
        ids = runs.prompt(opened).ids[:limit]
        st.markdown(":small[:gray[This checkpoint has no tokenizer: the prompt’s ids are what is read.]]")
        return ids
    kind = st.segmented_control("Text", (HELDOUT, PROMPT, OWN), default=HELDOUT, key="kv_text", required=True, **_LINK)
    if kind == PROMPT:
        ids = runs.prompt(opened).ids
    elif kind == OWN:
        text = st.text_area("Your text", key="kv_own_text", height=116, max_chars=4000, **_LINK)
        ids = tuple(opened.tokenizer.encode(text)) if text else ()
    else:
        ids = tuple(opened.tokenizer.encode(_heldout()))
    used = ids[:limit]
    cut = f", the first of {group(len(ids))}" if len(ids) > limit and kind != HELDOUT else ""
    st.markdown(f":small[:gray[{group(len(used))} tokens{cut}.]]")
    return used


@lru_cache(maxsize=1)
def _heldout() -> str:
    """The beginning of the teaching family's held-out text (Shakespeare, which nobody owns)."""
    return teaching.HELDOUT.read_text(encoding="utf-8")[:2000]
