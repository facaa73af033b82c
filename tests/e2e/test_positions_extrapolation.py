"""Past the trained length and the other encodings in a browser: asked for, read by keyboard, as lmcore has them."""

from __future__ import annotations

import json

import numpy as np
from playwright.sync_api import Locator, Page, expect

from lmcore import teaching
from lmcore.checkpoint import load_pretrained
from lmcore.extrapolate import blocks, token_losses, windows
from lmcore.positions import alibi_slopes
from lmcore.scalings import scaled
from tests.e2e.conftest import PHONE, SETTLE_MS, OpenPage


def test_the_loaded_model_is_measured_under_a_scaling_and_read(open_page: OpenPage):
    link = {"positions_own_kind": "linear", "positions_own_windows": 1}
    page = open_page("positions", prompt="abc", **link)
    slider = page.get_by_test_id("stSlider").filter(has_text="Length, in tokens").get_by_role("slider")
    slider.focus()
    slider.press("Home")
    page.get_by_role("button", name="Estimate the time").click()
    page.get_by_role("button", name="Measure", exact=True).click(timeout=SETTLE_MS)
    figure = page.locator(".curves").filter(has=page.get_by_label("Loss by position, the loaded model"))
    figure.wait_for(timeout=SETTLE_MS)
    loaded = load_pretrained("builtin", dtype="float32", device="cpu")
    assert loaded.tokenizer is not None
    assert loaded.model.cfg.rope is not None
    texts = windows(loaded.tokenizer.encode(teaching.heldout_text()), 512, 1)
    rope = scaled(loaded.model.cfg.rope, "linear", factor=1, trained=2048)
    expected = blocks(token_losses(loaded.model, texts, rope), 16)
    [line] = figure.evaluate("node => node.lines.map(({ name, xs, ys }) => ({ name, xs: [...xs], ys: [...ys] }))")
    assert line["name"] == "linear"
    np.testing.assert_allclose(line["xs"], expected.position)
    np.testing.assert_allclose(line["ys"], expected.mean, atol=1e-4)
    figure.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(figure.locator(".reading")).to_contain_text(f"positions 16 to 31: linear {expected.mean[1]:.2f} nats")


def slopes_chart(page: Page) -> Locator:
    return page.get_by_label("Slope of each head")


def test_alibi_for_a_head_count_that_is_no_power_of_two_on_a_phone(open_page: OpenPage):
    page = open_page("positions", prompt="abc", size=PHONE, scheme="dark", positions_encoding="ALiBi")
    figure = page.locator(".heat").first
    figure.locator("canvas").wait_for(timeout=SETTLE_MS)
    bias = np.array(figure.evaluate("node => [...node.values()]")).reshape(12, -1)
    np.testing.assert_allclose(bias, -np.outer(alibi_slopes(12), np.arange(bias.shape[1])), rtol=1e-6)
    figure.locator("canvas").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert json.loads(figure.evaluate("node => node.dataset.state")) == {"row": 1, "column": 3}
    expect(figure.locator(".reading")).to_contain_text("head 1, distance 3: −0.7500")
    for saved, expected in (
        (figure, bias),
        (page.locator(".curves", has=slopes_chart(page)), alibi_slopes(12)[:, None]),
    ):
        with page.expect_download() as download:
            saved.get_by_role("button", name="CSV").click()
        table = np.loadtxt(download.value.path(), delimiter=",", skiprows=1)
        np.testing.assert_allclose(table, np.column_stack([np.arange(12), expected]), rtol=1e-6)
    assert page.get_by_test_id("stMain").evaluate("node => node.scrollWidth - node.clientWidth") <= 0
