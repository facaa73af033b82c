"""Fixtures of the page tests."""

from __future__ import annotations

import pytest

from tests.lmcore.tiny import hf_llama


@pytest.fixture(scope="session")
def bare_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model of 96 tokens in a Hugging Face folder that has no tokenizer."""
    folder = tmp_path_factory.mktemp("bare")
    hf_llama("gqa").save_pretrained(folder)
    return str(folder)
