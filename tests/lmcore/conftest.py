"""Fixtures for tests of the library: folders with a model in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lmcore.tiny import hf_llama


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good, untied, single-file LLaMA."""
    hf_llama("gqa").save_pretrained(tmp_path)
    return tmp_path
