"""A forward that begins at a layer, from the residual stream before it, is the rest of the whole one."""

from __future__ import annotations

import pytest
import torch

from lmcore.model import Transformer
from lmcore.trace import Capture
from tests.lmcore.tiny import hf_llama, ours, refill


@pytest.mark.parametrize("changes", [{}, {"layer_types": ("sliding", "full", "sliding"), "window": 3}])
def test_from_every_layer_on_it_is_the_whole_forward(changes: dict):
    model = Transformer(ours(hf_llama("gqa")).cfg.changed(**changes))
    refill(model)
    tokens = torch.tensor([[5, 6, 7, 6, 5, 9]])
    whole = model.forward(tokens, capture=Capture.of("resid_pre", "pattern"))
    assert whole.trace is not None
    for layer in range(3):
        stream = whole.trace.layers[layer]["resid_pre"]
        rest = model.forward(tokens, capture=Capture.of("pattern"), resume=(layer, stream))
        assert rest.trace is not None
        assert sorted(rest.trace.layers) == list(range(layer, 3))
        torch.testing.assert_close(rest.logits, whole.logits, rtol=0, atol=0)
        torch.testing.assert_close(rest.trace.layers[layer].pattern, whole.trace.layers[layer].pattern, rtol=0, atol=0)
        one = model.forward(tokens, capture=Capture.of("resid_post"), resume=(layer, stream), depth=layer + 1).trace
        assert one is not None
        assert list(one.layers) == [layer]
    other = model.forward(tokens, resume=(1, whole.trace.layers[1]["resid_pre"] + 1))
    assert (other.logits - whole.logits).abs().max() > 1e-4
