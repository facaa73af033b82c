"""The page Cost in a browser: a slider redraws it, the link restores it, a number is taken apart, a phone shows it."""

from __future__ import annotations

import re

from playwright.sync_api import Page, WebSocketRoute, expect

from figures.cost_stops import BATCH, CONTEXT, RANK
from tests.e2e.conftest import PHONE, OpenPage, settle

WAIT_MS = 60_000


def inked(page: Page, selector: str) -> bool:
    """Whether anything is drawn on the canvas."""
    return page.locator(selector).evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((value) => value > 0)"
    )


def test_a_slider_redraws_every_figure_and_the_link_restores_it(open_page: OpenPage):
    page = open_page("cost")
    expect(page.locator(".costs .cost")).to_have_count(6, timeout=WAIT_MS)
    expect(page.locator(".costs .headline").nth(3)).to_have_text("671.0billion")
    before = page.locator(".costs .headline").nth(1).text_content()
    page.get_by_role("slider", name="Context, in tokens").press("ArrowRight")
    for figure in (".costs", ".sheet", ".roofline"):
        expect(page.locator(figure).first).to_have_attribute("data-mark", re.compile("^8192/1/FLOP/0"), timeout=WAIT_MS)
    after = page.locator(".costs .headline").nth(1).text_content()
    assert after != before
    assert inked(page, ".roofline canvas")
    page.wait_for_function("() => location.search.includes('cost_context=8192')", timeout=WAIT_MS)
    page.goto(page.evaluate("location.href"))
    settle(page)
    expect(page.locator(".costs .headline").nth(1)).to_have_text(after or "", timeout=WAIT_MS)
    page.get_by_role("button", name="KV cache").click()
    derived = page.get_by_test_id("stPopoverBody")
    expect(derived.locator(".katex").first).to_be_visible(timeout=WAIT_MS)
    # 61 layers of 512 + 64 numbers of 2 bytes for 8,192 positions
    assert str(61 * 576 * 2 * 8192) in "".join(sign for sign in derived.text_content() or "" if sign.isdigit())


class Server:
    """The server's messages to a page, let through or held back."""

    def __init__(self, page: Page) -> None:
        self.held: list[str | bytes] | None = None
        page.route_web_socket(re.compile("_stcore/stream"), self._connect)

    def _connect(self, route: WebSocketRoute) -> None:
        self.page = route
        route.connect_to_server().on_message(self._pass)

    def _pass(self, message: str | bytes) -> None:
        if self.held is None:
            self.page.send(message)
        else:
            self.held.append(message)

    def hold(self) -> None:
        self.held = []

    def release(self) -> None:
        messages, self.held = self.held or [], None
        for message in messages:
            self.page.send(message)


def figures(page: Page) -> list[str | None]:
    """What every figure says: its words, or the mark it was drawn for and what its canvas is called."""
    roof = page.locator(".roofline")
    said = [roof.get_attribute("data-mark"), roof.locator("canvas").get_attribute("aria-label")]
    return [
        *said,
        *(text for kind in (".costs-figure", ".sheet table") for text in page.locator(kind).all_inner_texts()),
    ]


def test_sliders_repaint_without_an_answer_which_then_says_the_same(open_page: OpenPage):
    """Every message of the server is held back: what is shown comes from the browser. Once two sliders have moved that
    no figure knows of together, it stays where it was, and the answer brings both."""
    page = open_page("cost")
    server = Server(page)
    page.reload()
    settle(page)
    shown = page.locator(".costs")
    expect(shown).to_have_attribute("data-mark", "4096/1/FLOP/0", timeout=WAIT_MS)
    expect(page.locator(".sheet")).to_have_count(2, timeout=WAIT_MS)
    csv = page.locator(".sheet").nth(1).get_by_role("button", name="CSV")
    before = figures(page)
    context, batch, ranks = (page.get_by_role("slider", name=name) for name in (CONTEXT, BATCH, RANK))
    for thumb, key, mark in (
        (context, "ArrowLeft", "2048/1/FLOP/0/1"),
        (batch, "ArrowRight", "2048/2/FLOP/0/1"),
        (ranks, "ArrowRight", "2048/2/FLOP/0/2"),
    ):
        server.hold()
        thumb.press(key)
        expect(page.locator(".roofline")).to_have_attribute("data-mark", mark, timeout=WAIT_MS)
        alone = figures(page)
        changed = [mine != other for mine, other in zip(alone, before, strict=True)]
        # The number of machines changes neither bars nor FLOPs.
        assert changed == [True, True, thumb != ranks, thumb != ranks, True]
        # Its numbers cannot be copied before they are there.
        expect(csv).to_be_disabled()
        server.release()
        expect(csv).to_be_enabled(timeout=WAIT_MS)
        settle(page)
        before = figures(page)
        assert before == alone
    server.hold()
    context.press("ArrowLeft")
    batch.press("ArrowRight")
    expect(batch).to_have_attribute("aria-valuetext", "4", timeout=WAIT_MS)
    expect(shown).to_have_attribute("data-mark", "1024/2/FLOP/0")
    server.release()
    expect(shown).to_have_attribute("data-mark", "1024/4/FLOP/0", timeout=WAIT_MS)


def test_a_phone_in_the_dark_shows_all_of_it(open_page: OpenPage):
    page = open_page("cost", size=PHONE, scheme="dark", cost_config="Llama 3.1 8B")
    expect(page.locator(".costs .cost")).to_have_count(6, timeout=WAIT_MS)
    expect(page.locator(".sheet")).to_have_count(2, timeout=WAIT_MS)
    assert inked(page, ".roofline canvas")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    wide = page.locator(".sheet .scroller").nth(1)
    assert wide.evaluate("node => node.scrollWidth > node.clientWidth")
