"""The decode steps and the KV cache in a browser: what is drawn is what was given, and looking around sends nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from figures.decode import step_view
from figures.format import scientific
from lmcore.sampling import Sampler, pick
from tests.e2e.apps.decode_data import LAYERS, SAMPLER, V, key_lengths, logits
from tests.e2e.conftest import PHONE, OpenPage, Server, settle
from ui import components

PIXEL = """(canvas, [x, y]) => {
  const ratio = canvas.width / canvas.clientWidth;
  return [...canvas.getContext("2d").getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data];
}"""


@pytest.fixture
def opened(component_server: Server, open_page: OpenPage) -> Callable[..., Page]:
    def open_case(case: str = "small", **given: object) -> Page:
        return open_page(server=component_server, model=None, case=case, **given)

    return open_case


def rows(page: Page) -> list[tuple[int, str, str]]:
    """(token, before, after) of each listed token, as text."""
    listed = page.locator(".distribution [data-token]")
    expect(listed.first).to_be_visible()
    found = []
    for row in listed.all():
        before, after = row.locator(".bar-cell .number").all_inner_texts()
        found.append((int(row.get_attribute("data-token") or -1), before, after))
    return found


def expected_rows(step: int) -> list[tuple[int, str, str]]:
    found = SAMPLER.distribution(logits(step))
    order = sorted(range(V), key=lambda token: -found.raw[token])[:12]
    order += [] if chosen(step) in order else [chosen(step)]
    return [(token, probability(found.raw[token]), probability(found.probs[token])) for token in order]


def chosen(step: int) -> int:
    return 1 + step % 5


def probability(p: float) -> str:
    if p == 0:
        return "removed"
    return f"{p:.4f}" if p >= 5e-5 else scientific(p)


def another_token(step: int) -> int:
    return next(token for token, _, _ in expected_rows(step)[2:] if token != chosen(step))


def slider(page: Page) -> Locator:
    return page.get_by_label("step", exact=True)


def field(page: Page) -> Locator:
    return page.locator("canvas.field")


def point_at(page: Page, layer: int, column: int) -> None:
    """Walk the reading of the cache grid to a cell with the keyboard."""
    field(page).focus()
    page.keyboard.press("ArrowDown")
    for key, times in (("ArrowDown", layer), ("ArrowRight", column)):
        for _ in range(times):
            page.keyboard.press(key)


def test_both_distributions_of_every_step_are_those_of_the_sampler(opened):
    page = opened()
    for step in (4, 3, 2, 1, 0):
        slider(page).fill(str(step))
        shown = rows(page)
        wanted = expected_rows(step)
        if step == 3:
            wanted[-1] = (*wanted[-1][:2], "by hand")
            assert page.locator(".rank").inner_text() == "rank 500"
        assert shown == wanted, step


def test_looking_around_runs_nothing(opened):
    page = opened()
    expect(page.get_by_text("runs 1,")).to_be_visible()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowRight", "Home"):
        slider(page).press(key)
    page.get_by_role("button", name="KV 1").click()
    page.get_by_role("button", name="position 7, ").click()
    page.wait_for_timeout(300)
    settle(page)
    expect(page.get_by_text("runs 1,")).to_be_visible()


def test_the_sampler_tells_what_each_filter_removed(opened):
    page = opened(step=1)
    stages = SAMPLER.distribution(logits(1)).stages
    shown = page.locator(".stage").all_inner_texts()[1:]
    assert [text.split("\n")[0] for text in shown] == ["temperature", "top-k", "top-p"]
    for text, stage in zip(shown, stages, strict=True):
        assert f"{stage.kept} kept" in text
        assert (f"{stage.removed_mass:.4f} removed" if stage.removed_mass > 1e-9 else "0 removed") in text


def test_text_appears_with_the_last_byte_of_its_character(opened):
    page = opened(step=0)
    text = page.locator("p.text")
    expect(text).to_have_text(re.compile(r"^\s2 bytes wait for the rest of a character$"))
    slider(page).press("ArrowRight")
    expect(text).to_have_text("☕")
    slider(page).press("End")
    expect(text).to_have_text("☕ <b>x</b>\n $x$")
    assert "\ufffd" not in page.content()


def test_a_click_on_a_token_asks_for_it_at_the_step_looked_at(opened):
    page = opened(step=2)
    token = another_token(2)
    page.locator(f".distribution button[data-token='{token}']").click()
    expect(page.get_by_text(f"chosen (2, {token})")).to_be_visible()
    settle(page)
    expect(page.get_by_text("runs 2,")).to_be_visible()


def test_a_token_can_be_chosen_with_the_keyboard(opened):
    page = opened(step=2)
    token = another_token(2)
    page.locator(f".distribution button[data-token='{token}']").press("Enter")
    expect(page.get_by_text(f"chosen (2, {token})")).to_be_visible()
    settle(page)


def test_a_link_restores_the_step_in_both_components_and_moving_moves_both(opened):
    page = opened(step=2)
    expect(page.get_by_label("decode step")).to_have_value("2")
    expect(slider(page)).to_have_value("2")
    page.get_by_label("decode step").press("ArrowLeft")
    expect(slider(page)).to_have_value("1")
    expect(page).to_have_url(re.compile(r"step=1\b"))
    slider(page).press("End")
    expect(page.get_by_label("decode step")).to_have_value("4")
    expect(page).to_have_url(re.compile(r"^(?!.*step=)"))


def test_a_new_step_is_looked_at(opened):
    page = opened(step=2)
    page.get_by_role("button", name="One more step").click()
    settle(page)
    expect(slider(page)).to_have_value("5")
    expect(page.get_by_label("decode step")).to_have_value("5")
    expect(page.locator(".chip[aria-current=true]")).to_have_attribute("data-position", "10")


SETTINGS = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 2.0},
    {"temperature": 0.05},
    {"temperature": 2.0},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 200},
    {"top_p": 0.05},
    {"top_p": 0.95, "temperature": 2.0},
    {"min_p": 0.5},
    {"typical_p": 0.05},
    {"typical_p": 0.95, "temperature": 2.0},
    {"repetition_penalty": 1.35},
    {"temperature": 0.7, "top_k": 40, "top_p": 0.95},
    {"repetition_penalty": 1.2, "temperature": 1.3, "top_k": 60, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.8},
    {"top_k": 10**6, "top_p": 0.5, "typical_p": 0.5},
]


def vocabularies() -> list[tuple[np.ndarray, list[int]]]:
    """Logits and the tokens before them: ordinary, with ties at every place, -inf, all alike, of one token."""
    rng = np.random.default_rng(3)
    wide = rng.normal(0, 3, 12_000).astype(np.float32)
    ties = np.round(rng.normal(0, 2, 300)).astype(np.float32)
    gone = rng.normal(0, 4, 50).astype(np.float32)
    gone[::3] = -np.inf
    alike = np.zeros(64, np.float32)
    return [(wide, [5, 17, int(wide.argmax())]), (ties, [1, 2, 3]), (gone, [0, 1]), (alike, [7]), (alike[:1], [])]


def test_the_sampler_in_the_browser_is_lmcores(browser: Browser):
    """Tokens kept, masses removed, probabilities and draws, for every setting on every vocabulary."""
    code = (components.FOLDER / "decode" / "sampler.js").read_text()
    page = browser.new_page()
    page.add_script_tag(content=code)
    points = np.linspace(0, 0.999, 37).tolist()
    defaults = vars(Sampler())
    for scores, history in vocabularies():
        packed = [None if np.isinf(x) else float(x) for x in scores]
        found = page.evaluate(
            """(given) => {
              const [scores, history, settings, points] = JSON.parse(given);
              return JSON.stringify(settings.map((setting) => {
                const logits = Float32Array.from(scores, (x) => x ?? -Infinity);
                const { probs, stages } = sampledDistribution(logits, setting, Int32Array.from(history));
                const kept = [...probs.entries()].filter(([, p]) => p > 0);
                return { kept, stages, drawn: points.map((point) => drawnToken(probs, point)) };
              }));
            }""",
            json.dumps([packed, history, [defaults | given for given in SETTINGS], points]),
        )
        for given, shown in zip(SETTINGS, json.loads(found), strict=True):
            wanted = Sampler(**given).distribution(scores, history)
            stages = step_view(
                *wanted[:2], token=0, position=0, time_s=0, forward_tokens=1, stages=wanted.stages
            ).stages
            assert [stage[:2] for stage in shown["stages"]] == [[name, kept] for name, kept, _ in stages], given
            np.testing.assert_allclose([s[2] for s in shown["stages"]], [s[2] for s in stages], atol=1e-12)
            assert [token for token, _ in shown["kept"]] == np.flatnonzero(wanted.probs).tolist(), given
            np.testing.assert_allclose([p for _, p in shown["kept"]], wanted.probs[wanted.probs > 0], atol=1e-13)
            assert shown["drawn"] == [pick(wanted.probs, point) for point in points], given
    page.close()


def test_time_of_each_forward_is_one_disc_a_step(opened):
    page = opened(step=1)
    discs = page.locator(".times circle")
    assert discs.count() == 5
    expect(page.locator(".times svg")).to_have_attribute("data-scale", "log")
    levels = [float(disc.get_attribute("cy") or 0) for disc in discs.all()]
    times = np.array([0.5, 0.021, 0.022, 0.023, 0.024])
    slopes = np.diff(levels) / np.diff(np.log10(times))
    assert slopes == pytest.approx([slopes[0]] * 4, rel=1e-3)
    expect(page.locator(".step-name").first).to_contain_text("21.0 ms")


def test_cache_cells_read_as_the_lengths_they_were_given(opened):
    page = opened()
    expected = key_lengths(9)
    point_at(page, layer=3, column=7)
    expect(page.locator(".reading")).to_contain_text("layer 3, position 7 ·<b>x</b>: ")
    expect(page.locator(".reading b")).to_have_text(f"{expected[3, 0, 7]:.4f}")
    page.get_by_role("button", name="KV 1").click()
    point_at(page, layer=3, column=7)
    expect(page.locator(".reading b")).to_have_text(f"{expected[3, 1, 7]:.4f}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cache_colours_grow_with_the_length_and_empty_cells_have_none(opened, scheme: str):
    page = opened(scheme=scheme, size=(1440, 1800))
    canvas = field(page)
    expect(canvas).to_be_visible()
    page.wait_for_timeout(300)
    values, lightness = [], []
    grid = grid_of(page)
    for layer in range(LAYERS):
        for column in (0, 3, 8):
            values.append(float(key_lengths(9)[layer, 0, column]))
            lightness.append(sum(canvas.evaluate(PIXEL, centre(grid, layer, column))[:3]))
    order = np.argsort(values)
    steps = np.diff(np.array(lightness)[order])
    assert (steps <= 0).all() if scheme == "light" else (steps >= 0).all(), "longer is further from the page"
    assert abs(lightness[order[0]] - lightness[order[-1]]) > 100
    slider(page).press("Home")
    emptied = [canvas.evaluate(PIXEL, centre(grid, layer, 8, dy=dy)) for layer in range(LAYERS) for dy in (-3, 0, 3)]
    assert not any(alpha == 255 for *_, alpha in emptied), "before its step a position has no colour, only faint dots"
    assert sum(alpha == 0 for *_, alpha in emptied) >= len(emptied) // 2


def grid_of(page: Page) -> tuple[float, float, float]:
    """(column width, top, row height) of the cache grid, found by pointing at it, not taken from its code."""
    canvas = field(page)
    box = canvas.bounding_box()
    assert box is not None

    def read(x: float, y: float) -> tuple[int, int] | None:
        page.mouse.move(box["x"] + x, box["y"] + y)
        found = re.match(r"layer (\d+), position (\d+)", page.locator(".reading").inner_text())
        return (int(found[1]), int(found[2])) if found else None

    page.mouse.move(0, 0)
    top = next(y for y in range(int(box["height"])) if read(5.0, y))
    bottom = next(y for y in range(top, int(box["height"])) if not read(5.0, y))
    column = next(x for x in range(1, 60) if (read(float(x), top + 2) or (0, 0))[1] == 1)
    page.mouse.move(0, 0)
    return float(column), float(top), (bottom - top) / LAYERS


def centre(grid: tuple[float, float, float], layer: int, column: int, dy: float = 0) -> list[float]:
    width, top, height = grid
    return [(column + 0.5) * width, top + (layer + 0.5) * height + dy]


def test_bytes_stand_beside_each_other_with_their_difference(opened):
    page = opened(step=1)
    expect(page.locator(".facts")).to_contain_text("calculated 576\u2006B")
    expect(page.locator(".facts")).to_contain_text("in the cache 576\u2006B")
    slider(page).press("ArrowRight")
    expect(page.locator(".facts")).to_contain_text("difference 1")


def test_512_positions_are_pooled_by_maximum_and_say_so(opened):
    page = opened("long")
    note = page.get_by_text(re.compile(r"Each cell is the maximum over \d+ positions\."))
    expect(note).to_be_visible()
    factor = int(re.findall(r"\d+", note.inner_text())[0])
    point_at(page, layer=2, column=11)
    expect(page.locator(".reading")).to_contain_text(f"layer 2, positions {11 * factor} to {12 * factor - 1} ")
    expected = key_lengths(514)[2, 0, 11 * factor : 12 * factor].max()
    expect(page.locator(".reading b")).to_have_text(f"{expected:.4f}")


@pytest.mark.parametrize("case", ["small", "long", "one", "start", "empty"])
def test_a_phone_scrolls_the_wide_parts_and_not_the_page(opened, case: str):
    page = opened(case, size=PHONE)
    expect(field(page)).to_be_visible()
    main = page.get_by_test_id("stMain")
    assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 0
    if case == "long":
        assert page.locator(".scroller").evaluate("node => node.scrollWidth > node.clientWidth && node.scrollLeft > 0")


@pytest.mark.parametrize(("case", "words"), [("start", "no step yet"), ("empty", "the prompt is empty")])
def test_before_the_first_step_the_cache_is_dotted_and_says_so(opened, case: str, words: str):
    page = opened(case)
    expect(page.locator(".step-name").first).to_have_text(words)
    expect(page.locator(".distribution")).to_have_count(0)
    expect(page.get_by_text("nothing has run", exact=True)).to_be_visible()
    expect(field(page)).to_have_attribute("aria-label", re.compile("6 layers by 0 positions"))
