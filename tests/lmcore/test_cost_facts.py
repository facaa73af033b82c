"""Costs of real models: facts that popular calculators get wrong, each with the wrong value that was reported."""

from __future__ import annotations

from typing import Any

import pytest

from lmcore import presets
from lmcore.config import ModelConfig
from lmcore.costs import active_counts, param_counts, weight_bytes
from lmcore.families import config_from_hf
from lmcore.flops import decode_flops, forward_flops, keys_read, prefill_flops, training_flops
from lmcore.formats import FORMATS, Quantised
from lmcore.kv_costs import cached_after, kv_cache_bytes, kv_heads_per_rank
from lmcore.layer_kinds import layer_kinds
from lmcore.specs import Latent
from lmcore.traffic import score_bytes

GIB, MIB = 2**30, 2**20


def known(name: str) -> ModelConfig:
    return presets.shipped(name).config


def llama(d: int, layers: int, heads: int, kv: int, ff: int, vocab: int, **more: Any) -> ModelConfig:
    raw = {
        "model_type": "llama",
        "hidden_size": d,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ff,
        "vocab_size": vocab,
    }
    return config_from_hf(raw | more)[0]


def kv(cfg: ModelConfig, context: int, **how: Any) -> int:
    return sum(kv_cache_bytes(cfg, context=context, **how))


QWEN3_4B = llama(2560, 36, 32, 8, 9728, 151_936, head_dim=128)
LLAMA_2_13B = llama(5120, 40, 40, 40, 13_824, 32_000)
GPT_OSS_120B = known("gpt-oss-20b").changed(n_layers=36, layer_types=("sliding", "full") * 18, moe_layers=())


@pytest.mark.parametrize(
    ("found", "right", "reported"),
    [
        pytest.param(kv(QWEN3_4B, 1), 147_456, 92_160, id="head dim is its own field"),
        pytest.param(kv(known("llama-3-8b"), 1), 131_072, 524_288, id="KV heads, not query heads"),
        pytest.param(kv(known("llama-2-7b"), 4096), 2_147_483_648, 1_073_741_824, id="keys and values"),
        pytest.param(kv(LLAMA_2_13B, 8192), 6_710_886_400, 7_194_070_221, id="6.25 GiB, not 6.7"),
        pytest.param(kv(known("gpt-oss-20b"), 131_072), 3_224_371_200, 6_442_450_944, id="half the layers keep 128"),
        pytest.param(kv(known("gemma-3-27b-text"), 131_072), 11_173_625_856, 87_375_740_928, id="52 of 62 keep 1024"),
        pytest.param(kv(GPT_OSS_120B, 1), 73_728, 36_864, id="below the window every layer grows"),
        pytest.param(kv(known("deepseek-v3"), 1), 70_272, 124_928, id="one latent, not keys and values"),
        pytest.param(
            kv(known("deepseek-v3"), 65_536, quantised=Quantised(bits=4)), 1_151_336_448, 18_743_296, id="61 layers"
        ),
        pytest.param(kv(known("llama-3.3-70b"), 1, tensor_parallel=32), 40_960, 0, id="a head on every rank"),
        pytest.param(
            kv(known("llama-3.1-8b"), 32_768, quantised=FORMATS["q4_0"]), 1_207_959_552, 1_073_741_824, id="scales"
        ),
        pytest.param(kv(known("llama-3.1-405b"), 128_000), 66_060_288_000, 132_123_931_443, id="8 KV heads, not 16"),
        pytest.param(kv(llama(32, 4, 4, 2, 64, 99), 25, batch=2, beams=4), 51_200, 12_800, id="beams"),
    ],
)
def test_kv_bytes(found: int, right: int, reported: int) -> None:
    assert found == right != reported


@pytest.mark.parametrize(
    ("found", "right", "reported"),
    [
        (
            param_counts(llama(2048, 16, 32, 8, 8192, 128_256, tie_word_embeddings=True)).total,
            1_235_814_400,
            1_498_482_688,
        ),
        (param_counts(known("gpt2")).total, 124_439_808, 163_037_184),
        (param_counts(known("llama-2-7b")).total, 6_738_415_616, 6_738_417_664),
        (param_counts(known("mixtral-8x7b")).total, 46_702_792_704, 13_000_000_000),
        (weight_bytes(known("llama-3.3-70b"), 2), 141_107_412_992, 64_730_000_000),
    ],
    ids=["tied once", "tied once, GPT-2", "buffers are none", "every expert", "the head, two bytes"],
)
def test_parameters(found: int, right: int, reported: int) -> None:
    assert found == right != reported


ACTIVE = {
    "mixtral-8x7b": (12_879_925_248, 12_748_853_248, 12_617_781_248),
    "qwen3-30b-a3b": (3_353_032_704, 3_041_867_776, 2_730_702_848),
    "deepseek-v2-lite": (2_661_150_208, 2_451_435_008, 2_241_719_808),
    "deepseek-v3": (37_552_282_624, 36_625_603_584, 35_698_924_544),
    "gpt-oss-20b": (4_187_440_704, 3_608_307_264, 3_029_173_824),
}


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_in_three_conventions(name: str) -> None:
    found = active_counts(known(name))
    assert (found.everything, found.without_input, found.without_either) == ACTIVE[name]
    assert found.everything + found.unused_experts == param_counts(known(name)).total


def test_a_dense_model_is_all_active_and_its_tied_matrix_stays() -> None:
    found = active_counts(known("smollm2-135m"))
    assert found.everything == found.without_input == 134_515_008
    assert found.without_either == 134_515_008 - 49_152 * 576
    gpt = active_counts(known("gpt2"))
    assert gpt.everything - gpt.without_input == 1024 * 768


def attention_of(flops: dict[str, int]) -> int:
    return flops["scores"] + flops["mix"]


def test_attention_flops_follow_query_heads() -> None:
    """8 query heads on 2 KV heads: 134,217,728, where 33,554,432 had been counted by KV heads."""
    shape = {"d": 512, "layers": 1, "heads": 8, "ff": 64, "vocab": 9}
    assert attention_of(forward_flops(llama(**shape, kv=2), tokens=256)) == 134_217_728
    assert attention_of(forward_flops(llama(**shape, kv=8), tokens=256)) == 134_217_728
    assert attention_of(forward_flops(llama(768, 1, 12, 12, 64, 9), tokens=64)) == 12_582_912


def test_mixture_of_the_reported_size() -> None:
    """A counter that does not know grouped products had 4,972,800 of these."""
    raw = {
        "model_type": "mixtral",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 101,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    }
    assert sum(forward_flops(config_from_hf(raw)[0], tokens=21, batch=2).values()) == 17_359_104


def test_causal_half_and_full() -> None:
    """Llama-2-7B, 8192 tokens, 4 sequences, training: 422.2 TFLOP as executed, 211.1 of use; T (T + 1) / 2 pairs."""
    cfg = known("llama-2-7b")
    full = attention_of(training_flops(cfg, tokens=8192, batch=4))
    half = attention_of(training_flops(cfg, tokens=8192, batch=4, attention="useful"))
    assert full == 12 * 32 * 4096 * 8192**2 * 4 == 422_212_465_065_984
    assert half * 2 * 8192 == full * 8193
    assert round(half / 1e12, 1) == 211.1


def test_ffn_projections_and_head() -> None:
    cfg = known("llama-2-7b")
    flops = forward_flops(cfg, tokens=4096)
    assert flops["ffn"] == 35_459_249_995_776
    d, t = 4096, 4096
    assert flops["projections"] == 32 * 2 * t * (2 * d * 32 * 128 + 2 * d * 32 * 128)
    assert flops["ffn"] == 32 * 6 * t * d * 11_008
    assert attention_of(flops) == 32 * 4 * t**2 * 32 * 128
    one, all_of_them = prefill_flops(cfg, tokens=t), prefill_flops(cfg, tokens=t, logits="all")
    assert all_of_them["logits"] - one["logits"] == (t - 1) * 2 * d * 32_000
    assert {k: v for k, v in one.items() if k != "logits"} == {k: v for k, v in all_of_them.items() if k != "logits"}
    assert forward_flops(known("qwen3-8b"), tokens=1)["logits"] == 1_244_659_712


def test_plain_feed_forward_has_two_matrices() -> None:
    gpt = known("gpt2")
    assert forward_flops(gpt, tokens=7)["ffn"] == 12 * 4 * 7 * 768 * 3072


def test_training_is_three_forwards_and_recomputation_one_more() -> None:
    """6 N a token of the weights met, without attention: 6 x 36.6 billion for DeepSeek-V3, not 2 x."""
    cfg = known("deepseek-v3")
    forward, training = forward_flops(cfg, tokens=512), training_flops(cfg, tokens=512)
    assert training == {name: 3 * flops for name, flops in forward.items()}
    met = sum(v for k, v in training.items() if k not in ("scores", "mix"))
    assert met == pytest.approx(6 * active_counts(cfg).without_input * 512, rel=1e-4)
    again = training_flops(cfg, tokens=512, recompute="all")
    assert sum(again.values()) - sum(training.values()) == sum(forward.values()) - forward["logits"]
    attention = training_flops(cfg, tokens=512, recompute="attention")
    assert sum(attention.values()) - sum(training.values()) == attention_of(forward)


def test_llama_2_70b_as_mha_and_as_gqa() -> None:
    cfg = known("llama-2-70b")
    as_mha = llama(8192, 80, 64, 64, 28_672, 32_000)
    assert kv(cfg, 32_768) == 10 * GIB
    assert kv(as_mha, 32_768) == 80 * GIB == 85_899_345_920


def test_latent_of_deepseek() -> None:
    """576 numbers a layer against 32,768 for MHA of DeepSeek-V2's heads, 56.9 times; V3 against LLaMA-3 70B, 4.66."""
    a = known("deepseek-v3").attention
    assert isinstance(a, Latent)
    assert a.kv_rank + a.rope_dim == 576
    assert round(2 * 128 * 128 / 576, 1) == 56.9
    assert round(kv(known("llama-3.3-70b"), 1) / kv(known("deepseek-v3"), 1), 2) == 4.66


def test_latent_decode_re_expanded_costs_the_up_projection_of_every_position() -> None:
    cfg, a = known("deepseek-v3"), known("deepseek-v3").attention
    assert isinstance(a, Latent)
    expanded, absorbed = (decode_flops(cfg, position=4095, batch=3, latent=x) for x in ("expanded", "absorbed"))
    up = 2 * a.kv_rank * a.n_heads * (a.nope_dim + a.value_dim)
    assert expanded["projections"] - absorbed["projections"] == 61 * 3 * 4095 * up
    assert attention_of(absorbed) == 61 * 3 * 2 * 4096 * 128 * (576 + 512)
    assert attention_of(expanded) == 61 * 3 * 2 * 4096 * 128 * (192 + 128)
    assert decode_flops(cfg, position=4095, batch=3) == absorbed
    assert sum(expanded.values()) > 10 * sum(absorbed.values())


def test_engines_keep_windows_differently() -> None:
    cfg = known("mistral-7b-v0.1")  # window 4096
    one = kv(cfg, 1)
    assert kv(cfg, 32_768) == 4096 * one
    assert kv(cfg, 32_768, keep="past") == 4095 * one
    assert kv(cfg, 32_768, keep="all") == 32_768 * one
    assert kv(cfg, 4000, page=64) == 4032 * one
    chunked = known("llama-3-8b").changed(layer_types=("chunked",) * 32, chunk=8192)
    assert kv(chunked, 20_000) == 20_000 * kv(chunked, 1)
    assert kv(chunked, 20_000, keep="reach") == 8192 * kv(chunked, 1)


@pytest.mark.parametrize(("ranks", "each"), [(1, 8), (2, 4), (8, 1), (16, 1), (64, 1)])
def test_ranks_beyond_the_kv_heads_save_nothing(ranks: int, each: int) -> None:
    cfg = known("llama-3.3-70b")
    assert kv_heads_per_rank(cfg, ranks) == each
    assert kv(cfg, 1, tensor_parallel=ranks) == 327_680 * each // 8


def test_every_rank_holds_the_whole_latent() -> None:
    assert kv(known("deepseek-v3"), 9, tensor_parallel=8) == kv(known("deepseek-v3"), 9)


def test_the_newest_token_is_not_yet_in_the_cache() -> None:
    assert [cached_after(20, new) for new in (0, 1, 6)] == [20, 20, 25]


@pytest.mark.parametrize(
    ("name", "size"), [("q8_0", 34), ("q4_0", 18), ("q4_1", 20), ("q5_0", 22), ("q5_1", 24), ("fp8", 32)]
)
def test_blocks_of_32_values(name: str, size: int) -> None:
    stored = FORMATS[name]
    assert isinstance(stored, Quantised)
    assert stored.bytes_of(1, 32) == size
    assert stored.bytes_of(7, 64) == 14 * size
    assert stored.bytes_of(1, 33) > size


def test_two_bits_with_keys_per_channel() -> None:
    """3 bits a value with scale and zero point: 128 channels x 64 positions, groups of 32 along either."""
    pair = FORMATS["KIVI 2 bit"]
    assert isinstance(pair, tuple)
    assert [part.bytes_of(64, 128) for part in pair] == [64 * 128 * 3 // 8] * 2
    assert [part.bytes_of(1, 128) for part in pair] == [32 + 128 * 4, 32 + 4 * 4]


def test_written_out_weights_at_32768() -> None:
    cfg = llama(4096, 1, 32, 32, 64, 9)
    assert score_bytes(cfg, queries=32_768, keys=32_768) == 64 * GIB
    assert score_bytes(llama(128, 1, 1, 1, 64, 9), queries=32_768, keys=32_768) == 2 * GIB


def test_a_window_lets_a_query_read_its_own_key_and_those_before() -> None:
    """A window of 4 shows 4 keys to the query at position 9, not 5."""
    kind = layer_kinds(known("mistral-7b-v0.1").changed(window=4))[0]
    before, after = (keys_read(kind, tokens=n, attention="useful") for n in (9, 10))
    assert after - before == 4
    assert keys_read(kind, tokens=10, attention="useful") == 1 + 2 + 3 + 4 * 7
    chunks = layer_kinds(known("llama-3-8b").changed(layer_types=("chunked",) * 32, chunk=4))[0]
    assert keys_read(chunks, tokens=10, attention="useful") == 2 * (1 + 2 + 3 + 4) + 1 + 2


def test_parameters_by_their_formulas() -> None:
    """Attention 2 D H Dh + 2 D K Dh and a gated feed-forward 3 D F a layer, head dim a field of its own."""
    counts, a = param_counts(known("qwen3-8b")), known("qwen3-8b").attention
    d, f, layers = 4096, 12_288, 36
    assert a.head_dim == 128
    assert counts.attention == layers * (2 * d * a.n_heads * 128 + 2 * d * a.n_kv_heads * 128)
    assert counts.ffn == layers * 3 * d * f
    assert known("qwen3-0.6b").attention.head_dim * known("qwen3-0.6b").n_heads == 2 * known("qwen3-0.6b").d_model


def test_causal_half_of_a_layer() -> None:
    """Executed 4 T^2 H Dh, of use 2 T (T + 1) H Dh."""
    t, cfg = 1000, llama(512, 1, 8, 8, 64, 9)
    assert attention_of(forward_flops(cfg, tokens=t)) == 4 * t**2 * 512
    assert attention_of(forward_flops(cfg, tokens=t, attention="useful")) == 2 * t * (t + 1) * 512


def test_who_has_one_kv_head_and_who_eight() -> None:
    for name in ("falcon-7b", "gemma-2b", "gemma-3-270m"):
        assert known(name).n_kv_heads == 1
    for name in ("llama-3-8b", "llama-3.1-405b", "llama-3.2-3b", "llama-3.3-70b"):
        assert known(name).n_kv_heads == 8


def test_deepseek_v3_norms_before_both_sublayers() -> None:
    wiring = known("deepseek-v3").wiring
    assert (wiring.order, wiring.parallel, wiring.shared_norm) == ("pre", False, False)
