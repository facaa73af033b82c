"""The step cursor: the newest answer of the browser counts, and only for the steps that it was given for."""

from __future__ import annotations

import pytest

from ui.cursor import Cursor


def heard(*answers: object) -> Cursor:
    cursor = Cursor(1, 4)
    for answer in answers:
        cursor.hear(answer)
    return cursor


def test_the_newest_answer_counts_whoever_is_asked_first() -> None:
    early, late = {"step": 3, "of": 6, "when": 10.0}, {"step": 5, "of": 6, "when": 20.0}
    assert heard(early, late) == heard(late, early) == Cursor(5, 6, 20.0)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "3",
        {},
        {"step": 2, "of": 6},
        {"step": 6, "of": 6, "when": 1},
        {"step": -1, "of": 6, "when": 1},
        {"step": True, "of": 6, "when": 1},
        {"step": "2", "of": 6, "when": 1},
        {"step": 2, "of": float("inf"), "when": 1},
        {"step": float("nan"), "of": 6, "when": 1},
    ],
)
def test_what_is_no_place_moves_nothing(answer: object) -> None:
    assert heard(answer) == Cursor(1, 4)
