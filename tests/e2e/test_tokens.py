"""The Tokens page in a browser: every position's numbers are lmcore's, and choosing one sends nothing."""

from __future__ import annotations

import re

import pytest
import torch
from playwright.sync_api import Page, expect

from figures.format import fixed
from figures.scripts import SENTENCES
from lmcore import load_pretrained
from tests.e2e.conftest import DESKTOP, PHONE, OpenPage
from tests.e2e.test_overview import HOSTILE, IDS, MODEL, PROMPT, TOKENIZER, watch_runs

assert TOKENIZER is not None


def terms(page: Page) -> dict[str, str]:
    return {
        term.get_attribute("data-term") or "": term.locator(".value").inner_text()
        for term in page.locator(".term").all()
    }


def expected_terms(position: int) -> dict[str, str]:
    z = MODEL(torch.tensor([IDS])).logits[0, position - 1].double()
    logit, total = z[IDS[position]].item(), z.logsumexp(0).item()
    return {"logit": fixed(logit, 4), "sum": fixed(total, 4), "loss": fixed(total - logit, 4)}


def test_ids_bytes_and_shared_characters_are_shown(open_page: OpenPage):
    page = open_page("tokens", prompt="日x")
    assert page.locator(".strip .chip-id").all_inner_texts() == ["256", "230 日", "151 日", "165 日", "120"]
    page.locator(".strip .chip").nth(2).click()
    reading = page.locator(".strip .reading")
    expect(reading).to_contain_text("bytes 97")
    expect(reading).to_contain_text("part of 日")


def test_loss_follows_the_selection_by_click_and_key_without_a_run(open_page: OpenPage):
    page = open_page("tokens", prompt=PROMPT)
    watch_runs(page)
    page.locator(".strip .chip").nth(7).click()
    for position, key in ((7, "ArrowRight"), (8, "Home")):
        shown = terms(page)
        assert {name: shown[name] for name in ("logit", "sum", "loss")} == expected_terms(position)
        page.keyboard.press(key)
    expect(page.locator(".loss-svg")).to_have_attribute("data-state", "empty")
    expect(page.locator(".term")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"position=0\b"))
    assert page.evaluate("window.runs") == 0


def test_link_opens_at_its_position(open_page: OpenPage):
    page = open_page("tokens", prompt=PROMPT, position=9)
    assert terms(page)["loss"] == expected_terms(9)["loss"]
    expect(page.locator(".dots-title")).to_contain_text("After position 9")


def test_dot_products_stand_beside_logits_of_the_selected_position(open_page: OpenPage):
    page = open_page("tokens", prompt=PROMPT)
    page.locator(".strip .chip").nth(4).click()
    logits = MODEL(torch.tensor([IDS])).logits[0, 4]
    rows = page.locator(".dots tbody tr")
    values, ids = logits.topk(6)
    assert [int(row.get_attribute("data-id") or -1) for row in rows.all()[:6]] == ids.tolist()
    for row, value in zip(rows.all(), values.tolist(), strict=False):
        product, logit = (float(text.replace("\u2212", "-")) for text in row.locator("td").all_inner_texts()[2:4])
        assert product == pytest.approx(value, abs=2e-5)
        assert logit == pytest.approx(value, abs=1e-5)
    marked = page.locator(".dots .in-text")
    expect(marked).to_have_count(1)
    expect(marked).to_have_attribute("data-id", str(IDS[5]))


def test_bins_count_the_whole_vocabulary(open_page: OpenPage):
    page = open_page("tokens", prompt=PROMPT)
    counts = page.locator(".loss-svg .bin").evaluate_all("bins => bins.map((bin) => Number(bin.dataset.count))")
    assert sum(counts) == MODEL.cfg.vocab_size


def test_scripts_show_how_a_sentence_is_cut(open_page: OpenPage):
    page = open_page("tokens", prompt="")
    rows = page.locator("button.script")
    expect(rows).to_have_count(len(SENTENCES))
    row = next(i for i, sentence in enumerate(SENTENCES) if sentence.name == "Russian")
    count = len(TOKENIZER.encode(SENTENCES[row].text, add_special=False))
    rows.nth(row).click()
    expect(page.locator(".cut-token")).to_have_count(count)
    expect(rows.nth(row)).to_contain_text(f"{len(SENTENCES[row].text) / count:.2f}")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".sentence")).to_have_text(SENTENCES[row + 1].text)


@pytest.mark.parametrize("prompt", ["", "a", HOSTILE, "river " * 300], ids=["empty", "short", "hostile", "long"])
@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["1440", "390"])
def test_every_prompt_paints_within_the_page(open_page: OpenPage, prompt: str, size: tuple[int, int], scheme: str):
    page = open_page("tokens", prompt=prompt, size=size, scheme=scheme)
    expect(page.locator(".script").first).to_be_visible()
    expect(page.get_by_test_id("stAlert")).to_have_count(0)
    main = page.get_by_test_id("stMain")
    assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 0
    table = page.locator(".dots")
    if prompt:
        box = table.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= size[0]


def test_real_model(open_page: OpenPage, smollm2_source: str):
    model, tokenizer, _ = load_pretrained(smollm2_source)
    assert tokenizer is not None
    ids = tokenizer.encode("The capital of France is Paris")
    z = model(torch.tensor([ids])).logits[0, -2].double()
    page = open_page("tokens", model="SmolLM2-135M", prompt="The capital of France is Paris")
    shown = terms(page)
    loss = z.logsumexp(0).item() - z[ids[-1]].item()
    assert float(shown["loss"]) == pytest.approx(loss, abs=2e-4)
    assert page.locator(".dots tbody tr").count() >= 6
