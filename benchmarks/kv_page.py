"""The KV page in Chromium: from a key on a slider to the repainted chart, for a 671B mixture of experts.

A key press on the context slider goes to the server, which calculates every figure of the section again; the clock
stops two frames after the chart that answers it was drawn. Beside it the sliders that the browser serves by itself.

    python -m benchmarks.kv_page [--moves 30]
"""

from __future__ import annotations

import argparse
import os
import time
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from benchmarks.decode_page import serving
from benchmarks.first_paint import FLAGS
from benchmarks.positions_page import MOVED, report

MODELS = ("DeepSeek-V3", "Llama 3.1 405B", "Gemma 3 27B, text part", "Qwen3 30B-A3B")
# Resolves once the chart's element has been drawn anew and painted; begun by the key.
ANSWER = """(chart) => new Promise((done) => {
    const host = chart.parentElement;
    let begun = null;
    document.addEventListener("keydown", () => (begun ??= performance.now()), { capture: true, once: true });
    const before = chart.dataset.at;
    const seen = new MutationObserver(() => {
        const now = host.querySelector(".lines")?.dataset.at;
        if (begun === null || !now || now === before) return;
        seen.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
    });
    seen.observe(host, { childList: true, subtree: true, attributes: true });
})"""


def key_moves(page: Page, count: int) -> list[float]:
    """Milliseconds from each key on the context slider to the chart that shows it."""
    thumb = page.get_by_role("slider", name="Context S")
    times = []
    for move in range(count):
        chart = page.locator(".lines").first.element_handle()
        assert chart is not None
        thumb.focus()
        waiting = page.evaluate_handle(f"(chart) => ({{ answer: ({ANSWER})(chart) }})", chart)
        page.keyboard.press("ArrowLeft" if move % 8 < 4 else "ArrowRight")
        times.append(page.evaluate("(waiting) => waiting.answer", waiting))
        page.wait_for_function(
            "() => document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'"
        )
    return times


def own_moves(page: Page, count: int) -> list[float]:
    """Milliseconds of moves of a slider of the wiring, which no server sees."""
    slider = page.locator(".who").get_by_label("KV heads K", exact=True).element_handle()
    return [page.evaluate(MOVED, [slider, 1 + move % 8]) for move in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=30)
    given = parser.parse_args()
    with serving(0) as url, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        begun = time.perf_counter()
        asked = {"model": "Built-in tiny model", "kv_models": list(MODELS)}
        page.goto(f"{url}/kv?{urlencode(asked, doseq=True)}")
        page.locator(".lines").first.wait_for(timeout=120_000)
        page.locator(".grid").nth(1).wait_for(timeout=120_000)
        print(f"{'page to its tables, no torch':34} {(time.perf_counter() - begun) * 1e3:6.0f} ms")
        key_moves(page, 3)
        report("context slider to the chart", key_moves(page, given.moves))
        report("KV heads, in the browser", own_moves(page, given.moves))
        browser.close()


if __name__ == "__main__":
    main()
