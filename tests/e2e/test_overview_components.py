"""The architecture diagram and the number tiles in a browser: what they draw, where they lead, how they are reached."""

from __future__ import annotations

import itertools
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect

from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, Server, settle


@pytest.fixture
def opened(component_server: Server, open_page: OpenPage):
    def open_case(case: str = "small", **given: object) -> Page:
        return open_page(server=component_server, model=None, case=case, **given)

    return open_case


def length_of(row: int, position: int) -> float:
    """The test app's residual lengths, computed a second time."""
    return 2.0 * 1.3 ** (row % 20) * (1 + 100 / (1 + 5 * position))


def drawn_lengths(page: Page, series: str) -> list[float]:
    dots = page.locator(f".trace .{series} circle")
    expect(dots.first).to_be_visible()
    return [float(dot.get_attribute("data-value") or "nan") for dot in dots.all()]


def boxes(locator: Locator) -> list[FloatRect]:
    found = [box.bounding_box() for box in locator.all()]
    return [box for box in found if box]


def overlap(a: FloatRect, b: FloatRect) -> bool:
    across = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
    down = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
    return across > 0.5 and down > 0.5


def test_trace_draws_the_lengths_it_was_given(opened):
    page = opened()
    assert drawn_lengths(page, "selected") == pytest.approx([length_of(row, 19) for row in range(5)], rel=1e-6)
    assert drawn_lengths(page, "first") == pytest.approx([length_of(row, 0) for row in range(5)], rel=1e-6)
    heights = [float(dot.get_attribute("cy") or 0) for dot in page.locator(".trace .selected circle").all()]
    steps = [below - above for below, above in itertools.pairwise(heights)]
    assert steps == pytest.approx([steps[0]] * 4, rel=1e-3), "a constant factor is a constant rise on a log scale"
    assert steps[0] > 0


def test_position_is_chosen_in_the_browser_and_stands_in_the_address(opened):
    page = opened(position=7)
    assert drawn_lengths(page, "selected")[0] == pytest.approx(length_of(0, 7), rel=1e-6)
    page.get_by_label("position of the measured trace").press("ArrowLeft")
    assert drawn_lengths(page, "selected")[0] == pytest.approx(length_of(0, 6), rel=1e-6)
    expect(page).to_have_url(re.compile(r"position=6\b"))


def test_trace_follows_a_position_that_another_component_chose(opened):
    page = opened()
    expect(page.locator(".trace .selected circle").first).to_be_visible()
    page.evaluate("dispatchEvent(new CustomEvent('glassbox:view', { detail: { position: 3 } }))")
    assert drawn_lengths(page, "selected")[0] == pytest.approx(length_of(0, 3), rel=1e-6)
    expect(page.locator(".trace-position .token")).to_have_text("·<b>x</b>")


def test_arrow_keys_read_the_blocks(opened):
    page = opened()
    page.locator(".trace").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".reading")).to_contain_text("After block 1: ")
    expect(page.locator(".reading")).to_contain_text(" at position 19")


def test_nodes_carry_shapes_and_parameters_of_this_config(opened):
    diagram = opened().locator(".diagram text")
    expect(diagram.first).to_be_visible()
    texts = diagram.all_text_contents()
    for text in ("(1, 20, 49_152)", "9 Q, 3 KV × 64", "weights (1, 9, 20, 20)", "28_311_552", "884_736", "2_654_208"):
        assert texts.count(text.replace("_", "\u2006")) == 1, text


def test_nodes_with_a_page_link_to_it_and_keep_the_query(opened):
    page = opened(position=7)
    links = page.locator("a.node-link")
    assert links.count() == 6
    assert page.locator("a[data-node=positions]").text_content() == "RoPE on q and k"
    link = page.locator("a[data-node=attention]")
    link.focus()
    address = urlsplit(link.get_attribute("href") or "")
    assert address.path == "/attention"
    assert parse_qs(address.query) == {"case": ["small"], "position": ["7"]}
    assert page.locator("[data-node=ffn]").evaluate("node => node.tagName") == "g", "no page, no link"


def test_a_click_tells_the_page_and_loads_the_address_if_the_page_stays(opened):
    page = opened()
    page.locator("a[data-node=sampler]").click()
    expect(page.get_by_text("opened decode")).to_be_visible()
    page.wait_for_url("**/decode?case=small")


@pytest.mark.parametrize("size", [DESKTOP, (1100, 900), PHONE])
@pytest.mark.parametrize("case", ["small", "large", "least", "empty"])
def test_nothing_overlaps_or_overflows(opened, case: str, size: tuple[int, int]):
    page = opened(case, size=size)
    expect(page.locator(".shares")).to_be_visible()
    for group in (".diagram rect", ".diagram text", ".shares text"):
        pairs = itertools.combinations(boxes(page.locator(group)), 2)
        assert not [pair for pair in pairs if overlap(*pair)], group
    main = page.get_by_test_id("stMain")
    assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 0
    for box in boxes(page.locator(".diagram svg, .shares")):
        assert box["x"] + box["width"] <= size[0]


def test_counted_parameters_are_drawn_beside_the_calculated_ones(opened):
    page = opened()
    values = {
        kind: [int(bar.get_attribute("data-value") or 0) for bar in page.locator(f".{kind}-bar").all()]
        for kind in ("calculated", "counted")
    }
    difference = [a - b for a, b in zip(values["calculated"], values["counted"], strict=True)]
    assert difference == [0, 0, 0, 1], "the test app loses one of the norms' parameters"
    expect(page.locator(".shares").get_by_text("counted 5\u2006183")).to_have_count(1)


def test_without_weights_nothing_is_said_to_be_counted(opened):
    page = opened("large")
    expect(page.locator(".shares .not-counted")).to_have_count(1)
    expect(page.locator(".counted-bar")).to_have_count(0)


def test_empty_prompt_draws_axes_and_a_field_that_is_not_computed(opened):
    page = opened("empty")
    expect(page.locator(".trace .not-computed")).to_have_count(1)
    expect(page.locator(".trace circle[data-value]")).to_have_count(0)
    expect(page.get_by_text("not computed: the prompt is empty")).to_be_visible()


def test_one_token_has_one_series_and_nothing_to_choose(opened):
    page = opened("least")
    assert len(drawn_lengths(page, "selected")) == 2
    expect(page.locator(".trace .first")).to_have_count(0)
    expect(page.get_by_label("position of the measured trace")).to_have_count(0)


def test_tiles_state_the_difference_and_what_is_missing(opened):
    page = opened()
    tiles = page.locator(".tile")
    assert [tile.get_attribute("data-state") for tile in tiles.all()] == [
        "equal", "unequal", "rounding", "missing", "impossible",
    ]  # fmt: skip
    expect(tiles.nth(1)).to_contain_text("FLOPs <b>x</b>")
    expect(tiles.nth(1)).to_contain_text("5\u2006406\u2006842\u2006879")
    expect(tiles.nth(1)).to_contain_text("\u22121")
    expect(tiles.nth(4).get_by_role("button")).to_have_count(0)


def test_a_tile_that_was_not_run_asks_for_its_measurement(opened):
    page = opened()
    page.get_by_role("button", name="Measure now").click()
    expect(page.get_by_text("asked Long context")).to_be_visible()
    settle(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_calculated_is_hollow_and_measured_is_solid_in_both_themes(opened, scheme: str):
    page = opened(scheme=scheme)
    hollow, solid = page.locator(".calculated-bar").first, page.locator(".counted-bar").first
    style = "node => { const s = getComputedStyle(node); return [s.fill, s.stroke]; }"
    accent, measured = {
        "light": ("rgb(10, 111, 105)", "rgb(180, 72, 10)"),
        "dark": ("rgb(86, 205, 190)", "rgb(247, 154, 91)"),
    }[scheme]
    assert hollow.evaluate(style) == ["none", accent]
    assert solid.evaluate(style) == [measured, "none"]
