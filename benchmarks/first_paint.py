"""Cold start to first paint: from `streamlit run` to the page's title in a browser, against an empty Streamlit app.

Each round starts both servers anew, with a fresh browser profile and a model already converted, as after the first day.

    python -m benchmarks.first_paint [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Playwright, sync_playwright

from benchmarks.side_by_side import report

ROOT = Path(__file__).parent.parent
EMPTY = 'import streamlit as st\nst.title("Empty")\nst.slider("x", 0, 10)\n'
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


def cold(play: Playwright, script: Path, folder: Path) -> float:
    """Seconds from starting the server to the first heading painted."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    command += ["--server.headless", "true", "--server.address", "127.0.0.1", "--browser.gatherUsageStats", "false"]
    start = time.perf_counter()
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not healthy(port):
            time.sleep(0.02)
        browser = play.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        page.locator("h1").first.wait_for(state="visible", timeout=60_000)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        elapsed = time.perf_counter() - start
        browser.close()
    finally:
        server.kill()
        server.wait()
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.py"
        empty.write_text(EMPTY)
        pairs = [(cold(play, ROOT / "app.py", ROOT), cold(play, empty, Path(folder))) for _ in range(rounds)]
    report("cold start to first paint", [a for a, _ in pairs], [b for _, b in pairs], peer="empty app", reach=1.3)


if __name__ == "__main__":
    main()
