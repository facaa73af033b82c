"""The Attention page in a browser: the maps on the screen are the running model's, and a link brings them back."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect

from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.trace import Capture
from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, settle, type_prompt
from tests.e2e.test_attention_component import MASKED, VALUE, Maps

TEXT = "abcabc the the"
NASTY = "<s> <b>x</b> $x$ *y*\t_z_\n:red[no]"
LONG = ("word " * 103)[:511]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def patterns(loaded: Loaded, text: str) -> np.ndarray:
    """(L, H, T, T) of one forward, by lmcore."""
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode(text)[:512]])
    trace = loaded.model.forward(tokens, capture=Capture.of("pattern")).trace
    assert trace is not None
    return np.stack([trace.layers[layer]["pattern"][0].numpy() for layer in sorted(trace.layers)])


def tiles(page: Page) -> list[str]:
    return page.locator(".tile").all_inner_texts()


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_what_the_canvas_shows_is_what_lmcore_computed(loaded: Loaded, open_page: OpenPage, size, scheme):
    page = open_page("attention", prompt=TEXT, size=size, scheme=scheme)
    maps, expected = Maps(page), patterns(loaded, TEXT)
    for layer, head in ((0, 0), (3, 2)):
        values, states = maps.cells(layer, head)
        lower = np.tri(len(values), dtype=bool)
        np.testing.assert_array_equal(states, np.where(lower, VALUE, MASKED))
        np.testing.assert_allclose(values[lower], expected[layer, head][lower], atol=1e-6)
    layer, head, query, key = maps.cell
    assert float(maps.text(".large .number")) == pytest.approx(expected[layer, head, query, key], abs=5e-5)
    assert page.get_by_test_id("stMain").evaluate("node => node.scrollWidth - node.clientWidth") <= 0


def test_the_first_view_is_the_last_tokens_strongest_reading(loaded: Loaded, open_page: OpenPage):
    page = open_page("attention", prompt=TEXT)
    last = patterns(loaded, TEXT)[:, :, -1, 1:-1]
    layer, head, key = (int(i) for i in np.unravel_index(last.argmax(), last.shape))
    assert Maps(page).cell == (layer, head, last.shape[-1] + 1, key + 1)
    expect(page.get_by_text(f"at position {key + 1} most strongly in layer {layer}, head {head}")).to_be_visible()


def test_the_keyboard_walks_heads_and_the_address_follows_and_restores(loaded: Loaded, open_page: OpenPage):
    page = open_page("attention", prompt=TEXT, layer=1, head=1, query=9, key=3)
    maps = Maps(page)
    assert maps.cell == (1, 1, 9, 3)
    maps.press(maps.grid, "ArrowDown", "ArrowRight")
    maps.press(maps.map, "ArrowUp", "ArrowRight")
    page.get_by_role("button", name="without sink").click()
    page.get_by_role("button", name="this cell").click()
    assert maps.cell == (2, 2, 8, 4)
    address = maps.address()
    again = Maps(open_page("attention", **address))
    assert again.cell == (2, 2, 8, 4)
    assert (again.view["grid"], again.view["scale"]) == ("cell", "without-sink")
    row = patterns(loaded, TEXT)[2, 2, 8, :9]
    assert float(again.text(".large .number")) == pytest.approx(row[4] / row[1:].sum(), abs=5e-5)


def test_a_long_prompt_fetches_the_layer_that_is_looked_at(loaded: Loaded, open_page: OpenPage):
    page = open_page("attention", prompt=LONG, layer=0, head=1)
    maps, expected = Maps(page), patterns(loaded, LONG)
    assert expected.shape[-1] == 512
    assert all("layer 0" in text for text in tiles(page))
    maps.press(maps.grid, "ArrowDown", "ArrowDown")
    maps.wait_for_head(2, 1)
    settle(page)
    for query, key in ((300, 7), (511, 510), (128, 0)):
        assert maps.cell_at(2, 1, query, key)["value"] == pytest.approx(expected[2, 1, query, key], abs=1e-6)
    expect(page.locator(".tile").first).to_contain_text("layer 2")
    assert "maximum of" in page.locator(".attention").inner_text()


def test_numbers_derived_twice_agree(open_page: OpenPage):
    page = open_page("attention", prompt=TEXT)
    assert page.locator(".tile").evaluate_all("nodes => nodes.map(node => node.dataset.state)") == [
        "rounding",
        "rounding",
        "equal",
    ]


def test_csv_of_a_head_is_its_map_and_starts_no_formula(loaded: Loaded, open_page: OpenPage, tmp_path: Path):
    text = '=1+1,"@x\n-2\t+3'
    page = open_page("attention", prompt=text, layer=2, head=3)
    Maps(page)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV of this head").click()
    waiting.value.save_as(tmp_path / "head.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "head.csv").read_text())))
    expected = patterns(loaded, text)[2, 3]
    assert len(rows) == len(expected) * (len(expected) + 1) // 2
    for row in rows:
        cell = expected[int(row["query position"]), int(row["key position"])]
        assert float(row["weight"]) == pytest.approx(cell, abs=1e-6)
        assert not re.match(r"[=+\-@\t\r]", row["query"])
        assert not re.match(r"[=+\-@\t\r]", row["key"])


def test_token_text_is_never_markup(open_page: OpenPage):
    page = open_page("attention", prompt=NASTY)
    Maps(page)
    assert page.locator(".chip").count() == len(NASTY.replace("<s>", "").encode()) + 2
    assert page.get_by_test_id("stMain").locator("b:text-is('x'), .katex:has-text('x$')").count() == 0


def test_another_prompt_redraws_and_keeps_the_head(loaded: Loaded, open_page: OpenPage):
    page = open_page("attention", prompt=TEXT, layer=3, head=0)
    type_prompt(page, "xyz")
    maps = Maps(page)
    assert maps.cell[:2] == (3, 0)
    assert maps.cell_at(3, 0, 2, 1)["value"] == pytest.approx(patterns(loaded, "xyz")[3, 0, 2, 1], abs=1e-6)


def test_source_shows_the_function_that_runs(open_page: OpenPage):
    page = open_page("attention", prompt="ab")
    page.get_by_role("button", name="Source").first.click()
    expect(page.get_by_text("def attend(")).to_be_visible()
    expect(page.get_by_text("Capture.of(")).to_be_visible()
