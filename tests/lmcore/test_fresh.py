"""Random weights for a config: every family runs, nothing is flat, nothing overflows."""

from __future__ import annotations

import json

import pytest
import torch

from lmcore import presets
from lmcore.cache import KVCache
from lmcore.checkpoint import fresh, load_pretrained
from lmcore.costs import forward_flops
from lmcore.errors import Cancelled, CapacityError, InputError
from lmcore.measure import FlopCount
from lmcore.model import Transformer
from lmcore.presets import Described
from lmcore.trace import Capture

# One shipped config of each family, cut down to what a test can hold; the rest of it stays.
SMALL = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "num_hidden_layers": 4, "n_layer": 4, "n_layers": 4,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "intermediate_size": 96, "ffn_dim": 96,
    "ffn_hidden_size": 256, "moe_intermediate_size": 48, "vocab_size": 128, "head_dim": 16, "n_routed_experts": 8,
    "num_local_experts": 4, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "word_embed_proj_dim": 64, "query_pre_attn_scalar": 16, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
}  # fmt: skip
ONE_OF_EACH = [
    "gpt2", "pythia-70m", "opt-125m", "bloom-176b", "falcon-7b", "mpt-7b", "llama-3.1-8b", "mistral-7b-v0.1",
    "mixtral-8x7b", "qwen2-7b", "qwen3-8b", "qwen3-30b-a3b", "gemma-2b", "gemma-2-2b", "gemma-3-270m", "phi-3-mini-4k",
    "smollm3-3b", "olmo2-7b", "deepseek-v2-lite", "deepseek-v3", "command-r-v01", "glm-4-9b-chat-hf", "gpt-oss-20b",
]  # fmt: skip


def small(name: str) -> Described:
    raw = presets.shipped(name).raw
    cut = {key: value for key, value in SMALL.items() if raw.get(key) is not None}
    cut |= {key: min(raw[key], 2) for key in ("num_key_value_heads",) if key in raw}
    cut |= {key: raw[key][-4:] for key in ("layer_types", "no_rope_layers") if key in raw}
    if raw["model_type"].startswith("deepseek"):
        cut |= {"num_key_value_heads": 4, "head_dim": 8, "q_lora_rank": raw["q_lora_rank"] and 24}
    return presets._described(raw | cut, name)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_random_weights_of_every_family_run_and_say_something(name: str):
    described = small(name)
    loaded = fresh.random_model(described, source=f"config:{name}", dtype="float32", device="cpu")
    assert isinstance(loaded.model, Transformer)
    assert loaded.tokenizer is None
    assert loaded.report.parameter_count == sum(p.numel() for p in loaded.model.parameters())
    output = loaded.model(torch.tensor([[1, 5, 9, 20, 3, 77, 41, 8]]), capture=Capture.of("pattern"))
    assert output.logits.isfinite().all()
    assert 0.05 < output.logits.std() < 30
    assert output.trace is not None
    rows = output.trace.layers[3]["pattern"][0, :, -1]
    assert rows.max() - rows.min() > 0.05


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_flops_of_a_prefill_and_of_a_cached_step_are_counted(name: str):
    """A window that is shorter than the context included: the step reads its keys only."""
    described = small(name)
    cfg = described.config if described.config.window is None else described.config.changed(window=5)
    model = fresh.random_model(described._replace(config=cfg), source=name, dtype="float32", device="cpu").model
    cache = KVCache.empty(cfg, 12)
    for tokens, cached in (([1, 5, 9, 20, 3, 77, 41, 8], 0), ([30], 8), ([2, 4], 9)):
        with FlopCount(model) as counter:
            model(torch.tensor([tokens]), cache=cache, capture=Capture.of("pattern"))
        formula = forward_flops(cfg, tokens=len(tokens), cached=cached)
        assert sum(counter.flops.values()) == sum(formula.values()), (tokens, counter.flops, formula)


def test_every_family_of_the_list_is_there():
    assert {presets.shipped(name).architecture for name in ONE_OF_EACH} == {
        presets.shipped(found.name).architecture for found in presets.PRESETS
    }


def test_the_same_config_gives_the_same_weights_and_the_report_says_random():
    one, two = (fresh.random_model(small("llama-3.1-8b"), source="x", dtype="bfloat16", device="cpu") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))
    assert one.model.dtype is torch.bfloat16
    assert "random" in one.report.assumptions[-1]


def test_the_built_in_model_is_as_it_was():
    """Its numbers are in links and screenshots: a change of the draw must be meant."""
    weights = load_pretrained("builtin", dtype="float32", device="cpu").model.state_dict()
    assert weights["model.embed_tokens.weight"][0, 0].item() == pytest.approx(1.11762202, abs=1e-7)
    assert sum(float(w.double().sum()) for w in weights.values()) == pytest.approx(754.3436, abs=1e-3)


def test_small_ones_only(monkeypatch: pytest.MonkeyPatch):
    assert fresh.comfortable(presets.shipped("gpt2"), dtype="float32", device="cpu")
    assert not fresh.comfortable(presets.shipped("gpt2-xl"), dtype="float32", device="cpu")
    assert not fresh.comfortable(presets.shipped("deepseek-v3"), dtype="bfloat16", device="cpu")
    monkeypatch.setattr(fresh, "available_bytes", lambda device: 4 * 124_439_808 * 4 - 4)
    assert not fresh.comfortable(presets.shipped("gpt2"), dtype="float32", device="cpu")


def test_cancelling_passes_through():
    def stop(done: int, total: int, text: str) -> None:
        if done > total // 2:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        fresh.random_model(small("gpt2"), source="x", dtype="float32", device="cpu", progress=stop)


def test_a_config_without_weights_reports_what_it_is():
    report = fresh.report_of(presets.shipped("deepseek-v3"), source="config:deepseek-v3", dtype="bfloat16")
    assert report.parameter_count == 671_026_404_352
    assert report.tensor_count == 0
    assert "no weights" in report.assumptions[-1]


def test_a_config_is_a_source_like_any_other():
    """What the pages' snippets name can be opened as they say; the same weights as the app's."""
    raw = json.dumps(small("llama-3.1-8b").raw)
    loaded = load_pretrained(f"json:{raw}", dtype="float32", device="cpu")
    again = fresh.random_model(presets.pasted(raw), source="", dtype="float32", device="cpu")
    assert loaded.tokenizer is None
    assert loaded.report.source == f"json:{raw}"
    assert torch.equal(loaded.model.unembedding, again.model.unembedding)
    with pytest.raises(InputError, match="no-such-model"):
        load_pretrained("config:no-such-model")


def test_a_config_over_the_memory_is_refused_before_a_weight_is_drawn():
    with pytest.raises(CapacityError, match="bytes"):
        load_pretrained("config:deepseek-v3", dtype="float32", device="cpu")
