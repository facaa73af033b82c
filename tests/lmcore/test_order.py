"""What attention knows of order: scores against distance, and what is left without positions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from lmcore.order import reversed_before, scores_by_distance
from lmcore.positions import alibi_slopes
from lmcore.trace import Capture
from tests.lmcore.teaching_models import TRAINED, made

TEXTS = np.random.default_rng(1).integers(0, 60, (2, TRAINED))


@pytest.mark.parametrize("kind", ["rope", "alibi", "t5", "none"])
def test_scores_by_distance_equal_a_loop_over_all_pairs(kind: str) -> None:
    found = scores_by_distance(made(kind), TEXTS)
    layer, head = 1, 2
    sums, counts = np.zeros(TRAINED), np.zeros(TRAINED)
    for text in TEXTS:
        trace = made(kind).forward(torch.from_numpy(text)[None], capture=Capture.of("scores_masked")).trace
        assert trace is not None
        scores = trace.layers[layer]["scores_masked"][0, head].double().numpy()
        for query in range(TRAINED):
            row = scores[query, : query + 1]
            for key in range(query + 1):
                sums[query - key] += row[key] - row.mean()
                counts[query - key] += 1
    np.testing.assert_allclose(found[layer * 4 + head], sums / counts, atol=1e-6)


def test_a_bias_by_distance_shows_as_it_is() -> None:
    """Without q a score is ALiBi's bias alone: a straight line in each row, whose own mean is taken out."""
    model = made("alibi")
    with torch.no_grad():
        for block in model.model.layers:
            block.self_attn.q_proj.weight.zero_()
    found = scores_by_distance(model, TEXTS)
    n = np.arange(TRAINED)
    # Row i has mean -m i / 2, and distance n is seen in the rows n .. T - 1.
    line = -n + (TRAINED - 1 + n) / 4
    for head, slope in enumerate(alibi_slopes(4)):
        np.testing.assert_allclose(found[head], slope * line, atol=1e-5)


def test_without_positions_and_mask_order_is_gone() -> None:
    text = TEXTS[0]
    none = reversed_before(made("none"), text)
    assert none.unmasked < 1e-4
    assert none.masked > 0.01


@pytest.mark.parametrize("kind", ["rope", "alibi", "learned", "sinusoidal", "t5"])
def test_every_encoding_tells_order_without_a_mask(kind: str) -> None:
    assert reversed_before(made(kind), TEXTS[0]).unmasked > 0.01


@pytest.mark.parametrize("heads", range(1, 65))
def test_alibi_slopes_are_transformers_for_any_head_count(heads: int) -> None:
    """BLOOM's tensor is slope times key position; its own softmax sees no difference to -slope times distance."""
    theirs = build_alibi_tensor(torch.ones(1, 3), heads, torch.float32).view(heads, 3).numpy()
    np.testing.assert_allclose(theirs[:, 1], alibi_slopes(heads), rtol=1e-6)
    assert math.log2(heads) % 1 or np.allclose(np.diff(np.log(alibi_slopes(heads))), -8 / heads * math.log(2))
