"""The components as they are handed to Streamlit: one module each, its payload whole, its answers not trusted."""

from __future__ import annotations

import re

import pytest
from streamlit.testing.v1 import AppTest

from figures.payload import pack, unpack
from ui import components

NAMES = sorted(path.parent.name for path in components.FOLDER.glob("*/main.js"))
DECLARED = re.compile(r"^(?:export default )?(?:async )?(?:function\s+|class\s+|const\s+|let\s+)(\w+)", re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_scripts_join_to_one_module_with_main_last_and_no_name_twice(name):
    files = components.scripts(name)
    assert files[-1].name == "main.js"
    texts = [file.read_text() for file in files]
    assert [text.count("export default function") for text in texts] == [0] * (len(files) - 1) + [1]
    names = [found for text in texts for found in DECLARED.findall(text)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", NAMES)
def test_no_script_makes_markup_out_of_text_or_asks_another_machine(name):
    for file in components.scripts(name):
        text = file.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|\bfetch\(|import\s*\(|^import\s", text, re.MULTILINE)


def test_the_payload_arrives_whole():
    def app() -> None:
        from figures.payload import pack
        from ui import components

        for name in ("strip", "arch", "cache"):
            components.mount(name, pack({"name": name, "text": "</script>"}), key=name)

    at = AppTest.from_function(app).run()
    assert not at.exception
    sent = [unpack(element.proto.bytes)[0] for element in at.get("bidi_component")]
    assert sent == [{"name": name, "text": "</script>"} for name in ("strip", "arch", "cache")]


def test_a_component_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        components.mount("no such component", pack({}), key="x")


@pytest.mark.parametrize(
    ("query", "view"),
    [
        ({}, (3, 1)),
        ({"layer": "7"}, (7, 1)),
        ({"layer": "7", "head": "2"}, (7, 2)),
        ({"layer": "-1", "head": "x"}, (3, 1)),
        ({"layer": "²", "head": "1e3"}, (3, 1)),
        ({"layer": "9" * 40}, (3, 1)),
    ],
)
def test_layer_and_head_asked_for_in_the_address(query, view):
    def app() -> None:
        import streamlit as st

        from ui import components

        st.text(components.attention_view("maps", layer=3, head=1))

    at = AppTest.from_function(app)
    for name, value in query.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception
    assert at.text[0].value == str(view)
