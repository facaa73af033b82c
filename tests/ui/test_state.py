from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from lmcore.checkpoint import sources
from ui import state


def _read():
    import streamlit as st

    from ui import state

    layer = state.integer("attention_layer", 3, 0, 29)
    scale = state.option("attention_scale", ("raw", "without sink"), "raw")
    st.write(f"{layer} {scale}")


def read(**link: str) -> AppTest:
    at = AppTest.from_function(_read)
    for key, value in link.items():
        at.query_params[key] = value
    return at.run()


def test_view_state_comes_from_the_address():
    at = read(attention_layer="29", attention_scale="without sink")
    assert at.markdown[0].value == "29 without sink"
    assert not at.warning


def test_without_it_the_defaults_stand():
    assert read().markdown[0].value == "3 raw"


@pytest.mark.parametrize("bad", ["30", "-1", "1.5", "", "two", "٣", "9" * 5000, "0" * 5000, "<b>"])
def test_bad_number_falls_back_and_is_named(bad: str):
    at = read(attention_layer=bad)
    assert at.markdown[0].value == "3 raw"
    assert "0 to 29" in at.warning[0].value
    assert len(at.warning[0].value) < 300


def test_bad_option_falls_back_and_is_named_without_becoming_markdown():
    at = read(attention_scale="*loud*")
    assert at.markdown[0].value == "3 raw"
    assert r"\*loud\*" in at.warning[0].value


def _pairs():
    import streamlit as st

    from ui import state

    st.text(repr(state.numbered("decode_forced", 10, 100)))


def pairs(given: str) -> AppTest:
    at = AppTest.from_function(_pairs)
    at.query_params["decode_forced"] = given
    return at.run()


def test_pairs_come_from_the_address():
    at = pairs("3:17,9:99")
    assert at.text[0].value == "{3: 17, 9: 99}"
    assert not at.warning
    assert not pairs("").warning


@pytest.mark.parametrize("bad", ["10:1", "3:100", "3", "3:", "3:1:2", "-1:1", "a:b", ",", "٣:1", "1:" + "9" * 5000])
def test_bad_pairs_are_named_and_ignored(bad: str):
    at = pairs(bad)
    assert at.text[0].value == "{}"
    assert "9:99" in at.warning[0].value.replace("\\", "")


def _controls():
    import streamlit as st

    from ui import state

    state.warn_of_link()
    state.controls()
    st.text(repr(state.prompt()))
    st.text(repr(state.choice()))


def controls(**link: str) -> AppTest:
    at = AppTest.from_function(_controls)
    for key, value in link.items():
        at.query_params[key] = value
    return at.run()


def test_link_fills_the_shared_controls():
    at = controls(model=state.TYPED, path="/models/mine", prompt="hello", device="cpu", dtype="bfloat16")
    assert at.text[0].value == "'hello'"
    assert at.text[1].value == repr(state.Choice(state.TYPED, "/models/mine", "cpu", "bfloat16"))
    assert not at.warning


@pytest.mark.parametrize("text", ["", "<s>", "<b>x</b>", "$x$", "tab\there", "two\nlines", "日本語 🙂", " spaces "])
def test_prompt_is_what_was_typed(text: str):
    at = controls()
    at.text_area(key="prompt").set_value(text).run()
    assert at.text[0].value == repr(text)


def test_unknown_values_are_named_and_the_defaults_stand():
    at = controls(model="GPT-5", device="abacus", dtype="float8")
    assert len(at.warning) == 3
    assert "GPT\\-5" in at.warning[0].value
    assert at.text[1].value == repr(state.Choice(state.default_model(), state.SOURCES[state.default_model()]))


def test_prompt_longer_than_the_widget_allows_is_cut():
    at = controls(prompt="x" * (state.MAX_PROMPT_CHARS + 10))
    assert at.text[0].value == repr("x" * state.MAX_PROMPT_CHARS)


def test_path_is_asked_for_only_when_it_is_needed():
    assert not controls(model=state.BUILTIN).text_input
    assert controls(model=state.TYPED).text_input(key="path")


@pytest.mark.parametrize(
    ("link", "source"),
    [
        ({"model": state.GEMMA3}, "package:gemma3-270m"),
        ({"model": "Teaching model: ALiBi"}, "teaching:alibi"),
        ({"model": state.HUB, "hub": "owner/name@main"}, "hub:owner/name@main"),
        ({"model": state.HUB, "hub": "hub:owner/name"}, "hub:owner/name"),
        ({"model": state.HUB, "hub": "https://huggingface.co/owner/name"}, "https://huggingface.co/owner/name"),
        ({"model": state.HUB, "hub": " "}, ""),
        ({"model": state.CONFIG}, "config:gpt2"),
        ({"model": state.CONFIG, "config": "Llama 3.1 405B"}, "config:llama-3.1-405b"),
        ({"model": state.CONFIG, "config": state.PASTED, "json": '{"a": 1}'}, 'json:{"a": 1}'),
        ({"model": state.CONFIG, "config": state.PASTED}, "json:"),
    ],
)
def test_link_names_every_source(link: dict[str, str], source: str):
    at = controls(**link)
    assert at.text[1].value == repr(state.Choice(link["model"], source))


def _chosen_again():
    import streamlit as st

    from ui import state

    choices = {
        "path": state.Choice(state.TYPED, "/models/mine", "cpu", "bfloat16"),
        "hub": state.Choice(state.HUB, "hub:owner/name"),
        "picked": state.Choice(state.CONFIG, "config:deepseek-v3"),
        "pasted": state.Choice(state.CONFIG, 'json:{"a": 1}'),
        "built in": state.Choice(state.BUILTIN, "builtin"),
    }
    for name, wanted in choices.items():
        st.button(name, on_click=state.choose, args=(wanted,), key=f"take {name}")
    state.controls()
    for name, wanted in choices.items():
        if state.choice() == wanted:
            st.text(name)


@pytest.mark.parametrize("name", ["path", "hub", "picked", "pasted", "built in"])
def test_an_earlier_choice_can_be_taken_up_again(name: str):
    at = AppTest.from_function(_chosen_again).run()
    at.button(key=f"take {name}").click().run()
    assert [text.value for text in at.text] == [name]


def test_without_smollm2_a_trained_model_is_the_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "available", lambda: True)
    assert state.default_model() == state.SMOLLM2
    monkeypatch.setattr(sources, "available", lambda: False)
    assert state.SOURCES[state.default_model()] == "teaching:rope-gqa"
    monkeypatch.setattr(state, "TEACHING", {})
    assert state.default_model() == state.BUILTIN


def test_random_weights_come_last():
    assert state.MODELS[-1] == state.BUILTIN
    assert set(state.TEACHING) < set(state.MODELS)
