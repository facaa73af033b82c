"""The decoder: steps, rewinding, forced tokens, capacity, and two of them on one model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmcore.cache import KVCache
from lmcore.costs import kv_cache_bytes
from lmcore.decode import Decoder
from lmcore.errors import CapacityError, InputError
from lmcore.families import config_from_hf
from lmcore.model import Transformer
from lmcore.sampling import Sampler
from lmcore.shapes import cache_shapes
from tests.lmcore.tiny import BASE, hf_llama, ours, refill, tiny_tokens

SAMPLER = Sampler(temperature=1.3, top_k=40)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return ours(hf_llama("gqa"))


def windowed() -> Transformer:
    cfg, _ = config_from_hf({"model_type": "llama"} | BASE)
    model = Transformer(cfg.changed(window=4, layer_types=("sliding",) * 3))
    refill(model)
    return model


def run(decoder: Decoder, n: int) -> list[int]:
    return [decoder.step().token for _ in range(n)]


def test_rewind_and_step_gives_the_same(model: Transformer) -> None:
    decoder = Decoder(model, tiny_tokens()[0].tolist(), SAMPLER, seed=5)
    first = run(decoder, 10)
    logits = decoder.steps[6].logits
    decoder.rewind(3)
    assert decoder.cache.length == decoder.steps[2].cache_length
    assert run(decoder, 7) == first[3:]
    np.testing.assert_allclose(decoder.steps[6].logits, logits, atol=1e-5)
    decoder.rewind(0)
    assert run(decoder, 10) == first


def test_rewind_past_a_window_runs_the_text_again() -> None:
    decoder = Decoder(windowed(), tiny_tokens()[0].tolist(), SAMPLER, seed=5)
    first = run(decoder, 10)
    decoder.rewind(2)
    again = decoder.step()
    assert again.forward_tokens == 14
    assert again.token == first[2]
    assert run(decoder, 7) == first[3:]


def test_steps_account_for_the_cache(model: Transformer) -> None:
    """n new tokens after T leave T + n - 1 in the cache; bytes are the calculator's."""
    decoder = Decoder(model, tiny_tokens()[0].tolist(), SAMPLER)
    for n in range(1, 6):
        step = decoder.step()
        assert step.cache_length == 12 + n - 1
        assert step.position == 12 + n - 1
        assert step.forward_tokens == (12 if n == 1 else 1)
        assert step.used_bytes == sum(kv_cache_bytes(model.cfg, context=step.cache_length, itemsize=4))


def test_chunked_prefill_gives_the_same(model: Transformer) -> None:
    whole = Decoder(model, tiny_tokens()[0].tolist(), SAMPLER, seed=2)
    parts = Decoder(model, tiny_tokens()[0].tolist(), SAMPLER, seed=2, chunk=5)
    assert run(whole, 6) == run(parts, 6)


def test_a_forced_token_is_taken_and_marked(model: Transformer) -> None:
    decoder = Decoder(model, [1, 2, 3], SAMPLER)
    step = decoder.step(force=7)
    assert step.forced
    assert decoder.tokens == (1, 2, 3, 7)
    fresh = Decoder(model, [1, 2, 3, 7], SAMPLER)
    np.testing.assert_allclose(decoder.step().logits, fresh.step().logits, atol=1e-5)


def test_two_decoders_never_meet(model: Transformer) -> None:
    alone = run(Decoder(model, [5, 6], SAMPLER, seed=1), 8)
    one, other = Decoder(model, [5, 6], SAMPLER, seed=1), Decoder(model, [9, 1, 3], SAMPLER, seed=1)
    mixed = []
    for _ in range(8):
        mixed.append(one.step().token)
        other.step()
    assert mixed == alone


def test_a_full_cache_refuses_and_stays_as_it_was(model: Transformer) -> None:
    decoder = Decoder(model, [1, 2, 3], SAMPLER, capacity=4)
    run(decoder, 2)
    before = decoder.cache.keys(0).clone()
    with pytest.raises(CapacityError, match="5 positions do not fit into a cache of 4"):
        decoder.step()
    assert len(decoder.steps) == 2
    assert bool((decoder.cache.keys(0) == before).all())


@pytest.mark.parametrize("kind", ["full", "windowed"])
def test_a_step_run_ahead_is_the_step_that_is_then_made_without_a_forward(
    model: Transformer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking ahead changes nothing; another token, another sampler or seed meanwhile is heeded."""
    used, ids, ran = model if kind == "full" else windowed(), tiny_tokens()[0].tolist(), []
    plain, looking = (Decoder(used, ids, SAMPLER, seed=5) for _ in range(2))
    forward = Transformer.forward
    monkeypatch.setattr(Transformer, "forward", lambda *args, **given: ran.append(1) or forward(*args, **given))
    for _ in range(4):
        expected = plain.step()
        ran.clear()
        before = (looking.tokens, looking.cache.length)
        told, _ = looking.ahead()
        looking.ahead()
        assert (looking.tokens, looking.cache.length) == before
        made = looking.step()
        assert len(ran) == 1
        assert (made.token, made.cache_length) == (expected.token, expected.cache_length)
        assert made.time_s == told.time_s
        np.testing.assert_allclose(made.logits, expected.logits, atol=1e-5)


def test_a_step_run_ahead_is_void_after_another_token(model: Transformer) -> None:
    decoder = Decoder(model, [1, 2, 3], SAMPLER, seed=1)
    run(decoder, 3)
    decoder.ahead()
    decoder.choose(2, 7)
    fresh = Decoder(model, [1, 2, 3], SAMPLER, seed=1)
    run(fresh, 2)
    fresh.step(force=7)
    assert decoder.step().token == fresh.step().token
    decoder.ahead()
    decoder.resample(Sampler(temperature=0), 1)
    assert decoder.ahead()[0].token == int(decoder.ahead()[0].logits.argmax())


def test_growing_keeps_what_was_there(model: Transformer) -> None:
    small = Decoder(model, [1, 2, 3], SAMPLER, seed=4)
    large = Decoder(model, [1, 2, 3], SAMPLER, seed=4, capacity=200)
    assert run(small, 60) == run(large, 60)
    assert small.cache.capacity < 200


def test_forks_are_independent(model: Transformer) -> None:
    decoder = Decoder(model, [1, 2, 3], SAMPLER)
    run(decoder, 2)
    copy = decoder.cache.fork()
    before = copy.keys(1).clone()
    run(decoder, 2)
    assert copy.length == 4
    assert bool((copy.keys(1) == before).all())


def test_an_empty_prompt_and_a_foreign_token_are_refused(model: Transformer) -> None:
    with pytest.raises(InputError, match="no tokens"):
        Decoder(model, [], SAMPLER)
    with pytest.raises(InputError, match="96"):
        Decoder(model, [96], SAMPLER).step()
    with pytest.raises(InputError, match="forced"):
        Decoder(model, [1], SAMPLER).step(force=96)


def test_choosing_again_is_what_forcing_would_have_been_and_runs_nothing(model: Transformer) -> None:
    decoder = Decoder(model, [1, 2, 3], SAMPLER, seed=3)
    run(decoder, 6)
    before = decoder.cache.length
    step = decoder.choose(2, 9)
    assert (step.index, step.token, step.forced, step.forward_tokens) == (2, 9, True, 1)
    assert len(decoder.steps) == 3
    assert decoder.cache.length == before - 3
    fresh = Decoder(model, [1, 2, 3], SAMPLER, seed=3)
    run(fresh, 2)
    fresh.step(force=9)
    assert run(decoder, 4) == run(fresh, 4)
    with pytest.raises(InputError, match="outside the vocabulary"):
        decoder.choose(0, 96)
    with pytest.raises(InputError, match="has not run"):
        decoder.choose(99, 1)


def test_another_sampler_gives_what_it_would_have_given_from_the_start(model: Transformer) -> None:
    """Whatever is left after resampling is the beginning of a fresh run, and going on completes it."""
    for sampler, seed in ((Sampler(temperature=0), 5), (Sampler(temperature=0.4, top_p=0.8), 5), (SAMPLER, 6)):
        decoder = Decoder(model, [1, 2, 3], SAMPLER, seed=5)
        run(decoder, 8)
        decoder.resample(sampler, seed)
        left = [step.token for step in decoder.steps]
        assert left
        fresh = run(Decoder(model, [1, 2, 3], sampler, seed=seed), 8)
        assert left + run(decoder, 8 - len(left)) == fresh


def test_the_same_sampler_takes_nothing_back(model: Transformer) -> None:
    decoder = Decoder(model, [1, 2, 3], SAMPLER, seed=5)
    tokens = run(decoder, 8)
    decoder.resample(SAMPLER, 5)
    assert [step.token for step in decoder.steps] == tokens


def test_a_token_chosen_by_hand_stays_under_another_sampler(model: Transformer) -> None:
    decoder = Decoder(model, [1, 2, 3], Sampler(temperature=0))
    decoder.step(force=7)
    decoder.step()
    decoder.resample(Sampler(temperature=0), 1)
    assert decoder.steps[0].token == 7
    assert len(decoder.steps) == 2


def test_logits_let_go_are_returned_once_and_resampling_goes_back_to_them(model: Transformer) -> None:
    decoder = Decoder(model, [1, 2, 3], Sampler(temperature=0), keep_logits=2)
    steps = [decoder.step() for _ in range(4)]
    assert [step.logits.size for step in steps] == [96] * 4
    assert [step.logits.size for step in decoder.steps] == [96, 96, 0, 0]
    with pytest.raises(InputError, match="let its logits go"):
        decoder.choose(3)
    decoder.resample(Sampler(temperature=0), 1)
    assert len(decoder.steps) == 2
    assert decoder.step().token == steps[2].token


def test_the_repetition_penalty_sees_the_text_so_far(model: Transformer) -> None:
    sampler = Sampler(temperature=0, repetition_penalty=50.0)
    decoder = Decoder(model, [1, 2, 3], sampler)
    tokens = run(decoder, 12)
    assert len(set(tokens) | {1, 2, 3}) == 15
    other = Decoder(model, [1, 2, 3], Sampler(temperature=0))
    run(other, 12)
    other.resample(sampler, 0)
    assert [step.token for step in other.steps] == tokens[: len(other.steps)]


def test_a_watcher_sees_each_distribution_once_and_it_is_the_samplers(model: Transformer) -> None:
    seen: list[tuple[int, int, np.ndarray]] = []
    prompt = tiny_tokens()[0].tolist()
    decoder = Decoder(
        model, prompt, SAMPLER, watch=lambda step, found: seen.append((step.index, step.token, found.probs))
    )
    plain = Decoder(model, prompt, SAMPLER)
    assert run(decoder, 5) == run(plain, 5)
    decoder.choose(3, 50)
    assert [(index, token) for index, token, _ in seen] == [*((s.index, s.token) for s in plain.steps), (3, 50)]
    seen.clear()
    other = Sampler(temperature=1.3, repetition_penalty=1.5)
    decoder.resample(other, 0)
    assert [index for index, _, _ in seen] == list(range(len(decoder.steps)))
    for index, token, probs in seen:
        step = decoder.steps[index]
        assert token == step.token
        expected = other.distribution(step.logits, decoder.tokens[: step.position]).probs
        np.testing.assert_array_equal(probs, expected)


def test_the_cache_grows_along_the_time_axis_only(model: Transformer) -> None:
    """As many heads as positions is the one case in which shapes cannot tell; every other is refused, unstored."""
    cfg = model.cfg
    cache = KVCache.empty(cfg, 8)
    heads, dim = cache_shapes(cfg, 0)["k"]
    right = torch.randn(1, heads, 3, dim)
    wrong = (
        right.transpose(1, 2),
        right.transpose(2, 3),
        right.repeat(2, 1, 1, 1),
        right[0],
    )
    for bad in wrong:
        with pytest.raises(InputError, match="time axis"):
            cache.layers[0].append(bad, bad)
    with pytest.raises(InputError, match="values"):
        cache.layers[0].append(right, right[:, :, :2])
    assert cache.length == 0
    keys, _ = cache.layers[0].append(right, right)
    assert torch.equal(keys, right)
