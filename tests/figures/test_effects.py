"""Grids of heads and their lists: order, sums, and what is not known."""

from __future__ import annotations

import numpy as np
import pytest

from figures.effects import logit_panel, ranked_payload, score_panel, shared_top, signed
from figures.payload import unpack


def test_heads_are_ranked_by_their_score_with_the_prompts_beside():
    scores, on_prompt = np.array([[0.1, 0.9], [0.5, 0.2]]), np.array([[np.nan, 0.25], [0.0, 1.0]])
    panel = score_panel("Induction", "how", scores, on_prompt)
    assert [(e.layer, e.head) for e in panel.entries] == [(0, 1), (1, 0), (1, 1), (0, 0)]
    assert [e.beside for e in panel.entries] == ["0.250", "0.000", "1.000", "undefined"]
    assert score_panel("Same", "how", scores, None).beside == ""


def test_how_many_of_the_best_are_the_same():
    scores = np.arange(40.0).reshape(4, 10)
    assert shared_top(scores, scores) == 10
    assert shared_top(scores, -scores) == 0
    assert shared_top(scores, np.full((4, 10), np.nan)) is None


def test_the_parts_of_a_logit_and_what_is_not_listed_are_its_sum():
    random = np.random.default_rng(0)
    heads, ffn = random.normal(size=(3, 4)), random.normal(size=3)
    total = 0.5 + heads.sum() + ffn.sum()
    panel = logit_panel("x", embedding=0.5, heads=heads, ffn=ffn, biases=0.0, total=total, logit=total + 1e-6)
    totals = {name: text for _, name, text in panel.totals}
    others = float(totals["6 other parts"].replace("−", "-"))
    assert sum(entry.value for entry in panel.entries) + others == pytest.approx(total, abs=1e-3)
    assert totals["difference"].startswith("1.0 × 10")
    assert panel.values.shape == (3, 5)
    np.testing.assert_array_equal(panel.values[:, 4], ffn)
    assert "biases" not in [entry.name for entry in panel.entries]


def test_the_payload_holds_each_grid():
    panel = score_panel("Induction", "how", np.array([[0.1, 0.9]]), None)
    meta, arrays = unpack(ranked_payload([panel, panel], start=(0, 1)))
    assert meta["start"] == [0, 1]
    assert [array.shape for array in arrays] == [(1, 2), (1, 2)]
    assert meta["panels"][0]["entries"][0]["name"] == "layer 0, head 1"


@pytest.mark.parametrize(("value", "text"), [(1.5, "+1.500"), (-1.5, "−1.500"), (0.0, "+0.000"), (-1e-9, "+0.000")])
def test_a_part_has_its_sign(value: float, text: str):
    assert signed(value) == text
