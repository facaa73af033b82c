"""What is read off a running model, against the formulas, PyTorch's own counter and plain arithmetic."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmcore.costs import forward_flops, kv_cache_bytes, param_counts
from lmcore.errors import CapacityError
from lmcore.measure import (
    FlopCount,
    counted_flops,
    counted_parameters,
    dot_products,
    mean_cross_entropy,
    measured_pass,
)
from lmcore.trace import Capture
from tests.lmcore.tiny import LLAMAS, hf_llama, ours, tiny_tokens


@pytest.mark.parametrize("variant", LLAMAS)
@pytest.mark.parametrize("count", [1, 7])
def test_counted_flops_equal_the_formula_and_torchs_counter(variant: str, count: int) -> None:
    model = ours(hf_llama(variant))
    tokens = tiny_tokens(count)
    counted, formula = counted_flops(model, tokens[0].tolist()), forward_flops(model.cfg, tokens=count)
    with FlopCounterMode(display=False) as counter:
        model(tokens, capture=Capture.of("pattern"))
    assert sum(counted.values()) == sum(formula.values()) == counter.get_total_flops()
    assert counted["projections"] == formula["projections"]
    assert counted["attention products"] == formula["scores"] + formula["mix"]
    assert counted["ffn"] == formula["ffn"]
    assert counted["logits"] == formula["logits"]


def test_another_thread_that_runs_the_model_is_not_counted() -> None:
    model = ours(hf_llama("gqa"))
    tokens = tiny_tokens(4)
    with FlopCount(model) as counter:
        other = threading.Thread(target=lambda: model(tokens))
        other.start()
        other.join()
    assert counter.flops == {}


def test_pass_measures_the_cache_and_every_attention_row() -> None:
    model = ours(hf_llama("gqa"))
    found = measured_pass(model, tiny_tokens(9)[0].tolist())
    assert found.cache_used_bytes == sum(kv_cache_bytes(model.cfg, context=9, itemsize=4))
    assert found.rows == model.cfg.n_layers * model.cfg.n_heads * 9
    assert 1 - 9 * 2**-23 < found.least_row_sum <= found.largest_row_sum < 1 + 9 * 2**-23


def test_pass_over_the_budget_is_refused() -> None:
    with pytest.raises(CapacityError, match="the trace would take"):
        measured_pass(ours(hf_llama("gqa")), [1, 2, 3], max_bytes=10)


def test_parameters_are_counted_by_component() -> None:
    model = ours(hf_llama("mha"))
    counted, formula = counted_parameters(model), param_counts(model.cfg)
    assert sum(counted.values()) == formula.total
    assert all(counted[name] == getattr(formula, name) for name in counted)


@pytest.mark.parametrize("changes", [{}, {"logit_scale": 0.5}, {"logit_softcap": 3.0}])
@pytest.mark.parametrize("variant", ["tied", "gqa"])
def test_dot_products_are_the_logits(variant: str, changes: dict[str, float]) -> None:
    model = ours(hf_llama(variant))
    model.cfg = model.cfg.changed(**changes)
    tokens = tiny_tokens(6)
    output = model(tokens, capture=Capture.of())
    assert output.trace is not None
    assert output.trace.final_normed is not None
    ids = np.array([[3, 5, 8]] * 6)
    normed = output.trace.final_normed[0].numpy()
    found = dot_products(model, normed, ids)
    np.testing.assert_allclose(found.logit, output.logits[0].numpy()[:, [3, 5, 8]], atol=2e-5)
    cosine = found.product / (found.normed_length[:, None] * found.row_length)
    expected = torch.cosine_similarity(
        torch.from_numpy(normed)[:, None], model.unembedding[torch.tensor([3, 5, 8])], -1
    )
    np.testing.assert_allclose(cosine, expected.detach().numpy(), atol=1e-5)


def test_cross_entropy_of_one_token_is_not_a_number() -> None:
    assert np.isnan(mean_cross_entropy(np.zeros((1, 5), np.float32), [2]))
    assert mean_cross_entropy(np.zeros((3, 5), np.float32), [2, 1, 0]) == pytest.approx(np.log(5))
