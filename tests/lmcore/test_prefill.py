"""Prefill in chunks and from another text's cache: the numbers of one forward, in float64, and what breaks them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.costs import forward_flops
from lmcore.errors import InputError
from lmcore.families import config_from_hf
from lmcore.measure import FlopCount
from lmcore.model import Transformer
from lmcore.prefill import cache_difference, chunks, common_prefix, hand_over, prefill, reusable, score_bytes
from lmcore.trace import Capture
from tests.lmcore.family_models import VARIANTS, build
from tests.lmcore.tiny import BASE, hf_llama, ours, refill, tiny_tokens

KINDS = ("mha", "gqa", "windowed", "mixed", "mla")
TEXT = tiny_tokens(23)[0].tolist()
NOISE = 1e-6  # the rotary tables are float32; everything else runs in float64 here


def windowed(*layer_types: str) -> Transformer:
    cfg, _ = config_from_hf({"model_type": "llama"} | BASE)
    model = Transformer(cfg.changed(window=4, layer_types=layer_types))
    refill(model)
    return model


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    if request.param == "mla":
        folder = tmp_path_factory.mktemp("mla")
        build(VARIANTS["deepseek_v3"]).save_pretrained(folder)
        made = load_pretrained(Path(folder), dtype="float32", device="cpu").model
    elif request.param == "windowed":
        made = windowed("sliding", "sliding", "sliding")
    elif request.param == "mixed":
        made = windowed("sliding", "full", "sliding")
    else:
        made = ours(hf_llama(request.param))
    return made.double()


def empty(model: Transformer) -> KVCache:
    return KVCache.empty(model.cfg, 64, dtype=model.dtype)


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize("size", [1, 2, 5, 22, 23, 40])
def test_chunks_give_the_logits_and_the_cache_of_one_forward(model: Transformer, size: int) -> None:
    whole, parts = empty(model), empty(model)
    expected = prefill(model, TEXT, cache=whole)
    done = list(chunks(model, TEXT, cache=parts, size=size))
    assert [(chunk.first, chunk.tokens) for chunk in done] == [
        (first, min(size, len(TEXT) - first)) for first in range(0, len(TEXT), size)
    ]
    assert difference(done[-1].logits, expected) < NOISE
    assert cache_difference(whole, parts) < NOISE
    every = model(torch.tensor([TEXT])).logits[0]
    for chunk in done:
        assert difference(chunk.logits, every[chunk.first + chunk.tokens - 1]) < NOISE


def test_chunks_at_the_wrong_positions_would_show(model: Transformer) -> None:
    """Control: every chunk told that it begins at position 0."""
    whole, wrong = empty(model), empty(model)
    expected = logits = prefill(model, TEXT, cache=whole)
    for begin in range(0, len(TEXT), 5):
        part = torch.tensor([TEXT[begin : begin + 5]])
        logits = model(part, positions=torch.arange(part.shape[1]), cache=wrong).logits[0, -1]
    assert difference(logits, expected) > 1e-3
    assert cache_difference(whole, wrong) > 1e-3


def test_the_flops_of_the_chunks_are_those_of_the_formula(model: Transformer) -> None:
    cache, counted = empty(model), []
    for begin in range(0, len(TEXT), 6):
        part = TEXT[begin : begin + 6]
        with FlopCount(model) as counter:
            model(torch.tensor([part]), cache=cache, capture=Capture.of("pattern"), logits_to_keep=1)
        counted.append(sum(counter.flops.values()))
        assert counted[-1] == sum(forward_flops(model.cfg, tokens=len(part), cached=begin, logits=1).values())
    assert len(counted) == 4


def test_the_scores_written_out_have_the_bytes_of_the_formula(model: Transformer) -> None:
    cache = empty(model)
    for begin in range(0, len(TEXT), 6):
        part = torch.tensor([TEXT[begin : begin + 6]])
        trace = model(part, cache=cache, capture=Capture.of("scores_raw")).trace
        assert trace is not None
        widest = max(layer["scores_raw"].nbytes for layer in trace.layers.values())
        assert widest == score_bytes(model.cfg, tokens=part.shape[1], cached=begin, itemsize=8)


@pytest.mark.parametrize("shared", [0, 1, 9, 22, 23])
def test_a_text_that_begins_alike_is_read_from_its_first_other_token_on(model: Transformer, shared: int) -> None:
    other = [*TEXT[:shared], *(token % 90 + 3 for token in TEXT[shared:]), 7, 8]
    other = other if common_prefix(other, TEXT) == shared else other[:shared]
    seen = empty(model)
    prefill(model, TEXT, cache=seen)
    before = seen.length
    cache = reusable(seen, TEXT, other)
    evicted = model.cfg.window is not None and shared < 22  # the window of 4 holds 19 to 22
    assert cache.length == (0 if evicted else min(shared, len(other) - 1))
    fresh = empty(model)
    expected = prefill(model, other, cache=fresh)
    assert difference(prefill(model, other[cache.length :], cache=cache), expected) < NOISE
    assert cache_difference(cache, fresh) < NOISE
    assert seen.length == before


@pytest.mark.parametrize("shared", [0, 1, 9, 22, 23])
@pytest.mark.parametrize("capacity", [25, 80])
def test_a_cache_of_another_size_is_begun_from_one_that_began_alike(
    model: Transformer, shared: int, capacity: int
) -> None:
    other = [*TEXT[:shared], *((token + 1) % 96 for token in TEXT[shared:]), 7, 8][:capacity]
    seen = empty(model)
    prefill(model, TEXT, cache=seen)
    cache, fresh = (KVCache.empty(model.cfg, capacity, dtype=model.dtype) for _ in range(2))
    kept = hand_over(seen, TEXT, cache, other)
    evicted = model.cfg.window is not None and shared < 22
    assert kept == cache.length == (0 if evicted else shared)
    expected = prefill(model, other, cache=fresh)
    assert difference(prefill(model, other[kept:], cache=cache), expected) < NOISE
    assert cache_difference(cache, fresh) < NOISE
    assert cache.allocated_bytes == fresh.allocated_bytes
    assert seen.length == len(TEXT)


def test_a_cache_begun_from_another_beginning_would_show(model: Transformer) -> None:
    """Control: the text of the old cache is given as one that begins like the new one, which it doesn't."""
    other = [*TEXT[:17], (TEXT[17] + 1) % 96, *TEXT[18:], 7]
    seen, wrong, fresh = empty(model), empty(model), empty(model)
    prefill(model, TEXT, cache=seen)
    kept = hand_over(seen, other[:-1], wrong, other)
    assert kept == len(TEXT)
    expected = prefill(model, other, cache=fresh)
    assert difference(prefill(model, other[kept:], cache=wrong), expected) > 1e-3


def test_keys_whose_frequencies_follow_the_length_are_not_handed_over() -> None:
    scaling = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    cfg, _ = config_from_hf(
        {"model_type": "llama"} | BASE | {"rope_parameters": scaling, "max_position_embeddings": 16}
    )
    model = Transformer(cfg)
    refill(model)
    seen = empty(model)
    prefill(model, TEXT, cache=seen)
    assert seen.turned is not None
    assert hand_over(seen, TEXT, empty(model), [*TEXT, 7]) == 0


def test_the_cache_of_another_beginning_would_show(model: Transformer) -> None:
    """Control: a prefix taken for common that differs in a token, five before the last."""
    other = [*TEXT[:17], (TEXT[17] + 1) % 96, *TEXT[18:]]
    assert common_prefix(other, TEXT) == 17
    seen, fresh = empty(model), empty(model)
    prefill(model, TEXT[:-1], cache=seen)
    wrong = prefill(model, other[-1:], cache=seen)
    assert difference(wrong, prefill(model, other, cache=fresh)) > 1e-3


def test_nonsense_is_refused() -> None:
    model = ours(hf_llama("gqa"))
    with pytest.raises(InputError, match="no tokens"):
        prefill(model, [], cache=empty(model))
    with pytest.raises(InputError, match="chunks of 0"):
        prefill(model, [1], cache=empty(model), chunk=0)
    short, long = empty(model), empty(model)
    prefill(model, [1], cache=short)
    prefill(model, [1, 2], cache=long)
    with pytest.raises(InputError, match="layer 0 holds"):
        cache_difference(short, long)
