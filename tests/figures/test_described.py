"""A config in facts and costs: the field's words, and numbers that follow from it alone."""

from __future__ import annotations

import pytest

from figures.described import config_facts, cost_tiles
from figures.format import THOUSANDS
from lmcore import presets
from lmcore.costs import param_counts

SAID = [
    ("gpt2", "Attention", "MHA", "12 query heads on 12 KV heads"),
    ("gpt2", "Positions", "learned", "1"),
    ("falcon-7b", "Attention", "MQA", "71 query heads on 1 KV heads"),
    ("llama-3-8b", "Attention", "GQA", "32 query heads on 8 KV heads of 128 dims"),
    ("llama-3.1-8b", "Positions", "RoPE, llama3", "base 500 000, 128 dims turn"),
    ("deepseek-v3", "Attention", "MLA", "latent 512, rotary key 64"),
    ("deepseek-v3", "Feed-forward", "experts", "8 of 256 in 58 of 61 layers"),
    ("mixtral-8x7b", "Feed-forward", "experts", "2 of 8 in every layer"),
    ("gemma-3-270m", "Layers", "18", "15 sliding, 3 full of 512"),
    ("mpt-7b", "Positions", "ALiBi", "bias"),
    ("smollm3-3b", "Positions", "RoPE", "none in 9 layers"),
    ("pythia-70m", "Norm", "LayerNorm", "eps"),
]


@pytest.mark.parametrize(("name", "label", "value", "note"), SAID)
def test_facts_in_the_words_of_the_field(name: str, label: str, value: str, note: str):
    found = {fact.label: fact for fact in config_facts(presets.shipped(name).config)}[label]
    assert found.value == value
    assert note in found.note.replace(THOUSANDS, " ")


def test_every_shipped_config_has_facts_and_costs():
    for preset in presets.PRESETS:
        cfg = presets.shipped(preset.name).config
        assert all(fact.value for fact in config_facts(cfg))
        total = param_counts(cfg).total
        tiles = cost_tiles(cfg, context=4096, itemsize=2, dtype="bfloat16", counted=total, held_bytes=None)
        assert tiles[0]["state"] == "equal"
        assert [tile["state"] for tile in tiles[1:]] == ["missing"] * 3


def test_costs_of_a_context_of_one():
    """The first token: no cached position, one position kept."""
    cfg = presets.shipped("llama-2-7b").config
    tiles = cost_tiles(cfg, context=1, itemsize=2, dtype="bfloat16", counted=1, held_bytes=2 * 6_738_415_616)
    assert tiles[0]["state"] == "unequal"
    assert tiles[1]["state"] == "equal"
    assert tiles[2]["calculated"].replace(THOUSANDS, "") == "524288 B"
