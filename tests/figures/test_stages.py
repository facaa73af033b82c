"""The stages of one head: a bounded payload of lmcore's numbers, whole where it can and cut where it says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from figures.payload import unpack
from figures.stage_words import notes_of, stages_of
from figures.stages import (
    HEAD_TOKENS,
    HEADS_BYTES,
    MAX_BYTES,
    MAX_COLUMNS,
    MAX_TOKENS,
    Group,
    Place,
    pooled,
    shown_heads,
    shown_positions,
    stages_payload,
)
from figures.tokens import Token
from lmcore.config import Dense, GroupedQuery, Latent, ModelConfig, Norm, Rope, Wiring

LATENT = Latent(n_heads=4, kv_rank=12, nope_dim=8, rope_dim=4, value_dim=10, scale=0.3)


def config(*, heads: int = 4, kv_heads: int = 2, dim: int = 8, d_model: int = 32, **fields: Any) -> ModelConfig:
    return ModelConfig(
        **{
            "vocab_size": 50,
            "d_model": d_model,
            "n_layers": 2,
            "max_positions": 1024,
            "attention": GroupedQuery(n_heads=heads, n_kv_heads=kv_heads, head_dim=dim, scale=dim**-0.5),
            "ffn": Dense(d_ff=16),
            "norm": Norm(),
            "rope": Rope(rotary_dim=dim),
            "tied": True,
            "layer_types": ("full", "full"),
            **fields,
        }
    )


def made_up(cfg: ModelConfig, tokens: int, place: Place) -> Group:
    """Random q, k, v and all that follows from them, rounded to float32 stage by stage."""
    rng, a = np.random.default_rng(tokens), cfg.attention
    count, shown = len(shown_heads(cfg, place.head, tokens)), len(shown_positions(tokens, place.query))

    def random(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    q, k, v = random(count, tokens, a.head_dim), random(tokens, a.head_dim), random(tokens, a.value_dim)
    allowed = np.tri(tokens, dtype=bool)
    raw = q @ k.T
    scaled = raw * np.float32(a.scale)
    masked = np.where(allowed, scaled, np.float32(-np.inf))
    exp = np.exp(masked - masked.max(-1, keepdims=True))
    pattern = exp / exp.sum(-1, keepdims=True)
    pre, out = random(tokens, cfg.d_model), random(tokens, cfg.d_model)
    return Group(
        normed=random(tokens, cfg.d_model),
        q=random(*q.shape),
        k=random(*k.shape),
        v=v,
        rot_q=q,
        rot_k=k,
        scores_raw=raw,
        scores_scaled=scaled,
        scores_masked=masked,
        pattern=pattern,
        z=pattern @ v,
        writes=random(count, shown, cfg.d_model),
        attn_out=out,
        resid_pre=pre,
        resid_mid=pre + out,
        allowed=allowed,
    )


def tokens_of(count: int) -> list[Token]:
    return [Token(i, b" t%d" % i) for i in range(count)]


def read(cfg: ModelConfig, tokens: int, place: Place):
    found = made_up(cfg, tokens, place)
    blob = stages_payload(found, tokens_of(tokens), cfg, place)
    meta, arrays = unpack(blob)
    return found, meta, dict(zip(meta["names"], arrays, strict=True)), len(blob)


@pytest.mark.parametrize("tokens", [1, 2, 20, MAX_TOKENS])
def test_a_short_prompt_is_there_whole(tokens: int):
    found, meta, held, _ = read(config(), tokens, Place(layer=1, head=2, query=tokens - 1))
    assert meta["positions"] == list(range(tokens))
    assert (meta["first_head"], meta["heads"], meta["notes"]) == (2, 2, [])
    renamed = {"raw": "scores_raw", "scaled": "scores_scaled", "masked": "scores_masked", "softmax": "pattern"}
    for name in ("normed", "q", "k", "v", "rot_q", "rot_k", *renamed, "z", "attn_out", "resid_pre", "resid_mid"):
        np.testing.assert_array_equal(held[name], getattr(found, renamed.get(name, name)), err_msg=name)
    np.testing.assert_array_equal(held["write"], found.writes)
    np.testing.assert_allclose(held["row_sums"], 1, atol=1e-6)
    weight = np.exp(np.where(found.allowed, held["masked"] - held["peaks"][..., None], -np.inf))
    np.testing.assert_allclose(weight / held["denominators"][..., None], held["softmax"], atol=1e-6)


def test_a_long_prompt_is_cut_and_says_so_but_its_sums_are_whole():
    place = Place(layer=0, head=1, query=300)
    found, meta, held, _ = read(config(), 512, place)
    at = np.array(meta["positions"])
    assert len(at) == MAX_TOKENS
    assert 300 in at
    np.testing.assert_array_equal(held["softmax"], found.pattern[:, at[:, None], at])
    np.testing.assert_array_equal(held["z"], found.z[:, at])
    np.testing.assert_allclose(held["row_sums"], 1, atol=1e-5)
    assert held["softmax"].sum(-1).min() < 0.9
    np.testing.assert_array_equal(held["top_key"], found.pattern.argmax(-1))
    assert held["top_key"].shape == (2, 512)
    [note] = meta["notes"]
    assert f"positions 0 to {HEAD_TOKENS - 1} and {at[HEAD_TOKENS]} to {at[-1]}" in note


@pytest.mark.parametrize("tokens", [1, 127, 128, 129, 200, 512])
def test_every_query_is_among_the_positions_shown_for_it(tokens: int):
    for query in range(tokens):
        at = shown_positions(tokens, query)
        assert query in at
        assert len(at) == min(tokens, MAX_TOKENS)
        assert (np.diff(at) > 0).all()
        assert at[0] == 0
        assert at[-1] < tokens


@pytest.mark.parametrize(
    "shape",
    [
        {"heads": 71, "kv_heads": 1, "dim": 64, "d_model": 4544},
        {"heads": 128, "kv_heads": 8, "dim": 128, "d_model": 16384},
        {"heads": 16, "kv_heads": 1, "dim": 256, "d_model": 2048},
        {"heads": 12, "kv_heads": 12, "dim": 64, "d_model": 768},
    ],
)
def test_the_payload_is_bounded_for_any_model(shape: dict[str, int]):
    cfg = config(**shape)
    head = cfg.n_heads - 1
    _, meta, held, size = read(cfg, 512, Place(layer=0, head=head, query=511))
    text = len(str(meta["tokens"]))
    assert size < MAX_BYTES + 8 * 512 * meta["heads"] + text
    assert meta["first_head"] <= head < meta["first_head"] + meta["heads"]
    assert held["normed"].shape[-1] <= MAX_COLUMNS
    if meta["heads"] < cfg.attention.group_size:
        assert any(f"of the {cfg.attention.group_size} that share" in note for note in meta["notes"])


def test_heads_of_a_group_that_does_not_fit_are_held_in_turn():
    cfg = config(heads=71, kv_heads=1, dim=64, d_model=4544)
    ranges = [shown_heads(cfg, head, 512) for head in range(71)]
    assert all(head in shown for head, shown in enumerate(ranges))
    assert sorted({head for shown in set(ranges) for head in shown}) == list(range(71))
    assert len({*ranges}) > 1
    assert shown_heads(config(), 3, 512) == range(2, 4)
    assert HEADS_BYTES < MAX_BYTES


def test_pooling_keeps_the_largest_magnitude_and_its_dim():
    x = np.zeros((1, 3, 2500), np.float32)
    x[0, 1, 1777] = -4.0
    x[0, 2, 2499] = 5.0
    values, dims = pooled(x)
    assert values.shape == dims.shape == (1, 3, 834)
    assert (values[0, 1].min(), dims[0, 1, values[0, 1].argmin()]) == (-4.0, 1777)
    assert (values[0, 2, -1], dims[0, 2, -1]) == (5.0, 2499)
    small = np.ones((2, MAX_COLUMNS), np.float32)
    assert pooled(small)[0] is small
    assert pooled(small)[1].size == 0


def test_before_and_after_the_add_are_of_the_same_dims():
    found, meta, held, _ = read(config(d_model=4096), 9, Place(layer=0, head=0, query=8))
    np.testing.assert_array_equal(held["resid_pre"] + held["added"], held["resid_mid"])
    np.testing.assert_array_equal(held["resid_mid"], np.take_along_axis(found.resid_mid, held["resid_mid_dims"], -1))
    assert any("Of each 4 of the model’s 4\u2006096 dims" in note for note in meta["notes"])


def test_the_ends_of_the_colour_bar_are_symmetric_and_the_largest_number_but_for_outliers_of_the_stream():
    cfg, place = config(), Place(layer=0, head=0, query=19)
    found = made_up(cfg, 20, place)
    found.resid_mid[3, 5] = 1e4
    meta, _ = unpack(stages_payload(found, tokens_of(20), cfg, place))
    limits = {stage["key"]: stage["limit"] for stage in meta["stages"]}
    assert limits["raw"] == pytest.approx(np.abs(found.scores_raw).max())
    assert limits["resid_mid"] < 100
    assert limits["softmax"] is None


def test_nan_and_infinity_pass():
    cfg, place = config(), Place(layer=0, head=0, query=4)
    found = made_up(cfg, 5, place)
    found.scores_raw[0, 3, 1] = np.nan
    found.pattern[0, 3, :4] = np.nan
    meta, arrays = unpack(stages_payload(found, tokens_of(5), cfg, place))
    held = dict(zip(meta["names"], arrays, strict=True))
    assert np.isnan(held["raw"][0, 3, 1])
    assert np.isnan(held["row_sums"][0, 3])
    assert all(np.isfinite(stage["limit"]) for stage in meta["stages"] if stage["limit"] is not None)


def keys(cfg: ModelConfig, layer: int = 0) -> list[str]:
    return [stage.key for stage in stages_of(cfg, layer)]


def test_without_rope_the_rotation_is_missing_and_the_reason_is_said():
    whole = keys(config())
    assert [key for key in whole if key.startswith("rot")] == ["rot_q", "rot_k"]
    reasons: tuple[tuple[dict[str, Any], str], ...] = (
        ({"learned_positions": 64}, "a learned table"),
        ({"alibi": 8.0}, "ALiBi"),
        ({}, "no RoPE"),
    )
    for fields, why in reasons:
        cfg = config(rope=None, **fields)
        assert keys(cfg) == [key for key in whole if not key.startswith("rot")]
        assert why in notes_of(cfg, 0)[0]
    some = config(nope_layers=(1,))
    assert keys(some, 0) == whole
    assert "other layers of this model do" in notes_of(some, 1)[0]


def test_latent_attention_says_what_is_missing():
    cfg = config(attention=LATENT, rope=Rope(rotary_dim=4))
    [note] = notes_of(cfg, 0)
    assert "latent of 12 numbers" in note
    assert "missing" in note
    _, meta, held, _ = read(cfg, 6, Place(layer=0, head=3, query=5))
    assert meta["rotary"] == {"start": 8, "dims": 4}
    assert held["z"].shape == (1, 6, 10)
    assert held["q"].shape == (1, 6, 12)


def test_formulas_are_those_of_the_model():
    def formula(key: str, cfg: ModelConfig) -> str:
        return next(stage.formula for stage in stages_of(cfg, 0) if stage.key == key)

    cfg = config()
    assert "√8" in formula("scaled", cfg)
    other = cfg.changed(attention=replace(cfg.attention, scale=0.5, softcap=30.0, sinks=True, qkv_bias=True))
    assert formula("scaled", other) == "30 tanh((S × 0.5000) / 30)"
    assert "exp(sink)" in formula("softmax", other)
    assert formula("q", other) == "q = x̂ W_Q + b_Q"
    assert formula("resid_mid", cfg) == "x′ = x + a"
    assert formula("resid_mid", cfg.changed(wiring=Wiring(order="post"))) == "x′ = norm(x + a)"
    assert formula("resid_mid", cfg.changed(wiring=Wiring(order="sandwich"))) == "x′ = x + norm(a)"
    windowed = cfg.changed(layer_types=("sliding", "full"), window=5)
    assert "i − 5 < j ≤ i" in formula("masked", windowed)
