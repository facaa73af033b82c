"""Speculative decoding: the output's distribution is the target's, by enumeration; rounds, drafts, caches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel

from lmcore.decode import Decoder
from lmcore.errors import InputError
from lmcore.model import Transformer
from lmcore.sampling import Sampler
from lmcore.speculative import (
    ACCEPT,
    ModelDraft,
    PromptLookup,
    Proposal,
    SpeculativeDecoder,
    check,
    expected_tokens,
    require_same_tokens,
    residual,
    settle,
)
from lmcore.tokenizer import Tokenizer
from tests.lmcore.tiny import hf_llama, ours, refill, tiny_tokens

V = 3
RNG = np.random.default_rng(0)


def law(seed: int) -> dict[tuple[int, ...], np.ndarray]:
    """A made-up next-token distribution for every text of up to two tokens over a vocabulary of three."""
    random = np.random.default_rng(seed)
    texts = [t for n in range(3) for t in itertools.product(range(V), repeat=n)]
    return {text: random.dirichlet(np.ones(V) * 0.7) for text in texts}


@pytest.mark.parametrize("seed", range(5))
def test_the_first_two_tokens_follow_the_target_exactly(seed: int) -> None:
    """Every draft, every outcome of the acceptance rule, each with its probability: the joint law is p(a) p(b | a)."""
    p, q = law(seed), law(seed + 100)
    joint = np.zeros((V, V))
    for a, b in itertools.product(range(V), repeat=2):
        proposals = [Proposal(a, q[()]), Proposal(b, q[(a,)])]
        target = [p[()], p[(a,)], p[(a, b)]]
        drawn = q[()][a] * q[(a,)][b]
        stays = [min(1.0, target[i][x] / proposals[i].probs[x]) for i, x in enumerate((a, b))]
        # Uniform numbers just inside and outside each acceptance region stand for the whole region.
        for keep in itertools.product((True, False), repeat=2):
            weight = drawn * np.prod([s if k else 1 - s for s, k in zip(stays, keep, strict=True)])
            points = [s * 0.5 if k else (s + 1) / 2 for s, k in zip(stays, keep, strict=True)]
            if weight == 0:
                continue
            checked = check(proposals, target, points)
            count = sum(c.accepted for c in checked)
            assert count == (0 if not keep[0] else 1 if not keep[1] else 2)
            if count == 2:
                joint[a, b] += weight
                continue
            at = len(checked) - 1
            for token, share in enumerate(residual(target[at], proposals[at].probs)):
                if count == 1:
                    joint[a, token] += weight * share
                else:
                    joint[token] += weight * share * p[(token,)]
    np.testing.assert_allclose(joint, [[p[()][a] * p[(a,)][b] for b in range(V)] for a in range(V)], atol=1e-12)


def test_a_wrong_rule_would_be_seen() -> None:
    """Control: keeping every draft gives q, not p."""
    p, q = law(1)[()], law(101)[()]
    kept = sum(q[x] * np.eye(V)[x] for x in range(V))
    assert np.abs(kept - p).max() > 0.05


def test_settle_draws_from_the_residual() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.8, 0.1])
    proposals = [Proposal(1, q)]
    checked = check(proposals, [p, p], [0.9])
    assert not checked[0].accepted
    drawn = [settle(checked, proposals, [p, p], u) for u in np.linspace(0, 0.999, 500)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 500, [0.8, 0, 0.2], atol=0.01)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return ours(hf_llama("gqa"))


@pytest.mark.parametrize("kind", ["lookup", "self", "other", "same"])
def test_greedy_output_is_the_targets(model: Transformer, kind: str) -> None:
    greedy = Sampler(temperature=0)
    prompt = [*tiny_tokens(6)[0].tolist()] * 2
    draft = {
        "lookup": lambda: PromptLookup(96),
        "self": lambda: ModelDraft(model, greedy, 0, depth=2),
        "other": lambda: ModelDraft(ours(hf_llama("mqa")), greedy, 0),
        "same": lambda: ModelDraft(model, greedy, 0),
    }[kind]()
    speculative = SpeculativeDecoder(model, prompt, greedy, draft, most=3)
    while len(speculative.tokens) < len(prompt) + 24:
        speculative.round()
    plain = Decoder(model, prompt, greedy)
    for _ in range(24):
        plain.step()
    assert tuple(speculative.tokens[: len(plain.tokens)]) == plain.tokens
    assert speculative.cache.length == len(speculative.tokens) - 1
    if kind == "same":
        assert all(done.accepted == 3 for done in speculative.rounds)
        assert speculative.tokens_per_pass == 4


def test_sampled_output_has_the_targets_distribution(model: Transformer) -> None:
    """The first token over 600 seeds against the target's own probabilities (four standard deviations)."""
    sampler = Sampler(temperature=1.5, top_k=5)
    prompt = tiny_tokens(6)[0].tolist()
    expected = sampler.distribution(Decoder(model, prompt, sampler).step().logits).probs
    drafter = ours(hf_llama("mqa"))
    q = sampler.distribution(Decoder(drafter, prompt, sampler).step().logits).probs
    assert np.abs(expected - q).max() > 0.1
    counts = np.zeros(96)
    draft = ModelDraft(drafter, sampler, 0)
    for seed in range(600):
        draft.seed = seed
        draft.cache.truncate(0)
        draft.seen = []
        speculative = SpeculativeDecoder(model, prompt, sampler, draft, seed, most=1)
        counts[speculative.round().tokens[0]] += 1
    spread = np.sqrt(expected * (1 - expected) / 600)
    assert (np.abs(counts / 600 - expected) <= 4 * spread + 1e-9).all()


def test_lookup_copies_what_followed() -> None:
    draft = PromptLookup(100, longest=2)
    assert [p.token for p in draft.propose([1, 2, 3, 4, 1, 2], 3)] == [3, 4, 1]
    assert draft.propose([1, 2, 3], 3) == []


def test_nonsense_is_refused(model: Transformer) -> None:
    with pytest.raises(InputError, match="no tokens"):
        SpeculativeDecoder(model, [], Sampler(), PromptLookup(96))
    with pytest.raises(InputError, match="0 drafted"):
        SpeculativeDecoder(model, [1], Sampler(), PromptLookup(96), most=0)


def test_a_round_names_every_draft_and_the_shares_follow_from_the_rounds() -> None:
    model, sampler = ours(hf_llama("gqa")), Sampler(temperature=20.0)
    draft = ModelDraft(model, sampler, 3, depth=1)
    decoder = SpeculativeDecoder(model, tiny_tokens()[0].tolist(), sampler, draft, 3, most=4)
    for _ in range(6):
        done = decoder.round()
        assert len(done.proposed) == 4
        assert done.proposed[: len(done.drafts)] == tuple(seen.token for seen in done.drafts)
    kept, seen = sum(d.accepted for d in decoder.rounds), sum(len(d.drafts) for d in decoder.rounds)
    assert 0 < kept < seen
    assert decoder.acceptance == kept / seen


def test_expected_tokens_are_those_of_independent_drafts() -> None:
    """All outcomes of n drafts that each stay with probability a, counted out."""
    for a, n in ((0.7, 3), (0.2, 5), (1.0, 4), (0.0, 2), (0.5, 0)):
        mean = sum(a**kept * (1 - a if kept < n else 1) * (kept + 1) for kept in range(n + 1))
        assert expected_tokens(a, n) == pytest.approx(mean)


def outcomes(target: Transformer, drafter: Transformer, sampler: Sampler, most: int, monkeypatch: pytest.MonkeyPatch):
    """Every round there can be from the same text, with its probability: each draw of the draft, each acceptance and
    rejection, each draw of the target, on the real models and their caches."""
    trail: list[list[int]] = []
    weights: list[float] = []
    at = [0]

    def branch(options: int) -> int:
        if at[0] == len(trail):
            trail.append([0, options])
        taken = trail[at[0]][0]
        at[0] += 1
        return taken

    def pick(probs: np.ndarray, point: float) -> int:
        there = np.flatnonzero(probs)
        token = int(there[branch(len(there))])
        weights.append(float(probs[token]))
        return token

    def uniform(seed: int, position: int, purpose: int) -> float:
        return [0.0, 1.0][branch(2)] if purpose == ACCEPT else 0.5

    monkeypatch.setattr("lmcore.speculative.pick", pick)
    monkeypatch.setattr("lmcore.speculative.uniform", uniform)
    while True:
        at[0] = 0
        weights.clear()
        decoder = SpeculativeDecoder(target, [0, 1, 2], sampler, ModelDraft(drafter, sampler, 0), most=most)
        done = decoder.round()
        chance = float(np.prod(weights))
        for seen in done.drafts:
            stays = min(1.0, seen.p / seen.q)
            chance *= stays if seen.uniform == 0 else 1 - stays
        # The uniform numbers of drafts that nobody looked at have two branches that come to the same.
        yield done.tokens, chance / 2 ** (len(done.proposed) - len(done.drafts))
        while trail and trail[-1][0] + 1 == trail[-1][1]:
            trail.pop()
        if not trail:
            return
        trail[-1][0] += 1


def small(seed: int, **sizes: int) -> Transformer:
    model = ours(hf_llama("gqa", vocab_size=V, **sizes))
    refill(model, seed)
    return model


@pytest.mark.parametrize("sampler", [Sampler(temperature=3.0), Sampler(temperature=4.0, top_k=2)])
def test_two_tokens_with_a_smaller_model_follow_the_target_exactly(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """p(a) p(b | a), counted out over every round that two real models with caches can have."""
    target = small(1)
    drafter = small(2, hidden_size=16, num_hidden_layers=1, intermediate_size=24)

    def law(model: Transformer, *tokens: int) -> np.ndarray:
        logits = model(torch.tensor([[0, 1, 2, *tokens]])).logits[0, -1].numpy()
        return sampler.distribution(logits).probs

    after = np.stack([law(target, a) for a in range(V)])
    wanted = law(target)[:, None] * after
    unlike = law(drafter)[:, None] * np.stack([law(drafter, a) for a in range(V)])
    assert np.abs(wanted - unlike).max() > 0.05  # control: the draft's own law is another
    joint, total, kept = np.zeros((V, V)), 0.0, set()
    for tokens, chance in outcomes(target, drafter, sampler, 2, monkeypatch):
        total += chance
        kept.add(len(tokens))
        if len(tokens) == 1:
            joint[tokens[0]] += chance * after[tokens[0]]
        else:
            joint[tokens[0], tokens[1]] += chance
    assert kept == {1, 2, 3}
    assert total == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(joint, wanted, atol=1e-5)


def test_a_draft_of_another_vocabulary_is_refused(model: Transformer) -> None:
    other = ours(hf_llama("gqa", vocab_size=95))
    with pytest.raises(InputError, match=r"vocabulary of 95.*of 96"):
        SpeculativeDecoder(model, [1], Sampler(), ModelDraft(other, Sampler(), 0))
    with pytest.raises(InputError, match="vocabulary of 7"):
        SpeculativeDecoder(model, [1], Sampler(), PromptLookup(7))


def test_tokenizers_must_name_every_token_alike() -> None:
    def tokenizer(*words: str) -> Tokenizer:
        return Tokenizer(Backend(WordLevel({word: at for at, word in enumerate(words)}, unk_token=words[0])))

    given = tokenizer("a", "b", "c")
    require_same_tokens(given, tokenizer("a", "b", "c"))
    with pytest.raises(InputError, match="has 2 tokens"):
        require_same_tokens(given, tokenizer("a", "b"))
    with pytest.raises(InputError, match="token 1 is 'c'"):
        require_same_tokens(given, tokenizer("a", "c", "b"))
    with pytest.raises(InputError, match="without a tokenizer"):
        require_same_tokens(given, None)
