"""The tree of continuations: merged prefixes, one node a token, lines that no edge crosses."""

from __future__ import annotations

import numpy as np
import pytest

from figures.payload import unpack
from figures.tree import PROMPT, Continuation, merged, tree_payload

RUN = Continuation([5, 6, 7, 8], [-1.0, -2.0, -4.0, -8.0])
LATE = Continuation([5, 6, 9], [-1.0, -2.0, -16.0])
EARLY = Continuation([1, 6], [-32.0, -64.0])
INSIDE = Continuation([5, 6, 9, 9, 2], [-1.0, -2.0, -16.0, -1.0, -1.0])
ALL = [RUN, EARLY, LATE, INSIDE]


def paths(found) -> list[list[int]]:
    texts = []
    for end in found.ends:
        path, node = [], end
        while node != PROMPT:
            path.append(int(found.tokens[node]))
            node = int(found.parents[node])
        texts.append(path[::-1])
    return texts


def test_every_continuation_can_be_read_back_and_nothing_is_drawn_twice() -> None:
    found = merged(ALL)
    assert paths(found) == [list(c.tokens) for c in ALL]
    beginnings = {tuple(c.tokens[:n]) for c in ALL for n in range(1, len(c.tokens) + 1)}
    assert len(found.tokens) == len(beginnings)
    assert all(found.parents[node] < node for node in range(len(found.tokens)))


def test_totals_are_sums_along_the_path() -> None:
    found = merged(ALL)
    assert [found.totals[end] for end in found.ends] == [sum(c.log_probs) for c in ALL]
    assert found.log_probs[found.ends[1]] == -64.0


def test_the_run_has_the_first_line_and_no_edge_crosses_another_line() -> None:
    found = merged(ALL)
    ends = [int(found.rows[end]) for end in found.ends]
    assert ends[0] == 0
    assert ends[2] == ends[3] != ends[1]
    for node, parent in enumerate(found.parents):
        if parent == PROMPT or found.rows[node] == found.rows[parent]:
            continue
        # The edge goes down where the child's step begins: no node of a line between may lie further left than it.
        between = (found.rows > found.rows[parent]) & (found.rows < found.rows[node])
        assert not np.any(between & (found.steps < found.steps[node]))


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_the_payload_holds_the_tree_and_the_text_of_its_tokens(order: list[int]) -> None:
    chosen = [ALL[index] for index in order]
    payload = tree_payload(chosen, names=["a", "b", "c", "d"], parts=lambda token: [["text", f"t{token}"]], prompt="p")
    meta, (tokens, steps, parents, _, log_probs, totals) = unpack(payload)
    assert meta["vocabulary"] == {str(token): [["text", f"t{token}"]] for token in {1, 2, 5, 6, 7, 8, 9}}
    for end, given in zip(meta["ends"], chosen, strict=True):
        assert (tokens[end], steps[end]) == (given.tokens[-1], len(given.tokens) - 1)
        assert totals[end] == sum(given.log_probs)
        assert log_probs[parents[end]] == given.log_probs[-2]
