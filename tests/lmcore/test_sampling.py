"""Sampling: each filter against its definition and `transformers`, and draws that depend on seed and position alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from lmcore.errors import InputError
from lmcore.sampling import Sampler, draw, softmax

LOGITS = np.random.default_rng(0).normal(0, 3, 200).astype(np.float32)
HISTORY = [3, 17, int(LOGITS.argmax()), 3, int(LOGITS.argmin())]
SETTINGS = [
    {"temperature": 0.7},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"typical_p": 0.6},
    {"repetition_penalty": 1.4},
    {"repetition_penalty": 1.3, "temperature": 0.9, "top_k": 30, "typical_p": 0.8},
    {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_filters_equal_transformers(settings: dict[str, float]) -> None:
    warpers = {
        "temperature": TemperatureLogitsWarper,
        "top_k": TopKLogitsWarper,
        "top_p": TopPLogitsWarper,
        "min_p": MinPLogitsWarper,
        "typical_p": TypicalLogitsWarper,
        "repetition_penalty": RepetitionPenaltyLogitsProcessor,
    }
    chain = LogitsProcessorList([warpers[name](value) for name, value in settings.items()])
    theirs = chain(torch.tensor([HISTORY]), torch.tensor(LOGITS[None])).softmax(-1)[0].numpy()
    mine = Sampler(**settings).distribution(LOGITS, HISTORY)
    np.testing.assert_allclose(mine.probs, theirs, atol=1e-6)
    assert (theirs > 0).sum() == mine.stages[-1].kept


def test_stages_say_what_they_removed() -> None:
    found = Sampler(top_k=10, top_p=0.5).distribution(LOGITS)
    top = np.sort(softmax(LOGITS))[::-1]
    assert [s.name for s in found.stages] == ["top-k", "top-p"]
    assert found.stages[0].kept == 10
    assert found.stages[0].removed_mass == pytest.approx(top[10:].sum(), abs=1e-9)
    within = top[:10] / top[:10].sum()
    kept = int(np.searchsorted(np.cumsum(within), 0.5) + 1)
    assert found.stages[1].kept == kept
    assert found.stages[1].removed_mass == pytest.approx(within[kept:].sum(), abs=1e-9)


@given(
    arrays(np.float32, st.integers(1, 50), elements=st.floats(-50, 50, width=32)),
    st.floats(0, 5),
    st.integers(0, 60),
    st.floats(0.01, 1),
    st.floats(0, 1),
)
def test_whatever_the_settings_something_is_left(
    logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    found = sampler.distribution(logits)
    assert found.probs.sum() == pytest.approx(1)
    token = sampler.choose(logits, seed=1, position=2)
    assert found.probs[token] > 0


def test_draws_follow_the_distribution_and_the_position() -> None:
    probs = np.array([0.5, 0.0, 0.3, 0.2])
    drawn = [draw(probs, seed=3, position=p) for p in range(4000)]
    share = np.bincount(drawn, minlength=4) / 4000
    assert share[1] == 0
    np.testing.assert_allclose(share, probs, atol=0.03)
    assert drawn == [draw(probs, seed=3, position=p) for p in range(4000)]
    assert drawn != [draw(probs, seed=4, position=p) for p in range(4000)]


def test_greedy_takes_the_largest() -> None:
    assert Sampler(temperature=0).choose(LOGITS, seed=0, position=0) == int(LOGITS.argmax())
    assert Sampler(temperature=0).distribution(LOGITS).probs.max() == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1},
        {"temperature": float("inf")},
        {"top_p": 0},
        {"min_p": 2},
        {"top_k": -1},
        {"typical_p": 0},
        {"repetition_penalty": 0},
    ],
)
def test_nonsense_is_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Sampler(**bad)


def test_logits_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        Sampler().distribution(np.array([0.0, np.nan], dtype=np.float32))


def test_filters_that_sort_only_the_likeliest_keep_what_a_full_sort_keeps() -> None:
    from lmcore.sampling import softmax

    rng = np.random.default_rng(3)
    for scale, top_p in ((0.01, 0.9), (3.0, 0.9), (3.0, 0.999), (6.0, 0.5)):
        probs = softmax((scale * rng.normal(size=4096)).astype(np.float32))
        order = np.argsort(-probs, kind="stable")
        kept = order[np.cumsum(probs[order]) - probs[order] < top_p]
        found = Sampler(top_p=top_p).distribution(np.log(probs).astype(np.float32)).probs
        assert abs(len(np.flatnonzero(found)) - len(kept)) <= 1
        assert set(np.flatnonzero(found)[:5]) <= set(kept)
