"""Heads and the KV cache in a browser: the wiring without a server, the chart that follows a slider, a phone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect

from tests.e2e.conftest import PHONE, SETTLE_MS, OpenPage, Server, settle


def wiring(page: Page) -> dict:
    return json.loads(page.locator(".who").get_attribute("data-state") or "{}")


def test_heads_are_wired_in_the_browser_and_what_cannot_be_is_said(open_page: OpenPage):
    """Keys move the sliders; the address keeps them; a division that is impossible is explained in words."""
    page = open_page("kv")
    expect(page.locator(".who canvas")).to_be_visible()
    assert wiring(page) == {"heads": 4, "shared": 2, "dim": 16, "query": None}
    page.locator(".who canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".who-reading")).to_contain_text("Query head 2 reads KV head 1 = 2 // 2, with heads 2 to 3")
    shared = page.locator(".who").get_by_label("KV heads K", exact=True)
    shared.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".who-reading")).to_contain_text("4 query heads cannot share 3 KV heads. 4 = 3 × 1 + 1")
    page.wait_for_function("() => location.search.includes('kv_k=3')")
    page.goto(page.url)
    settle(page)
    assert wiring(page)["shared"] == 3
    page.get_by_role("button", name="As in Built-in tiny model").click()
    assert wiring(page)["shared"] == 2


@contextmanager
def standing_still(server: Server) -> Iterator[None]:
    """The server's process is halted: whatever the browser draws, no message made it."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_figures_follow_a_slider_while_the_server_stands_still(open_page: OpenPage, server: Server):
    """Chart and both tables; when a second slider has moved, the tables, which hold for one, wait for the server."""
    page = open_page("kv", kv_models="DeepSeek-V3", kv_context="8k")
    chart, models, fits = page.locator(".lines").first, page.locator(".grid").nth(0), page.locator(".grid").nth(1)
    expect(fits).to_be_visible(timeout=SETTLE_MS)
    with standing_still(server):
        page.get_by_role("slider", name="Context S").focus()
        page.keyboard.press("ArrowRight")
        expect(chart).to_have_attribute("data-at", "16384", timeout=SETTLE_MS)
        expect(chart.locator(".reading")).to_contain_text("DeepSeek-V3 1.07 GiB", timeout=SETTLE_MS)
        expect(models).to_contain_text("1.07 GiB", timeout=SETTLE_MS)
        expect(fits).to_contain_text("largest batch at 16k", timeout=SETTLE_MS)
        page.get_by_role("slider", name="Batch B").focus()
        page.keyboard.press("ArrowRight")
        expect(chart.locator(".reading")).to_contain_text("DeepSeek-V3 2.14 GiB", timeout=SETTLE_MS)
        expect(models).to_contain_text("1.07 GiB", timeout=SETTLE_MS)
        expect(models).not_to_contain_text("2 sequences", timeout=SETTLE_MS)
    expect(models).to_contain_text("2 sequences", timeout=SETTLE_MS)
    expect(models).to_contain_text("2.14 GiB", timeout=SETTLE_MS)
    expect(fits).to_contain_text("longest context of 2", timeout=SETTLE_MS)
    page.wait_for_function("() => location.search.includes('kv_context=16k')", timeout=SETTLE_MS)
    settle(page)
    expect(chart).to_have_attribute("data-at", "16384", timeout=SETTLE_MS)


def test_the_chart_follows_a_slider_and_the_link_restores_it(open_page: OpenPage):
    page = open_page("kv", kv_models="DeepSeek-V3", kv_context="8k")
    chart = page.locator(".lines").first
    expect(chart).to_have_attribute("data-at", "8192", timeout=SETTLE_MS)
    page.get_by_role("slider", name="Context S").focus()
    page.keyboard.press("ArrowRight")
    expect(chart).to_have_attribute("data-at", "16384", timeout=SETTLE_MS)
    page.wait_for_function("() => location.search.includes('kv_context=16k')", timeout=SETTLE_MS)
    settle(page)
    expect(page.locator(".grid").first).to_contain_text("1.07 GiB", timeout=SETTLE_MS)
    page.goto(page.url)
    settle(page)
    expect(page.locator(".lines").first).to_have_attribute("data-at", "16384", timeout=SETTLE_MS)
    opening = page.get_by_role("button", name="Open Built-in tiny model")
    running = page.get_by_role("button", name="Run 25 forwards")
    expect(opening.or_(running)).to_be_visible(timeout=SETTLE_MS)
    if opening.is_visible():
        opening.click(timeout=SETTLE_MS)
    running.click(timeout=SETTLE_MS)
    expect(page.locator(".tiles")).to_contain_text("Steps at which both agree", timeout=SETTLE_MS)
    settle(page)
    expect(running).to_have_count(0, timeout=SETTLE_MS)
    assert page.locator(".tile").evaluate_all("(tiles) => tiles.map((tile) => tile.dataset.state)") == ["equal"] * 3


def test_a_phone_scrolls_inside_the_figures_only(open_page: OpenPage):
    page = open_page("kv", size=PHONE, scheme="dark", kv_h=64, kv_k=8)
    expect(page.locator(".lines canvas").first).to_be_visible()
    wide = page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollWidth")
    assert wide <= PHONE[0]
    scroller = page.locator(".who-scroll")
    assert scroller.evaluate("(node) => node.scrollWidth > node.clientWidth")
