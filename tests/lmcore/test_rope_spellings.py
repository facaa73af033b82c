"""How files spell RoPE scalings, and what is refused."""

from __future__ import annotations

import copy
import math

import pytest

from lmcore.config import Rope
from lmcore.errors import ConfigError
from lmcore.families import config_from_hf
from lmcore.frequencies import frequencies
from tests.lmcore.test_frequencies import LONG, SHORT, llama

SPELT = {
    "linear": {"factor": 8.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 512, "beta_fast": 16, "truncate": False},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    "longrope": {
        "factor": 4.0,
        "original_max_position_embeddings": 512,
        "short_factor": list(SHORT),
        "long_factor": list(LONG),
    },
    "ntk": {"factor": 2.0},
    "proportional": {"partial_rotary_factor": 0.5},
}


def spec_of(raw: dict) -> Rope:
    found = config_from_hf(raw)[0].rope
    assert found is not None
    return found


@pytest.mark.parametrize("type_", SPELT)
def test_every_spelling_says_the_same(type_: str) -> None:
    more = SPELT[type_]
    now = spec_of(llama(rope_parameters={"rope_type": type_, "rope_theta": 5e5, **more}))
    assert (now.type, now.base) == (type_, 5e5)
    for scaling in ({"type": type_}, {"rope_type": type_}, {"type": type_, "rope_type": type_}):
        assert spec_of(llama(rope_theta=5e5, rope_scaling=scaling | more)) == now
    assert spec_of(llama(rope_theta=5e5, rope_parameters={"rope_type": type_, **more})) == now
    per_kind = {"full_attention": {"rope_type": type_, "rope_theta": 5e5, **more}}
    assert spec_of(llama(rope_parameters=per_kind)) == now


def test_what_phi3_and_older_files_say() -> None:
    """`su` is LongRoPE's first name; the original length may stand at the top, and the factor is then the ratio."""
    factors = {"short_factor": list(SHORT), "long_factor": list(LONG)}
    old = llama(rope_scaling={"type": "su", **factors}, original_max_position_embeddings=512)
    found = spec_of(old)
    assert (found.type, found.factor, found.original_max_positions) == ("longrope", 4.0, 512)
    both = llama(rope_scaling={"type": "longrope", "factor": 4.0, "original_max_position_embeddings": 512, **factors})
    assert spec_of(both) == found


def test_a_missing_original_length_is_the_trained_one_and_is_noted() -> None:
    raw = llama(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0})
    cfg, notes = config_from_hf(raw)
    assert cfg.rope is not None
    assert cfg.rope.original_max_positions == 2048
    assert any("original_max_position_embeddings" in note for note in notes)


def test_no_scaling_at_all() -> None:
    for raw in (
        llama(rope_scaling=None),
        llama(rope_scaling={"type": "default"}),
        llama(rope_parameters=None),
        llama(),
    ):
        assert spec_of(raw) == Rope(rotary_dim=64)


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_an_unknown_type_is_refused_by_name(place: str, key: str) -> None:
    with pytest.raises(ConfigError, match=r"spiral.*linear.*yarn"):
        config_from_hf(llama(**{place: {key: "spiral", "factor": 2.0}}))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"factor": 0}, "factor"),
        ({"factor": "4"}, "factor"),
        ({"short_factor": [1.0] * 3}, "3 numbers"),
        ({"short_factor": [1.0] * 31 + [-1]}, "short_factor"),
        ({"short_factor": [1.0] * 31 + [math.nan]}, "short_factor"),
        ({"long_factor": 7}, "long_factor"),
        ({"original_max_position_embeddings": -4}, "original_max_position_embeddings"),
        ({"attention_factor": "big"}, "attention_factor"),
    ],
)
def test_values_that_make_no_sense_are_refused(changes: dict, word: str) -> None:
    scaling = {"rope_type": "longrope"} | SPELT["longrope"] | changes
    with pytest.raises(ConfigError, match=word):
        frequencies(spec_of(llama(rope_scaling=scaling)), 1)


def test_the_inputs_of_a_spec_are_not_changed() -> None:
    raw = llama(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, **SPELT["yarn"]})
    before = copy.deepcopy(raw)
    config_from_hf(raw)
    assert raw == before
