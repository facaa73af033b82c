"""Speculative decoding as it is sent: every draft once, its numbers in order."""

from __future__ import annotations

import numpy as np

from figures.payload import unpack
from figures.speculative import HEADER, draft_rows, speculative_payload
from lmcore.speculative import Checked, Round

ROUNDS = (
    Round((Checked(1, 0.5, 0.25, 0.9, True), Checked(2, 0.1, 0.4, 0.8, False)), 5, True, 0.01, 0.02, (1, 2, 3)),
    Round((), 4, False, 0.0, 0.02),
    Round((Checked(5, 1.0, 1.0, 0.3, True),), 6, False, 0.01, 0.02, (5,)),
)


def test_payload() -> None:
    payload = speculative_payload(ROUNDS, parts=lambda token: [["text", str(token)]], piece=lambda token: b"%d" % token)
    meta, (numbers,) = unpack(payload)
    assert [(r["drafts"], r["seen"], r["kept"], r["token"], r["replaced"]) for r in meta["rounds"]] == [
        ([1, 2, 3], 2, 1, 5, True),
        ([], 0, 0, 4, False),
        ([5], 1, 1, 6, False),
    ]
    np.testing.assert_array_equal(numbers, [[0.5, 0.25, 0.9], [0.1, 0.4, 0.8], [1, 1, 0.3]])
    assert meta["text"] == "15456"
    assert set(meta["vocabulary"]) == {"1", "2", "3", "4", "5", "6"}


def test_rows_tell_a_rejected_draft_from_one_that_was_not_looked_at() -> None:
    rows = draft_rows(ROUNDS, name=str)
    assert [len(row) for row in rows] == [len(HEADER)] * 4
    assert [row[-1] for row in rows] == [True, False, "not looked at", True]
    assert rows[2][:4] == [0, 2, "3", None]


def test_no_drafts_at_all() -> None:
    meta, (numbers,) = unpack(speculative_payload(ROUNDS[1:2], parts=lambda t: [], piece=lambda t: b""))
    assert numbers.shape == (0, 3)
    assert len(meta["rounds"]) == 1
