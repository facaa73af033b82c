"""The KV page in Chromium: from a key on a slider to the repainted figure, for a 671B mixture of experts.

Every move is followed by the page's run on the server, which is waited for before the next; the clock stops two frames
after the figure first shows something else, whoever made it. Beside it a slider that no server sees.

    python -m benchmarks.kv_page [--moves 30] [--port 0]

With `--port` a server that runs already is measured.
"""

from __future__ import annotations

import argparse
import os
import time
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from benchmarks.decode_page import serving, settle
from benchmarks.first_paint import FLAGS
from benchmarks.positions_page import MOVED, report

MODELS = ("DeepSeek-V3", "Llama 3.1 405B", "Gemma 3 27B, text part", "Qwen3 30B-A3B")
CHART, ROWS, FITS = (".lines", 0), (".grid", 0), (".grid", 1)
SLIDERS = (
    ("context, the chart", "Context S", CHART),
    ("context, the models' table", "Context S", ROWS),
    ("context, the accelerators' table", "Context S", FITS),
    ("batch, the chart", "Batch B", CHART),
    ("batch, the accelerators' table", "Batch B", FITS),
    ("window, the chart", "Window w", CHART),
    ("rank of the latent, the chart", "Rank of the latent r", CHART),
    ("memory kept free, its table", "Kept free, in %", FITS),
)
# Resolves once the figure shows other text than before and that is painted; the clock is begun by the key.
ANSWER = """(figure) => new Promise((done) => {
    const host = figure.parentElement;
    const shown = () => host.textContent;
    const before = shown();
    let begun = null;
    document.addEventListener("keydown", () => (begun ??= performance.now()), { capture: true, once: true });
    const seen = new MutationObserver(() => {
        if (begun === null || shown() === before) return;
        seen.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
    });
    seen.observe(host, { childList: true, subtree: true, characterData: true });
})"""


def key_moves(page: Page, slider: str, figure: tuple[str, int], count: int) -> list[float]:
    """Milliseconds from each key on the slider, to the left and back by turns, to the figure that shows it."""
    thumb, (selector, nth) = page.get_by_role("slider", name=slider), figure
    times = []
    for move in range(count):
        element = page.locator(selector).nth(nth).element_handle()
        assert element is not None
        thumb.focus()
        waiting = page.evaluate_handle(f"(figure) => ({{ answer: ({ANSWER})(figure) }})", element)
        page.keyboard.press("ArrowRight" if move % 2 else "ArrowLeft")
        times.append(page.evaluate("(waiting) => waiting.answer", waiting))
        settle(page)
    return times


def own_moves(page: Page, count: int) -> list[float]:
    """Milliseconds of moves of a slider of the wiring, which no server sees."""
    slider = page.locator(".who").get_by_label("KV heads K", exact=True).element_handle()
    return [page.evaluate(MOVED, [slider, 1 + move % 8]) for move in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=30)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with serving(given.port) as url, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        begun = time.perf_counter()
        asked = {"model": "Built-in tiny model", "kv_models": list(MODELS), "kv_batch": 8}
        asked |= {"kv_kind": "MLA latent", "kv_pattern": "sliding window"}
        asked |= {"kv_ranks": 16, "kv_weights": "fp8"}  # so that the weights fit and the table has something to say
        page.goto(f"{url}/kv?{urlencode(asked, doseq=True)}")
        page.locator(".lines").first.wait_for(timeout=120_000)
        page.locator(".grid").nth(1).wait_for(timeout=120_000)
        print(f"{'page to its tables, no torch':34} {(time.perf_counter() - begun) * 1e3:6.0f} ms")
        settle(page)
        page.get_by_text("Change DeepSeek-V3").click()
        for what, slider, figure in SLIDERS:
            key_moves(page, slider, figure, 2)
            report(what, key_moves(page, slider, figure, given.moves))
        report("KV heads, in the browser", own_moves(page, given.moves))
        browser.close()


if __name__ == "__main__":
    main()
