"""Comparisons: one at a time for a model, kept with it, cancelled when asked, gone with the model."""

from __future__ import annotations

import time
from threading import Event
from typing import Any

import pytest

from lmcore.errors import Cancelled, CheckpointError
from ui import models, proofs, state
from ui.models import Opened


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Opened:
    choice = state.Choice(state.BUILTIN, "builtin", "cpu", "float32")
    found = models._load(choice, lambda line: True)
    proofs._forget(found)
    proofs._PROOFS.drop(lambda key: True)
    return found


def compare(monkeypatch: pytest.MonkeyPatch, result: Any) -> list[tuple[int, ...]]:
    """Stand in for the comparison itself, which its own tests cover."""
    import lmcore.proof

    asked: list[tuple[int, ...]] = []

    def stand_in(model, folder, ids, *, noise, progress):
        asked.append(tuple(ids))
        return result(progress)

    monkeypatch.setattr(lmcore.proof, "compare_with_transformers", stand_in)
    return asked


def ended(opened: Opened) -> None:
    deadline = time.monotonic() + 20
    while proofs.running(opened) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert proofs.running(opened) is None


def test_one_at_a_time_and_what_is_under_way_is_said(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    go = Event()

    def wait(progress):
        progress("transformers reads the weights")
        go.wait(20)
        raise CheckpointError("no such family")

    asked = compare(monkeypatch, wait)
    for _ in range(3):
        proofs.start(opened, (1, 2), noise=False)
    assert proofs.sentence(opened) == "Comparing with transformers."
    go.set()
    ended(opened)
    assert asked == [(1, 2)]
    assert "no such family" in str(proofs.failure(opened))


def test_cancelled_even_while_someone_looks_at_it(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    def endless(progress):
        while True:
            progress("still")
            time.sleep(0.01)

    compare(monkeypatch, endless)
    proofs.start(opened, (1,), noise=False)
    proofs.cancel(opened)
    job = proofs.running(opened)
    if job is not None:
        job.look()
    ended(opened)
    assert isinstance(proofs.failure(opened), Cancelled)


def test_the_comparison_goes_with_its_model(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    def fail(progress):
        raise CheckpointError("no")

    compare(monkeypatch, fail)
    proofs.start(opened, (1,), noise=False)
    ended(opened)
    models._leave(opened)
    assert proofs.failure(opened) is None


def test_nothing_is_said_of_a_config_without_weights():
    choice = state.Choice(state.CONFIG, "config:deepseek-v3", "cpu", "float32")
    assert proofs.sentence(models._load(choice, lambda line: True)) == ""


def test_the_clock_is_hours_and_minutes():
    text = proofs.clock(1_800_000_000.0)
    assert len(text) == 5
    assert text[2] == ":"
