"""The page Model in a real browser: comparison, configs, uploads, cancelling, errors, links, both sizes and themes."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, settle
from tests.lmcore.tiny import hf_llama

BUILTIN = "Built-in tiny model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    hf_llama("gqa").save_pretrained(path)
    return path


def pick(page: Page, label: str, option: str) -> None:
    """Choose in a list of the sidebar; a long one draws only what is in sight, so what is wanted is typed first."""
    page.get_by_test_id("stSidebar").get_by_label(label, exact=True).click()
    if label == "Config":
        page.keyboard.type(option)
    page.get_by_role("option", name=option, exact=True).click()
    page.wait_for_timeout(100)


def choose(page: Page, label: str, option: str) -> None:
    pick(page, label, option)
    settle(page)


def test_cold_link_compares_and_says_so_on_every_page(open_page: OpenPage):
    page = open_page("model", model=BUILTIN)
    sidebar = page.get_by_test_id("stSidebar")
    expect(sidebar.get_by_text("Not compared with transformers")).to_be_visible()
    page.get_by_role("button", name="Compare with transformers").click()
    expect(sidebar.get_by_text("Comparing with transformers")).to_be_visible()
    expect(sidebar.get_by_text(re.compile(r"Equal to transformers 5\.\d+\.\d+ to"))).to_be_visible(timeout=90_000)
    settle(page)
    rows = page.get_by_role("table", name="differences by layer").get_by_role("row")
    expect(rows).to_have_count(4)
    assert rows.first.locator(".disc").count() == 2
    page.get_by_test_id("stSidebarNav").get_by_text("Attention").click()
    settle(page)
    expect(sidebar.get_by_text(re.compile("Equal to transformers"))).to_be_visible()


def test_comparison_can_be_cancelled(open_page: OpenPage):
    page = open_page("model", model=BUILTIN, dtype="float16")
    page.get_by_role("button", name="Compare with transformers").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("the comparison was cancelled")).to_be_visible(timeout=10_000)
    expect(page.get_by_role("button", name="Compare with transformers")).to_be_enabled()


def test_picked_config_goes_from_page_to_page_by_the_address(open_page: OpenPage):
    page = open_page("model", model=BUILTIN)
    choose(page, "Model", "A config.json")
    choose(page, "Config", "DeepSeek-V3")
    expect(page.get_by_text("671.0")).to_be_visible()
    assert "config=DeepSeek-V3" in page.url
    page.get_by_test_id("stSidebarNav").get_by_text("Decode").click()
    settle(page)
    expect(page.get_by_text("This is a config without weights.")).to_be_visible()
    page.get_by_role("link", name="Choose another model").click()
    settle(page)
    assert "/model" in page.url
    assert "config=DeepSeek-V3" in page.url


def test_cancelled_load_goes_back_to_the_model_that_was_there(open_page: OpenPage):
    page = open_page("model", model=BUILTIN)
    choose(page, "Model", "A config.json")
    pick(page, "Config", "Gemma 3 270M")
    cancel = page.get_by_role("button", name="Cancel")
    cancel.click(timeout=20_000)
    begun = time.monotonic()
    settle(page)
    assert time.monotonic() - begun < 5
    expect(page.get_by_test_id("stSidebar").get_by_label("Config", exact=True)).to_have_value("GPT-2")
    expect(page.get_by_text("12 query heads on 12 KV heads of 64 dims")).to_be_visible()


def test_bad_path_is_answered_and_the_model_stays(open_page: OpenPage, tmp_path: Path):
    page = open_page("model", model=BUILTIN)
    choose(page, "Model", "Folder or GGUF file")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama9"}))
    box = page.get_by_label("Path", exact=True)
    box.fill(str(tmp_path))
    box.press("Enter")
    expect(page.get_by_text("'llama9' is not known")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("4 query heads on 2 KV heads of 16 dims")).to_be_visible()


def test_upload_opens_a_model_without_a_tokenizer(open_page: OpenPage, folder: Path):
    page = open_page("model", model="Uploaded files")
    expect(page.get_by_text("No file is here yet")).to_be_visible()
    page.set_input_files("input[type=file]", [folder / "config.json", folder / "model.safetensors"])
    expect(page.get_by_text("4 query heads on 2 KV heads of 12 dims")).to_be_visible(timeout=20_000)
    expect(page.get_by_test_id("stSidebar").get_by_text("token ids are typed")).to_be_visible()
    page.get_by_test_id("stSidebarNav").get_by_text("Attention").click()
    settle(page)
    assert page.locator("canvas").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_is_cut_off_or_scrolls_sideways(open_page: OpenPage, size: tuple[int, int], scheme: str):
    page = open_page("model", model="A config.json", config="DeepSeek-V3", size=size, scheme=scheme)
    expect(page.get_by_role("heading", name="What follows from it")).to_be_visible()
    wide = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth > window.innerWidth + 1")
    assert not wide
