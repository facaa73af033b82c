"""The Positions page in Chromium: from a slider's move to repainted curves, and frames of a pair that plays.

Each move sets a range to another place, as a pointer does, and waits until the browser has painted the frame after it.

    python -m benchmarks.positions_page [--moves 40] [--model "Built-in tiny model"]
"""

from __future__ import annotations

import argparse
import os
import statistics
from itertools import pairwise
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from benchmarks.decode_page import serving
from benchmarks.first_paint import FLAGS

REACH_MS = 100
SLIDERS = (
    ("base, all pairs", "pairs", "Base b′"),
    ("position, all pairs", "pairs", "Position m"),
    ("factor, all scalings", "scalings", "Factor s"),
    ("beta_fast, all scalings", "scalings", "YaRN: beta_fast"),
    ("position, one pair", "turning", "Position m of q"),
)
# Two frames: the curves are drawn in the first, and the second begins once it is painted.
MOVED = """([range, place]) => new Promise((done) => {
    const begun = performance.now();
    range.value = place;
    range.dispatchEvent(new Event("input"));
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
})"""
FRAMES = """() => new Promise((done) => {
    const times = [];
    const each = (now) => (times.push(now), times.length < 60 ? requestAnimationFrame(each) : done(times));
    requestAnimationFrame(each);
})"""


def moves(page: Page, figure: str, name: str, count: int) -> list[float]:
    """Milliseconds of each move of one slider."""
    slider = page.locator(f".{figure}").get_by_label(name, exact=True).element_handle()
    assert slider is not None
    last = int(slider.get_attribute("max") or 0)
    places = [round(last * (0.1 + 0.8 * (move * 7 % count) / count)) for move in range(count)]
    return [page.evaluate(MOVED, [slider, place]) for place in places]


def report(what: str, times: list[float]) -> None:
    ordered = sorted(times)
    worst = ordered[int(0.95 * (len(ordered) - 1))]
    print(f"{what:34} median {statistics.median(times):6.1f} ms   95 % {worst:6.1f} ms   reach <= {REACH_MS} ms")


def measure(page: Page, count: int) -> None:
    page.locator(".scalings table button").first.wait_for(timeout=120_000)
    for what, figure, name in SLIDERS:
        page.locator(f".{figure}").scroll_into_view_if_needed()
        moves(page, figure, name, 3)
        report(what, moves(page, figure, name, count))
    page.locator(".turning").scroll_into_view_if_needed()
    page.get_by_role("button", name="Play", exact=True).click()
    times = page.evaluate(FRAMES)
    gaps = [after - before for before, after in pairwise(times)]
    print(f"{'a frame while a pair plays':34} median {statistics.median(gaps):6.1f} ms   longest {max(gaps):6.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=40)
    parser.add_argument("--model", default="Built-in tiny model")
    given = parser.parse_args()
    with serving(0) as url, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{url}/positions?{urlencode({'model': given.model})}")
        measure(page, given.moves)
        browser.close()


if __name__ == "__main__":
    main()
