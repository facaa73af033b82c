"""Parameters and operations of norms, and the width of a gated feed-forward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from figures.norms import norms_sentence
from lmcore import presets
from lmcore.config import ModelConfig
from lmcore.costs import gated_d_ff, param_counts
from lmcore.derivations import parameters
from lmcore.errors import InputError
from lmcore.norm_costs import forward_norm_operations, norm_operations, norm_parameters, places
from lmcore.specs import GroupedQuery, Norm, QKNorm, Wiring

LAYER, RMS = Norm(kind="layer", bias=True), Norm()


def known(name: str) -> ModelConfig:
    return presets.shipped(name).config


def test_seven_and_four_a_number() -> None:
    """LayerNorm 7 d with gain and bias, 5 d without; RMSNorm 4 d and 3 d; the one learns 2 d numbers, the other d."""
    d = 4096
    assert (norm_operations(d, LAYER), norm_operations(d, LAYER, weighted=False)) == (7 * d, 5 * d)
    assert (norm_operations(d, RMS), norm_operations(d, RMS, weighted=False)) == (4 * d, 3 * d)
    assert norm_operations(d, replace(LAYER, bias=False)) == 6 * d
    assert (norm_parameters(d, LAYER), norm_parameters(d, RMS)) == (2 * d, d)


@pytest.mark.parametrize("name", [preset.name for preset in presets.PRESETS])
def test_no_norm_is_forgotten(name: str) -> None:
    """Their learned numbers are those of the shape table."""
    cfg = known(name)
    last = norm_parameters(cfg.d_model, cfg.norm) if cfg.final_norm else 0
    assert sum(place.parameters for place in places(cfg)) + last == param_counts(cfg).norms


def test_operations_of_a_forward() -> None:
    """LLaMA-2 7B: two norms a layer and the last one; Qwen3 norms each head of q and k besides."""
    cfg = known("llama-2-7b")
    assert forward_norm_operations(cfg, tokens=10, batch=3) == 3 * 10 * 65 * 4 * 4096
    assert forward_norm_operations(cfg, tokens=10, logits=1) == (10 * 64 + 1) * 4 * 4096
    qwen = known("qwen3-8b")
    a = qwen.attention
    heads = 4 * (a.n_heads + a.n_kv_heads) * a.head_dim
    assert forward_norm_operations(qwen, tokens=1) == qwen.n_layers * (2 * 4 * qwen.d_model + heads) + 4 * qwen.d_model
    gpt = known("gpt2")
    assert forward_norm_operations(gpt, tokens=5) == 5 * 25 * 7 * 768
    with pytest.raises(InputError, match="argument tokens"):
        forward_norm_operations(gpt, tokens=-1)


def test_wiring_and_heads_decide_how_many() -> None:
    cfg = known("llama-2-7b")
    d = 4 * cfg.d_model
    counts = {"pre": 2, "post": 2, "sandwich": 4, "output": 2}
    for order, count in counts.items():
        changed = cfg.changed(wiring=Wiring(order=order))
        assert forward_norm_operations(changed, tokens=1, logits=0) == 32 * count * d
    shared = cfg.changed(wiring=Wiring(parallel=True, shared_norm=True))
    assert forward_norm_operations(shared, tokens=1, logits=0) == 32 * d
    assert isinstance(cfg.attention, GroupedQuery)
    unit = cfg.changed(attention=replace(cfg.attention, qk_norm=QKNorm(over="unit", norm=RMS)), nope_layers=(0,))
    extra = forward_norm_operations(unit, tokens=1) - forward_norm_operations(cfg, tokens=1)
    assert extra == 31 * 2 * 3 * 32 * 128


def test_the_width_of_a_gated_feed_forward() -> None:
    """LLaMA-2 7B: int(8 * 4096 / 3) = 10922, up to a multiple of 256: 11,008; of 64 it would be 10,944."""
    assert gated_d_ff(4096) == known("llama-2-7b").ffn.d_ff == 11_008
    assert gated_d_ff(4096, multiple_of=64) == 10_944
    assert gated_d_ff(4096, multiple_of=1) == 10_922
    assert gated_d_ff(5120) == 13_824
    assert gated_d_ff(8192, multiple_of=4096, multiplier=1.3) == known("llama-2-70b").ffn.d_ff == 28_672
    with pytest.raises(InputError, match="argument d_model"):
        gated_d_ff(0)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("llama-2-7b", "d_ff: 8/3 of D, rounded up to a multiple of 256"),
        ("gpt2", "d_ff: 4 D"),
        ("llama-3-8b", "d_ff"),
    ],
)
def test_the_derivation_names_the_rule(name: str, meaning: str) -> None:
    """LLaMA-3's 14,336 is 3.5 D: no rule is claimed."""
    assert [term.meaning for term in parameters(known(name)).terms if term.symbol == "F"] == [meaning]


def test_the_sentence_says_how_little_it_is() -> None:
    """SmolLM2: 61 norms of 576 numbers, beside 106,168,320 weights."""
    sentence = norms_sentence("SmolLM2", known("smollm2-135m"))
    assert 61 * 576 * 4 == 140_544
    for part in ("140\u2006544 operations a token", "4 for each number in an RMSNorm with its gain", "0.066 %"):
        assert part in sentence
    assert "7 for each number in a LayerNorm with gain and bias" in norms_sentence("GPT-2", known("gpt2"))
