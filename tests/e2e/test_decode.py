"""The Decode page in a browser: every press of a button gives what lmcore's decoder gives, and a link all of it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.costs import kv_cache_bytes
from lmcore.decode import Decoder
from lmcore.sampling import Sampler
from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, settle, type_prompt

SAMPLER = Sampler(temperature=0.7, top_k=40, top_p=0.95)
TEXT = "Once upon"
END = 257  # </s> of the built-in model
MUTE = "() => { WebSocket.prototype.send = () => {}; }"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def expected(loaded: Loaded, count: int, text: str = TEXT, sampler: Sampler = SAMPLER, seed: int = 0, forced=()):
    assert loaded.tokenizer is not None
    decoder = Decoder(loaded.model, loaded.tokenizer.encode(text), sampler, seed=seed)
    for index in range(count):
        decoder.step(dict(forced).get(index))
    return [step.token for step in decoder.steps]


def slider(page: Page) -> Locator:
    return page.get_by_label("step", exact=True)


def tokens(page: Page) -> list[int]:
    """The token chosen at every step, read off the distributions by walking through them; ends at the last step."""
    found = []
    slider(page).press("Home")
    for index in range(int(slider(page).get_attribute("max") or 0) + 1):
        if index:
            slider(page).press("ArrowRight")
        found.append(int(page.locator(".row.chosen").get_attribute("data-token") or -1))
    return found


def press(page: Page, *names: str) -> None:
    for name in names:
        page.get_by_role("button", name=name, exact=True).click()
        page.wait_for_timeout(150)
        settle(page)


def wait_for_steps(page: Page, count: int) -> None:
    expect(slider(page)).to_have_attribute("max", str(count - 1), timeout=30_000)
    page.wait_for_timeout(250)
    settle(page)


def choose(page: Page, nth: int) -> int:
    """Choose the nth other token of the step that is looked at, with the keyboard."""
    row = page.locator(".distribution button").nth(nth)
    token = int(row.get_attribute("data-token") or -1)
    row.press("Enter")
    page.wait_for_timeout(200)
    settle(page)
    return token


def test_step_and_back_and_restart(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT)
    wanted = expected(loaded, 5)
    assert tokens(page) == wanted[:1]
    press(page, "Step", "Step", "Step")
    assert tokens(page) == wanted[:4]
    press(page, "Back")
    assert tokens(page) == wanted[:3]
    press(page, "Step", "Step")
    assert tokens(page) == wanted
    press(page, "Restart")
    assert tokens(page) == wanted[:1]
    expect(page.get_by_role("button", name="Back", exact=True)).to_be_disabled()


def test_play_goes_on_by_itself_and_pause_stops_it(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT)
    page.get_by_role("button", name="Play", exact=True).click()
    expect(slider(page)).to_have_attribute("max", re.compile(r"^([3-9]|\d\d+)$"), timeout=60_000)
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible(timeout=60_000)
    settle(page)
    stopped = tokens(page)
    page.wait_for_timeout(1500)
    assert tokens(page) == stopped == expected(loaded, len(stopped))


def test_sixteen_steps_at_once(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT)
    press(page, "+ 16")
    wanted = expected(loaded, 17)
    wanted = wanted[: wanted.index(END) + 1] if END in wanted else wanted
    wait_for_steps(page, len(wanted))
    assert tokens(page) == wanted


def test_another_token_takes_the_later_steps_back_and_the_link_holds_it(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT, decode_steps=5, decode_seed=3)
    wait_for_steps(page, 5)
    slider(page).fill("2")
    token = choose(page, 3)
    expect(slider(page)).to_have_attribute("max", "2")
    expect(page.locator(".step-name").first).to_contain_text("by hand")
    press(page, "Step", "Step")
    wanted = expected(loaded, 5, seed=3, forced=[(2, token)])
    assert tokens(page) == wanted
    slider(page).fill("1")
    page.wait_for_function("() => new URLSearchParams(location.search).get('step') === '1'")
    again = open_page(page.url.partition("127.0.0.1:")[2].partition("/")[2], model=None)
    wait_for_steps(again, 5)
    expect(slider(again)).to_have_value("1")
    expect(again.get_by_label("decode step")).to_have_value("1")
    assert tokens(again) == wanted


def test_the_sampler_chooses_again_with_the_keyboard(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT, decode_steps=4)
    wait_for_steps(page, 4)
    page.get_by_role("slider", name=re.compile("^Temperature")).press("Home")
    page.wait_for_timeout(200)
    settle(page)
    expect(page.locator(".stages")).to_contain_text("greedy")
    greedy = expected(loaded, 4, sampler=Sampler(temperature=0))
    left = tokens(page)
    assert left == greedy[: len(left)]
    for _ in range(4 - len(left)):
        press(page, "Step")
    assert tokens(page) == greedy
    assert "decode_temperature=0" in page.url


def test_a_slider_and_a_step_are_answered_in_the_browser_before_the_page_hears_of_them(
    loaded: Loaded, open_page: OpenPage
):
    """With every message to the server held back."""
    page = open_page("decode", prompt=TEXT, decode_steps=3)
    wait_for_steps(page, 3)
    page.evaluate(MUTE)
    page.get_by_role("button", name="Step", exact=True).click()
    expect(slider(page)).to_have_attribute("max", "3")
    assert tokens(page) == expected(loaded, 4)
    page.wait_for_function("() => new URLSearchParams(location.search).get('decode_steps') === '4'")
    again = open_page("decode", prompt=TEXT, decode_steps=3)
    wait_for_steps(again, 3)
    again.evaluate(MUTE)
    again.get_by_role("slider", name=re.compile("^Temperature")).press("End")
    expect(again.locator(".stages")).to_contain_text("top-p")
    assert loaded.tokenizer is not None
    decoder = Decoder(loaded.model, loaded.tokenizer.encode(TEXT), SAMPLER)
    newest = [decoder.step() for _ in range(3)][-1]
    hot = Sampler(temperature=2.0, top_k=40, top_p=0.95)
    found = hot.distribution(newest.logits)
    likeliest = int(found.raw.argmax())
    row = again.locator(f"[data-token='{likeliest}'] .bar-cell .number").last
    expect(row).to_have_text(f"{found.probs[likeliest]:.4f}")
    chosen = hot.choose(newest.logits, seed=0, position=newest.position)
    expect(again.locator(".row.chosen")).to_have_attribute("data-token", str(chosen))
    again.get_by_role("slider", name=re.compile("^Temperature")).press("Home")
    expect(again.locator(".stages")).to_contain_text("greedy")


def test_the_cache_shows_its_bytes_by_formula_and_as_counted(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT)
    press(page, "Step", "Step")
    held = sum(kv_cache_bytes(loaded.model.cfg, context=len(TEXT) + 1 + 2, itemsize=4))
    facts = page.locator(".facts").inner_text().replace("\u2006", "")
    assert f"calculated {held}" in facts.replace("\n", " ")
    assert f"in the cache {held}" in facts.replace("\n", " ")
    for name in ("Cache, ", "Allocated, "):
        expect(page.locator(".tile", has_text=name)).to_have_attribute("data-state", "equal")


def test_end_of_text_is_named_stops_play_and_can_be_passed(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT, decode_steps=2, decode_forced=f"1:{END}")
    wait_for_steps(page, 2)
    expect(page.get_by_text("The model ended the text here, with ‹</s>›.")).to_be_visible()
    press(page, "Step")
    assert tokens(page) == expected(loaded, 3, forced=[(1, END)])
    expect(page.get_by_text("The model ended the text here")).to_have_count(0)


def test_a_character_in_parts_is_never_shown_broken(open_page: OpenPage):
    page = open_page("decode", prompt=TEXT, decode_steps=3, decode_forced="0:226,1:152,2:149")  # the bytes of ☕
    wait_for_steps(page, 3)
    slider(page).fill("1")
    expect(page.locator("p.text")).to_contain_text("2 bytes wait")
    slider(page).fill("2")
    expect(page.locator("p.text .said")).to_have_text("☕")
    assert "\ufffd" not in page.content()


def test_two_sessions_decode_apart(loaded: Loaded, open_page: OpenPage):
    one, other = open_page("decode", prompt=TEXT), open_page("decode", prompt="zz", decode_seed=9)
    for page in (one, other, one, other):
        press(page, "Step")
    assert tokens(one) == expected(loaded, 3)
    assert tokens(other) == expected(loaded, 3, text="zz", seed=9)


def test_another_prompt_begins_anew_and_another_page_loses_nothing(loaded: Loaded, open_page: OpenPage):
    page = open_page("decode", prompt=TEXT)
    press(page, "Step", "Step")
    page.get_by_test_id("stSidebarNavLink").filter(has_text="Attention").click()
    settle(page)
    page.get_by_test_id("stSidebarNavLink").filter(has_text="Decode").click()
    settle(page)
    assert tokens(page) == expected(loaded, 3)
    page.wait_for_timeout(300)
    assert "decode_steps=3" in page.url
    type_prompt(page, "xyz")
    assert tokens(page) == expected(loaded, 1, text="xyz")


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")])
def test_a_step_moves_nothing_that_is_pressed(open_page: OpenPage, size, scheme):
    page = open_page("decode", prompt=TEXT, size=size, scheme=scheme)

    def places() -> list[float]:
        found = [page.get_by_role("button", name="Step", exact=True).bounding_box(), slider(page).bounding_box()]
        return [box["y"] for box in found if box]

    before = places()
    press(page, "Step", "Step")
    assert places() == pytest.approx(before, abs=1)
    assert page.get_by_test_id("stMain").evaluate("node => node.scrollWidth - node.clientWidth") <= 0
