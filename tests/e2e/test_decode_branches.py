"""The tree of branches and this step's attention in a browser: read and left with the keyboard, one cursor for all."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from lmcore.checkpoint import Loaded
from lmcore.sampling import softmax
from tests.e2e.conftest import OpenPage, settle
from tests.e2e.test_decode import loaded, slider, tokens, wait_for_steps  # noqa: F401
from tests.pages.test_decode import straight
from ui import branches

TEXT = "Once upon"
BRANCH = tuple(b" the")


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def test_the_tree_is_read_and_followed_with_the_keyboard_and_one_cursor_moves_every_section(
    loaded: Loaded,  # noqa: F811
    open_page: OpenPage,
) -> None:
    link = branches.to_link([BRANCH])
    page = open_page("decode", prompt=TEXT, decode_steps=4, decode_seed=5, decode_branches=link)
    wait_for_steps(page, 4)
    run = straight(loaded, TEXT, 4, seed=5)
    assert tokens(page) == [step.token for step in run.steps]

    # The cursor of the figure moves the lens and the attention, which are computed anew when they are seen.
    slider(page).fill("2")
    page.locator(".panel-head").scroll_into_view_if_needed()
    expect(page.get_by_text(re.compile("^Step 2: .* reads, to choose"))).to_be_visible(timeout=60_000)
    page.locator(".lens").scroll_into_view_if_needed()
    expect(page.get_by_text(re.compile("^Step 2: .* for position"))).to_be_visible(timeout=60_000)
    settle(page)  # the sentence stands before its table is drawn anew, and a key would meet the old one
    page.locator(".lens").locator("xpath=..").get_by_label("step looked at").press("ArrowLeft")
    expect(slider(page)).to_have_value("1")
    expect(page.get_by_text(re.compile("^Step 1: .* for position"))).to_be_visible(timeout=60_000)

    # Down from the end of the run to the branch, read there, and back to it.
    tree, reading = page.locator("canvas.tree"), page.locator(".gb:has(canvas.tree) .reading")
    tree.press("End")
    tree.press("ArrowDown")
    tree.press("End")
    forced: dict[str, Any] = {f"at{index}": token for index, token in enumerate(BRANCH)}
    given = straight(loaded, TEXT, 4, **forced)
    probabilities = [float(softmax(step.logits)[token]) for step, token in zip(given.steps, BRANCH, strict=True)]
    shown = [number(text) for text in reading.locator("b").all_inner_texts()]
    assert abs(shown[0] - math.log(probabilities[-1])) < 2e-3
    assert abs(shown[1] - probabilities[-1]) < 1e-4
    assert abs(shown[2] - sum(math.log(p) for p in probabilities)) < 2e-3
    tree.press("Enter")
    expect(page.locator("p.text .said")).to_have_text(" t", timeout=60_000)  # the cursor stays on step 1
    wait_for_steps(page, 4)
    assert tuple(tokens(page)) == BRANCH
    expect(tree).to_have_attribute("aria-label", re.compile("^tree of 2 branches"))
    with page.expect_download() as saved:
        page.locator(".gb:has(canvas.tree)").get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(Path(saved.value.path()).read_text().splitlines()))
    totals = [float(row["log p from the prompt to here"]) for row in rows if row["branches"] and row["step"] == "3"]
    assert any(abs(total - sum(math.log(p) for p in probabilities)) < 2e-3 for total in totals)
