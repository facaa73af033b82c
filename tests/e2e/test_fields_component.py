"""Square fields of more tokens than there are pixels: what is pooled, and what is read of it."""

from __future__ import annotations

import json

from playwright.sync_api import Locator, expect

from tests.e2e.conftest import PHONE, OpenPage, Server

COUNT, QUERY, KEY = 401, 300, 101  # of the app

COLOUR = """(canvas, [query, key, count]) => {
  const ratio = canvas.width / canvas.clientWidth;
  const [left, top] = [40, 28]; // more tokens than are named
  const size = (canvas.clientWidth - left - 4) / count;
  const at = (start, n) => Math.floor((start + (Math.floor(n / 2) * 2 + 1) * size) * ratio);
  return [...canvas.getContext("2d").getImageData(at(left, key), at(top, query), 1, 1).data].join();
}"""


def colour(canvas: Locator, query: int, key: int) -> str:
    return canvas.evaluate(COLOUR, [query, key, COUNT])


def test_one_weight_among_four_hundred_tokens_is_drawn_and_read(component_server: Server, open_page: OpenPage) -> None:
    page = open_page(server=component_server, model=None, size=PHONE)
    figure = page.locator(".fields")
    first, second = (figure.locator("canvas").nth(index) for index in range(2))
    expect(figure.locator(".pooled").first).to_have_text("Each cell is the largest of 2 × 2; the reading is of one.")
    heavy, zero = colour(first, QUERY, KEY), colour(first, QUERY, KEY - 60)
    assert heavy != zero
    assert colour(first, QUERY + 40, KEY) == zero
    assert colour(second, QUERY, KEY) == heavy
    assert colour(second, QUERY, KEY + 1) != zero  # not finite, which no zero of its block hides

    def selected() -> tuple[int, int]:
        state = json.loads(figure.evaluate("node => node.dataset.state"))
        return state["query"], state["key"]

    size = first.evaluate("canvas => canvas.clientWidth - 44") / COUNT
    first.click(position={"x": 40 + (KEY + 0.5) * size, "y": 28 + (QUERY + 0.5) * size})
    query, key = selected()
    assert abs(query - QUERY) < 3 > abs(key - KEY)
    for move, times in (
        ("ArrowUp", query - QUERY),
        ("ArrowDown", QUERY - query),
        ("ArrowLeft", key - KEY),
        ("ArrowRight", KEY - key),
    ):
        for _ in range(times):
            first.press(move)
    assert selected() == (QUERY, KEY)
    expect(figure.locator(".reading")).to_contain_text("weights 1.0000")
