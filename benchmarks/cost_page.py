"""The Cost page in Chromium: from a key on a slider's thumb to the frame in which its figures show it.

Every slider with the figures that follow it, for a mixture of 671 billion parameters; bound: 100 ms, median. The
browser has what they show at every stop and repaints without a message. Beside it stand the processor time of its main
thread for one move, most of which goes to the page's answer that comes later, and the bytes of that answer.

    python -m benchmarks.cost_page [--rounds 20] [--port 0]

With `--port` a server that runs already is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator

from playwright.sync_api import CDPSession, Locator, Page, WebSocket, sync_playwright

from benchmarks.decode_page import serving
from benchmarks.first_paint import FLAGS

BARS, ALL = {"bars": [".costs"]}, {"bars, table and roofline": [".costs", ".sheet", ".roofline"]}
SLIDERS = {
    "Context, in tokens": BARS | ALL,
    "Batch, in sequences": BARS | ALL,
    "How many, in tensor parallel": {"roofline": [".roofline"]},
}

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


def listening(page: Page) -> list[int]:
    """The sizes of the messages that the page gets from now on."""
    sizes: list[int] = []

    def watch(socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: sizes.append(len(payload)))

    page.on("websocket", watch)
    return sizes


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
        got = listening(page)
        page.goto(f"{url}/cost?cost_config=DeepSeek-V3")
        page.locator(".costs").wait_for(timeout=120_000)
        page.locator(".roofline canvas").wait_for(timeout=120_000)
        page.wait_for_timeout(2000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        for name, figures in SLIDERS.items():
            thumb = page.get_by_role("slider", name=name)
            for what, selectors in figures.items():
                before, received = busy(session), sum(got)
                times = sorted(repaints(page, thumb, given.rounds, selectors))
                spent = 1e3 * (busy(session) - before) / (given.rounds + 1)
                size = (sum(got) - received) / (given.rounds + 1) / 1e3
                print(
                    f"{name}, {what}: median {statistics.median(times):.0f} ms, least {times[0]:.0f}, "
                    f"most {times[-1]:.0f}; {spent:.0f} ms of the browser's main thread, {size:.0f} kB received"
                )
        browser.close()


if __name__ == "__main__":
    main()
