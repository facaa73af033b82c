"""The quiet button that shows how a number comes about, term by term, with the numbers filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from figures.derived import derivation_markdown
from figures.format import unbroken
from lmcore.derivations import Derivation


def button(label: str, make: Callable[[], Sequence[Derivation]], *, key: str) -> None:
    """A popover with derivations, worked out when it is open; with several, each under its name."""
    with st.popover(label, type="tertiary", key=key, on_change="rerun", width="content") as popover:
        if not popover.open:
            return
        found = make()
        for derivation in found:
            heading = f"**{derivation.name}**\n\n" if len(found) > 1 else ""
            st.markdown(unbroken(heading + derivation_markdown(derivation)))
