"""The page Cost in a browser: a slider redraws it, the link restores it, a number is taken apart, a phone shows it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

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
        expect(page.locator(figure).first).to_have_attribute("data-mark", "8192/1/FLOP/0", timeout=WAIT_MS)
    after = page.locator(".costs .headline").nth(1).text_content()
    assert after != before
    assert inked(page, ".roofline canvas")
    page.wait_for_function("() => location.search.includes('cost_context')", timeout=WAIT_MS)
    page.goto(page.url)
    settle(page)
    expect(page.locator(".costs .headline").nth(1)).to_have_text(after or "", timeout=WAIT_MS)
    page.get_by_role("button", name="KV cache").click()
    derived = page.get_by_test_id("stPopoverBody")
    expect(derived.locator(".katex").first).to_be_visible(timeout=WAIT_MS)
    # 61 layers of 512 + 64 numbers of 2 bytes for 8,192 positions
    assert str(61 * 576 * 2 * 8192) in "".join(sign for sign in derived.text_content() or "" if sign.isdigit())


def test_a_phone_in_the_dark_shows_all_of_it(open_page: OpenPage):
    page = open_page("cost", size=PHONE, scheme="dark", cost_config="Llama 3.1 8B")
    expect(page.locator(".costs .cost")).to_have_count(6, timeout=WAIT_MS)
    expect(page.locator(".sheet")).to_have_count(2, timeout=WAIT_MS)
    assert inked(page, ".roofline canvas")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    wide = page.locator(".sheet .scroller").nth(1)
    assert wide.evaluate("node => node.scrollWidth > node.clientWidth")
