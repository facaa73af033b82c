"""The logit lens as it is sent and read."""

from __future__ import annotations

import numpy as np
import pytest

from figures.lens import lens_payload, lens_rows, settled
from figures.payload import unpack

IDS, PROBS = np.array([[3, 1], [1, 2]]), np.array([[0.5, 0.25], [0.9, 0.05]])
CHOSEN, RANKS = np.array([1e-9, 0.05]), np.array([40, 2])


def test_the_payload_names_every_token_it_lists() -> None:
    meta, (ids, probs, chosen, ranks) = unpack(
        lens_payload(IDS, PROBS, CHOSEN, RANKS, token=2, parts=lambda token: [["text", f"t{token}"]])
    )
    assert meta["vocabulary"] == {str(token): [["text", f"t{token}"]] for token in (1, 2, 3)}
    assert meta["layers"] == ["0", "1"]
    np.testing.assert_array_equal(ids, IDS)
    np.testing.assert_allclose(probs, PROBS, rtol=1e-6)
    np.testing.assert_array_equal(chosen, CHOSEN)
    np.testing.assert_array_equal(ranks, RANKS)


@pytest.mark.parametrize(("ranks", "first"), [([3, 1, 1], 1), ([1, 1], 0), ([1, 2], None), ([1, 5, 1], 2), ([4], None)])
def test_a_token_is_settled_from_where_it_stays_first(ranks: list[int], first: int | None) -> None:
    assert settled(ranks) == first


def test_rows_hold_every_digit() -> None:
    header, rows = lens_rows(IDS, PROBS, CHOSEN, RANKS, name=lambda token: f"t{token}")
    assert len(header) == len(rows[0]) == 7
    assert rows[0] == [0, 1e-9, 40, "t3", 0.5, "t1", 0.25]
