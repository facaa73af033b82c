"""The Cost page in Chromium: from the release of a slider to the frame in which its figures show it.

The bars alone, and bars, table and roofline together, for a mixture of 671 billion parameters; bound: 100 ms, median,
for the bars. A key on the slider's thumb is a change and its release. Beside it stands the processor time of the
browser's main thread for one move, which holds on a busy machine, too.

    python -m benchmarks.cost_page [--rounds 20] [--port 0]

With `--port` a server that runs already is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator

from playwright.sync_api import CDPSession, Locator, Page, sync_playwright

from benchmarks.decode_page import serving
from benchmarks.first_paint import FLAGS

FIGURES = {"bars": [".costs"], "all": [".costs", ".sheet", ".roofline"]}

# Notes when every one of the figures carries another mark than at the start, and the frame after that is painted.
WATCH = """selectors => {
    const roots = [...document.querySelectorAll("*")].map((node) => node.shadowRoot).filter(Boolean);
    const mark = (name) => roots.map((root) => root.querySelector(name)?.dataset.mark).find(Boolean);
    const marks = () => selectors.map(mark);
    const before = marks();
    window.benchAt = window.benchPainted = null;
    addEventListener("keydown", () => (window.benchAt ??= performance.now()), { capture: true, once: true });
    const look = () => {
        if (marks().some((mark, index) => mark === before[index])) requestAnimationFrame(look);
        else requestAnimationFrame(() => (window.benchPainted = performance.now()));
    };
    requestAnimationFrame(look);
}"""


def repaints(page: Page, thumb: Locator, rounds: int, figures: list[str]) -> Iterator[float]:
    """Milliseconds of `rounds` moves of a slider, one to the right and one back by turns."""
    thumb.focus()
    for index in range(rounds + 1):
        page.evaluate(WATCH, figures)
        thumb.press("ArrowRight" if index % 2 == 0 else "ArrowLeft")
        page.wait_for_function("window.benchPainted !== null")
        if index:
            yield page.evaluate("window.benchPainted - window.benchAt")
        page.wait_for_timeout(400)


def busy(session: CDPSession) -> float:
    """Seconds that the page's main thread has worked."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--port", type=int, default=0)
    given = arguments.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with serving(given.port) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(180_000)
        page.goto(f"{url}/cost?cost_config=DeepSeek-V3")
        page.locator(".costs").wait_for(timeout=120_000)
        page.locator(".roofline canvas").wait_for(timeout=120_000)
        page.wait_for_timeout(2000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        for name in ("Context, in tokens", "Batch, in sequences"):
            thumb = page.get_by_role("slider", name=name)
            for what, figures in FIGURES.items():
                before = busy(session)
                times = sorted(repaints(page, thumb, given.rounds, figures))
                spent = 1e3 * (busy(session) - before) / (given.rounds + 1)
                print(
                    f"{name}, {what}: median {statistics.median(times):.0f} ms, least {times[0]:.0f}, "
                    f"most {times[-1]:.0f}; {spent:.0f} ms of the browser's main thread"
                )
        browser.close()


if __name__ == "__main__":
    main()
