"""The sections under the run in a browser: buttons inside components, the step looked at, branches and the way back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.sampling import Sampler
from lmcore.speculative import PromptLookup, SpeculativeDecoder
from tests.e2e.conftest import PHONE, OpenPage, settle
from tests.e2e.test_decode import TEXT, choose, expected, press, slider, tokens, wait_for_steps

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def click(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()
    page.wait_for_timeout(200)
    settle(page)


def test_the_tile_s_button_runs_the_text_without_a_cache(open_page: OpenPage):
    page = open_page("decode", prompt=TEXT, decode_steps=4)
    wait_for_steps(page, 4)
    tile = page.locator(".tile", has_text="Largest difference of a logit").first
    expect(tile).to_have_attribute("data-state", "missing")
    click(page, "Run 3 forwards of the whole text")
    expect(tile).to_have_attribute("data-state", "unequal", timeout=WAIT_MS)
    expect(tile.locator(".reason")).to_have_text("float32 rounding")
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    for name in ("FLOPs of the newest step", "Without the cache"):
        expect(page.locator(".tile", has_text=name)).to_have_attribute("data-state", "equal")


def test_the_lens_shows_any_step(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT, decode_steps=4)
    wait_for_steps(page, 4)
    expect(page.locator(".lens-row[data-layer]")).to_have_count(loaded.model.cfg.n_layers)
    expect(page.get_by_text(re.compile(r"Step 3:.* for position"))).to_be_visible()
    slider(page).press("Home")
    page.locator(".lens-row").first.scroll_into_view_if_needed()
    expect(page.get_by_text(re.compile(r"Step 0:.* for position"))).to_be_visible(timeout=WAIT_MS)


def test_drafts_kept_and_rejected_are_lmcores(loaded: Loaded, open_page: OpenPage):
    assert loaded.tokenizer is not None
    text = "abcabcabc"
    page = open_page("decode", prompt=text, decode_temperature=0)
    click(page, "Decode 24 tokens both ways")
    expect(page.locator(".rounds")).to_be_visible(timeout=WAIT_MS)
    ids = loaded.tokenizer.encode(text)
    sampler = Sampler(temperature=0, top_k=40, top_p=0.95)
    made = SpeculativeDecoder(loaded.model, ids, sampler, PromptLookup(loaded.model.cfg.vocab_size), most=4)
    while len(made.tokens) - len(ids) < 24:
        made.round()
    expect(page.locator(".round")).to_have_count(len(made.rounds))
    kept = [done.accepted for done in made.rounds]
    assert [int(row.get_attribute("data-kept") or -1) for row in page.locator(".round").all()] == kept
    assert page.locator(".round .draft.kept").count() == sum(kept)
    assert page.locator(".round .draft.rejected").count() == sum(done.replaced for done in made.rounds)
    unread = sum(len(done.proposed) - len(done.drafts) for done in made.rounds)
    assert page.locator(".round .draft.unread").count() == unread
    expect(page.locator(".tile", has_text="Tokens equal")).to_have_attribute("data-state", "equal")


def test_another_token_leaves_a_branch_to_return_to(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT, decode_steps=4)
    wait_for_steps(page, 4)
    before = tokens(page)
    assert before == expected(loaded, 4)
    chosen = choose(page, 2)
    wait_for_steps(page, 4)
    assert tokens(page) == [*before[:3], chosen]
    expect(page.locator(".st-key-decode_branches .version")).to_have_count(2)
    press(page, "Return to it")
    wait_for_steps(page, 4)
    assert tokens(page) == before


def test_the_phone_scrolls_nothing_sideways(open_page: OpenPage):
    page = open_page("decode", size=PHONE, prompt="On a phone", decode_steps=3, decode_break="append on the wrong axis")
    wait_for_steps(page, 3)
    click(page, "Decode 24 tokens both ways")
    expect(page.locator(".rounds")).to_be_visible(timeout=WAIT_MS)
    click(page, "Run 2 forwards of the whole text")
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    main = page.locator("[data-testid='stMain']")
    assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 0
    assert page.locator(".lens").evaluate("node => node.scrollWidth - node.clientWidth") <= 0
