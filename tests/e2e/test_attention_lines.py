"""Heads ranked and filtered, and lines between tokens, in a browser: what is drawn is the payload's weights."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.e2e.apps.attention_component import HEADS, mask_of, weights_of
from tests.e2e.conftest import OpenPage, Server, settle
from tests.e2e.test_attention_component import Maps, listen


@pytest.fixture
def open_maps(open_page: OpenPage, component_server: Server):
    def open_one(**query: object) -> Maps:
        return Maps(open_page(server=component_server, model=None, **query))

    return open_one


def test_heads_are_ranked_and_filtered_by_what_they_do_and_nothing_is_sent(open_maps):
    maps = open_maps(tokens=20, layer=2, head=1, grid="distance", order="down")
    weights, away = weights_of("causal", 20), np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    scores = (weights * away).sum(-1)[:, :, 1:].mean(-1).reshape(-1)
    ranked = np.argsort(-scores, kind="stable").tolist()
    assert maps.grid.evaluate("grid => grid.order") == ranked
    sent = listen(maps.page)
    maps.press(maps.grid, "Home", "ArrowRight", "ArrowDown")  # two columns: the fourth
    assert maps.cell[:2] == divmod(ranked[3], HEADS)
    slider = maps.page.get_by_label("only heads with at least this score")
    least = round(float(np.median(scores)) / 10 * 100) / 100 * 10  # the axis ends at T / 2
    slider.focus()
    for _ in range(round(least * 10)):
        maps.page.keyboard.press("ArrowRight")
    passing = [name for name in ranked if scores[name] >= least]
    assert 0 < len(passing) < len(ranked)
    assert maps.grid.evaluate("grid => grid.order") == passing
    expect(maps.page.get_by_text(f"{len(passing)} of 24 heads have at least")).to_be_visible()
    maps.page.get_by_role("button", name="lowest first").click()
    assert maps.grid.evaluate("grid => grid.order") == passing[::-1]
    address = maps.address()
    assert (address["grid"], address["order"], float(address["least"])) == ("distance", "up", least)
    assert sent == []
    maps.page.reload()
    settle(maps.page)
    assert Maps(maps.page).grid.evaluate("grid => grid.order") == passing[::-1]
    maps.page.get_by_role("button", name="same").click()  # another score has no use for this threshold
    expect(maps.page.get_by_text("all scores")).to_be_visible()
    assert len(maps.grid.evaluate("grid => grid.order")) == 24


def drawn(maps: Maps) -> dict[tuple[int, ...], float]:
    """(layer, head, query, key) -> weight of the lines on the canvas."""
    found = maps.page.locator("canvas.lines").evaluate("lines => lines.drawn()")
    return {(layer, head, query, key): weight for layer, head, query, key, weight in found}


def test_lines_are_the_weights_of_one_head_a_group_or_those_that_are_pinned(open_maps):
    maps, weights = open_maps(tokens=20, layer=2, head=1), weights_of("causal", 20)
    sent = listen(maps.page)
    maps.page.get_by_role("button", name="lines", exact=True).click()
    lines = maps.page.locator("canvas.lines")

    def expected(heads: list[tuple[int, int]], least: float = 0.02) -> dict[tuple[int, ...], float]:
        cells = [(*head, *cell) for head in heads for cell in np.argwhere(mask_of("causal", 20)).tolist()]
        return {cell: float(weights[cell]) for cell in cells if weights[cell] >= least}

    one = expected([(2, 1)])
    assert drawn(maps) == one
    expect(maps.page.get_by_text(f"drawn: all {len(one)} weights from 0.02 up; the smallest is")).to_be_visible()
    maps.page.get_by_role("button", name="heads of this KV head").click()
    assert drawn(maps) == expected([(2, 0), (2, 1), (2, 2)])
    maps.click_head(0, 0)
    for pin in ((3, 5), (1, 4)):
        place = maps.grid.evaluate("(grid, [l, h]) => grid.placeOf(l, h)", list(pin))
        maps.grid.click(position=place, modifiers=["Shift"])
    maps.press(maps.grid, "p")
    pinned = [(3, 5), (1, 4), (0, 0)]
    slider = maps.page.get_by_label("smallest weight that is drawn")
    slider.focus()
    maps.page.keyboard.press("Home")
    assert drawn(maps) == expected(pinned, 1e-30)
    # one token, held by the keyboard: its lines alone, and pixels of the head's own colour where a line is
    slider.focus()
    maps.page.keyboard.press("End")
    maps.press(lines, "Home", "ArrowDown", "ArrowDown")
    assert (lines.get_attribute("data-side"), lines.get_attribute("data-position")) == ("query", "2")
    held = {cell: weight for cell, weight in expected(pinned, 0.5).items() if cell[2] == 2}
    assert held
    assert drawn(maps) == held
    for key in range(3):
        alpha = lines.evaluate("(lines, [i, j]) => lines.colourOn(i, j, 0.4)[3]", [2, key])
        assert (alpha > 60) == any(cell[3] == key for cell in held)
    maps.press(lines, "ArrowRight")
    assert lines.get_attribute("data-side") == "key"
    assert all(cell[3] == int(lines.get_attribute("data-position") or -1) for cell in drawn(maps))
    address = maps.address()
    assert sent == []
    wanted = {"figure": "lines", "of": "pinned", "pins": "3.5,1.4,0.0", "faint": "0.5", "only": "key"}
    assert {name: address[name] for name in wanted} == wanted
    maps.press(lines, "Escape")
    place = lines.evaluate("lines => lines.placeOf('query', 7)")
    lines.hover(position=place)
    expect(lines).to_have_attribute("data-position", "7")
    assert all(cell[2] == 7 for cell in drawn(maps))


def test_lines_of_a_long_prompt_are_the_largest_and_say_what_is_missing(open_maps):
    maps = open_maps(tokens=400, layer=1, head=0, figure="lines", of="pinned", pins="1.0,3.2", faint=0)
    lines, weights = maps.page.locator("canvas.lines"), weights_of("causal", 400)[1, 0]
    maps.wait_for_head(1, 0)
    expect(lines).to_have_attribute("data-of", str(400 * 401 // 2))
    found = drawn(maps)
    assert 4500 < len(found) <= 5000
    ranked = np.sort(weights[mask_of("causal", 400)])[::-1]
    np.testing.assert_array_equal(np.sort(np.array(list(found.values()), np.float32))[::-1], ranked[: len(found)])
    shown = f"the {len(found) // 1000}\u2006{len(found) % 1000:03} largest of 80\u2006200"
    expect(maps.page.get_by_text(shown)).to_be_visible()
    expect(maps.page.get_by_text("not here: layer 3, head 2")).to_be_visible()
