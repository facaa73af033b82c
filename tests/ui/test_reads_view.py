"""This step's attention equals the same row of one uncached forward of the whole text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lmcore.families import config_from_hf
from lmcore.model import Transformer
from lmcore.trace import Capture
from tests.lmcore.tiny import BASE, refill
from tests.ui.test_decoding import IDS, follow, opened
from ui import reads_view
from ui.decoding import Decoding, Plan

MIXES: dict[str, dict[str, Any]] = {
    "full": {},
    "window": {"window": 4, "layer_types": ("sliding", "full", "sliding")},
    "chunk": {"chunk": 5, "layer_types": ("chunked", "full", "chunked")},
}


def model_of(mix: str) -> Transformer:
    cfg, _ = config_from_hf({"model_type": "llama"} | BASE)
    model = Transformer(cfg.changed(**MIXES[mix]))
    refill(model)
    return model


@pytest.mark.parametrize("mix", MIXES)
def test_the_row_is_that_of_the_forward_without_a_cache_and_of_no_other_query(mix: str) -> None:
    model = model_of(mix)
    asked, run = opened(model, key=f"reads {mix}"), Decoding(opened(model), IDS)
    follow(run, Plan(steps=7))
    text = torch.tensor([run.decoder.tokens[: run.steps[-1].position]])
    trace = model(text, capture=Capture.of("pattern")).trace
    assert trace is not None
    whole = np.stack([trace.layers[layer]["pattern"][0].numpy() for layer in sorted(trace.layers)])  # (L, H, T, T)
    for step in (run.steps[0], run.steps[3], run.steps[-1]):
        found, end = reads_view.rows(asked, run, step), step.position
        expected = whole[:, :, end - 1, :end]
        np.testing.assert_allclose(np.nan_to_num(found), expected, atol=2e-5)
        np.testing.assert_array_equal(np.isnan(found), expected == 0)
        assert np.isnan(found).any() == (mix != "full")
        other = whole[:, :, end - 2, :end]
        assert np.abs(np.nan_to_num(found) - other).max() > 1e-2


def test_looking_back_leaves_the_run_as_it_was() -> None:
    model = model_of("window")
    run = Decoding(opened(model), IDS)
    plan = Plan(steps=6)
    before = follow(run, plan)
    held = [run.decoder.cache.keys(layer).clone() for layer in range(3)]
    reads_view.rows(opened(model, key="kept"), run, run.steps[1])
    for layer, keys in enumerate(held):
        torch.testing.assert_close(run.decoder.cache.keys(layer), keys)
    plan.to(8)
    assert follow(run, plan)[:6] == before
