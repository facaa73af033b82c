"""What the KV page draws from configs alone: sizes, curves, what fits, changed configs, derivations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from figures import kv, kv_changed
from figures.derived import derivation_markdown
from figures.format import group
from figures.grid import grid_payload
from figures.lines import Scale, Series, lines_payload
from figures.payload import unpack
from lmcore import derivations, presets
from lmcore.config import GroupedQuery, ModelConfig
from lmcore.costs import weight_bytes
from lmcore.errors import ConfigError, InputError
from lmcore.formats import FORMATS
from lmcore.hardware import ACCELERATORS, accelerator, custom
from lmcore.kv_costs import kv_cache_bytes
from lmcore.specs import Latent

Setting = kv.Setting


def shipped(name: str) -> ModelConfig:
    return presets.shipped(name).config


# Published numbers: 2 * L * K * Dh * 2; LLaMA-2 70B at 32,768 tokens 10 GiB; DeepSeek-V3 70,272 and LLaMA-3 70B 327,680
# bytes a token; a window of 4,096 in all layers of Mistral 7B v0.1 stops growing there.
def test_published_sizes() -> None:
    setting = Setting(context=32_768)
    assert kv.sizes(shipped("llama-2-70b"), setting).sequence == 10 * 2**30
    assert kv.sizes(shipped("deepseek-v3"), setting).per_token == 70_272
    assert kv.sizes(shipped("llama-3.3-70b"), setting).per_token == 327_680
    mistral = kv.sizes(shipped("mistral-7b-v0.1"), setting)
    assert (mistral.one_more, mistral.sequence, mistral.per_token) == (0, 131_072 * 4096, 131_072)


def test_a_batch_over_ranks_and_beams() -> None:
    """8 KV heads on 16 ranks: each holds one, so that all together hold twice the cache."""
    cfg = shipped("llama-3.3-70b")
    one = kv.sizes(cfg, Setting(context=1000))
    many = kv.sizes(cfg, Setting(context=1000, batch=3, beams=2, ranks=16))
    assert many.batch == 6 * one.sequence // 8
    assert many.all_ranks == 12 * one.sequence


@pytest.mark.parametrize("stored", list(FORMATS))
def test_scales_of_a_token_count_once(stored: str) -> None:
    """Bytes a token of a whole group of 32, not a group for one position."""
    size = kv.sizes(shipped("llama-3.1-8b"), Setting(context=4096, format=stored))
    assert size.per_token == pytest.approx(size.sequence / 4096)


def test_the_newest_positions_of_kivi_are_those_of_the_running_cache() -> None:
    """What a cache with whole newest positions holds lies between the format's bytes and these more."""
    from lmcore.quantise import How, kivi, quantised_cache_bytes

    cfg, setting = shipped("llama-3.1-8b"), Setting(context=4096, format=kv.KIVI)
    assert setting.format in FORMATS
    running = sum(quantised_cache_bytes(cfg, How(kivi(2), residual=kv.RESIDUAL), context=4096, itemsize=2))
    throughout = kv.sizes(cfg, setting).batch
    assert throughout < running < throughout + kv.newest_bytes(cfg, setting)
    assert kv.newest_bytes(cfg, Setting(context=4096, format=kv.KIVI, batch=3)) == 3 * 128 * 131_072


@pytest.mark.parametrize(("n", "unit", "text"), [(999, "GB", "999 B"), (10 * 2**30, "GiB", "10 GiB"),
                                                 (85_899_345_920, "GB", "85.9 GB"), (70_272, "GB", "70.3 kB"),
                                                 (10.5, "GiB", "10.5 B"), (10**15, "GB", "1.00 PB")])  # fmt: skip
def test_units(n: float, unit: str, text: str) -> None:
    assert kv.size_text(n, unit) == text


def test_the_curve_is_the_formula_and_small() -> None:
    models = [(name, shipped(name)) for name in ("deepseek-v3", "gemma-3-27b-text")]
    setting = Setting(context=3000, batch=2)
    blob = kv.context_payload(models, setting, unit="GB", limit=(80 * 10**9, "80 GB"))
    meta, arrays = unpack(blob)
    assert [line["name"] for line in meta["lines"]] == ["deepseek-v3", "gemma-3-27b-text"]
    assert meta["limits"] == [[80.0, "80 GB"]]
    assert len(blob) < 4000
    for (_, cfg), x, y in zip(models, arrays[::2], arrays[1::2], strict=True):
        assert x[-1] == 2**20
        expected = [sum(kv_cache_bytes(cfg, context=int(at), batch=2)) / 1e9 for at in x]
        np.testing.assert_allclose(y, expected)


def test_what_fits_is_the_most_that_fits() -> None:
    """One token or one sequence more would not fit; with the weights alone too large nothing does."""
    cfg = shipped("llama-3.1-8b")
    setting = Setting(context=8192, batch=4)
    machines = [accelerator("RTX 4090"), custom(memory_gb=10, gb_per_s=1, tflops=None)]
    fit, none = kv.fits(cfg, setting, machines, stored="16 bit", reserve=10)
    assert fit.weights == weight_bytes(cfg, 2)
    assert fit.free == 24 * 10**9 * 90 // 100 - fit.weights
    assert fit.longest is not None
    assert fit.most is not None
    held = [sum(kv_cache_bytes(cfg, context=fit.longest + more, batch=4)) for more in (0, 1)]
    assert held[0] <= fit.free < held[1]
    held = [sum(kv_cache_bytes(cfg, context=8192, batch=fit.most + more)) for more in (0, 1)]
    assert held[0] <= fit.free < held[1]
    assert (none.free < 0, none.longest, none.most) == (True, 0, 0)
    rows = kv.fit_rows([fit, none], "GB")
    assert rows[1][3:] == ["weights do not fit", "–", "–"]
    assert len(kv.fits(cfg, setting, ACCELERATORS, stored="q4_0", reserve=0)) == len(ACCELERATORS)


def test_every_layer_windowed_fits_without_end() -> None:
    cfg = kv_changed.with_window(shipped("llama-3.1-8b"), 1024, 0)
    (fit,) = kv.fits(cfg, Setting(context=512), [accelerator("H100 SXM")], stored="fp8", reserve=0)
    assert fit.longest is None
    assert kv.fit_rows([fit], "GB")[0][4] == "without end"


def test_derivation_says_every_number() -> None:
    cfg, setting = shipped("gemma-3-27b-text"), Setting(context=32_768, batch=4)
    found = derivations.kv_bytes(cfg, context=32_768, **setting.how())
    text = derivation_markdown(found)
    assert r"52 \cdot 4 \cdot 2 \cdot 16 \cdot 128 \cdot 1\,024 \cdot 2$" in text
    assert group(12_482_248_704) in text
    assert found.value == sum(kv_cache_bytes(cfg, context=32_768, batch=4))


def test_a_latent_in_the_place_of_heads() -> None:
    """MLA of rank 512 + 64 in 61 layers is DeepSeek-V3's cache, whatever the heads were; MHA of its 128 heads of 128
    would take 56.9 times as much (as in DeepSeek-V2)."""
    deep = shipped("deepseek-v3")
    grouped = kv_changed.with_heads(deep, None, None)
    assert isinstance(grouped.attention, GroupedQuery)
    assert (grouped.n_kv_heads, grouped.head_dim) == (128, 128)
    ratio = sum(kv_cache_bytes(grouped, context=1)) / sum(kv_cache_bytes(deep, context=1))
    assert ratio == pytest.approx(32_768 / 576)
    again = kv_changed.with_latent(grouped, 512, 64)
    assert kv_cache_bytes(again, context=9) == kv_cache_bytes(deep, context=9)
    assert kv_changed.with_latent(deep, 256, 32).attention.kv_rank == 256  # type: ignore[union-attr]
    small = kv_changed.with_latent(shipped("llama-3.1-8b"), 128, 16)
    assert isinstance(small.attention, Latent)
    assert small.rope is not None
    assert small.rope.rotary_dim == 16


def test_changed_configs() -> None:
    cfg = shipped("gemma-3-27b-text")
    assert kv_changed.without_window(cfg).layer_types == ("full",) * 62
    assert kv_changed.with_window(cfg, 64, 3).layer_types[:6] == ("sliding", "sliding", "full") * 2
    assert kv_changed.with_layers(cfg, 7).layer_types == cfg.layer_types[:7]
    more = kv_changed.with_layers(cfg, 100)
    assert (more.n_layers, more.layer_types[62:]) == (100, cfg.layer_types[:38])
    assert kv_changed.with_layers(shipped("deepseek-v3"), 4).moe_layers == (3,)
    mqa = kv_changed.with_heads(cfg, 1, None)
    assert 16 * sum(kv_cache_bytes(mqa, context=50)) == sum(kv_cache_bytes(cfg, context=50))
    with pytest.raises(ConfigError, match="32 query heads cannot share 12 KV heads"):
        kv_changed.with_heads(cfg, 12, None)


def test_impossible_ranks_are_named() -> None:
    with pytest.raises(InputError, match="tensor_parallel"):
        kv.sizes(shipped("smollm2-135m"), Setting(context=10, ranks=8))


def test_columns_and_rows_agree() -> None:
    cfg = shipped("smollm2-135m")
    for setting in (Setting(context=10), Setting(context=10, batch=4), Setting(context=10, batch=4, ranks=3)):
        rows = kv.model_rows([("a", cfg, kv.sizes(cfg, setting))], setting, "GiB")
        meta, _ = unpack(grid_payload(kv.model_columns(setting), rows, label="x", words=2))
        assert len(meta["columns"]) == len(meta["rows"][0]) == len(meta["marks"])
    assert kv.kind_of(replace(cfg, window=5, layer_types=("sliding",) * 30)).endswith("30 of 30 layers w 5")


def test_lines_keep_their_numbers() -> None:
    blob = lines_payload(
        [Series("a", [1, 2], [3.5, 4.5]), Series("", [1], [2.0], discs=True, said="b")],
        x=Scale("x", ticks=[(1, "one")]),
        y=Scale("y", log=True),
        label="l",
        file="f",
    )
    meta, arrays = unpack(blob)
    assert [line["said"] for line in meta["lines"]] == ["a", "b"]
    assert [array.tolist() for array in arrays] == [[1, 2], [3.5, 4.5], [1], [2]]
    assert meta["x"]["ticks"] == [[1, "one"]]
