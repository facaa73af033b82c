"""Every page from app.py, with the prompts that break pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from ui import shell, state

ROOT = Path(__file__).parent.parent.parent
NAMES = [name for name, _, _ in shell.PAGES]
# They open no model by themselves, so the sidebar tells of none.
CALCULATORS = {"kv", "cost"}
PROMPTS = {
    "empty": "",
    "one token": "a",
    "repeated": "the the the the",
    "special": "<s> </s> <|im_end|>",
    "html": "<b>x</b> <script>alert(1)</script>",
    "math and markdown": "$x$ *y* `z` [a](b) :red[c]",
    "white space": "tab\there\nand  a line\n",
    "many scripts": "日本語 🙂 मानक هذا",
    "over the limit": "word " * 700,
}


def open_page(name: str, **link: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for key, value in {"model": state.BUILTIN, **link}.items():
        at.query_params[key] = value
    at.switch_page(f"pages/{name}.py").run()
    return at


def test_the_pages_of_the_navigation_are_the_files_of_the_folder():
    assert sorted(NAMES) == sorted(path.stem for path in (ROOT / "pages").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", PROMPTS.values(), ids=PROMPTS.keys())
def test_page_works_with(name: str, text: str):
    at = open_page(name, prompt=text)
    assert not at.exception
    assert [e.value for e in at.error] == []
    assert [t.value for t in at.title]
    assert at.sidebar.text_area(key="prompt").value == text


@pytest.mark.parametrize("name", NAMES)
def test_prompt_is_never_markdown(name: str):
    """What was typed reaches no Markdown or HTML element as it is: there it could become markup."""
    mark = "<u>zq</u>$zq$"
    at = open_page(name, prompt=mark)
    bodies = [element.value for element in [*at.markdown, *at.title, *at.subheader, *at.caption]]
    bodies += [element.proto.body for element in at.get("html")]
    assert not [body for body in bodies if "<u>zq" in body or "$zq$" in body]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CALCULATORS])
def test_page_says_that_random_weights_are_random(name: str):
    sidebar = " ".join(element.value for element in open_page(name).sidebar.markdown)
    assert "random weights" in sidebar


def test_sidebar_tells_the_load_report_and_the_prompts_length():
    at = open_page("overview", prompt="word " * 700)
    sidebar = " ".join(element.value for element in at.sidebar.markdown).replace("\\", "")
    assert "parameters in" in sidebar
    assert "tensors" in sidebar
    assert "the first" in sidebar


def test_sidebar_tells_of_the_model_that_was_just_chosen():
    at = open_page("tokens", device="cpu", dtype="float32")
    at.selectbox(key="dtype").set_value("bfloat16").run()
    sidebar = " ".join(element.value for element in at.sidebar.markdown).replace("\\", "")
    assert "cpu, bfloat16." in sidebar
    assert "float32" not in sidebar.replace("bfloat16", "")


def test_shared_choices_survive_a_change_of_page():
    at = open_page("tokens", dtype="bfloat16")
    at.text_area(key="prompt").set_value("kept").run()
    at.switch_page("pages/attention.py").run()
    assert at.text_area(key="prompt").value == "kept"
    assert at.selectbox(key="dtype").value == "bfloat16"
    assert at.selectbox(key="model").value == state.BUILTIN
