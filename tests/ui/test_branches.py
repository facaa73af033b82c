"""Branches: which are kept, and that a plan made of one gives it again."""

from __future__ import annotations

import math

import pytest

from lmcore.model import Transformer
from lmcore.sampling import Sampler
from tests.lmcore.tiny import hf_llama, ours
from tests.ui.test_decoding import IDS, SAMPLER, follow, opened
from ui import branches
from ui.branches import Branch, kept
from ui.decoding import Decoding, Plan


def branch(*tokens: int) -> Branch:
    return Branch(tokens, tuple(-1.0 for _ in tokens), {}, Sampler(), 0)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return ours(hf_llama("gqa"))


def test_a_branch_takes_the_place_of_its_own_beginning_and_the_oldest_goes() -> None:
    found = kept([], branch(1, 2))
    assert kept(found, branch(1)) == found
    assert kept(found, branch()) == found
    found = kept(found, branch(1, 2, 3))
    assert [b.tokens for b in found] == [(1, 2, 3)]
    for token in range(10, 10 + branches.MOST):
        found = kept(found, branch(token))
    assert len(found) == branches.MOST
    assert found[0].tokens == (10,)


def test_what_is_taken_back_or_chosen_again_can_be_returned_to(model: Transformer) -> None:
    plan, run = Plan(steps=8), Decoding(opened(model), IDS)
    first = follow(run, plan)
    for steps in (7, 6, 5):
        plan.to(steps)
        follow(run, plan)
    assert [b.tokens for b in plan.branches] == [tuple(first)]
    plan.choose(2, 50)
    plan.to(6)
    second = follow(run, plan)
    plan.back_to(plan.branches[0], SAMPLER, 1)
    assert follow(run, plan) == first
    assert tuple(second) in [b.tokens for b in plan.branches]
    other = next(b for b in plan.branches if b.tokens == tuple(second))
    plan.back_to(other, SAMPLER, 1)
    assert follow(run, plan) == second
    assert plan.forced == {2: 50}


def test_another_sampler_leaves_a_branch_that_is_returned_to_by_its_tokens(model: Transformer) -> None:
    plan, run = Plan(steps=8), Decoding(opened(model), IDS)
    first = follow(run, plan)
    greedy = Sampler(temperature=0)
    follow(run, plan, greedy)
    assert [b.tokens for b in plan.branches] == [tuple(first)]
    plan.back_to(plan.branches[0], greedy, 1)
    assert follow(run, plan, greedy) == first


def test_log_probabilities_are_the_models(model: Transformer) -> None:
    run = Decoding(opened(model), IDS)
    follow(run, Plan(steps=4))
    expected = [math.log(Sampler().distribution(step.logits).raw[step.token]) for step in run.steps]
    assert run.branch().log_probs == pytest.approx(expected, rel=1e-5)
