"""Masks, broken runs and effects in a browser: what is drawn is lmcore's."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect

from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.effects import contribution_map, planted_scores
from lmcore.masks import Mask
from lmcore.trace import Capture, Edits
from tests.e2e.conftest import DESKTOP, PHONE, OpenPage, settle

TEXT = "abcabc the the"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def drawn(page: Page, which: int, field: int) -> np.ndarray:
    """The values (T, T) that a figure of fields shows; -1 where a key may not be read."""
    figure = page.locator(".fields").nth(which)
    values = np.array(figure.evaluate("(node, field) => Array.from(node.values(field))", field))
    side = round(len(values) ** 0.5)
    return values.reshape(side, side)


def forward(loaded: Loaded, mask: Mask | None = None):
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode(TEXT)])
    return loaded.model.forward(tokens, capture=Capture.of("pattern", "v"), edits=Edits(mask=mask)), tokens


def test_a_mask_is_chosen_drawn_and_measured(loaded: Loaded, open_page: OpenPage):
    page = open_page("attention", prompt=TEXT)
    page.get_by_role("radio", name="sliding window").or_(page.get_by_role("button", name="sliding window")).click()
    settle(page)
    expect(page.locator(".fields").first.locator("figcaption").first).to_have_text("Mask: sliding window")
    count = forward(loaded)[1].shape[1]
    allowed = Mask(window=4).allows(torch.arange(count), torch.arange(count)).numpy()
    np.testing.assert_array_equal(drawn(page, 0, 0) == 0, allowed)
    out, tokens = forward(loaded, Mask(window=4))
    loss = float(torch.nn.functional.cross_entropy(out.logits[0, :-1], tokens[0, 1:]))
    assert float(page.locator(".pair .headline").first.inner_text().removesuffix("nats")) == pytest.approx(
        loss, abs=1e-3
    )
    assert "attention_mask=sliding" in page.url


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_contributions_follow_the_head_selected_above(loaded: Loaded, open_page: OpenPage, size, scheme):
    page = open_page("attention", prompt=TEXT, layer=1, head=2, size=size, scheme=scheme)
    figure = page.locator(".fields").nth(1)
    figure.locator("canvas").first.wait_for()
    trace = forward(loaded)[0].trace
    assert trace is not None

    def expected(layer: int, head: int) -> np.ndarray:
        t = trace.layers[layer]
        return contribution_map(loaded.model, layer, t["pattern"][0].numpy(), t["v"][0].numpy())[head]

    lower = np.tri(len(drawn(page, 1, 1)), dtype=bool)
    np.testing.assert_allclose(drawn(page, 1, 1)[lower], expected(1, 2)[lower], atol=1e-6)
    page.locator(".ranked canvas").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    state = json.loads(figure.evaluate("node => node.dataset.state"))
    assert (state["layer"], state["head"]) == (2, 3)
    np.testing.assert_allclose(drawn(page, 1, 1)[lower], expected(2, 3)[lower], atol=1e-6)
    assert "layer=2" in page.url
    assert page.get_by_test_id("stMain").evaluate("node => node.scrollWidth - node.clientWidth") <= 0


def test_the_broken_runs_are_made_on_demand(loaded: Loaded, open_page: OpenPage):
    page = open_page("attention", prompt=TEXT)
    row = page.locator(".broken[data-name='Mask after the softmax']")
    expect(row.locator("[data-measure=loss]")).to_have_text("not run")
    page.get_by_role("button", name="Run the 6 broken models").click()
    expect(row).to_contain_text("Rows no longer sum to 1", timeout=30_000)
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode(TEXT)])
    logits = loaded.model.forward(tokens, edits=Edits(softmax="mask_after")).logits
    loss = float(torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]))
    assert float(row.locator("[data-measure=loss]").inner_text()) == pytest.approx(loss, abs=1e-3)
    expect(page.locator(".broken[data-name='No mask']")).to_contain_text("The future leaks")


def test_the_planted_test_names_lmcores_best_head(loaded: Loaded, open_page: OpenPage):
    page = open_page("attention", prompt=TEXT)
    page.get_by_role("button", name="Run the planted test").click()
    panel = page.locator(".panel", has=page.get_by_role("heading", name="Induction"))
    best = panel.locator("button.entry").first
    best.wait_for(timeout=30_000)
    assert loaded.tokenizer is not None
    scores = planted_scores(loaded.model, length=64, first=loaded.tokenizer.bos_id).induction
    layer, head = np.unravel_index(int(scores.argmax()), scores.shape)
    expect(best).to_contain_text(f"layer {layer}, head {head}")
    best.click()
    page.wait_for_timeout(300)
    assert f"layer={layer}" in page.url
    assert f"head={head}" in page.url
