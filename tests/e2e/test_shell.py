"""The shell in a browser: cold links, the address, themes, sessions."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, Server, settle, type_prompt

PAGES = (
    "Overview",
    "Tokens and logits",
    "Attention",
    "Positions and RoPE",
    "Heads and the KV cache",
    "Cost",
    "Decode, step by step",
    "Model",
)
PATHS = ("", "tokens", "attention", "positions", "kv", "cost", "decode", "model")
# Of each figure beside a strip (`ui.page`): its right edge, that of the row they share, and the space below.
KEPT = """() => [...document.querySelectorAll("[data-testid=stMain] *")].flatMap((host) => {
  const figure = host.shadowRoot?.querySelector(".gb");
  const row = host.closest("[data-testid=stHorizontalBlock]");
  if (!figure || !row?.children.length || row.lastElementChild.offsetWidth > 16) return [];
  const { right, bottom } = row.getBoundingClientRect();
  const others = [...document.querySelectorAll("[data-testid=stMain] [data-testid=stElementContainer]")];
  const below = others
    .map((other) => other.getBoundingClientRect())
    .filter(({ width, height, top }) => width > 16 && height && top >= bottom);
  return [[figure.getBoundingClientRect().right, right, Math.min(...below.map(({ top }) => top)) - bottom]];
})"""
NASTY = "<s> <b>x</b> $x$ *y*\t_z_\n:red[no]"


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query, keep_blank_values=True)


def test_first_visit_to_a_fresh_server_by_a_deep_link_shows_the_shell(fresh_server: Server, open_page: OpenPage):
    page = open_page("attention", server=fresh_server, prompt="from a link")
    assert page.get_by_test_id("stSidebarNavLink").all_inner_texts() == list(PAGES)
    expect(page.get_by_role("heading", level=1)).to_have_text("Attention")
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("from a link")
    assert query(page)["prompt"] == ["from a link"]


def test_link_restores_the_sidebar(open_page: OpenPage):
    page = open_page("tokens", prompt=NASTY, dtype="bfloat16", device="cpu")
    expect(page.get_by_label("Prompt", exact=True)).to_have_value(NASTY)
    sidebar = page.get_by_test_id("stSidebar")
    for name, value in (("Model", "Built-in tiny model"), ("Device", "cpu"), ("dtype", "bfloat16")):
        expect(page.get_by_role("combobox", name=name)).to_have_value(value)
    expect(sidebar.get_by_text("cpu, bfloat16.")).to_be_visible()


def test_typed_prompt_goes_into_the_address_and_survives_a_change_of_page(open_page: OpenPage):
    page = open_page("tokens", dtype="bfloat16")
    type_prompt(page, "two words")
    assert query(page)["prompt"] == ["two words"]
    page.get_by_test_id("stSidebarNavLink").filter(has_text="Attention").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Attention")
    settle(page)
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("two words")
    assert query(page)["prompt"] == ["two words"]
    assert query(page)["dtype"] == ["bfloat16"]


def test_empty_prompt_is_a_state_of_its_own_that_a_link_keeps(open_page: OpenPage):
    page = open_page("tokens", prompt="")
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("")
    page.get_by_role("button", name="Use the example prompt").click()
    settle(page)
    assert "Mary" in page.get_by_label("Prompt", exact=True).input_value()


def test_unknown_value_in_a_link_is_named_and_ignored(open_page: OpenPage):
    page = open_page("tokens", dtype="<b>float8</b>")
    expect(page.get_by_test_id("stAlert")).to_contain_text("dtype “<b>float8</b>”")
    assert "dtype" not in query(page)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["1440", "390"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_paints_in_both_themes_and_does_not_scroll_sideways(
    open_page: OpenPage, path: str, size: tuple[int, int], scheme: str
):
    page = open_page(path, size=size, scheme=scheme)
    background = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    assert background == {"light": "rgb(251, 252, 252)", "dark": "rgb(15, 21, 22)"}[scheme]
    font = page.get_by_role("heading", level=1).evaluate("e => getComputedStyle(e).fontFamily")
    assert font.startswith("Newsreader")
    assert page.evaluate("document.fonts.check('16px Newsreader') && document.fonts.check('16px \"IBM Plex Sans\"')")
    wide = page.evaluate("document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth")
    assert wide <= 0


@pytest.mark.parametrize("path", ["", "tokens", "attention", "positions", "decode"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["1440", "390"])
def test_a_figure_whose_place_is_kept_reaches_the_right_edge_and_leaves_no_gap(
    open_page: OpenPage, path: str, size: tuple[int, int]
):
    kept = open_page(path, size=size).evaluate(KEPT)
    assert kept
    for figure, column, below in kept:
        assert abs(figure - column) <= 1
        assert below <= 64


def test_theme_toggle_is_kept(open_page: OpenPage):
    page = open_page("tokens")
    page.get_by_test_id("stMainMenu").click()
    page.get_by_role("menu").or_(page.get_by_test_id("stMainMenuPopover")).first.wait_for()
    assert page.get_by_text("Dark").count() + page.get_by_text("Settings").count() > 0


def test_two_sessions_never_see_each_others_prompt_or_dtype(open_page: OpenPage):
    one = open_page("tokens", prompt="alpha alpha", dtype="float32")
    two = open_page("tokens", prompt="beta", dtype="bfloat16")
    for text in ("first", "second one"):
        type_prompt(one, f"alpha {text}")
        type_prompt(two, f"beta {text}")
        for page, mine, others, dtype in ((one, "alpha", "beta", "float32"), (two, "beta", "alpha", "bfloat16")):
            assert page.get_by_label("Prompt", exact=True).input_value() == f"{mine} {text}"
            assert query(page)["prompt"] == [f"{mine} {text}"]
            body = page.locator("body").inner_text()
            assert others not in body
            assert f"cpu, {dtype}." in body


def test_failed_load_shows_the_error_and_keeps_the_previous_model(open_page: OpenPage):
    page = open_page("tokens", prompt="abc")
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name="Folder or GGUF file").click()
    settle(page)
    box = page.get_by_label("Path", exact=True)
    box.fill("/nowhere/at *all*")
    box.press("Enter")
    page.wait_for_timeout(100)
    settle(page)
    expect(page.get_by_test_id("stAlert").first).to_contain_text("/nowhere/at *all*")
    expect(page.get_by_text("Below, as before the error: Built-in tiny model.")).to_be_visible()
