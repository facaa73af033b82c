"""What a test needs that a machine may lack: skipped with the reason, unless the machine promised to have it."""

from __future__ import annotations

import os

import pytest


def need(what: str, present: bool, how: str) -> None:
    """Skip when `what` is absent; fail instead when it stands in GLASSBOX_REQUIRE, as on the machine that decides."""
    if present:
        return
    reason = f"{what} is absent: {how}"
    if what in os.environ.get("GLASSBOX_REQUIRE", "").split():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
