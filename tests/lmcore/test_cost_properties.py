"""What holds of costs for any config: more context never costs less, parts add up, nonsense is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmcore import flop_derivations, presets
from lmcore.bounds import MAX_COUNT, count
from lmcore.config import ModelConfig
from lmcore.costs import active_counts, param_counts, weight_bytes
from lmcore.derivations import Derivation, kv_bytes, parameters
from lmcore.errors import ConfigError, InputError
from lmcore.flops import (
    ATTENTION,
    LATENT,
    RECOMPUTE,
    crossover,
    decode_flops,
    forward_flops,
    prefill_flops,
    training_flops,
)
from lmcore.formats import FORMATS, Quantised
from lmcore.kv_costs import KEEP, kv_cache_bytes, largest_batch, longest_context
from lmcore.roofline import decode_point, prefill_point
from lmcore.specs import Dense, GroupedQuery, Latent, MoE, Norm
from lmcore.traffic import activation_bytes, bytes_moved, experts_met, training_state_bytes

CONFIGS = {preset.name: presets.shipped(preset.name).config for preset in presets.PRESETS}
GQA = presets.shipped("llama-3.1-8b").config


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Small models of every kind: shared heads or latents, windows and chunks, experts in some layers."""
    heads = draw(st.sampled_from([1, 2, 4, 6]))
    shared = draw(st.sampled_from([k for k in (1, 2, 3, 4, 6) if heads % k == 0]))
    attention: GroupedQuery | Latent = GroupedQuery(
        n_heads=heads, n_kv_heads=shared, head_dim=draw(st.integers(1, 40)), scale=1.0
    )
    if draw(st.booleans()):
        attention = Latent(
            n_heads=heads, kv_rank=draw(st.integers(1, 40)), nope_dim=3, rope_dim=2, value_dim=5, scale=1
        )
    kinds = draw(st.lists(st.sampled_from(["full", "sliding", "chunked"]), min_size=1, max_size=5))
    sparse = draw(st.booleans())
    experts = MoE(n_experts=5, top_k=draw(st.integers(1, 5)), d_ff=7, shared_d_ff=draw(st.integers(0, 3)))
    return ModelConfig(
        vocab_size=draw(st.integers(1, 500)),
        d_model=draw(st.integers(1, 64)),
        n_layers=len(kinds),
        max_positions=100,
        attention=attention,
        ffn=Dense(d_ff=draw(st.integers(1, 99)), gated=draw(st.booleans())),
        norm=Norm(),
        rope=None,
        tied=draw(st.booleans()),
        layer_types=tuple(kinds),
        window=draw(st.integers(1, 50)),
        chunk=draw(st.integers(1, 50)),
        moe=experts if sparse else None,
        moe_layers=tuple(range(0, len(kinds), 2)) if sparse else (),
    )


# The shapes checked in tests are checked by samples drawn with `random`, which hypothesis seeds as well.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")
lengths = st.integers(0, 200)
quick = settings(max_examples=60, deadline=None)


def evaluated(cfg: ModelConfig, context: int) -> list[int]:
    """Every number of every calculator at one context."""
    numbers: list[Any] = [*vars(param_counts(cfg)).values(), *vars(active_counts(cfg)).values(), weight_bytes(cfg, 2)]
    numbers += kv_cache_bytes(cfg, context=context)
    for parts in (
        forward_flops(cfg, tokens=context),
        decode_flops(cfg, position=context),
        training_flops(cfg, tokens=context, recompute="all"),
        bytes_moved(cfg, tokens=context, scores="written"),
        activation_bytes(cfg, tokens=context, scores="written"),
        training_state_bytes(cfg),
    ):
        numbers += parts.values()
    return numbers


@quick
@given(cfg=configs(), context=lengths)
def test_every_number_is_an_int(cfg: ModelConfig, context: int) -> None:
    assert all(type(number) is int and number >= 0 for number in evaluated(cfg, context))


@quick
@given(cfg=configs(), short=lengths, more=lengths, batch=st.integers(1, 5), keep=st.sampled_from(KEEP))
def test_more_context_and_more_sequences_never_cost_less(
    cfg: ModelConfig, short: int, more: int, batch: int, keep: str
) -> None:
    for cost in (
        lambda context, b: sum(kv_cache_bytes(cfg, context=context, batch=b, keep=keep)),
        lambda context, b: sum(prefill_flops(cfg, tokens=context, batch=b).values()),
        lambda context, b: sum(forward_flops(cfg, tokens=context, batch=b, attention="useful").values()),
        lambda context, b: sum(decode_flops(cfg, position=context + 1, batch=b).values()),
        lambda context, b: sum(bytes_moved(cfg, tokens=1, cached=context, batch=b).values()),
        lambda context, b: sum(activation_bytes(cfg, tokens=context, batch=b).values()),
    ):
        assert cost(short, batch) <= cost(short + more, batch)
        assert cost(short, batch) <= cost(short, batch + 1)


@quick
@given(cfg=configs(), context=lengths, batch=st.integers(0, 4))
def test_sequences_and_layers_add_up(cfg: ModelConfig, context: int, batch: int) -> None:
    layers = kv_cache_bytes(cfg, context=context, batch=batch)
    assert len(layers) == cfg.n_layers
    assert sum(layers) == batch * sum(kv_cache_bytes(cfg, context=context))
    for layer, size in enumerate(layers):
        alone = cfg.changed(n_layers=1, layer_types=(cfg.layer_types[layer],), moe_layers=())
        assert kv_cache_bytes(alone, context=context, batch=batch) == (size,)
    assert sum(prefill_flops(cfg, tokens=context, batch=batch).values()) == batch * sum(
        prefill_flops(cfg, tokens=context).values()
    )


@quick
@given(heads=st.sampled_from([4, 8, 12]), dim=st.integers(1, 64), context=lengths)
def test_cache_of_mqa_gqa_and_mha(heads: int, dim: int, context: int) -> None:
    def size(shared: int) -> int:
        attention = GroupedQuery(n_heads=heads, n_kv_heads=shared, head_dim=dim, scale=1.0)
        return sum(kv_cache_bytes(GQA.changed(attention=attention, rope=None), context=context))

    assert size(1) <= size(2) <= size(heads)
    assert size(heads) == heads * size(1)


@quick
@given(cfg=configs(), context=lengths)
def test_the_mask_lets_through_no_more_than_is_executed(cfg: ModelConfig, context: int) -> None:
    useful, full = (forward_flops(cfg, tokens=context, attention=kind) for kind in ("useful", "executed"))
    assert all(useful[name] <= full[name] for name in full)
    assert useful["ffn"] == full["ffn"]


@quick
@given(cfg=configs(), context=lengths, cached=lengths, batch=st.integers(1, 3), attention=st.sampled_from(ATTENTION))
def test_a_derivation_is_its_function(cfg: ModelConfig, context: int, cached: int, batch: int, attention: str) -> None:
    how: dict[str, Any] = {"tokens": context, "cached": cached, "batch": batch, "attention": attention}
    for latent in LATENT:
        found = flop_derivations.forward(cfg, **how, latent=latent)
        assert {name: part.value for name, part in found.items()} == forward_flops(cfg, **how, latent=latent)
    for keep in KEEP:
        size = sum(kv_cache_bytes(cfg, context=context, batch=batch, keep=keep))
        assert kv_bytes(cfg, context=context, batch=batch, keep=keep).value == size
    assert parameters(cfg).value == param_counts(cfg).total


@pytest.mark.parametrize("name", CONFIGS)
def test_derivations_of_real_models(name: str) -> None:
    cfg = CONFIGS[name]
    active = active_counts(cfg)
    assert parameters(cfg).value == param_counts(cfg).total
    assert parameters(cfg, active=True).value == active.everything
    assert parameters(cfg, active=True, input_table=False).value == active.without_input
    assert parameters(cfg, active=True, input_table=False, head=False).value == active.without_either
    ways: list[dict[str, Any]] = [{"quantised": stored} for stored in FORMATS.values()]
    ways += [{"page": 16}, {"beams": 3, "itemsize": 1}, {"tensor_parallel": cfg.n_heads}]
    for way in ways:
        assert kv_bytes(cfg, context=5001, **way).value == sum(kv_cache_bytes(cfg, context=5001, **way))
    for recompute in RECOMPUTE:
        found = flop_derivations.training(cfg, tokens=77, recompute=recompute)
        assert {k: part.value for k, part in found.items()} == training_flops(cfg, tokens=77, recompute=recompute)


def test_a_derivation_says_what_its_terms_are() -> None:
    found: Derivation = kv_bytes(CONFIGS["gemma-3-27b-text"], context=131_072)
    assert found.products[0].formula == r"L_{\text{sliding}} \cdot B \cdot 2 \cdot K \cdot D_h \cdot \min(S, w) \cdot s"
    words = {term.symbol: (term.value, term.meaning) for term in found.terms}
    assert words["K"] == (16, "KV heads")
    assert words[r"\min(S, w)"] == (1024, "positions kept of 131,072, the window being 1,024")
    assert "2" not in words


@quick
@given(free=st.integers(0, 10**13), name=st.sampled_from(sorted(CONFIGS)))
def test_longest_context_is_the_last_that_fits(free: int, name: str) -> None:
    cfg = CONFIGS[name]
    context = longest_context(cfg, free_bytes=free)
    assert context == 0 or sum(kv_cache_bytes(cfg, context=context)) <= free
    assert context == MAX_COUNT or sum(kv_cache_bytes(cfg, context=context + 1)) > free
    batch = largest_batch(cfg, free_bytes=free, context=4096)
    assert sum(kv_cache_bytes(cfg, context=4096, batch=batch)) <= free
    assert sum(kv_cache_bytes(cfg, context=4096, batch=batch + 1)) > free


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["llama-2-7b", "deepseek-v3", "gpt-oss-20b"])
def test_crossover_is_the_first_context_of_more_attention(name: str, phase: str) -> None:
    cfg = CONFIGS[name]
    at = crossover(cfg, phase=phase)
    assert at is not None

    def overtakes(context: int) -> bool:
        tokens, cached = (context, 0) if phase == "prefill" else (1, context - 1)
        flops = forward_flops(cfg, tokens=tokens, cached=cached, logits=0)
        return flops["scores"] + flops["mix"] > flops["projections"] + flops["ffn"]

    assert overtakes(at)
    assert not overtakes(at - 1)


def test_windows_in_every_layer_keep_attention_below() -> None:
    assert crossover(CONFIGS["mistral-7b-v0.1"], phase="decode") is None
    assert crossover(CONFIGS["mistral-7b-v0.1"], phase="prefill", attention="useful") is None
    assert crossover(CONFIGS["llama-2-7b"]) == (4096 * 4 * 4096 + 3 * 4096 * 11_008) // (2 * 4096) + 1


@pytest.mark.parametrize("value", [-1, 10**12, True])
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (kv_cache_bytes, "context"),
        (forward_flops, "tokens"),
        (training_flops, "tokens"),
        (decode_flops, "position"),
        (bytes_moved, "tokens"),
        (activation_bytes, "tokens"),
    ],
)
def test_nonsense_is_refused_by_name(call: Any, argument: str, value: object) -> None:
    with pytest.raises(InputError, match=f"argument {argument}"):
        call(GQA, **{argument: value})


@pytest.mark.parametrize("value", [2.0, "4", None, float("nan")])
def test_only_whole_numbers_are_counts(value: object) -> None:
    with pytest.raises(InputError, match="argument context"):
        count("context", value)


@pytest.mark.parametrize(
    ("how", "argument"),
    [
        ({"batch": -1}, "batch"),
        ({"itemsize": 0}, "itemsize"),
        ({"beams": 0}, "beams"),
        ({"page": 0}, "page"),
        ({"tensor_parallel": 3}, "tensor_parallel"),
        ({"tensor_parallel": 0}, "tensor_parallel"),
        ({"keep": "some"}, "keep"),
    ],
)
def test_nonsense_about_a_cache_is_refused_by_name(how: dict[str, Any], argument: str) -> None:
    with pytest.raises(InputError, match=f"argument {argument}"):
        kv_cache_bytes(GQA, context=10, **how)


@pytest.mark.parametrize(("fields", "name"), [((0, 1), "n_heads"), ((4, 0), "n_kv_heads"), ((8, 3), "n_kv_heads")])
def test_impossible_heads_are_refused_by_name(fields: tuple[int, int], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        GroupedQuery(n_heads=fields[0], n_kv_heads=fields[1], head_dim=8, scale=1.0)


@pytest.mark.parametrize("bits", [0, 65, True])
def test_impossible_storage_is_refused(bits: int) -> None:
    with pytest.raises(InputError, match="argument bits"):
        Quantised(bits=bits)


def test_experts_that_a_batch_reads() -> None:
    moe = CONFIGS["deepseek-v3"].moe
    assert moe is not None
    assert [experts_met(moe, n) for n in (0, 1, 10**6)] == [0, 8, 256]
    assert experts_met(moe, 32, "least") == 8
    assert experts_met(moe, 32, "most") == 256
    # 256 (1 - (1 - 8/256)^32) = 163.3
    assert experts_met(moe, 32) == 164


def test_decode_of_one_sequence_reads_the_active_weights_and_the_cache() -> None:
    cfg = GQA
    moved = bytes_moved(cfg, tokens=1, cached=999)
    active = active_counts(cfg)
    assert moved["weights"] == 2 * (active.without_input + cfg.d_model)
    assert moved["cache read"] == 1000 * 131_072
    assert moved["cache written"] == 131_072
    many = bytes_moved(cfg, tokens=1, cached=999, batch=64)
    assert many["weights"] - moved["weights"] == 2 * 63 * cfg.d_model
    assert many["cache read"] == 64 * moved["cache read"]


def test_a_prefill_does_more_arithmetic_a_byte_than_a_step() -> None:
    for cfg in CONFIGS.values():
        prefill, decode = prefill_point(cfg, tokens=1024), decode_point(cfg, position=1023)
        assert prefill.intensity > 20 * decode.intensity
        assert decode_point(cfg, position=1023, batch=64).intensity > decode.intensity


def test_mixed_precision_training_holds_16_bytes_a_parameter() -> None:
    assert sum(training_state_bytes(GQA).values()) == 16 * param_counts(GQA).total


def test_recomputation_and_fusion_keep_less() -> None:
    held = {
        (s, r): sum(activation_bytes(GQA, tokens=2048, scores=s, recompute=r).values())
        for s in ("fused", "written")
        for r in RECOMPUTE
    }
    assert held["written", "none"] - held["fused", "none"] == 32 * 32 * (2 * 2048**2 - 4 * 2048)
    assert held["written", "all"] < held["written", "attention"] < held["written", "none"]
    assert held["fused", "all"] < held["fused", "none"]
