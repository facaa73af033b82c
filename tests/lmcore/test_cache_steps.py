"""The cache read at every step of a greedy run: by the formula, and the run that `generate` would make."""

from __future__ import annotations

import pytest
import torch

from lmcore.cache_steps import cache_steps
from lmcore.errors import Cancelled
from lmcore.kv_costs import kv_cache_bytes
from lmcore.model import Transformer
from tests.lmcore.tiny import hf_llama, ours, tiny_tokens


def test_every_step_is_the_formula() -> None:
    """Used at the length and allocated at the capacity, which doubles; a windowed layer stops growing."""
    base = ours(hf_llama("gqa"))
    cfg = base.cfg.changed(window=6, layer_types=("full", "sliding", "full"))
    model = Transformer(cfg)
    model.load_state_dict(base.state_dict())
    model = model.to(torch.bfloat16)
    steps = cache_steps(model, tiny_tokens(5)[0].tolist(), 9, capacity=4)
    assert [step.length for step in steps] == list(range(5, 15))
    assert [step.tokens for step in steps] == [5] + [1] * 9
    assert sorted({step.capacity for step in steps}) == [8, 16]
    for step in steps:
        assert step.used_bytes == sum(kv_cache_bytes(cfg, context=step.length, itemsize=2))
        assert step.allocated_bytes == sum(kv_cache_bytes(cfg, context=step.capacity, itemsize=2))


def test_it_can_be_cancelled() -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise Cancelled(f"{done} of {total}")

    with pytest.raises(Cancelled, match="2 of 4"):
        cache_steps(ours(hf_llama("gqa")), [1, 2], 3, progress=stop)
