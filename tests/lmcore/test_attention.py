"""Attention: masks, head sharing, softmax, the two paths and windowed caches against second derivations."""

from __future__ import annotations

import itertools

import pytest
import torch

from lmcore.attention import Reads, Scoring, attend, attend_fused, softmax, softmax_unsafe
from lmcore.cache import KVCache
from lmcore.errors import ConfigError
from lmcore.families import config_from_hf
from lmcore.masks import Mask
from lmcore.model import Transformer
from lmcore.trace import NO_EDITS, Capture, Edits, Tap
from tests.lmcore.tiny import BASE, hf_llama, ours, refill, tiny_tokens

TAP = Tap(0, Capture.of("pattern"), NO_EDITS)


def reads(mask: Mask, queries: int, keys: int, kernel: str = "mask") -> Reads:
    return Reads(mask, torch.arange(keys - queries, keys), torch.arange(keys), kernel)


def rule(mask: Mask, i: int, j: int) -> bool:
    """The definition of a mask, cell by cell."""
    ok = True
    if mask.causal:
        ok = j <= i or (i < mask.prefix and j < mask.prefix)
    if mask.window is not None:
        near = i - j < mask.window if mask.causal else abs(i - j) < mask.window
        ok = ok and (near or j < mask.sinks)
    if mask.documents:
        ok = ok and sum(s <= i for s in mask.documents) == sum(s <= j for s in mask.documents)
    return ok


MASKS = [
    Mask(),
    Mask(causal=False),
    Mask(window=3),
    Mask(window=1),
    Mask(window=3, sinks=2),
    Mask(prefix=4),
    Mask(documents=(3, 6)),
    Mask(causal=False, window=2),
    Mask(window=4, documents=(5,), sinks=1),
]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("queries", [1, 4, 9])
def test_mask_is_its_rule_at_any_offset(mask: Mask, queries: int) -> None:
    allowed = reads(mask, queries, 9).allowed
    for i, j in itertools.product(range(queries), range(9)):
        assert bool(allowed[i, j]) == rule(mask, 9 - queries + i, j)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("mask", MASKS)
def test_attend_equals_the_loop(heads: tuple[int, int], mask: Mask) -> None:
    """Row by row, head by head, in float64."""
    h, k = heads
    torch.manual_seed(0)
    q, keys, values = torch.randn(2, h, 5, 8), torch.randn(2, k, 7, 8), torch.randn(2, k, 7, 8)
    r = reads(mask, 5, 7)
    got = attend(q, keys, values, r, Scoring(0.3), TAP)
    want = torch.zeros(2, h, 5, 8, dtype=torch.float64)
    for b, head, i in itertools.product(range(2), range(h), range(5)):
        readable = [j for j in range(7) if rule(mask, 2 + i, j)]
        source = head // (h // k)
        scores = torch.stack([q[b, head, i].double() @ keys[b, source, j].double() * 0.3 for j in readable])
        weights = (scores - scores.max()).exp()
        weights = weights / weights.sum()
        want[b, head, i] = sum(w * values[b, source, j].double() for w, j in zip(weights, readable, strict=True))
    torch.testing.assert_close(got.double(), want, atol=1e-6, rtol=0)
    torch.testing.assert_close(attend_fused(q, keys, values, r, 0.3), got, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("queries", "kernel"), [(7, "causal"), (1, "all")])
def test_kernel_in_a_word_equals_the_mask(queries: int, kernel: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, queries, 8), torch.randn(1, 2, 7, 8), torch.randn(1, 2, 7, 8)
    told = attend_fused(q, k, v, reads(Mask(), queries, 7, kernel), 0.3)
    torch.testing.assert_close(told, attend(q, k, v, reads(Mask(), queries, 7), Scoring(0.3), TAP), atol=1e-6, rtol=0)


def test_a_row_that_may_read_nothing_gives_zeros() -> None:
    """A query at index -1 comes before every key."""
    r = Reads(Mask(), torch.tensor([-1, 2]), torch.arange(3), "mask")
    q, k, v = torch.randn(1, 2, 2, 4), torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    z = attend(q, k, v, r, Scoring(0.5), TAP)
    assert z[:, :, 0].abs().max() == 0
    assert z.isfinite().all()


def test_safe_and_unsafe_softmax() -> None:
    scores = torch.tensor([[[[0.0, 9.0, 12.0]]]])
    torch.testing.assert_close(softmax(scores).sum(), torch.tensor(1.0))
    assert not softmax_unsafe(scores).isfinite().all()
    assert softmax_unsafe(scores - 12).isfinite().all()


def test_mask_after_softmax_breaks_the_row_sums() -> None:
    model = ours(hf_llama("gqa"))
    tokens = tiny_tokens()
    wrong = model(tokens, capture=Capture.of("pattern"), edits=Edits(softmax="mask_after")).trace
    right = model(tokens, capture=Capture.of("pattern")).trace
    assert wrong is not None
    assert right is not None
    assert wrong.layers[0]["pattern"].sum(-1).min() < 0.5
    torch.testing.assert_close(right.layers[0]["pattern"].sum(-1), torch.ones(1, 4, 12), atol=1e-6, rtol=0)


def test_an_impossible_division_names_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"4 .*3"):
        config_from_hf({"model_type": "llama"} | BASE | {"num_key_value_heads": 3})


@pytest.mark.parametrize("chunks", [[12], [1] * 12, [5, 1, 1, 5], [3, 7, 2]])
def test_windowed_cache_equals_one_forward(chunks: list[int]) -> None:
    """Windowed layers keep 4 positions, and the logits are those of a full forward under the same window."""
    cfg, _ = config_from_hf({"model_type": "llama"} | BASE)
    model = Transformer(cfg.changed(window=4, layer_types=("sliding", "full", "sliding")))
    refill(model)
    tokens = tiny_tokens()
    whole = model(tokens, capture=Capture.of("pattern"))
    assert whole.trace is not None
    assert (whole.trace.layers[0]["pattern"][0, 0, 9] > 0).nonzero().flatten().tolist() == [6, 7, 8, 9]
    cache = KVCache.empty(model.cfg, 12)
    parts = [model(part, cache=cache).logits for part in tokens.split(chunks, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole.logits, atol=1e-4, rtol=0)
    unwindowed = Transformer(cfg)
    unwindowed.load_state_dict(model.state_dict())
    assert (unwindowed(tokens).logits - whole.logits).abs().max() > 0.1
