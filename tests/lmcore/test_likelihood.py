"""Loss, rank and likeliest tokens, against PyTorch and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lmcore.likelihood import histogram, logsumexp, predict


def made_up(count: int = 9, vocab: int = 40, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 6, (count, vocab)).astype(np.float32), rng.integers(0, vocab, count).tolist()


def test_loss_rank_and_top_are_what_torch_says() -> None:
    logits, tokens = made_up()
    said = predict(logits, tokens, top=5)
    loss = F.cross_entropy(torch.from_numpy(logits[:-1]).double(), torch.tensor(tokens[1:]), reduction="none")
    np.testing.assert_allclose(said.loss[1:], loss.numpy(), rtol=1e-12)
    top = torch.softmax(torch.from_numpy(logits).double(), -1).topk(5)
    np.testing.assert_array_equal(said.top_ids, top.indices.numpy())
    np.testing.assert_allclose(said.top_probs, top.values.numpy(), rtol=1e-12)
    order = np.argsort(-logits[:-1], axis=1).tolist()
    assert said.rank[1:].tolist() == [1 + row.index(token) for row, token in zip(order, tokens[1:], strict=True)]
    assert said.perplexity == pytest.approx(float(loss.mean().exp()))


def test_nothing_predicts_position_0() -> None:
    logits, tokens = made_up(1)
    said = predict(logits, tokens)
    assert np.isnan(said.loss).all()
    assert said.rank.tolist() == [0]
    assert np.isnan(said.perplexity)
    assert said.top_ids.shape == (1, 10)


def test_logsumexp_does_not_overflow_and_equal_logits_rank_first() -> None:
    logits = np.full((2, 8), 3e4, np.float32)
    np.testing.assert_allclose(logsumexp(logits), 3e4 + np.log(8))
    said = predict(logits, [1, 7], top=3)
    assert said.rank[1] == 1
    assert said.top_ids[0].tolist() == [0, 1, 2] or len(set(said.top_ids[0].tolist())) == 3


def test_histogram_counts_every_entry_once() -> None:
    logits, _ = made_up()
    edges = np.linspace(float(logits.min()), float(logits.max()), 12)
    counts = histogram(logits, edges)
    assert counts.sum(axis=1).tolist() == [40] * 9
    assert counts[0, 0] == (logits[0] < edges[1]).sum()
