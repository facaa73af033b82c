"""The tile of what a backward needs, and its sentence."""

from __future__ import annotations

from figures.cost_twins import kept_sentence, kept_tile
from lmcore import presets
from lmcore.kept import kept_bytes, tokens_within

CFG = presets.shipped("smollm2-135m").config
MIB = 2**20


def test_equal_unequal_and_too_large() -> None:
    held = kept_bytes(CFG, tokens=9)
    budget = 256 * MIB
    assert kept_tile(CFG, 9, 4, held=held, max_bytes=budget)["state"] == "equal"
    other = kept_tile(CFG, 9, 4, held=held | {"ffn": held["ffn"] - 8}, fused=False, max_bytes=budget)
    assert (other["state"], other["difference"]) == ("unequal", "−8 B")
    assert "other tensors than the CPU's" in other["reason"]
    refused = kept_tile(CFG, 0, 4, held=None, max_bytes=MIB)
    assert (refused["state"], refused["measured"]) == ("impossible", "over 1 MiB")
    assert refused["calculated"] == kept_tile(CFG, 1, 4, held=kept_bytes(CFG, tokens=1), max_bytes=budget)["calculated"]


def test_as_many_tokens_as_fit() -> None:
    at = tokens_within(CFG, 128, 100 * MIB)
    assert 0 < at < 128
    assert sum(kept_bytes(CFG, tokens=at).values()) <= 100 * MIB < sum(kept_bytes(CFG, tokens=at + 1).values())
    assert tokens_within(CFG, 128, 1024 * MIB) == 128
    assert tokens_within(CFG, 128, 1000) == 0


def test_the_sentence_has_both_conventions() -> None:
    held = kept_bytes(CFG, tokens=128)
    assert sum(held.values()) == 206_151_172
    sentence = kept_sentence(CFG, 128, 4, held)
    for text in ("norms 34.3 MiB", "feed-forward 98.4 MiB", "197 MiB as lmcore runs it", "it is 148 MiB"):
        assert text in sentence
