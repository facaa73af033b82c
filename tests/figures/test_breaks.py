"""The table of broken runs: what was not run, what is NaN, and axes that hold every disc."""

from __future__ import annotations

import math

from figures.breaks import Broken, breaks_payload
from figures.payload import unpack


def test_nan_is_a_result_and_differs_from_what_was_not_run():
    right = Broken("right", "f", "", loss=2.0, entropy=1.0)
    meta, _ = unpack(
        breaks_payload(right, [Broken("a", "f", "l", loss=math.nan, entropy=math.nan), Broken("b", "f", "l")])
    )
    texts = [(row["loss"], row["loss_text"]) for row in meta["rows"]]
    assert texts == [(2.0, "2.000"), (None, "NaN"), (None, "not run")]


def test_an_axis_ends_at_a_round_number_beyond_its_data():
    right = Broken("right", "f", "", loss=4.6, entropy=0.94)
    meta, _ = unpack(breaks_payload(right, [Broken("a", "f", "l", loss=7.0, entropy=1.58)]))
    assert [axis["top"] for axis in meta["axes"]] == [8, 2]
    meta, _ = unpack(breaks_payload(Broken("right", "f", ""), []))
    assert [axis["top"] for axis in meta["axes"]] == [1, 1]
    meta, _ = unpack(breaks_payload(Broken("right", "f", "", loss=0.0, entropy=0.0), []))
    assert [axis["top"] for axis in meta["axes"]] == [1, 1]
