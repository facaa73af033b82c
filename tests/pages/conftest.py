"""Fixtures of the page tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lmcore.tiny import hf_llama


@pytest.fixture(scope="session")
def bare_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model of 96 tokens in a Hugging Face folder that has no tokenizer."""
    folder = tmp_path_factory.mktemp("bare")
    hf_llama("gqa").save_pretrained(folder)
    return str(folder)


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own."""
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GLASSBOX_CACHE", str(path))
    return path
