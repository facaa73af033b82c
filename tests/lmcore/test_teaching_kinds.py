"""The position encodings and blocks of the teaching family, on small random models: against a second derivation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmcore.cache import KVCache
from lmcore.costs import forward_flops, param_counts
from lmcore.errors import ConfigError, InputError
from lmcore.families import config_from_hf
from lmcore.measure import counted_flops
from lmcore.trace import STAGES, Capture
from tests.lmcore.teaching_models import KINDS, LAYERS, TRAINED, logits_again, made, raw, tokens


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_derived_again(kind: str) -> None:
    model, ids = made(kind), tokens(TRAINED)
    again = logits_again(model, ids[0].tolist(), kind)
    for found in (model(ids), model(ids, capture=Capture.of("pattern"))):
        assert np.abs(found.logits[0].numpy() - again).max() < 2e-5
    if kind not in ("none", "attention only"):
        assert np.abs(logits_again(model, ids[0].tolist(), "none") - again).max() > 1e-2


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "learned"])
def test_cached_equals_one_forward_beyond_the_trained_length(kind: str) -> None:
    model, ids = made(kind), tokens(3 * TRAINED)
    cache = KVCache.empty(model.cfg, 3 * TRAINED)
    parts = [model(part, cache=cache).logits for part in ids.split([30, 1, 7, 1, 1, 32], dim=1)]
    assert (torch.cat(parts, dim=1) - model(ids).logits).abs().max() < 2e-5


def test_learned_positions_end_with_their_table() -> None:
    model = made("learned")
    ids, cache = tokens(TRAINED), KVCache.empty(model.cfg, TRAINED + 1)
    parts = [model(part, cache=cache).logits for part in ids.split([10, 1, 13], dim=1)]
    assert (torch.cat(parts, dim=1) - model(ids).logits).abs().max() < 2e-5
    with pytest.raises(InputError, match=rf"position {TRAINED} .* of {TRAINED}.*0 to {TRAINED - 1}"):
        model(tokens(1), cache=cache)
    assert cache.length == TRAINED
    with pytest.raises(InputError, match=f"position {TRAINED}"):
        model(tokens(TRAINED + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_flops_are_the_formulas(kind: str) -> None:
    model = made(kind)
    assert param_counts(model.cfg).total == sum(p.numel() for p in model.parameters())
    formula, counted = forward_flops(model.cfg, tokens=9), counted_flops(model, tokens(9)[0].tolist())
    assert counted.pop("attention products") == formula.pop("scores") + formula.pop("mix")
    assert counted == {part: flops for part, flops in formula.items() if flops}


def test_order_shows_without_positions_only_through_the_mask() -> None:
    """NoPE: the last token sees the tokens before it as a set in the first layer, and not below a second one."""
    model, ids = made("none"), tokens(8)
    swapped = ids[:, [1, 0, *range(2, 8)]]
    one, two = (model(x, depth=1).logits[0, -1] for x in (ids, swapped))
    assert (one - two).abs().max() < 1e-5
    assert (model(ids).logits[0, -1] - model(swapped).logits[0, -1]).abs().max() > 1e-3
    with_rope = made("rope")
    one, two = (with_rope(x, depth=1).logits[0, -1] for x in (ids, swapped))
    assert (one - two).abs().max() > 1e-3


def test_a_block_without_feed_forward_has_its_stages_still() -> None:
    model = made("attention only")
    trace = model(tokens(5), capture=Capture.of(*STAGES)).trace
    assert trace is not None
    assert len(trace.layers) == LAYERS
    for stages in trace.layers.values():
        assert stages["ffn_act"].shape == (1, 5, 0)
        assert not stages["ffn_out"].any()
        assert torch.equal(stages["resid_mid"], stages["resid_post"])


def test_a_gradient_reaches_the_relative_bias() -> None:
    model = made("t5").requires_grad_(True).train()
    model(tokens(20)).logits.square().mean().backward()
    grad = model.model.relative_bias.weight.grad
    assert grad is not None
    assert grad[:20].abs().amax(1)[:17].min() > 0
    assert not grad[21:].any()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"position": "compass"}, "position"),
        ({"position": "t5", "relative_attention_max_distance": 4}, "max_distance"),
        ({"position": "t5", "relative_attention_num_buckets": 1}, "buckets"),
        ({"position": "sinusoidal", "hidden_size": 33, "head_dim": 8}, "d_model"),
        ({"intermediate_size": 0}, "intermediate_size"),
    ],
)
def test_configs_that_describe_no_model(change: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        config_from_hf(raw("none") | change)
