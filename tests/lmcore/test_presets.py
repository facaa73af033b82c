"""The shipped configs: their parameters by formula and by modules, their KV bytes, and what pasted text may be."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmcore import presets
from lmcore.costs import forward_flops, kv_cache_bytes, param_counts
from lmcore.errors import ConfigError, InputError, LmcoreError

ROOT = Path(__file__).parent.parent.parent

# name: parameters, each tied matrix once, and bytes of K and V (or of MLA's latent) for one position in 16 bits.
KNOWN = {
    "gpt2": (124_439_808, 36_864),
    "gpt2-medium": (354_823_168, 98_304),
    "gpt2-xl": (1_557_611_200, 307_200),
    "gpt3-175b": (174_604_259_328, 4_718_592),
    "pythia-70m": (70_426_624, 12_288),
    "pythia-160m": (162_322_944, 36_864),
    "pythia-1b": (1_011_781_632, 131_072),
    "pythia-1.4b": (1_414_647_808, 196_608),
    "pythia-2.8b": (2_775_208_960, 327_680),
    "pythia-12b": (11_846_072_320, 737_280),
    "opt-125m": (125_239_296, 36_864),
    "opt-6.7b": (6_658_473_984, 524_288),
    "opt-30b": (29_974_540_288, 1_376_256),
    "bloom-176b": (176_247_271_424, 4_014_080),
    "falcon-7b": (6_921_720_704, 8_192),
    "mpt-7b": (6_649_286_656, 524_288),
    "llama-7b": (6_738_415_616, 524_288),
    "llama-30b": (32_528_943_616, 1_597_440),
    "llama-2-7b": (6_738_415_616, 524_288),
    "llama-2-70b": (68_976_648_192, 327_680),
    "llama-3-8b": (8_030_261_248, 131_072),
    "llama-3.1-8b": (8_030_261_248, 131_072),
    "llama-3.1-405b": (405_853_388_800, 516_096),
    "llama-3.2-3b": (3_212_749_824, 114_688),
    "llama-3.3-70b": (70_553_706_496, 327_680),
    "mistral-7b-v0.1": (7_241_732_096, 131_072),
    "mistral-7b-v0.3": (7_248_023_552, 131_072),
    "mixtral-8x7b": (46_702_792_704, 131_072),
    "qwen2-7b": (7_615_616_512, 57_344),
    "qwen2.5-1.5b": (1_543_714_304, 28_672),
    "qwen2.5-72b": (72_706_203_648, 327_680),
    "qwen3-0.6b": (596_049_920, 114_688),
    "qwen3-8b": (8_190_735_360, 147_456),
    "qwen3-32b": (32_762_123_264, 262_144),
    "qwen3-30b-a3b": (30_532_122_624, 98_304),
    "gemma-2b": (2_506_172_416, 18_432),
    "gemma-2-2b": (2_614_341_888, 106_496),
    "gemma-2-27b": (27_227_128_320, 376_832),
    "gemma-3-270m": (268_098_176, 18_432),
    "gemma-3-4b-text": (3_880_263_168, 139_264),
    "gemma-3-27b-text": (27_009_346_304, 507_904),
    "phi-3-mini-4k": (3_821_079_552, 393_216),
    "smollm2-135m": (134_515_008, 23_040),
    "smollm2-360m": (361_821_120, 40_960),
    "smollm3-3b": (3_075_098_624, 73_728),
    "olmo2-7b": (7_298_617_344, 524_288),
    "deepseek-v2-lite": (15_706_484_224, 31_104),
    "deepseek-v3": (671_026_404_352, 70_272),
    "yi-6b": (6_061_035_520, 65_536),
    "command-r-v01": (34_980_831_232, 1_310_720),
    "tinyllama-1.1b": (1_100_048_384, 22_528),
    "glm-4-9b-chat-hf": (9_399_951_360, 40_960),
    "gpt-oss-20b": (20_914_757_184, 49_152),
}
# Bytes for 32,768 positions where layers with a window keep that many only.
AT_32768 = {
    "mistral-7b-v0.1": 536_870_912,
    "gemma-2-2b": 1_962_934_272,
    "gemma-2-27b": 6_945_767_424,
    "gemma-3-270m": 108_527_616,
    "gemma-3-4b-text": 792_723_456,
    "gemma-3-27b-text": 3_120_562_176,
    "phi-3-mini-4k": 804_913_152,
    "gpt-oss-20b": 808_452_096,
}


def test_the_list_is_the_folder():
    assert sorted(p.file.name for p in presets.PRESETS) == sorted(p.name for p in presets.FOLDER.iterdir())
    assert {p.name for p in presets.PRESETS} == set(KNOWN)
    assert len({p.title for p in presets.PRESETS}) == len(presets.PRESETS) >= 40


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_and_kv_bytes_by_formula(name: str):
    cfg = presets.shipped(name).config
    assert (param_counts(cfg).total, sum(kv_cache_bytes(cfg, context=1))) == KNOWN[name]


@pytest.mark.parametrize("name", AT_32768)
def test_layers_with_a_window_keep_no_more_than_it(name: str):
    assert sum(kv_cache_bytes(presets.shipped(name).config, context=32_768)) == AT_32768[name]


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_counted_in_the_modules(name: str):
    """The same total from the model itself, built without memory: 671 billion parameters take none."""
    from lmcore.checkpoint.load import on_meta
    from lmcore.measure import counted_parameters

    cfg = presets.shipped(name).config
    counted = counted_parameters(on_meta(cfg))
    assert sum(counted.values()) == KNOWN[name][0]
    formula = param_counts(cfg)
    assert {part: getattr(formula, part) for part in counted} == counted


def test_the_files_hold_facts_only():
    """Token ids, eps, dropout and the like are a library's defaults: none was copied as if the model said so."""
    unsaid = ("token_id", "eps", "epsilon", "dropout", "pdrop", "init", "aux_loss", "dtype", "version")
    for found in presets.PRESETS:
        keys = json.loads(found.file.read_text())
        assert not [key for key in keys if any(word in key for word in unsaid)], found.name


def test_notes_name_nothing_that_was_not_understood():
    for found in presets.PRESETS:
        notes = presets.shipped(found.name).notes
        assert not [note for note in notes if "not read" in note], found.name


def test_all_of_them_take_less_than_a_blink():
    def everything() -> float:
        begun = time.process_time()
        for found in presets.PRESETS:
            cfg = presets.shipped(found.name).config
            param_counts(cfg), kv_cache_bytes(cfg, context=4096), forward_flops(cfg, tokens=1, cached=4095)
        return time.process_time() - begun

    code = "import lmcore.presets as p, sys; [p.shipped(x.name) for x in p.PRESETS]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert min(everything() for _ in range(5)) < 0.25


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError) as caught:
        presets.shipped("../../etc/passwd")
    assert "no config named" in caught.value.found


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def test_a_pasted_config_is_the_model_it_says():
    found = presets.pasted(json.dumps(LLAMA))
    assert found.architecture == "llama"
    assert found.config.n_kv_heads == 4
    # 2 V D + L (4 D^2 + 3 D F + 2 D) + D
    assert param_counts(found.config).total == 2 * 100 * 64 + 2 * (4 * 64**2 + 3 * 64 * 128 + 2 * 64) + 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no config is given"),
        ("{", "line 1, column 2"),
        ("[1]", "holds a list"),
        ("[" * 100_000, "not JSON"),
        ("{}", "model_type is missing"),
        ('{"model_type": "mamba"}', "'mamba' is not known"),
        (json.dumps(LLAMA | {"hidden_size": -1}), "hidden_size is '-1'"),
        (json.dumps(LLAMA | {"num_attention_heads": 7}), "no multiple"),
        ("x" * (presets.MAX_CHARS + 1), "characters"),
    ],
)
def test_bad_text_is_refused_with_what_was_found(text: str, words: str):
    with pytest.raises(LmcoreError) as caught:
        presets.pasted(text)
    assert words in caught.value.found


def test_an_unknown_architecture_is_not_guessed():
    with pytest.raises(ConfigError) as caught:
        presets.pasted(json.dumps(LLAMA | {"model_type": "llama9"}))
    assert "one of llama, " in caught.value.expected


def test_the_language_part_of_a_wrapper_is_read():
    found = presets.pasted(json.dumps({"model_type": "seer", "text_config": LLAMA}))
    assert found.architecture == "llama"
    assert "wraps a language model" in found.notes[0]
