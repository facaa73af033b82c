"""The Overview page in a browser: what it shows is what lmcore computes, and looking around sends nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Page, expect

from figures.format import group
from lmcore import load_pretrained
from lmcore.costs import forward_flops, kv_cache_bytes, param_counts
from lmcore.trace import Capture
from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, settle, type_prompt

MODEL, TOKENIZER, REPORT = load_pretrained("builtin")
assert TOKENIZER is not None
PROMPT = "the café ☕ by the river"
IDS = TOKENIZER.encode(PROMPT)
HOSTILE = "<s> <b>x</b> $x$ *y*\t_z_\n<img src=x onerror=alert(1)>"

WATCH_RUNS = """() => {
    const app = document.querySelector("[data-testid='stApp']");
    window.runs = 0;
    new MutationObserver(() => (window.runs += app.dataset.testScriptState === "running"))
        .observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] });
}"""


def watch_runs(page: Page) -> None:
    """From now on `window.runs` counts the script runs that the page asks for."""
    page.evaluate(WATCH_RUNS)


def residual_lengths(position: int) -> list[float]:
    trace = MODEL(torch.tensor([IDS]), capture=Capture.of("resid_post")).trace
    assert trace is not None
    assert trace.embedding is not None
    rows = [trace.embedding, *(trace.layers[layer]["resid_post"] for layer in sorted(trace.layers))]
    return [float(row[0, position].norm()) for row in rows]


def drawn_lengths(page: Page) -> list[float]:
    return [float(dot.get_attribute("data-value") or "nan") for dot in page.locator(".trace .selected circle").all()]


def test_page_shows_this_models_numbers(open_page: OpenPage):
    page = open_page(prompt=PROMPT)
    expect(page.get_by_text(f"Built-in tiny model · one forward pass, {len(IDS)} tokens")).to_be_visible()
    expect(page.locator(".strip .chip")).to_have_count(len(IDS))
    for calculated in (
        group(param_counts(MODEL.cfg).total),
        group(sum(forward_flops(MODEL.cfg, tokens=len(IDS)).values())),
        f"{group(sum(kv_cache_bytes(MODEL.cfg, context=len(IDS), itemsize=4)))} B",
    ):
        tile = page.locator(".tile", has_text=calculated)
        assert tile.locator("dd").all_inner_texts() == [calculated, calculated, "0"]
    expect(page.locator(".facts")).to_contain_text(f"{REPORT.tensor_count} of {REPORT.tensor_count}")


def test_strip_and_trace_show_the_position_that_is_chosen_without_a_run(open_page: OpenPage):
    page = open_page(prompt=PROMPT)
    assert drawn_lengths(page) == pytest.approx(residual_lengths(len(IDS) - 1), rel=1e-4)
    watch_runs(page)
    page.locator(".strip .chip").nth(6).click()
    assert drawn_lengths(page) == pytest.approx(residual_lengths(6), rel=1e-4)
    page.keyboard.press("ArrowLeft")
    assert drawn_lengths(page) == pytest.approx(residual_lengths(5), rel=1e-4)
    page.get_by_label("position of the measured trace").press("Home")
    expect(page.locator(".strip .chip[aria-current=true]")).to_have_attribute("data-position", "0")
    expect(page).to_have_url(re.compile(r"position=0\b"))
    assert page.evaluate("window.runs") == 0


def test_loss_of_a_token_is_the_models(open_page: OpenPage):
    page = open_page(prompt=PROMPT, position=8)
    logits = MODEL(torch.tensor([IDS])).logits[0]
    loss = torch.nn.functional.cross_entropy(logits[7], torch.tensor(IDS[8])).item()
    expect(page.locator(".strip .reading")).to_contain_text(f"Loss {loss:.2f} nats")
    best = torch.softmax(logits[8], -1).max().item()
    expect(page.locator(".strip .row .number").first).to_have_text(f"{best:.3f}")


def test_another_prompt_starts_at_its_own_last_token_everywhere(open_page: OpenPage):
    page = open_page(prompt=PROMPT)
    page.locator(".strip .chip").nth(3).click()
    type_prompt(page, "short")
    expect(page.locator(".strip .chip[aria-current=true]")).to_have_attribute("data-position", "5")
    expect(page.locator(".trace-position b")).to_have_text("5")


def test_a_part_opens_its_page_and_keeps_the_prompt(open_page: OpenPage):
    page = open_page(prompt=PROMPT)
    page.locator("a[data-node=embedding]").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Tokens and logits")
    settle(page)
    expect(page.get_by_label("Prompt", exact=True)).to_have_value(PROMPT)
    expect(page).to_have_url(re.compile("/tokens"))


def test_source_and_tensors_are_shown_when_asked_for(open_page: OpenPage):
    page = open_page(prompt="a")
    page.get_by_role("button", name="Source").nth(1).click()
    settle(page)
    expect(page.get_by_text("def measured_pass(").first).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_text(f"{REPORT.tensor_count} tensors, one row each").click()
    settle(page)
    expect(page.get_by_test_id("stDataFrame")).to_be_visible()


def test_the_diagram_is_saved_with_every_length(open_page: OpenPage):
    page = open_page(prompt=PROMPT)
    figure = page.locator(".gb", has=page.locator(".diagram"))
    with page.expect_download() as download:
        figure.get_by_role("button", name="PNG").first.click()
    picture = np.asarray(Image.open(download.value.path()).convert("RGB"))
    size = figure.locator(".diagram svg").evaluate("node => [node.clientHeight, node.clientWidth]")
    assert (np.array(picture.shape[:2]) > size).all()
    assert {(10, 111, 105), (180, 72, 10)} < {tuple(map(int, pixel)) for pixel in picture.reshape(-1, 3)}
    with page.expect_download() as download:
        figure.get_by_role("button", name="CSV").first.click()
    rows = download.value.path().read_text().splitlines()
    assert len(rows) == MODEL.cfg.n_layers + 2
    assert float(rows[-1].split(",")[-1]) == pytest.approx(residual_lengths(len(IDS) - 1)[-1], rel=1e-4)


@pytest.mark.parametrize("prompt", ["", "a", HOSTILE, "river " * 300], ids=["empty", "short", "hostile", "long"])
@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["1440", "390"])
def test_every_prompt_paints_within_the_page(open_page: OpenPage, prompt: str, size: tuple[int, int], scheme: str):
    page = open_page(prompt=prompt, size=size, scheme=scheme)
    expect(page.locator(".diagram svg")).to_be_visible()
    expect(page.locator(".tile").first).to_be_visible()
    expect(page.get_by_test_id("stAlert")).to_have_count(0)
    main = page.get_by_test_id("stMain")
    assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 0
    assert page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth") <= 0


def test_real_model(open_page: OpenPage, smollm2_source: str):
    page = open_page(model="SmolLM2-135M")
    expect(page.get_by_text("SmolLM2-135M · one forward pass, 20 tokens")).to_be_visible()
    expect(page.locator(".strip .row").first).to_contain_text("·Mary")
    tile = page.locator(".tile", has_text="Parameters").first
    expect(tile).to_contain_text(group(134_515_008))
    expect(page.locator(".tile[data-state=unequal]")).to_have_count(0)
