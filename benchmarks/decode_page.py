"""The Decode page in Chromium: how soon a sampler slider repaints, what a step costs beside the model, and company.

- Slider: from its touch to the frame in which the decode component shows the distribution of the new setting.
- Step: from the press of Step to the frame that shows the step, beside the time of the forward that the page itself
  measured: pressed after a pause, when that forward has run, and pressed again as soon as the step before is shown.
- Company: steps a second of two people who play on one model at once, each beside one alone; and, for a third who moves
  a slider among calculators, the chart redrawn and the end of the page's run, alone and beside the two.

    python -m benchmarks.decode_page [--rounds 20] [--model "SmolLM2-135M"] [--port 0]

With `--port` a server that runs already is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.first_paint import FLAGS, ROOT, free_port, healthy

PROMPT = "The quick brown fox jumps over the lazy dog. The quick brown"
LEAP = 16

# Called before the act: notes when what the component says there is another, and the frame after that is painted.
WATCH = """([selector, act]) => {
    const host = [...document.querySelectorAll("*")]
        .map((node) => node.shadowRoot)
        .find((root) => root?.querySelector(selector));
    const text = () => host.querySelector(selector)?.textContent;
    const before = text();
    window.benchAt = window.benchPainted = null;
    const watcher = new MutationObserver(() => {
        if (window.benchAt === null || text() === before) return;
        watcher.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => (window.benchPainted = performance.now())));
    });
    watcher.observe(host, { childList: true, subtree: true, characterData: true, attributes: true });
    addEventListener(act, () => (window.benchAt ??= performance.now()), { capture: true, once: true });
}"""

# The same for a calculator: notes when its chart says something else, and when the page's script has run. A page behind
# others may not be given frames.
WATCH_SCRIPT = """() => {
    const app = document.querySelector("[data-testid='stApp']");
    const roots = [...document.querySelectorAll("*")].map((node) => node.shadowRoot);
    const host = roots.find((root) => root?.querySelector(".lines"));
    const before = host.textContent;
    window.benchAt = window.benchPainted = window.benchDrawn = null;
    const drawn = new MutationObserver(() => {
        if (window.benchAt === null || host.textContent === before) return;
        drawn.disconnect();
        window.benchDrawn = performance.now() - window.benchAt;
    });
    drawn.observe(host, { childList: true, subtree: true, characterData: true });
    const watcher = new MutationObserver(() => {
        if (window.benchAt === null || app.dataset.testScriptState !== "notRunning") return;
        watcher.disconnect();
        window.benchPainted = performance.now();
    });
    watcher.observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] });
    addEventListener("pointerdown", () => (window.benchAt ??= performance.now()), { capture: true, once: true });
}"""


@contextmanager
def serving(port: int) -> Iterator[str]:
    """The address of a server of its own, or of the one that listens at `port`."""
    if port:
        yield f"http://127.0.0.1:{port}"
        return
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    command += ["--server.headless", "true", "--browser.gatherUsageStats", "false"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not healthy(port):
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def settle(page: Page) -> None:
    page.wait_for_selector("[data-testid='stApp'][data-test-connection-state='CONNECTED']", timeout=120_000)
    page.wait_for_function(
        """() => document.querySelector("[data-testid='stApp']").dataset.testScriptState === "notRunning"
            && !document.querySelector("[data-testid='stSkeleton']") && document.querySelector("h1")""",
        timeout=120_000,
    )
    page.wait_for_timeout(250)
    page.wait_for_selector("[data-testid='stApp'][data-test-script-state='notRunning']", timeout=120_000)


def painted(page: Page) -> float:
    """Milliseconds from the act to the first frame with the component's new data."""
    return page.wait_for_function(
        "() => window.benchPainted && window.benchPainted - window.benchAt", timeout=60_000
    ).json_value()


def spread(times: list[float]) -> str:
    ordered = sorted(times)
    return f"{statistics.median(ordered):.0f} ms ({ordered[0]:.0f} to {ordered[-1]:.0f})"


def forward_ms(page: Page) -> float:
    """The forward of the step that the page shows, as it names it: "66.7 ms"."""
    number, unit = page.locator("div.step-name b").first.inner_text().replace("\u2006", "").split()[:2]
    return float(number) * {"ms": 1, "s": 1000}[unit]


def leapt(page: Page) -> bool:
    """Whether the steps that were asked for are made, or the text has ended before."""
    shown = page.locator("div.step-name").inner_text()
    return f"step {LEAP} of {LEAP}" in shown or page.get_by_text("The model ended the text here").count() > 0


def line(what: str, value: str, reach: str) -> None:
    print(f"{what:58} {value:>22}   reach {reach}")


class Bench:
    """One browser on one server; every person is a browser context of its own."""

    def __init__(self, browser: Browser, address: str, model: str, rounds: int) -> None:
        self.browser, self.address, self.model, self.rounds = browser, address, model, rounds
        self.beside: tuple[list[float], list[float]] = ([], [])

    def person(self, path: str = "decode", **query: object) -> Page:
        page = self.browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
        asked = {"model": self.model, "prompt": PROMPT, **query}
        page.goto(f"{self.address}/{path}?{urlencode(asked)}")
        settle(page)
        return page

    def slider(self) -> None:
        """Of two controls: some draws come out otherwise and take later steps back, others do not."""
        page = self.person(decode_steps=LEAP + 1)
        page.locator("div.step-name").filter(has_text=f"of {LEAP}").wait_for()
        settle(page)
        for name, places in (("Temperature, 0 greedy", (0.2, 0.5)), ("Top-p, 1 off", (0.5, 0.7))):
            found = []
            for turn in range(self.rounds):
                found.append(self._touched(page, name, places[turn % 2]))
                settle(page)
            line(f"{name}: touch to repaint, median of {len(found)}", spread(found), "<= 100 ms")
        page.context.close()

    def _touched(self, page: Page, name: str, share: float) -> float:
        thumb = page.get_by_label(name, exact=True)
        track = thumb.locator("xpath=ancestor::*[@data-testid='stSlider']").bounding_box()
        assert track is not None
        page.mouse.move(track["x"] + share * track["width"], track["y"] + track["height"] / 2)
        page.evaluate(WATCH, ["div.distribution", "pointerdown"])
        page.mouse.down()
        page.mouse.up()
        return painted(page)

    def step(self) -> None:
        """What the page adds to a step: the press to the frame, less the forward's time that the page then shows."""
        for pause, how in ((True, "after a pause"), (False, "at once after the one before")):
            page = self.person()
            found, beside = [], []
            for _ in range(self.rounds):
                page.evaluate(WATCH, ["div.step-name", "pointerup"])
                page.get_by_role("button", name="Step", exact=True).click()
                found.append(painted(page))
                beside.append(found[-1] - forward_ms(page))
                if pause:
                    settle(page)
            line(f"Step {how}: press to repaint, median of {len(found)}", spread(found), "the model's own + 30 ms")
            line("  less the forward, as the page measured it", spread(beside), "<= 30 ms")
            page.context.close()

    def company(self) -> None:
        """Two play on one model, each as fast as it goes; a third moves a slider of the KV page meanwhile."""
        first, third = self.person(), self.person("kv")
        alone, quiet = self._pace([first]), self._third(third)
        second = self.person()
        both = self._pace([first, second], while_at=third)
        share = 100 * min(both) / alone[0]
        line(f"Steps a second, one alone: {alone[0]:.2f}; two at once", " and ".join(f"{x:.2f}" for x in both), "")
        line("  the slower of two, of one alone", f"{share:.0f} %", ">= 40 %")
        for what, one, other in zip(("its chart", "the end of the page's run"), quiet, self.beside, strict=True):
            line(f"A calculator's slider to {what}, alone", spread(one), "")
            line("  beside two who decode", spread(other), "about the same")
        for page in (first, second, third):
            page.context.close()

    def _pace(self, pages: list[Page], while_at: Page | None = None) -> list[float]:
        """Steps a second of each, in the time that the leaps of all take."""
        for page in pages:
            restart = page.get_by_role("button", name="Restart", exact=True)
            if restart.is_enabled():
                restart.click()
                settle(page)
        begun, ended = time.perf_counter(), {}
        for page in pages:
            page.get_by_role("button", name=f"+ {LEAP}", exact=True).click()
        if while_at is not None:
            self.beside = self._third(while_at)
        while len(ended) < len(pages):
            for page in pages:
                if page not in ended and leapt(page):
                    ended[page] = time.perf_counter()
            pages[0].wait_for_timeout(20)
        return [LEAP / (ended[page] - begun) for page in pages]

    def _third(self, page: Page) -> tuple[list[float], list[float]]:
        """Touches of the first slider of a calculator: to its chart, and to the end of its page's run."""
        slider = page.locator("[data-testid='stMain'] [data-testid='stSlider']").first
        slider.scroll_into_view_if_needed()
        track = slider.bounding_box()
        assert track is not None
        drawn, ran = [], []
        for turn in range(4):
            page.mouse.move(track["x"] + (0.3, 0.7)[turn % 2] * track["width"], track["y"] + track["height"] / 2)
            page.evaluate(WATCH_SCRIPT)
            page.mouse.down()
            page.mouse.up()
            ran.append(painted(page))
            drawn.append(page.evaluate("window.benchDrawn"))
            settle(page)
        return drawn, ran


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", default="SmolLM2-135M")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    with serving(options.port) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=FLAGS)
        bench = Bench(browser, address, options.model, options.rounds)
        bench.slider()
        bench.step()
        bench.company()
        browser.close()


if __name__ == "__main__":
    main()
