"""Fixtures for tests of the library: folders with a model in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.lmcore.tiny import hf_llama

# A busy machine is not a failing test: the time limit of the whole test still holds.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good, untied, single-file LLaMA."""
    hf_llama("gqa").save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own."""
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GLASSBOX_CACHE", str(path))
    return path
