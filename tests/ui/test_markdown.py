from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from ui.markdown import plain

NASTY = [
    "<s>",
    "<b>x</b>",
    "$x$",
    "*a* _b_ `c` ~d~ **e**",
    "[link](http://x.y)",
    "![image](x.png)",
    "# heading",
    "- item",
    "1. item",
    ":red[text] :material/error: :smile:",
    "&lt; &#60;",
    "back\\slash",
    "| a | b |",
    "https://example.com and www.example.com",
    "> quote",
    "a  \tb",
]


@pytest.mark.parametrize("text", NASTY)
def test_commonmark_shows_the_text_itself_and_nothing_else(text: str):
    html = MarkdownIt("commonmark").render(plain(text))
    shown = html.removeprefix("<p>").removesuffix("</p>\n")
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        shown = shown.replace(entity, character)
    assert shown == " ".join(text.split())


@pytest.mark.parametrize("character", list("$:[]~<>"))
def test_streamlits_own_marks_are_escaped(character: str):
    assert plain(character) == "\\" + character
