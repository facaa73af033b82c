"""Continuations beside one another: where they part, and that no character is torn."""

from __future__ import annotations

from figures.payload import unpack
from figures.texts import Version, first_difference, texts_payload

PIECES = {1: b"a", 2: b"b", 3: "é".encode()[:1], 4: "é".encode()[1:], 5: b"!"}


def test_versions_part_at_the_first_token_that_differs() -> None:
    assert first_difference([[1, 2, 3], [1, 2, 4]]) == 2
    assert first_difference([[1, 2], [1, 2, 4]]) == 2
    assert first_difference([[2], [1]]) == 0
    assert first_difference([[1, 2]]) == 2


def test_a_torn_character_counts_to_each_versions_own() -> None:
    versions = [Version("one", [1, 3, 4, 2], "n"), Version("two", [1, 3, 5])]
    rows = unpack(texts_payload(versions, piece=PIECES.__getitem__))[0]["texts"]
    assert [(row["label"], row["note"], row["same"], row["own"]) for row in rows] == [
        ("one", "n", "a", "éb"),
        ("two", "", "a", "\\xc3!"),
    ]
