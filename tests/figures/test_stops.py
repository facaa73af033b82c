"""Payloads that carry what they would be at other stops of a page's sliders: each equals the one made there."""

from __future__ import annotations

import numpy as np
import pytest

from figures.payload import pack, unpack
from figures.stops import Stops, at_stop, change, changed, with_stops


def made(context: int, batch: int) -> bytes:
    meta = {"at": context, "rows": [["a", str(context * batch)], ["b", "same"]], "columns": ["x"] * (1 + (batch > 1))}
    return pack(meta, np.array([1.0, 2.0]), np.array([batch, 2.0 * batch]))


def followed(context: int, batch: int, *, apart: bool = False) -> bytes:
    sliders = [
        Stops("Context", context, {other: made(other, batch) for other in range(4) if other != context}, apart),
        Stops("Batch", batch, {other: made(context, other) for other in (1, 2, 3) if other != batch}),
    ]
    return with_stops(made(context, batch), sliders)


def same(found: tuple[dict, list[np.ndarray]] | None, blob: bytes) -> bool:
    assert found is not None
    meta, arrays = unpack(blob)
    return found[0] == meta and all(map(np.array_equal, found[1], arrays)) and len(arrays) <= len(found[1])


def test_every_stop_is_the_payload_made_there() -> None:
    blob = followed(2, 1)
    assert same(at_stop(blob, {}), made(2, 1))
    for context in range(4):
        assert same(at_stop(blob, {"Context": context}), made(context, 1))
    for batch in (1, 2, 3):
        assert same(at_stop(blob, {"Batch": batch, "Context": 2}), made(2, batch))
    assert not same(at_stop(blob, {"Batch": 3}), made(2, 2))


def test_what_it_does_not_say_waits_for_the_server() -> None:
    """Two sliders that moved, and a stop without a payload."""
    blob = followed(2, 1)
    assert at_stop(blob, {"Context": 1, "Batch": 2}) is None
    assert at_stop(blob, {"Batch": 9}) is None
    assert at_stop(blob, {"Another": 9}) is not None


def test_sliders_apart_move_together() -> None:
    """Where what one changes no other does, as the mark on a curve and the curve."""

    def curve(at: int, batch: int) -> bytes:
        return pack({"at": at}, np.array([float(batch)]))

    sliders = [Stops("Context", 0, {1: curve(1, 1)}, apart=True), Stops("Batch", 1, {2: curve(0, 2)})]
    assert same(at_stop(with_stops(curve(0, 1), sliders), {"Context": 1, "Batch": 2}), curve(1, 2))


def test_equal_arrays_are_sent_once_and_equal_words_not_again() -> None:
    meta, arrays = unpack(followed(2, 1))
    assert len(arrays) == 2 + 2
    assert [array.tolist() for array in arrays[2:]] == [[2, 4], [3, 6]]
    assert meta["sliders"][0]["stops"]["3"] == {"meta": {"at": [3], "rows": {"0": {"1": ["3"]}}}, "arrays": {}}


@pytest.mark.parametrize(
    ("own", "other"),
    [([1, 2], [1, 3]), ([1], [1, 2]), ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}), ({"a": 1}, {"b": 1}), (None, [1]),
     ([[1]], [[]]), ({"a": None}, {"a": {}}), ([[1], [2]], [[1], [2]])],
)  # fmt: skip
def test_a_change_makes_the_other(own: object, other: object) -> None:
    assert changed(own, change(own, other)) == other
