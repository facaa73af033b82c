"""Text from outside (a prompt, a token, a file name, an error's words) on its way into a Streamlit text element."""

from __future__ import annotations

import re

# Everything that CommonMark, Streamlit's `:directive[...]`, its `$math$` and raw HTML give a meaning to.
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$&:=^\"'@/])")


def plain(text: str) -> str:
    """`text` as Markdown that shows exactly these characters, line breaks as spaces."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
