"""The attention maps in a browser: the canvas shows what went into the payload, and looking around sends nothing."""

from __future__ import annotations

import csv
import time
import tomllib
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, WebSocket, expect

from tests.e2e.apps.attention_component import HEADS, LAYERS, mask_of, tokens_of, weights_of
from tests.e2e.conftest import DESKTOP, PHONE, ROOT, OpenPage, Server, settle

VALUE, MASKED, REMOVED, NOT_FINITE, UNKNOWN = range(5)


class Maps:
    """The component on a page: its canvases, and every message that the browser has sent since it was drawn."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.map: Locator = page.locator("canvas.map")
        self.grid: Locator = page.locator("canvas.grid")
        page.locator("canvas.map:visible, canvas.lines:visible").wait_for()
        page.wait_for_function("() => document.fonts.status === 'loaded'")
        page.locator("canvas.map:visible, canvas.lines:visible").scroll_into_view_if_needed()

    @property
    def view(self) -> dict[str, str]:
        return self.map.evaluate("map => ({...map.dataset})")

    @property
    def cell(self) -> tuple[int, int, int, int]:
        view = self.view
        return int(view["layer"]), int(view["head"]), int(view["query"]), int(view["key"])

    def cells(self, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
        """The values (NaN where there is none) and states that the component holds for one head."""
        count = len(self.page.locator(".chip").all())
        read = self.map.evaluate(
            """(map, [layer, head, count]) => Array.from({length: count}, (_, i) =>
                Array.from({length: count}, (_, j) => map.cellAt(layer, head, i, j)))""",
            [layer, head, count],
        )
        values = np.array([[np.nan if cell["value"] is None else cell["value"] for cell in row] for row in read])
        return values, np.array([[cell["state"] for cell in row] for row in read])

    def cell_at(self, layer: int, head: int, query: int, key: int) -> dict[str, Any]:
        return self.map.evaluate("(map, cell) => map.cellAt(...cell)", [layer, head, query, key])

    def wait_for_head(self, layer: int, head: int) -> None:
        """Until the exact weights of a head have come."""
        deadline = time.monotonic() + 20
        while self.cell_at(layer, head, 0, 0)["state"] == UNKNOWN:
            assert time.monotonic() < deadline, "the weights did not come"
            self.page.wait_for_timeout(50)

    def colour(self, query: int, key: int) -> list[int]:
        return self.map.evaluate("(map, [i, j]) => map.colourAt(i, j).slice(0, 3)", [query, key])

    def click_cell(self, query: int, key: int) -> None:
        self.map.click(position=self.map.evaluate("(map, [i, j]) => map.placeOf(i, j)", [query, key]))

    def click_head(self, layer: int, head: int) -> None:
        self.grid.click(position=self.grid.evaluate("(grid, [l, h]) => grid.placeOf(l, h)", [layer, head]))

    def press(self, canvas: Locator, *keys: str) -> None:
        canvas.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector: str) -> str:
        return self.page.locator(f".attention {selector}").inner_text()

    def address(self) -> dict[str, str]:
        self.page.wait_for_timeout(250)  # the address follows the view a moment later
        return {name: values[0] for name, values in parse_qs(urlsplit(self.page.url).query).items()}


@pytest.fixture
def open_maps(open_page: OpenPage, component_server: Server):
    def open_one(**query: object) -> Maps:
        return Maps(open_page(server=component_server, model=None, **query))

    return open_one


def listen(page: Page) -> list[int]:
    """The sizes of the messages that the browser sends from the next load on."""
    sent: list[int] = []
    page.on("websocket", lambda socket: _hear(socket, sent))
    page.reload()
    settle(page)
    page.locator("canvas.map").wait_for()
    page.wait_for_timeout(300)
    sent.clear()
    return sent


def _hear(socket: WebSocket, sent: list[int]) -> None:
    socket.on("framesent", lambda frame: sent.append(len(frame)))


def theme_ramp(scheme: str) -> np.ndarray:
    """(256, 3): the theme's ten stops interpolated in OKLab, from the equations and not from the component."""
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"][scheme]
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in theme["chartSequentialColors"]]) / 255
    linear = np.where(stops <= 0.04045, stops / 12.92, ((stops + 0.055) / 1.055) ** 2.4)
    to_lms = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    lab = np.cbrt(linear @ to_lms.T) @ to_lab.T
    place = np.linspace(0, len(stops) - 1, 256)
    mixed = np.stack([np.interp(place, np.arange(len(stops)), lab[:, k]) for k in range(3)], -1)
    back = (mixed @ np.linalg.inv(to_lab).T) ** 3 @ np.linalg.inv(to_lms).T
    gamma = np.where(back <= 0.0031308, 12.92 * back, 1.055 * np.clip(back, 0, None) ** (1 / 2.4) - 0.055)
    return np.clip(np.rint(gamma * 255), 0, 255)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_canvas_shows_the_payload_s_numbers_in_the_theme_s_colours(open_maps, size, scheme):
    maps = open_maps(size=size, scheme=scheme, tokens=20)
    weights, allowed, ramp = weights_of("causal", 20), mask_of("causal", 20), theme_ramp(scheme)
    for layer, head in [(0, 0), (3, 5), (1, 2)]:
        maps.grid.scroll_into_view_if_needed()
        maps.click_head(layer, head)
        assert maps.cell[:2] == (layer, head)
        values, states = maps.cells(layer, head)
        assert np.array_equal(states == VALUE, allowed)
        assert np.array_equal(states == MASKED, ~allowed)
        assert np.array_equal(values[allowed].astype(np.float32), weights[layer, head][allowed])
        for query, key in [(0, 0), (19, 18), (7, 3), (12, 0), (19, 0), (5, 5)]:
            shade = ramp[round(255 * float(weights[layer, head, query, key]) ** 0.5)]
            np.testing.assert_allclose(maps.colour(query, key), shade, atol=2, err_msg=str((query, key)))
    _, _, query, key = maps.cell
    assert maps.text(".large") == f"{weights[1, 2, query, key]:.4f} weight"
    assert maps.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_masked_is_a_pattern_and_not_the_colour_of_zero(open_maps):
    maps = open_maps(tokens=20, case="window")
    ramp = theme_ramp("light")
    layer, head = maps.cell[:2]
    _, states = maps.cells(layer, head)
    assert np.array_equal(states == MASKED, ~mask_of("window", 20))
    for query, key in [(2, 9), (15, 3)]:
        colours = maps.map.evaluate(
            """(map, [i, j]) => { const {x, y} = map.placeOf(i, j); const context = map.getContext("2d");
                return Array.from({length: 81}, (_, n) =>
                    [...context.getImageData(x - 4 + n % 9, y - 4 + Math.floor(n / 9), 1, 1).data]); }""",
            [query, key],
        )
        drawn = {tuple(colour) for colour in colours}
        assert len(drawn) > 1
        assert (0, 0, 0, 0) in drawn  # the page shows through
        assert not any(np.allclose(colour[:3], ramp[0], atol=3) and colour[3] == 255 for colour in drawn)
    maps.click_cell(15, 3)
    assert maps.cell[2:] != (15, 3)
    place = maps.map.evaluate("map => map.placeOf(2, 9)")
    maps.map.hover(position=place)
    expect(maps.page.locator(".attention .hover")).to_have_text("·cat cannot read →: masked")


def test_looking_around_sends_nothing_and_stays_in_the_address(open_maps):
    maps = open_maps(tokens=20)
    sent = listen(maps.page)
    maps.click_head(2, 1)
    maps.click_cell(9, 4)
    assert maps.cell == (2, 1, 9, 4)
    maps.press(maps.grid, "ArrowUp", "ArrowRight", "ArrowRight")
    assert maps.cell[:2] == (1, 3)
    maps.press(maps.grid, "Home", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft")
    assert maps.cell[:2] == (0, 0)
    maps.press(maps.grid, "End", "ArrowRight", "ArrowDown", "PageDown")
    assert maps.cell[:2] == (LAYERS - 1, HEADS - 1)
    maps.page.get_by_role("button", name="this cell").click()
    maps.page.get_by_role("button", name="without sink").click()
    maps.page.locator(".chip").nth(12).click()
    address = maps.address()
    maps.page.wait_for_timeout(300)
    assert sent == []
    view = {"layer": "3", "head": "5", "query": "12", "key": "4", "grid": "cell", "scale": "without-sink"}
    assert {name: address[name] for name in view} == view
    maps.page.reload()
    settle(maps.page)
    again = Maps(maps.page)
    assert {name: again.view[name] for name in view} == view


def test_arrow_keys_on_the_map_pass_over_masked_cells(open_maps):
    maps = open_maps(tokens=20, case="window", layer=0, head=0, query=10, key=8)
    maps.press(maps.map, "ArrowLeft")
    assert maps.cell[2:] == (10, 7)
    maps.press(maps.map, "ArrowLeft")
    assert maps.cell[2:] == (10, 7)
    maps.press(maps.map, "End")
    assert maps.cell[2:] == (10, 10)
    maps.press(maps.map, "ArrowUp")
    assert maps.cell[2:] == (9, 9)
    maps.press(maps.map, "Home", "ArrowDown")
    assert maps.cell[2:] == (10, 7)
    assert mask_of("window", 20)[maps.cell[2:]]
    weight = weights_of("window", 20)[0, 0, 10, 7]
    expect(maps.page.locator(".attention .reading .large")).to_contain_text(f"{weight:.4f}")
    assert "Layer 0, head 0" in (maps.map.get_attribute("aria-label") or "")


def test_scale_without_the_sink_renormalises_and_states_what_it_removed(open_maps):
    maps = open_maps(tokens=20, layer=1, head=1, query=15, key=6, scale="without-sink")
    weights = weights_of("causal", 20)[1, 1].astype(float)
    rest = weights[:, 1:].sum(-1)
    values, states = maps.cells(1, 1)
    assert (states[:, 0] == REMOVED).all()
    seen = states == VALUE
    assert np.array_equal(seen[1:, 1:], mask_of("causal", 20)[1:, 1:])
    np.testing.assert_allclose(values[seen], (weights[1:] / rest[1:, None])[seen[1:]], rtol=1e-12)
    totals = maps.page.locator(".attention .row.total").all_inner_texts()
    assert totals[0].split("\n") == ["row sum", "1.000000"]
    assert totals[1].split("\n") == ["removed on position 0", f"{weights[15, 0]:.6f}"]


def test_nan_and_infinity_are_counted_and_cross_hatched(open_maps):
    maps = open_maps(tokens=20, case="broken", layer=1, head=2, query=7, key=3)
    _, states = maps.cells(1, 2)
    assert np.argwhere(states == NOT_FINITE).tolist() == [[7, 3], [9, 0]]
    expect(maps.page.get_by_text("2 cells of this head are NaN or infinite")).to_be_visible()
    assert maps.text(".large") == "not finite"
    expect(maps.page.locator(".attention .rug .number").first).to_have_text("not finite")


def test_long_prompt_pools_says_so_and_fetches_a_layer_when_it_is_asked_for(open_maps):
    maps = open_maps(tokens=512, layer=0, head=0, query=300, key=200)
    weights = weights_of("causal", 512)
    maps.wait_for_head(0, 0)
    sent = listen(maps.page)
    block = int(maps.view["block"])
    assert block > 1
    expect(maps.page.get_by_text(f"each cell is the maximum of {block} × {block};")).to_be_visible()
    for query, key in [(300, 200), (511, 0), (100, 99)]:
        rows, columns = ((at // block * block, at // block * block + block) for at in (query, key))
        cells = weights[0, 0, slice(*rows), slice(*columns)]
        shown = maps.map.evaluate("(map, [i, j]) => map.shownAt(i, j)", [query, key])
        assert np.float32(shown["value"]) == cells.max()
    maps.click_cell(300, 200)
    _, _, query, key = maps.cell
    corner = np.s_[
        300 // block * block : 300 // block * block + block, 200 // block * block : 200 // block * block + block
    ]
    assert weights[0, 0, query, key] == weights[0, 0][corner].max()
    maps.press(maps.grid, "ArrowRight", "ArrowRight")
    assert maps.cell[:2] == (0, 2)
    maps.page.wait_for_timeout(400)
    assert sent == []
    maps.press(maps.grid, "ArrowDown", "ArrowDown")
    maps.wait_for_head(2, 2)
    assert np.float32(maps.cell_at(2, 2, 300, 200)["value"]) == weights[2, 2, 300, 200]
    assert len(sent) == 1
    assert maps.page.evaluate("document.activeElement.shadowRoot?.activeElement?.className") == "grid"
    maps.page.get_by_role("button", name="zoom in").click()
    layer, head, query, key = maps.cell
    shown = maps.map.evaluate("(map, [i, j]) => map.shownAt(i, j)", [query, key])
    assert maps.view["block"] == "1"
    assert np.float32(shown["value"]) == weights[layer, head, query, key]


def test_a_mask_that_lets_everything_be_read(open_maps):
    maps = open_maps(tokens=20, case="bidirectional", layer=2, head=4)
    values, states = maps.cells(2, 4)
    assert (states == VALUE).all()
    assert np.array_equal(values.astype(np.float32), weights_of("bidirectional", 20)[2, 4])
    maps.click_cell(3, 17)
    assert maps.cell[2:] == (3, 17)


def test_one_token(open_maps):
    maps = open_maps(tokens=1)
    values, states = maps.cells(0, 0)
    assert (values.tolist(), states.tolist()) == ([[1.0]], [[VALUE]])
    maps.press(maps.map, "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "End")
    maps.press(maps.grid, "ArrowDown")
    assert maps.cell == (1, 0, 0, 0)
    maps.page.get_by_role("button", name="induction").click()
    expect(maps.page.get_by_text("induction: no repeated token in this prompt")).to_be_visible()


def test_tokens_are_text_and_equal_ones_are_told_apart(open_maps):
    maps = open_maps(tokens=20)
    chips = maps.page.locator(".attention .chip .chip-text")
    shown = [chip.text_content() for chip in chips.all()]
    assert shown == ["".join(text for _, text in token.parts) for token in tokens_of(20)]
    assert shown[3] == shown[13] == "<b>x</b>"
    assert maps.page.locator(".attention b:not(.number)").count() == 0
    for position in (3, 13):
        chips.nth(position).click()
        assert maps.cell[2] == position
    maps.page.keyboard.press("Home")
    assert maps.cell[2] == 0
    maps.page.keyboard.press("ArrowRight")
    assert maps.cell[2] == 1
    assert maps.page.locator(".attention .chip[aria-current=true]").get_attribute("data-position") == "1"


def test_another_prompt_keeps_the_head_that_is_looked_at_and_a_position_that_it_has(open_maps):
    maps = open_maps(tokens=20)
    started = maps.cell[:2]
    tokens = maps.page.get_by_label("Tokens", exact=True)
    tokens.fill("30")
    tokens.press("Enter")
    expect(maps.page.locator(".attention .chip")).to_have_count(30)
    chosen = (3, 4) if started != (3, 4) else (2, 4)
    maps.click_head(*chosen)
    maps.click_cell(25, 11)
    assert maps.address()["query"] == "25"
    tokens.fill("12")
    tokens.press("Enter")
    expect(maps.page.locator(".attention .chip")).to_have_count(12)
    assert maps.cell == (*chosen, 11, 11)
    values, _ = maps.cells(*chosen)
    assert np.float32(values[11, 11]) == weights_of("causal", 12)[(*chosen, 11, 11)]
    assert maps.address()["query"] == "11"


def test_colours_follow_a_change_of_theme_without_a_reload(open_maps):
    maps = open_maps(tokens=20)
    layer, head, *_ = maps.cell
    weight = float(weights_of("causal", 20)[layer, head, 7, 3])
    for scheme in ("light", "dark", "light"):
        maps.page.emulate_media(color_scheme=scheme)
        maps.page.wait_for_timeout(400)
        np.testing.assert_allclose(maps.colour(7, 3), theme_ramp(scheme)[round(255 * weight**0.5)], atol=2)


def test_the_head_s_numbers_as_a_table(open_maps, tmp_path):
    maps = open_maps(tokens=20, layer=3, head=1)
    with maps.page.expect_download() as download:
        maps.page.get_by_role("button", name="CSV of this head").click()
    download.value.save_as(tmp_path / "head.csv")
    rows = list(csv.reader((tmp_path / "head.csv").open()))[1:]
    assert len(rows) == 20 * 21 // 2
    weights = weights_of("causal", 20)[3, 1]
    assert all(np.float32(weight) == weights[int(query), int(key)] for query, _, key, _, weight in rows)
