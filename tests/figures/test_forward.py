"""Formulas with this model's numbers, tiles of a prefill, and the sentences about a run."""

from __future__ import annotations

import numpy as np
import pytest

from figures.format import group, unbroken
from figures.forward import cost_formulas, path_formulas, prefill_tiles, run_points
from figures.overview import residual_lengths
from lmcore.costs import forward_flops, kv_cache_bytes
from lmcore.likelihood import predict
from lmcore.measure import Pass
from tests.figures.test_overview import config

CFG = config()
TOKENS = 20


def passed(**changed: float) -> Pass:
    flops = forward_flops(CFG, tokens=TOKENS)
    fields = {
        "flops": flops,
        "cache_used_bytes": sum(kv_cache_bytes(CFG, context=TOKENS, itemsize=4)),
        "rows": 5400,
        "least_row_sum": 1 - 1e-7,
        "largest_row_sum": 1 + 2e-7,
    }
    return Pass(**(fields | changed))


def test_tiles_are_equal_where_the_measurement_is_the_formula():
    flops, cache, rows = prefill_tiles(CFG, TOKENS, dtype="float32", itemsize=4, found=passed())
    assert flops["state"] == cache["state"] == "equal"
    assert flops["measured"] == group(sum(forward_flops(CFG, tokens=TOKENS).values()))
    assert rows["state"] == "rounding"
    assert "2.0\u00a0×\u00a010⁻⁷" in rows["note"]


def test_tiles_tell_a_wrong_measurement():
    found = passed(cache_used_bytes=8, least_row_sum=0.9, flops={"ffn": 1})
    assert [tile["state"] for tile in prefill_tiles(CFG, TOKENS, dtype="float32", itemsize=4, found=found)] == [
        "unequal"
    ] * 3


def test_tiles_without_a_run_are_calculated_only_and_say_why():
    tiles = prefill_tiles(CFG, 1, dtype="float32", itemsize=4, found=None, why="no room")
    assert {tile["state"] for tile in tiles} == {"missing"}
    assert {tile["note"] for tile in tiles} == {"no room"}


def test_formulas_end_in_the_calculated_numbers():
    flops, cache = (text.replace(r"\,", "") for text in cost_formulas(CFG, tokens=TOKENS, itemsize=2))
    parts = [int(part) for part in flops.split("&=")[-1].removesuffix(r"\end{aligned}").split("+")]
    assert sum(parts) == sum(forward_flops(CFG, tokens=TOKENS).values())
    assert cache.endswith(f"= {sum(kv_cache_bytes(CFG, context=TOKENS, itemsize=2))}" + r"\end{aligned}")
    windowed = CFG.changed(layer_types=("sliding",) * CFG.n_layers, window=8)
    assert len(cost_formulas(windowed, tokens=TOKENS, itemsize=2)) == 1, "the closed form does not hold there"


@pytest.mark.parametrize("tied", [True, False])
def test_path_names_the_head_that_the_model_has(tied: bool):
    assert ("head" in path_formulas(CFG.changed(tied=tied))[-1]) != tied


def test_points_are_of_this_run():
    logits = np.random.default_rng(0).normal(0, 3, (4, 9)).astype(np.float32)
    said = predict(logits, [1, 2, 3, 4])
    lengths = np.ones((3, 4), np.float32)
    lengths[2, 1] = 50
    points = run_points([1, 2, 3, 4], said, lengths, name=lambda i: f"<{i}>")
    assert f"<{int(logits[-1].argmax())}>" in points[0]
    assert f"at position {int(np.nanargmax(said.loss))} " in points[1]
    assert "position 1 after block 2" in points[2]
    assert len(run_points([1], predict(logits[:1], [1]), lengths[:, :1], name=str)) == 2


def test_lengths_are_euclidean():
    found = residual_lengths(np.array([[3.0, 4.0]]), np.array([[[0.0, 2.0]], [[6.0, 8.0]]]))
    assert found.tolist() == [[5.0], [2.0], [10.0]]


def test_no_line_breaks_inside_a_number():
    assert unbroken(group(7293)) == "7\u2060\u2006\u2060293"
    assert unbroken("2.4 × 10⁻⁷ of it") == "2.4\u00a0×\u00a010⁻⁷ of it"
