"""Parameters, KV bytes and FLOPs by formula against what tensors, caches and PyTorch's counter say."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmcore.cache import KVCache
from lmcore.config import ModelConfig
from lmcore.costs import (
    component_of,
    forward_flops,
    kv_cache_bytes,
    param_counts,
    trace_bytes,
    weight_bytes,
)
from lmcore.errors import InputError
from lmcore.families import config_from_hf
from lmcore.model import Transformer
from lmcore.shapes import param_shapes
from lmcore.trace import Capture
from tests.lmcore.tiny import BASE, LLAMAS, hf_llama, ours, tiny_tokens

SMOLLM2 = {
    "model_type": "llama",
    "vocab_size": 49_152,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "rope_theta": 100_000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
LLAMA2_70B = SMOLLM2 | {
    "vocab_size": 32_000,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28_672,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def config(raw: dict[str, object]) -> ModelConfig:
    return config_from_hf(raw)[0]


def test_published_numbers() -> None:
    """SmolLM2-135M and LLaMA-2 70B (published: 68.98e9 parameters; 10.0 GiB against 80.0 GiB of cache at 32,768)."""
    smol, llama = config(SMOLLM2), config(LLAMA2_70B)
    assert param_counts(smol).total == 134_515_008
    assert sum(kv_cache_bytes(smol, context=1, itemsize=2)) == 23_040
    assert param_counts(llama).total == 68_976_648_192
    assert sum(kv_cache_bytes(llama, context=32_768)) == 10 * 2**30
    as_mha = config(LLAMA2_70B | {"num_key_value_heads": 64})
    assert sum(kv_cache_bytes(as_mha, context=32_768)) == 80 * 2**30


@pytest.mark.parametrize("variant", LLAMAS)
def test_formula_equals_tensors(variant: str) -> None:
    model = ours(hf_llama(variant))
    counted: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        component = component_of(name)
        counted[component] = counted.get(component, 0) + parameter.numel()
    by_formula = param_counts(model.cfg)
    assert counted == {key: n for key in counted if (n := getattr(by_formula, key))}
    assert by_formula.total == sum(counted.values())
    assert weight_bytes(model.cfg, 4) == sum(p.numel() * p.element_size() for p in model.parameters())
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == param_shapes(model.cfg)


@pytest.mark.parametrize(("window", "kinds"), [(None, ("full",) * 3), (5, ("sliding", "full", "sliding"))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cache_bytes_equal_the_cache(window: int | None, kinds: tuple[str, ...], dtype: torch.dtype) -> None:
    """Used bytes at every length and allocated bytes at the capacity, windowed layers included."""
    cfg = config({"model_type": "llama"} | BASE).changed(window=window, layer_types=kinds)
    model = Transformer(cfg).to(dtype)
    cache = KVCache.empty(cfg, 20, dtype=dtype, batch=2)
    assert cache.used_bytes == 0
    assert cache.allocated_bytes == sum(kv_cache_bytes(cfg, context=20, batch=2, itemsize=dtype.itemsize))
    for tokens in tiny_tokens(11, batch=2).split([3, 1, 1, 4, 1, 1], dim=1):
        model(tokens, cache=cache)
        assert cache.used_bytes == sum(kv_cache_bytes(cfg, context=cache.length, batch=2, itemsize=dtype.itemsize))


@pytest.mark.parametrize("variant", ["gqa", "mha", "tied"])
def test_flops_equal_the_counter(variant: str) -> None:
    """By component, with every product written out (the counter sees nothing of the fused kernel on a CPU)."""
    model = ours(hf_llama(variant))
    cache = KVCache.empty(model.cfg, 32)
    model(tiny_tokens(6), cache=cache)
    with FlopCounterMode(display=False) as counter:
        model(tiny_tokens(4), cache=cache, capture=Capture.of("pattern"), logits_to_keep=1)
    flops = forward_flops(model.cfg, tokens=4, cached=6, logits=1)
    assert counter.get_total_flops() == sum(flops.values())
    counts = counter.get_flop_counts()
    ffn = sum(sum(ops.values()) for name, ops in counts.items() if name.endswith(".mlp"))
    attention = sum(sum(ops.values()) for name, ops in counts.items() if name.endswith(".self_attn"))
    assert ffn == flops["ffn"]
    assert attention == flops["projections"] + flops["scores"] + flops["mix"]


def test_trace_bytes_equal_the_trace() -> None:
    model = ours(hf_llama("gqa"))
    capture = Capture.of("pattern", "rot_k", "q", "resid_post", "ffn_act", layers=[0, 2])
    trace = model(tiny_tokens(), capture=capture).trace
    assert trace is not None
    held = sum(layer[name].numel() * 4 for layer in trace.layers.values() for name in capture.names)
    assert held == trace_bytes(model.cfg, capture.names, layers=2, batch=1, queries=12, keys=12, itemsize=4)


@pytest.mark.parametrize("bad", [{"context": -1}, {"context": 1, "itemsize": 0}, {"context": 1, "batch": True}])
def test_nonsense_is_refused_by_name(bad: dict[str, int]) -> None:
    name = list(bad)[-1]
    with pytest.raises(InputError, match=name):
        kv_cache_bytes(config(SMOLLM2), **bad)
