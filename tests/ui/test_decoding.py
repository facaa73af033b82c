"""The plan of a decoding and the run that follows it, without a page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmcore.families import config_from_hf
from lmcore.model import Transformer
from lmcore.sampling import Sampler
from tests.lmcore.tiny import BASE, hf_llama, ours, refill
from ui import decoding, models, prefix_reuse, runs
from ui.decoding import Decoding, Plan

SAMPLER, IDS = Sampler(temperature=1.3, top_k=40), (1, 2, 3, 4, 5, 6)


def opened(model: Transformer, key: str = "tiny") -> Any:
    return SimpleNamespace(model=model, config=model.cfg, key=key, tokenizer=None, dtype="float32")


@pytest.fixture(scope="module")
def model() -> Transformer:
    return ours(hf_llama("gqa"))


@pytest.fixture
def windowed() -> Transformer:
    cfg, _ = config_from_hf({"model_type": "llama"} | BASE)
    model = Transformer(cfg.changed(window=4, layer_types=("sliding",) * 3))
    refill(model)
    return model


def follow(run: Decoding, plan: Plan, sampler: Sampler = SAMPLER, seed: int = 1, **given: Any) -> list[int]:
    run.follow(plan, sampler, seed, **{"for_s": 60.0, "ends": (), **given})
    assert len(run.views) == len(run.steps)
    assert [view.token for view in run.views] == [step.token for step in run.steps]
    return [step.token for step in run.steps]


def fresh(model: Transformer, plan: Plan, **given: Any) -> list[int]:
    return follow(Decoding(opened(model), IDS), plan, **given)


@pytest.mark.parametrize("shared", [7, 8, 20])
def test_a_prompt_that_begins_like_the_one_before_goes_on_from_its_cache(model: Transformer, shared: int) -> None:
    first, other = tuple(range(3, 24)), (*range(3, 3 + shared), 90, 80, 70)
    earlier, run, alone = (Decoding(opened(model), ids) for ids in (first, other, other))
    follow(earlier, Plan(steps=3))
    run.begin_from(earlier)
    assert follow(run, Plan(steps=5)) == follow(alone, Plan(steps=5))
    taken = shared if shared >= prefix_reuse.LEAST else 0
    assert prefix_reuse.reused(run.decoder) == taken
    assert run.steps[0].forward_tokens == len(other) - taken
    assert (f"The {taken} tokens before came from" in prefix_reuse.said(run.decoder)) == bool(taken)
    for step, expected in zip(run.steps, alone.steps, strict=True):
        np.testing.assert_allclose(step.logits, expected.logits, atol=1e-4)
        assert (step.cache_length, step.used_bytes, step.allocated_bytes) == (
            expected.cache_length,
            expected.used_bytes,
            expected.allocated_bytes,
        )
    np.testing.assert_allclose(run.lengths(), alone.lengths(), atol=1e-4)
    assert follow(earlier, Plan(steps=4)) == follow(Decoding(opened(model), first), Plan(steps=4))


def test_a_run_takes_nothing_from_another_model_or_an_evicted_window(model: Transformer, windowed: Transformer) -> None:
    first, other = tuple(range(3, 24)), (*range(3, 15), 90)
    for before, after in ((model, ours(hf_llama("mha"))), (windowed, windowed)):
        earlier, run = Decoding(opened(before), first), Decoding(opened(after), other)
        follow(earlier, Plan())
        run.begin_from(earlier)
        follow(run, Plan())
        assert run.steps[0].forward_tokens == len(other)


def test_whatever_was_done_before_a_plan_gives_the_same_steps(model: Transformer) -> None:
    plan, run = Plan(steps=9), Decoding(opened(model), IDS)
    follow(run, plan)
    plan.to(4)
    follow(run, plan)
    plan.choose(2, 50)
    follow(run, plan)
    plan.to(8)
    assert follow(run, plan) == fresh(model, Plan(steps=8, forced={2: 50}))
    plan.to(0)
    plan.to(6)
    assert follow(run, plan) == fresh(model, Plan(steps=6))


def test_another_sampler_takes_off_the_plan_what_it_takes_back(model: Transformer) -> None:
    greedy = Sampler(temperature=0)
    plan, run = Plan(steps=9), Decoding(opened(model), IDS)
    follow(run, plan)
    left = follow(run, plan, greedy)
    assert plan.steps == len(left) < 9
    assert left == fresh(model, Plan(steps=9), sampler=greedy)[: len(left)]


def test_without_logits_the_steps_run_again_and_come_out_the_same(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "LOGIT_BYTES", 4 * 96 * 2)
    plan, run = Plan(steps=7), Decoding(opened(model), IDS)
    before = follow(run, plan)
    assert [step.logits.size for step in run.steps] == [96, 96, 0, 0, 0, 0, 0]
    plan.choose(4, 50)
    assert follow(run, plan) == [*before[:4], 50]
    left = follow(run, plan, seed=2)
    plan.to(5)
    assert follow(run, plan, seed=2) == fresh(model, Plan(steps=5), seed=2)
    assert len(left) <= 2


def test_key_lengths_are_those_of_the_cache_after_steps_taken_back(model: Transformer) -> None:
    plan, run = Plan(steps=8), Decoding(opened(model), IDS)
    follow(run, plan)
    plan.choose(1, 50)
    plan.to(8)
    follow(run, plan)
    keys = [run.decoder.cache.keys(layer)[0].norm(dim=-1).numpy() for layer in range(3)]
    np.testing.assert_allclose(run.lengths(), np.stack(keys), atol=1e-5)
    assert run.lengths().shape[-1] == len(IDS) + 7


def test_a_windowed_cache_may_be_shorter_than_the_text(windowed: Transformer) -> None:
    plan, run = Plan(steps=6), Decoding(opened(windowed), IDS)
    follow(run, plan)
    assert run.lengths().shape[-1] == 11
    assert np.isnan(run.lengths()[:, :, :2]).all()
    assert np.isfinite(run.lengths()[:, :, 2:]).all()
    plan.to(2)
    follow(run, plan)
    assert run.lengths().shape[-1] == 7
    assert all(fill.calculated_bytes == fill.used_bytes for fill in run.fills())


def test_a_run_ahead_stops_at_the_end_of_the_text_and_a_plain_one_does_not(model: Transformer) -> None:
    tokens = fresh(model, Plan(steps=12))
    end = tokens[3]
    plan = Plan(steps=12, ahead=True)
    assert fresh(model, plan, ends=(end,)) == tokens[: tokens.index(end) + 1]
    assert plan.steps == tokens.index(end) + 1
    assert fresh(model, Plan(steps=12), ends=(end,)) == tokens


def test_a_run_is_brought_on_in_parts(model: Transformer) -> None:
    plan, run = Plan(steps=5), Decoding(opened(model), IDS)
    for count in range(1, 6):
        assert len(follow(run, plan, for_s=0.0)) == count


def test_steps_end_with_the_trained_length() -> None:
    model = ours(hf_llama("gqa"))
    ids = tuple(range(1, 91)) + tuple(range(1, 35))
    run = Decoding(opened(model), ids)
    assert (len(ids), run.capacity, run.room) == (124, 128, 5)
    assert len(follow(run, Plan(steps=50))) == 5
    assert run.decoder.cache.length == 128


def test_address_names_what_is_not_as_at_the_start() -> None:
    plan = Plan()
    assert plan.address == {"decode_steps": None, "decode_forced": None, "decode_branches": None}
    plan.to(8)
    plan.choose(5, 17)
    plan.to(7)
    plan.choose(6, 4)
    plan.unscored = [(1, 2)]
    assert plan.address == {"decode_steps": 7, "decode_forced": "5:17,6:4", "decode_branches": "0_1.2"}
    plan.to(6)
    assert plan.address["decode_forced"] == "5:17"


def test_the_step_run_ahead_is_what_a_press_then_makes_and_no_part_of_the_run(model: Transformer) -> None:
    plan, run = Plan(steps=3), Decoding(opened(model), IDS)
    before = follow(run, plan)
    after = run.ahead(plan)
    assert after is not None
    assert [step.token for step in run.steps] == before
    assert run.lengths().shape[-1] == len(IDS) + 2
    plan.to(4)
    assert follow(run, plan) == fresh(model, Plan(steps=4))
    assert (run.views[-1].token, run.views[-1].time_s) == (after.token, after.time_s)
    keys = [run.decoder.cache.keys(layer)[0].norm(dim=-1).numpy() for layer in range(3)]
    np.testing.assert_allclose(run.lengths(), np.stack(keys), atol=1e-5)


def test_nothing_is_run_ahead_where_it_would_be_in_the_way(model: Transformer) -> None:
    plan, run = Plan(steps=3), Decoding(opened(model), IDS)
    assert run.ahead(plan) is None, "before the first step"
    follow(run, plan)
    with runs.forwarding():
        assert run.ahead(plan) is None, "while another runs"
    plan.playing = True
    assert run.ahead(plan) is None
    plan.stop()
    assert run.ahead(plan) is not None
    plan.to(4)
    assert run.ahead(plan) is None, "on the way to another step"


def test_a_run_goes_with_its_model() -> None:
    model = ours(hf_llama("gqa"))
    mine, other = opened(model, "mine"), opened(model, "other")
    decoding._RUNS.put(("session", "mine"), Decoding(mine, IDS))
    decoding._RUNS.put(("session", "other"), Decoding(other, IDS))
    models._leave(mine)
    assert decoding._RUNS.peek(("session", "mine")) is None
    assert decoding._RUNS.peek(("session", "other")) is not None
    models._leave(other)


def test_runs_are_bounded_by_what_they_can_come_to_hold(model: Transformer) -> None:
    run = Decoding(opened(model), IDS)
    before = run.bytes_held()
    follow(run, Plan(steps=20))
    assert run.bytes_held() == before
    logits = sum(step.logits.nbytes for step in run.steps)
    assert before >= 2 * run.decoder.cache.allocated_bytes + logits, "the cache, and the copy that runs ahead"
