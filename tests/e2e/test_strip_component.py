"""The token strip in a browser: every position's numbers are there without another message."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.apps.strip_component import KEPT, VOCABULARY, numbers_of, tokens_of
from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, Server


@pytest.fixture
def open_strip(open_page: OpenPage, component_server: Server):
    def open_one(**query: object) -> Page:
        page = open_page(server=component_server, model=None, **query)
        page.locator(".strip .chip").first.wait_for()
        return page

    return open_one


def current(page: Page) -> int:
    return int(page.locator(".strip .chip[aria-current=true]").get_attribute("data-position") or -1)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_position_has_its_token_its_bytes_its_loss_and_what_was_expected_next(open_strip, size, scheme):
    page = open_strip(size=size, scheme=scheme)
    numbers, tokens = numbers_of(20), tokens_of(20)
    chips = page.locator(".strip .chip")
    assert current(page) == 19
    for position in (0, 6, 11):
        chips.nth(position).click()
        assert current(page) == position
        reading = page.locator(".strip .reading").inner_text()
        assert (
            f"Position {position}, id {tokens[position].id}, bytes {tokens[position].piece.hex(' ').upper()}" in reading
        )
        if position:
            assert f"Loss {numbers['loss'][position]:.2f} nats" in reading
            assert f"probability {np.exp(-numbers['loss'][position]):.3f}" in reading
            assert f"rank {numbers['rank'][position]} of 9." in reading
        else:
            assert reading.endswith("nothing predicted it.")
        rows = page.locator(".strip .row")
        names = rows.locator(".token").all_inner_texts()[:KEPT]
        expected = [VOCABULARY[i] for i in numbers["top_ids"][position]]
        assert names == ["".join(text for _, text in token.parts) for token in expected]
        values = rows.locator(".number").all_inner_texts()[:KEPT]
        assert values == [f"{p:.3f}" for p in numbers["top_probs"][position]]
    assert page.locator(".strip .reading").inner_text().count("part of") == 0
    chips.nth(6).click()
    assert "part of ☕" in page.locator(".strip .reading").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_next_token_of_the_prompt_is_marked_or_added_with_its_rank(open_strip):
    page = open_strip()
    numbers, tokens = numbers_of(20), tokens_of(20)
    inside = [p for p in range(19) if tokens[p + 1].id in numbers["top_ids"][p]]
    outside = [p for p in range(19) if tokens[p + 1].id not in numbers["top_ids"][p]]
    assert inside
    assert outside
    for position in (inside[0], outside[0]):
        page.locator(".strip .chip").nth(position).click()
        marked = page.locator(".strip .row.in-text")
        assert marked.count() == 1
        assert marked.locator(".token").inner_text() == "".join(text for _, text in tokens[position + 1].parts)
        rank = f"rank {numbers['rank'][position + 1]}"
        assert (rank in marked.inner_text()) == (position == outside[0])
    page.locator(".strip .chip").nth(19).click()
    assert page.locator(".strip .row.in-text").count() == 0


def test_needles_are_as_long_as_the_losses(open_strip):
    page = open_strip()
    loss = numbers_of(20)["loss"]
    heights = page.locator(".strip .needle").evaluate_all(
        "all => all.map(n => parseFloat(n.firstChild.style.height) || 0)"
    )
    assert heights[0] == 0
    np.testing.assert_allclose(heights[1:], np.maximum(1, loss[1:] / np.nanmax(loss) * 22), atol=1e-3)


def test_keys_walk_the_strip_and_the_address_follows(open_strip):
    page = open_strip(position=5)
    assert current(page) == 5
    page.locator(".strip .chip").nth(5).focus()
    for key, position in [
        ("ArrowRight", 6),
        ("ArrowDown", 7),
        ("ArrowLeft", 6),
        ("End", 19),
        ("ArrowRight", 19),
        ("Home", 0),
    ]:
        page.keyboard.press(key)
        assert current(page) == position
    assert page.locator(".strip .chip[tabindex='0']").count() == 1
    page.wait_for_timeout(300)
    assert page.url.endswith("position=0")


def test_python_hears_of_a_selection_only_if_it_asked(open_strip):
    page = open_strip()
    page.locator(".strip .chip").nth(3).click()
    page.wait_for_timeout(600)
    expect(page.get_by_text("Python heard")).to_have_text("Python heard None")
    page = open_strip(tell=1)
    page.locator(".strip .chip").nth(3).click()
    expect(page.get_by_text("Python heard 3")).to_be_visible()
    assert current(page) == 3


def test_one_token_and_512_tokens(open_strip):
    page = open_strip(tokens=1)
    assert page.locator(".strip .reading").inner_text().endswith("nothing predicted it.")
    page = open_strip(tokens=512)
    assert current(page) == 511
    expect(page.locator(".strip .chip").nth(511)).to_be_in_viewport()
    box = page.locator(".strip .chips").bounding_box()
    assert box is not None
    assert box["height"] < 320
    page.set_viewport_size({"width": 1000, "height": 900})
    expect(page.locator(".strip .chip").nth(511)).to_be_in_viewport()
