"""The quantised cache in a running model: bytes to the last one, what it loses, and that the axis matters."""

from __future__ import annotations

import pytest
import torch

from lmcore.cache import KVCache
from lmcore.config import Latent, ModelConfig, Rope
from lmcore.errors import CapacityError, InputError
from lmcore.fidelity import compare, read_through
from lmcore.formats import Quantised
from lmcore.kv_costs import kv_cache_bytes
from lmcore.model import Transformer
from lmcore.quantise import FP8, How, QuantisedLayer, formats, kivi, quantised_cache, quantised_cache_bytes
from tests.lmcore.tiny import hf_llama, ours, refill, tiny_tokens

TOKENS = tiny_tokens(41)
HOWS = [How(storage, residual) for storage in formats(8).values() for residual in (0, 5)]


@pytest.fixture(scope="module")
def model() -> Transformer:
    return ours(hf_llama("gqa"))


def windowed(cfg: ModelConfig) -> ModelConfig:
    return cfg.changed(window=11, layer_types=("sliding", "full", "sliding"))


@pytest.mark.parametrize("how", HOWS, ids=str)
@pytest.mark.parametrize("chunks", [[41], [17, *[1] * 9, 15]], ids=str)
def test_used_bytes_equal_the_formula(how: How, chunks: list[int], model: Transformer) -> None:
    """At every length, windows included: from the tensors and from the config; and less than what it replaces."""
    sliding = Transformer(windowed(model.cfg))
    sliding.load_state_dict(model.state_dict())
    cache = quantised_cache(sliding.cfg, 41, how, batch=2)
    at_most = cache.allocated_bytes
    for tokens in TOKENS.expand(2, -1).split(chunks, dim=1):
        sliding(tokens, cache=cache)
        assert cache.used_bytes == sum(quantised_cache_bytes(sliding.cfg, how, context=cache.length, batch=2))
        assert cache.allocated_bytes == at_most >= cache.used_bytes
    full = quantised_cache(model.cfg, 41, how)
    model(TOKENS, cache=full)
    assert full.used_bytes == sum(quantised_cache_bytes(model.cfg, how, context=41))
    assert full.used_bytes < sum(kv_cache_bytes(model.cfg, context=41, itemsize=4)) / 1.5


def test_bytes_of_a_group_by_hand(model: Transformer) -> None:
    """2 KV heads of 12 dims, 16 positions of keys in groups of 8, 17 of values: packed codes, scales, least values."""
    how = How(kivi(4, 8))
    keys = 16 * 24 // 2 + 2 * 24 * (2 + 2) + 24 * 4
    values = 17 * 24 // 2 + 17 * 3 * (2 + 2)
    assert quantised_cache_bytes(model.cfg, how, context=17) == (keys + values,) * 3
    layer = quantised_cache(model.cfg, 17, how).layers[0]
    assert isinstance(layer, QuantisedLayer)
    assert {t.dtype for store in layer.stores for t in store.kept} == {torch.uint8, torch.float16}


def test_the_loss_of_each_format(model: Transformer) -> None:
    """Two tokens a forward: 8 bits lose next to nothing, and fewer bits lose more."""
    ids = TOKENS[0].tolist()
    original = read_through(model, ids, KVCache.empty(model.cfg, 41), chunk=2)
    whole = model(TOKENS).logits[0].numpy()
    assert abs(original - whole).max() < 1e-4
    lost = {}
    for name, storage in formats(8).items():
        cache = quantised_cache(model.cfg, 41, How(storage))
        lost[name] = compare(original, read_through(model, ids, cache, chunk=2), ids).divergence
    assert 0 < lost["INT8"] < 1e-3
    assert lost["INT8"] < lost["FP8 e4m3"] < lost["2 bit"]
    assert 10 * lost["INT8"] < lost["INT4"] < lost["2 bit"] / 3


def test_nothing_is_lost_within_the_residual(model: Transformer) -> None:
    cache = quantised_cache(model.cfg, 41, How(kivi(2, 8), residual=41))
    logits = read_through(model, TOKENS[0].tolist(), cache, chunk=3)
    assert abs(logits - model(TOKENS).logits[0].numpy()).max() < 1e-4
    assert cache.used_bytes == sum(kv_cache_bytes(model.cfg, context=41, itemsize=4))


def test_each_number_is_off_by_half_a_scale_at_most(model: Transformer) -> None:
    """What the layer hands back against what it was given, groups of keys along positions, of values along channels."""
    layer = quantised_cache(model.cfg, 40, How(kivi(4, 8))).layers[0]
    k, v = (torch.randn(1, 2, 40, 12, generator=torch.Generator().manual_seed(n)) for n in (0, 1))
    read, _ = layer.append(k, v)
    assert torch.equal(read, k)
    keys = k.transpose(1, 2).flatten(2).unflatten(1, (5, 8))
    values = v.transpose(1, 2).flatten(2).unflatten(2, (3, 8))
    bound = ((keys.amax(2) - keys.amin(2)) / 15 / 2 * 1.01).repeat_interleave(8, 1)
    assert bool(((layer.keys() - k).abs().transpose(1, 2).flatten(2) <= bound).all())
    bound = ((values.amax(3) - values.amin(3)) / 15 / 2 * 1.01).repeat_interleave(8, 2)
    assert bool(((layer.values() - v).abs().transpose(1, 2).flatten(2) <= bound).all())
    assert float((layer.keys() - k).abs().max()) > 0.01


def test_the_wrong_axis_shows_on_keys_with_a_large_channel(model: Transformer) -> None:
    """A channel that is large at every position, as keys have them, spoils the groups that run across channels."""
    k = torch.randn(1, 2, 40, 12, generator=torch.Generator().manual_seed(2))
    k[..., 3] += 50
    errors = []
    for along in ("position", "channel"):
        keys = Quantised(bits=4, group=8, scale_bytes=2, zero_bytes=2, along=along)
        layer = quantised_cache(model.cfg, 40, How((keys, FP8))).layers[0]
        layer.append(k, k)
        errors.append(float((layer.keys() - k).square().mean()))
    assert errors[1] > 20 * errors[0]


def test_growing_forking_and_going_back(model: Transformer) -> None:
    """A growable cache as one that was large enough; a fork of its own; back within the full-precision positions."""
    how = How(kivi(4, 8), residual=4)
    large, small = quantised_cache(model.cfg, 64, how), quantised_cache(model.cfg, 8, how, growable=True)
    for tokens in TOKENS[:, :29].split([6, 1, 22], dim=1):
        a, b = (model(tokens, cache=cache).logits for cache in (large, small))
        assert torch.equal(a, b)
    fork = small.fork()
    again = model(TOKENS[:, 29:], cache=small).logits
    assert (fork.length, fork.used_bytes) == (29, sum(quantised_cache_bytes(model.cfg, how, context=29)))
    assert torch.equal(model(TOKENS[:, 29:], cache=fork).logits, again)
    assert large.can_truncate(28) is False  # a value that was stored in 4 bits would have to be whole again
    with pytest.raises(CapacityError, match="position 20"):
        large.truncate(20)
    large.truncate(0)
    assert large.used_bytes == 0
    whole = quantised_cache(model.cfg, 64, How(kivi(4, 8), residual=30))
    model(TOKENS[:, :29], cache=whole)
    whole.truncate(20)
    assert torch.equal(whole.keys(0), quantised_after(model, 20, How(kivi(4, 8), residual=30)).keys(0))


def quantised_after(model: Transformer, length: int, how: How) -> KVCache:
    cache = quantised_cache(model.cfg, 64, how)
    model(TOKENS[:, :length], cache=cache)
    return cache


def test_latents_can_be_stored_too() -> None:
    mla = Latent(n_heads=4, kv_rank=12, nope_dim=8, rope_dim=4, value_dim=10, scale=0.3)
    model = Transformer(ours(hf_llama("gqa")).cfg.changed(attention=mla, rope=Rope(rotary_dim=4)))
    refill(model)
    how = How(kivi(8, 8))
    cache = quantised_cache(model.cfg, 41, how)
    logits = read_through(model, TOKENS[0].tolist(), cache, chunk=4)
    assert compare(model(TOKENS).logits[0].numpy(), logits, TOKENS[0].tolist()).divergence < 1e-2
    assert cache.used_bytes == sum(quantised_cache_bytes(model.cfg, how, context=41))


def test_formats_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(InputError, match="bits=8, group=32"):
        How((Quantised(bits=8, group=32, scale_bytes=2), FP8))
    with pytest.raises(InputError, match="residual is -1"):
        How((FP8, FP8), residual=-1)
