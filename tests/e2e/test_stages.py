"""One head, stage by stage, in a browser: each canvas shows the running model's matrix, and a cell what made it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, Position, expect

from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.trace import STAGES, Capture
from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, Server, settle
from ui import state

TEXT = "abcabc the the"
LONG = ("word " * 103)[:511]
# The stages in order, and lmcore's name of each.
ORDER = {
    "normed": "normed",
    "q": "q",
    "k": "k",
    "v": "v",
    "rot_q": "rot_q",
    "rot_k": "rot_k",
    "raw": "scores_raw",
    "scaled": "scores_scaled",
    "masked": "scores_masked",
    "softmax": "pattern",
    "z": "z",
    "write": "",
    "attn_out": "attn_out",
    "resid_mid": "resid_mid",
}
SHARED = {"k", "v", "rot_k"}
MASKED = 1


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def run(loaded: Loaded, text: str, layer: int) -> dict[str, np.ndarray]:
    assert loaded.tokenizer is not None
    ids = torch.tensor([loaded.tokenizer.encode(text)[:512]])
    names = [name for name in STAGES if not name.startswith("ffn")]
    trace = loaded.model.forward(ids, capture=Capture.of(*names, layers=[layer])).trace
    assert trace is not None
    return {name: trace.layers[layer][name][0].numpy() for name in names}


def matrix_of(stage: dict[str, np.ndarray], key: str, head: int) -> np.ndarray:
    array = stage[ORDER[key]]
    return array if array.ndim == 2 else array[head // 2 if key in SHARED else head]


class Stages:
    """The section on a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.root = page.locator(".stages")
        self.canvas = self.root.locator("canvas.matrix")
        self.root.wait_for()
        page.wait_for_function("() => document.fonts.status === 'loaded'")
        self.canvas.scroll_into_view_if_needed()
        page.wait_for_timeout(400)
        settle(page)

    @property
    def view(self) -> dict[str, str]:
        return self.root.evaluate("node => ({...node.dataset})")

    def at(self) -> tuple[int, ...]:
        return tuple(int(self.view[name]) for name in ("layer", "head", "query", "key"))

    def values(self, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
        read = self.canvas.evaluate(
            """(canvas, [rows, columns]) => Array.from({length: rows}, (_, i) =>
                Array.from({length: columns}, (_, j) => canvas.valueAt(i, j)))""",
            [rows, columns],
        )
        values = [[np.nan if cell["value"] is None else cell["value"] for cell in row] for row in read]
        return np.array(values), np.array([[cell["state"] for cell in row] for row in read])

    def cell(self, row: int, column: int) -> dict[str, Any]:
        return self.canvas.evaluate("(canvas, cell) => canvas.valueAt(...cell)", [row, column])

    def place(self, row: int, column: int) -> Position:
        return self.canvas.evaluate("(canvas, cell) => canvas.placeOf(...cell)", [row, column])

    def colour(self, row: int, column: int) -> list[int]:
        return self.canvas.evaluate("(canvas, cell) => canvas.colourAt(...cell)", [row, column])

    def open(self, stage: str) -> None:
        self.root.locator(f"[data-stage={stage}]").click()
        assert self.view["stage"] == stage

    def made(self) -> tuple[float, float]:
        """The sum of the products that are listed, and the cell."""
        box = self.root.locator(".products")
        return (
            float(box.locator("[data-sum]").get_attribute("data-sum") or "nan"),
            float(box.locator("[data-cell]").get_attribute("data-cell") or "nan"),
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_every_stage_shows_what_lmcore_computed(loaded: Loaded, open_page: OpenPage, size, scheme) -> None:
    layer, head = 1, 3
    shown = Stages(
        open_page("attention", prompt=TEXT, layer=layer, head=head, query=9, key=4, size=size, scheme=scheme)
    )
    stage = run(loaded, TEXT, layer)
    output = loaded.model.get_parameter(f"model.layers.{layer}.self_attn.o_proj.weight").detach().numpy()
    assert shown.at() == (layer, head, 9, 4)
    for key in ORDER:
        shown.open(key)
        expected = matrix_of(stage, key, head) if key != "write" else stage["z"][head] @ output[:, 48:64].T
        values, states = shown.values(*expected.shape)
        masked = np.zeros(expected.shape, bool)
        if key in ("masked", "softmax"):
            masked = ~np.tri(len(expected), dtype=bool)
        np.testing.assert_array_equal(states == MASKED, masked)
        np.testing.assert_allclose(values[~masked], expected[~masked], rtol=1e-5, atol=1e-5, err_msg=key)
        title = shown.root.locator(".shape").inner_text()
        assert f"{len(expected)} × {expected.shape[1]}" in title
        assert shown.root.locator(".formula").inner_text()
        assert shown.root.locator("canvas.bar").bounding_box() is not None
    assert shown.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_colours_follow_the_values_and_masked_is_a_hatch(loaded: Loaded, open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=TEXT, layer=1, head=3, stage="raw"))
    values, _ = shown.values(15, 15)
    most, least = np.unravel_index(values.argmax(), values.shape), np.unravel_index(values.argmin(), values.shape)
    warm, cold = (shown.colour(*map(int, cell)) for cell in (most, least))
    assert warm[0] > warm[2]  # ochre above zero
    assert cold[0] < cold[2]  # indigo below
    both = np.abs(run(loaded, TEXT, 1)["scores_raw"][2:4]).max()  # one scale for the heads of a group
    assert shown.canvas.evaluate("canvas => canvas.limit") == pytest.approx(both, rel=1e-6)
    shown.open("softmax")
    alphas = {tuple(shown.colour(0, column))[3] for column in range(4, 14)}
    assert shown.colour(14, 0)[3] == 255
    assert alphas != {255}  # the page shows through the hatch


def test_a_cell_of_the_scores_lists_the_products_that_made_it(loaded: Loaded, open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=TEXT, layer=2, head=0, query=9, key=4, stage="raw"))
    stage = run(loaded, TEXT, 2)
    for row, column in ((9, 4), (12, 3), (2, 11)):
        shown.canvas.hover(position=shown.place(row, column))
        products = stage["rot_q"][0][row] * stage["rot_k"][0][column]
        total, cell = shown.made()
        assert total == pytest.approx(cell, abs=1e-5)
        assert cell == pytest.approx(stage["scores_raw"][0][row, column], abs=1e-6)
        listed = shown.root.locator(".products tbody tr").all_inner_texts()
        order = np.argsort(-np.abs(products), kind="stable")[:6]
        assert [int(text.split()[0]) for text in listed[:6]] == order.tolist()
        last = [float(text.split()[-1].replace("−", "-")) for text in listed[:6]]
        np.testing.assert_allclose(last, products[order], atol=6e-5)
        assert listed[6].startswith(f"{len(products) - 6} more")
        assert shown.root.locator(".strips canvas").count() == 3
    shown.page.mouse.move(2, 2)
    expect(shown.root.locator(".made .caption")).to_have_text("The chosen cell")


def test_a_cell_of_the_mixed_values_is_the_sum_over_keys(loaded: Loaded, open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=TEXT, layer=0, head=2, query=11, stage="z"))
    stage = run(loaded, TEXT, 0)
    shown.canvas.click(position=shown.place(11, 7))
    total, cell = shown.made()
    assert cell == pytest.approx(stage["z"][2][11, 7], abs=1e-6)
    assert total == pytest.approx(cell, abs=1e-5)


def test_the_residual_add_is_drawn_and_adds_up(loaded: Loaded, open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=TEXT, layer=3, head=1, query=5, stage="resid_mid"))
    lines = shown.root.locator(".made .line .number").all_inner_texts()
    before, written, after = (float(text.replace("−", "-")) for text in lines)
    assert before + written == pytest.approx(after, abs=2e-5)
    assert shown.root.locator(".strips.add canvas").count() == 3
    assert shown.root.locator(".sign").all_inner_texts() == ["+", "="]


def test_row_sums_and_the_softmax_of_a_cell(loaded: Loaded, open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=TEXT, layer=2, head=2, query=10, key=3, stage="softmax"))
    stage = run(loaded, TEXT, 2)
    texts = shown.root.locator(".made .line").all_inner_texts()
    assert texts[-1].split("\n") == ["sum of this row", "1.000000"]
    numbers = [float(text.split("\n")[1].replace("−", "-")) for text in texts]
    assert numbers[2] / numbers[3] == pytest.approx(stage["pattern"][2][10, 3], abs=1e-4)


def test_keys_step_through_the_stages_and_over_the_cells(open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=TEXT, layer=1, head=3, query=9, key=4))
    shown.root.locator("[data-stage=normed]").focus()
    for key, stage in (
        ("ArrowRight", "q"),
        ("ArrowRight", "k"),
        ("ArrowLeft", "q"),
        ("End", "resid_mid"),
        ("Home", "normed"),
    ):
        shown.page.keyboard.press(key)
        assert shown.view["stage"] == stage
    shown.root.get_by_role("button", name="Next stage").click()
    assert shown.view["stage"] == "q"
    shown.open("raw")
    shown.canvas.focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowRight"):
        shown.page.keyboard.press(key)
    assert shown.at() == (1, 3, 7, 5)
    for _ in range(20):
        shown.page.keyboard.press("ArrowDown")
    assert shown.at() == (1, 3, 14, 5)
    expect(shown.root.locator(".unseen[aria-live]")).to_contain_text("Scores")


def test_the_followed_row_stays_in_its_place(open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=TEXT, layer=1, head=3, query=9, key=4))
    places = set()
    for key in ORDER:
        shown.open(key)
        places.add((shown.place(9, 0)["y"], shown.canvas.evaluate("canvas => canvas.offsetTop")))
    assert len(places) == 1


def test_play_walks_to_the_end_and_waits_for_nobody_under_reduced_motion(open_page: OpenPage) -> None:
    page = open_page("attention", prompt="abc")
    shown = Stages(page)
    shown.open("attn_out")
    shown.root.get_by_role("button", name="Play").click()
    expect(shown.root.get_by_role("button", name="Pause")).to_be_visible()
    expect(shown.root).to_have_attribute("data-stage", "resid_mid", timeout=3000)
    expect(shown.root.get_by_role("button", name="Play")).to_be_visible()
    page.emulate_media(reduced_motion="reduce")
    shown.open("normed")
    expect(shown.root.locator(".play")).to_be_hidden()


def test_the_group_side_by_side_over_what_it_shares(loaded: Loaded, open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=TEXT, layer=1, head=3, query=9, key=4, stage="softmax"))
    shown.root.get_by_role("button", name="side by side").click()
    panels = shown.root.locator("canvas.panel")
    found = panels.evaluate_all("nodes => nodes.map(node => [node.dataset.matrix, node.dataset.head])")
    assert found == [["softmax", "2"], ["softmax", "3"], ["rot_k", "2"], ["v", "2"]]
    stage = run(loaded, TEXT, 1)
    for index, expected in enumerate((stage["pattern"][2], stage["pattern"][3], stage["rot_k"][1], stage["v"][1])):
        got = panels.nth(index).evaluate("node => node.valueAt(9, 4).value")
        assert got == pytest.approx(float(expected[9, 4]), abs=1e-6)
    box = panels.first.bounding_box()
    assert box is not None
    panels.first.click(position={"x": 8, "y": box["height"] / 2})
    assert shown.at()[1] == 2


def test_the_maps_above_and_the_stages_show_the_same_head(loaded: Loaded, open_page: OpenPage) -> None:
    page = open_page("attention", prompt=TEXT, layer=1, head=3, query=9, key=4)
    shown = Stages(page)
    grid, map_ = page.locator("canvas.grid"), page.locator("canvas.map")
    grid.click(position=grid.evaluate("grid => grid.placeOf(2, 0)"))
    shown.canvas.scroll_into_view_if_needed()
    expect(shown.root).to_have_attribute("data-layer", "2", timeout=10_000)
    expect(shown.root).to_have_attribute("data-waiting", "false", timeout=10_000)
    shown.open("raw")
    assert shown.at()[:2] == (2, 0)
    expected = run(loaded, TEXT, 2)["scores_raw"][0]
    assert shown.cell(9, 4)["value"] == pytest.approx(float(expected[9, 4]), abs=1e-5)
    shown.root.get_by_role("button", name="head 1", exact=True).click()
    expect(map_).to_have_attribute("data-head", "1")
    page.wait_for_timeout(300)
    address = page.evaluate("location.search")
    assert all(part in address for part in ("layer=2", "head=1", "stage=raw"))


def test_a_long_prompt_is_cut_fetches_the_query_asked_for_and_says_so(loaded: Loaded, open_page: OpenPage) -> None:
    shown = Stages(open_page("attention", prompt=LONG, layer=0, head=1, query=511, stage="softmax"))
    expect(shown.root.locator(".notes")).to_contain_text("Shown are positions 0 to 15 and 400 to 511 of 512")
    shown.root.locator("ol.text [data-query='200']").click()
    expect(shown.root).to_have_attribute("data-waiting", "false", timeout=15_000)
    expect(shown.root).to_have_attribute("data-query", "200")
    row = int(shown.view["row"])
    pattern = run(loaded, LONG, 0)["pattern"][1]
    assert shown.cell(row, 0)["value"] == pytest.approx(float(pattern[200, 0]), abs=1e-6)
    assert shown.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_one_head_reads_as_text_and_as_a_table(loaded: Loaded, open_page: OpenPage, tmp_path: Path) -> None:
    text = '=1+1,"<b>x</b>\n'
    shown = Stages(open_page("attention", prompt=text, layer=2, head=3))
    pattern = run(loaded, text, 2)["pattern"][3]
    lines = shown.root.locator("ol.text li").all_inner_texts()
    assert len(lines) == len(pattern)
    assert shown.root.locator("ol.text b").count() == 0
    weight = pattern[-1].max()
    assert f"reads {weight * 100:.0f} % from" in lines[-1]
    with shown.page.expect_download() as waiting:
        shown.root.get_by_role("button", name="CSV of what is read").click()
    waiting.value.save_as(tmp_path / "reads.csv")
    rows = list(csv.DictReader((tmp_path / "reads.csv").open()))
    assert [int(row["key position"]) for row in rows] == pattern.argmax(-1).tolist()
    np.testing.assert_allclose([float(row["weight"]) for row in rows], pattern.max(-1), atol=1e-6)
    assert all(row["query"].startswith('"') for row in rows)


def open_folder(open_page: OpenPage, server: Server, folder: Path, prompt: str) -> Stages:
    page = open_page("attention", prompt="a")
    page.goto(f"{server.url}/attention?{urlencode({'model': state.TYPED, 'path': folder, 'prompt': prompt})}")
    settle(page)
    return Stages(page)


def test_a_single_token(open_page: OpenPage, server: Server, tmp_path: Path) -> None:
    from tests.lmcore.tiny import hf_llama

    hf_llama("mqa").save_pretrained(tmp_path)
    shown = open_folder(open_page, server, tmp_path, "15")
    for key in ORDER:
        shown.open(key)
        assert np.isfinite(shown.cell(0, 0)["value"])
    shown.open("softmax")
    assert shown.cell(0, 0)["value"] == 1
    shown.canvas.focus()
    for key in ("ArrowUp", "ArrowRight", "ArrowDown"):
        shown.page.keyboard.press(key)
    assert shown.at()[2:] == (0, 0)


def test_a_model_without_rope_has_no_stage_of_rotation_and_says_why(
    open_page: OpenPage, server: Server, tmp_path: Path
) -> None:
    from tests.lmcore.family_models import VARIANTS, build

    build(VARIANTS["gpt2"]).save_pretrained(tmp_path)
    shown = open_folder(open_page, server, tmp_path, "5 6 7 5 6")
    assert shown.root.locator("[data-stage^=rot]").count() == 0
    expect(shown.root.locator(".notes")).to_contain_text("no RoPE: its positions are a learned table")
    shown.open("raw")
    total, cell = shown.made()
    assert total == pytest.approx(cell, abs=1e-4)
