"""The Attention page in Chromium: what looking around sends, and how soon all heads and the lines are painted again.

One server, one page with 64 tokens (12 words, repeated), SmolLM2 where it is installed. A repaint is timed in the page,
from the event to the second frame after it, so that what the canvas was told is also on the screen.

    python -m benchmarks.attention_page [--rounds 15] [--model "SmolLM2-135M"]
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from itertools import cycle
from urllib.parse import urlencode

from playwright.sync_api import Browser, Locator, Page, sync_playwright

from benchmarks.decode_page import serving
from benchmarks.first_paint import FLAGS

WORDS = "the cat sat on a mat and saw the dog run home"
TOKENS = 64
PINS = 12
PAINTED = """(node, event) => new Promise(done => {
    const start = performance.now();
    if (event === "click") node.click();
    else if (event.startsWith("pointer")) node.dispatchEvent(new PointerEvent(event));
    else node.dispatchEvent(new KeyboardEvent("keydown", {key: event}));
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""


def line(what: str, value: float, unit: str, reach: float, more: str = "") -> None:
    print(f"{what:58} {value:8.1f} {unit:9} reach <= {reach:<5g} {more}", flush=True)


class Stopwatch:
    """Repaints of one page: by the clock, and by the processor time of the renderer, whatever else the machine does."""

    def __init__(self, browser: Browser) -> None:
        self._devtools = browser.new_browser_cdp_session()

    def _worked(self) -> float:
        """Milliseconds of processor time that the renderers have used so far."""
        found = self._devtools.send("SystemInfo.getProcessInfo")["processInfo"]
        return 1000 * sum(process["cpuTime"] for process in found if process["type"] == "renderer")

    def repaints(
        self,
        what: str,
        events: list[tuple[Locator, str]],
        rounds: int,
        reach: float,
        before: Callable[[], object] = int,
    ) -> None:
        """From each event to the second frame after it: the median by the clock, the mean of the processor time.
        `before` each, something happens that is not timed."""
        walls, worked = [], 0.0
        for node, event in events * rounds:
            before()
            so_far = self._worked()
            walls.append(float(node.evaluate(PAINTED, event)))
            worked += self._worked() - so_far
        more = f"{worked / len(walls):.0f} ms of processor time"
        line(what, statistics.median(walls), "ms median", reach, more)


def opened(page: Page, url: str, **query: object) -> None:
    page.goto(f"{url}/attention?{urlencode(query)}")
    page.locator("canvas.map:visible, canvas.lines:visible").wait_for()
    page.wait_for_selector("[data-testid='stApp'][data-test-script-state='notRunning']")
    page.wait_for_timeout(1500)  # a rerun that the last messages asked for


def frames_sent(page: Page, sent: list[int]) -> int:
    """What the browser sends while every layer and many heads, cells, orders and lines are looked at."""
    sent.clear()
    page.locator("canvas.grid").focus()
    for key in ["ArrowDown"] * 30 + ["ArrowRight"] * 9 + ["ArrowUp"] * 30:
        page.keyboard.press(key)
    page.locator("canvas.map").focus()
    for key in ["ArrowLeft", "ArrowUp"] * 10:
        page.keyboard.press(key)
    for name in ("far", "highest first", "lines", "heads of this KV head", "map", "without sink", "raw", "maps"):
        page.get_by_role("button", name=name, exact=True).first.click()
    page.wait_for_timeout(1000)
    return len(sent)


def measure(browser: Browser, page: Page, url: str, model: str, rounds: int) -> None:
    sent: list[int] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(len(frame))))
    words = (WORDS.split() * TOKENS)[:TOKENS]
    query = {"model": model, "prompt": " ".join(words)}
    opened(page, url, **query)
    shape = page.locator("canvas.grid").get_attribute("aria-label") or ""
    print(f"{model}, {page.locator('.attention .chip').count()} tokens. {shape.split(';')[0]}.")
    line("messages sent while layers, heads, cells and orders move", frames_sent(page, sent), "", 0)
    scales = [page.get_by_role("button", name=name, exact=True).first for name in ("without sink", "raw")]
    watch, grid = Stopwatch(browser), page.locator("canvas.grid")
    watch.repaints("all heads painted again on another scale", [(scale, "click") for scale in scales], rounds, 250)
    watch.repaints("another head", [(grid, "ArrowDown"), (grid, "ArrowUp")], rounds, 100)
    heads = [f"{layer}.{head}" for layer in range(4) for head in range(3)][:PINS]
    opened(page, url, **query, figure="lines", of="pinned", pins=",".join(heads), faint=0)
    lines = page.locator("canvas.lines")
    print(f"{lines.get_attribute('data-drawn')} of {lines.get_attribute('data-of')} lines of {len(heads)} heads.")
    places = cycle(lines.evaluate("lines => [3, 9].map(at => lines.placeOf('query', at))"))
    watch.repaints(
        "lines of 12 heads, all tokens after one",
        [(lines, "pointerleave")],
        2 * rounds,
        150,
        before=lambda: lines.hover(position=next(places)),
    )


def main() -> None:
    from ui import state

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", default=state.default_model())
    given = parser.parse_args()
    with serving(0) as url, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(300_000)
        measure(browser, page, url, given.model, given.rounds)
        browser.close()


if __name__ == "__main__":
    main()
