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


LEFT = [(7, 8, 9, 255), (7, 8, 1), (7, 8), (0,), (95, 40, 36, 35)]


def test_a_link_gives_the_branches_back() -> None:
    text = branches.to_link(LEFT)
    assert text is not None
    assert branches.from_link(text, vocab_size=256, most_tokens=4) == LEFT
    assert branches.to_link([]) is None
    assert len(branches.to_link([(300_000 + n,) * 128 for n in range(branches.MOST)]) or "") <= branches.LINK_CHARS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0_",
        "0_1-",
        "1_1",
        "0_1-2_1",
        "0_1.2.3.4.5",
        "0_74",
        "0_-1",
        "0_1_1",
        "0_A",
        "0_¹",
        "0_1 ",
        "0_1\n",
        "-".join(["0_1"] * (branches.MOST + 1)),
        "0_" + "1." * branches.LINK_CHARS + "1",
    ],
)
def test_a_bad_list_of_branches_is_none(text: str) -> None:
    assert branches.from_link(text, vocab_size=256, most_tokens=4) is None


def test_branches_of_a_link_are_run_once_and_get_the_log_probabilities_they_had(model: Transformer) -> None:
    plan, run = Plan(steps=7), Decoding(opened(model), IDS)
    first = follow(run, plan)
    plan.choose(2, 50)
    plan.to(5)
    follow(run, plan)
    [known] = plan.branches
    linked = Plan(steps=1, unscored=[known.tokens])
    other = Decoding(opened(model), IDS)
    follow(other, linked)
    assert linked.address["decode_branches"] == branches.to_link([known.tokens])
    other.score(linked)
    [found] = linked.branches
    assert found.tokens == tuple(first)
    assert found.log_probs == pytest.approx(known.log_probs, abs=1e-5)
    assert linked.unscored == []
    assert linked.address["decode_branches"] == branches.to_link([known.tokens])
    linked.back_to(found, SAMPLER, 1)
    assert follow(other, linked) == first
