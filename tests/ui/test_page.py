from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from ui import page


def _head():
    from ui import page

    page.head("Chapter <3>", "Attention", "Weights & $sums$ <b>.")


def test_head_has_one_title_and_escaped_words_round_it():
    at = AppTest.from_function(_head).run()
    assert [t.value for t in at.title] == ["Attention"]
    html = [element.proto.body for element in at.get("html")]
    assert "Chapter &lt;3&gt;" in html[0]
    assert "Weights &amp; $sums$ &lt;b&gt;." in html[1]


def test_source_is_found_below_decorators():
    found = page.resolve("lmcore.model.Transformer.forward")
    assert found.__name__ == "forward"
    assert found.__module__ == "lmcore.model"


@pytest.mark.parametrize("name", ["lmcore.nothing", "lmcore.costs.nothing"])
def test_name_that_stands_for_nothing_is_an_error(name: str):
    with pytest.raises((ModuleNotFoundError, AttributeError)):
        page.resolve(name)


def _source():
    from ui import page

    page.source("lmcore.costs.kv_cache_bytes", "kv_cache_bytes(cfg, context=20)", key="source")


def _opened_source():
    import streamlit as st

    from ui import page

    st.session_state["source"] = True
    page.source("lmcore.costs.kv_cache_bytes", "kv_cache_bytes(cfg, context=20)", key="source")


def test_source_is_read_only_when_the_popover_is_open():
    assert not AppTest.from_function(_source).run().code
    at = AppTest.from_function(_opened_source).run()
    assert at.code[0].value.startswith("def kv_cache_bytes(")
    assert at.code[1].value == "kv_cache_bytes(cfg, context=20)"
    assert "lmcore/kv_costs.py" in at.markdown[0].value


def _kept():
    import streamlit as st

    from ui import page

    with page.at_least(100, phone=200):
        st.write("the figure")


@pytest.mark.parametrize(("agent", "height"), [("Mozilla/5.0 (X11; Linux x86_64)", 100), ("Android 14 Mobile", 200)])
def test_a_figures_place_is_kept_by_the_device(agent: str, height: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("streamlit.runtime.context.ContextProxy.headers", {"User-Agent": agent})
    at = AppTest.from_function(_kept, default_timeout=120).run()
    assert not at.exception
    row = at.main.children[0]
    figure, beside = row.children.values()
    assert list(figure.children.values()) == list(at.markdown)
    assert beside.proto.height_config.pixel_height == height
