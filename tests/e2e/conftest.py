"""A real browser on a real server: nothing is mocked, and anything odd that the browser sees fails the test."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.needs import need

ROOT = Path(__file__).parent.parent.parent
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
DESKTOP, PHONE = (1440, 900), (390, 844)
START_S, SETTLE_MS = 60, 120_000
# A claim that does not hold yet is waited for: five seconds, the default, are short on a busy machine.
expect.set_options(timeout=30_000)
# Streamlit probes these below a page's own path first; the two 404s are its own and harmless.
PROBE = re.compile(r"/[^/]+/_stcore/(health|host-config)$")

OpenPage = Callable[..., Page]


class Server:
    """`streamlit run` on a free port, with the environment's model folder and nothing of the user's."""

    def __init__(self, log: Path, app: Path = ROOT / "app.py") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        command = [sys.executable, "-m", "streamlit", "run", str(app), "--server.headless", "true"]
        self._process = subprocess.Popen(
            [*command, "--server.port", str(self.port)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        try:
            self._await_health()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def _await_health(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=1) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)
        pytest.fail(f"the server did not come up:\n{self.log.read_text()}", pytrace=False)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or "/usr/bin/chromium"
    need("browser", os.access(path, os.X_OK), "apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not ask for a fresh one."""
    server = Server(tmp_path_factory.mktemp("server") / "log.txt")
    yield server
    server.stop()


@pytest.fixture
def fresh_server(browser: Browser, tmp_path: Path) -> Iterator[Server]:
    """A server that nobody has visited."""
    server = Server(tmp_path / "server.txt")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def component_server(
    browser: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server of the small app that mounts a test module's components with made-up tensors: the file in apps/ of the
    module's name. It runs from a folder that also holds the fonts, which the theme asks for beside the app."""
    folder = tmp_path_factory.mktemp("app")
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_") + ".py"
    shutil.copy(ROOT / "tests" / "e2e" / "apps" / name, folder)
    shutil.copytree(ROOT / "static", folder / "static")
    server = Server(folder / "log.txt", folder / name)
    yield server
    server.stop()


@pytest.fixture
def open_page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """open_page(path="attention", server=None, size=DESKTOP, scheme="light", model="Built-in tiny model", **query)

    A page in a browser context of its own (own session, cache and storage), settled; `model=None` leaves the default.
    When the test ends, console errors and requests that left this machine fail it.
    """
    contexts, problems = [], []

    def open_one(
        path: str = "",
        *,
        server: Server | None = None,
        size: tuple[int, int] = DESKTOP,
        scheme: str = "light",
        model: str | None = "Built-in tiny model",
        settled: bool = True,
        **query: object,
    ) -> Page:
        if server is None:
            server = request.getfixturevalue("server")
        assert server is not None
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        contexts.append(context)
        page = context.new_page()
        _watch(page, problems)
        asked = {**({"model": model} if model else {}), **query}
        page.goto(f"{server.url}/{path}" + (f"?{urlencode(asked)}" if asked else ""))
        if settled:
            settle(page)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert problems == []


def _watch(page: Page, problems: list[str]) -> None:
    def on_console(message: ConsoleMessage) -> None:
        probe = PROBE.search(urlsplit(message.location.get("url", "")).path)
        if message.type == "error" and not probe:
            problems.append(f"console: {message.text} ({message.location.get('url', '')})")

    def on_request(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname != "127.0.0.1":
            problems.append(f"request left the machine: {request.url}")

    page.on("console", on_console)
    page.on("request", on_request)
    page.on("pageerror", lambda error: problems.append(f"page error: {error}"))


def settle(page: Page) -> None:
    """Wait until the page is connected, its script has run and no skeleton is left."""
    page.wait_for_selector("[data-testid='stApp'][data-test-connection-state='CONNECTED']", timeout=SETTLE_MS)
    page.wait_for_selector("h1", timeout=SETTLE_MS)
    page.wait_for_function(
        """() => {
            const app = document.querySelector("[data-testid='stApp']");
            const waiting = document.querySelector("[data-testid='stSkeleton']");
            return app.dataset.testScriptState === "notRunning" && !waiting;
        }""",
        timeout=SETTLE_MS,
    )
    # A rerun that the last messages asked for starts within a frame or two.
    page.wait_for_timeout(150)
    page.wait_for_selector("[data-testid='stApp'][data-test-script-state='notRunning']", timeout=SETTLE_MS)


def type_prompt(page: Page, text: str) -> None:
    """Type into the sidebar's prompt, commit it and wait for the answer."""
    box = page.get_by_label("Prompt", exact=True)
    box.fill(text)
    box.press("Control+Enter")
    page.wait_for_timeout(100)
    settle(page)
