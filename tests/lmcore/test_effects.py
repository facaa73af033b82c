"""Contributions, logit attribution, logit lens, planted test: each against a second derivation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmcore.effects import attribute_logit, contribution_map, logit_lens, planted_scores
from lmcore.errors import InputError
from lmcore.families import config_from_hf
from lmcore.model import Transformer
from lmcore.specs import Norm, Wiring
from lmcore.trace import Capture, Edits
from tests.lmcore.tiny import BASE, hf_llama, ours, refill, tiny_tokens

CAPTURE = Capture.of("pattern", "v", "z", "attn_out", "ffn_out", "resid_post")


def variant(**changes: object) -> Transformer:
    cfg, _ = config_from_hf({"model_type": "llama"} | BASE | {"attention_bias": True})
    model = Transformer(cfg.changed(**changes))
    refill(model)
    return model


MODELS = {
    "pre": lambda: ours(hf_llama("gqa")),
    "biases": lambda: ours(hf_llama("biases")),
    "sandwich": lambda: variant(wiring=Wiring(order="sandwich", residual_scale=0.7)),
    "output": lambda: variant(wiring=Wiring(order="output")),
    "parallel": lambda: variant(wiring=Wiring(parallel=True, shared_norm=True)),
    "layer_norm": lambda: variant(norm=Norm(kind="layer", bias=True), logit_scale=0.3),
    "layer_norm_sandwich": lambda: variant(norm=Norm(kind="layer", bias=True), wiring=Wiring(order="sandwich")),
    "unit_offset": lambda: variant(norm=Norm(unit_offset=True), tied=True),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_parts_of_a_logit_sum_to_it(kind: str) -> None:
    model = MODELS[kind]().double()
    out = model(tiny_tokens(), capture=CAPTURE)
    assert out.trace is not None
    t = {name: np.stack([out.trace.layers[layer][name][0].numpy() for layer in range(3)]) for name in CAPTURE.names}
    parts = attribute_logit(
        model,
        embedding=out.trace.embedding[0, 7].numpy(),
        z=t["z"][:, :, 7],
        attn_out=t["attn_out"][:, 7],
        ffn_out=t["ffn_out"][:, 7],
        resid=t["resid_post"][-1, 7],
        token=41,
    )
    assert parts.logit == pytest.approx(float(out.logits[0, 7, 41]), abs=1e-9)
    assert abs(parts.difference) <= 1e-9
    assert np.abs(parts.heads).max() > 0.01


def test_one_heads_part_is_what_its_ablation_takes_away() -> None:
    """In the last layer nothing reads a head but the FFN: without that FFN, ablating it takes away its own part."""
    model = MODELS["pre"]().double()
    no_ffn = Edits(zero_ffn=frozenset({2}))
    out = model(tiny_tokens(), capture=CAPTURE, edits=no_ffn)
    gone = model(tiny_tokens(), capture=CAPTURE, edits=Edits(zero_ffn=frozenset({2}), zero_heads=frozenset({(2, 1)})))
    assert out.trace is not None
    assert gone.trace is not None
    w = model.model.layers[2].self_attn.o_proj.weight.data[:, 12:24]
    written = out.trace.layers[2]["z"][0, 1, 7] @ w.T
    lost = out.trace.layers[2]["resid_post"][0, 7] - gone.trace.layers[2]["resid_post"][0, 7]
    torch.testing.assert_close(lost, written)


def test_contributions_are_the_lengths_of_what_is_added() -> None:
    model = MODELS["pre"]()
    trace = model(tiny_tokens(), capture=CAPTURE).trace
    assert trace is not None
    pattern, v = trace.layers[1]["pattern"][0], trace.layers[1]["v"][0]
    found = contribution_map(model, 1, pattern.numpy(), v.numpy())
    w = model.model.layers[1].self_attn.o_proj.weight.data
    for head, i, j in [(0, 5, 2), (3, 11, 0), (1, 4, 4)]:
        added = float(pattern[head, i, j]) * (w[:, head * 12 : head * 12 + 12] @ v[head // 2, j])
        assert found[head, i, j] == pytest.approx(float(added.norm()), rel=1e-5)
    assert found[2, 3, 9] == 0


def test_the_last_row_of_the_lens_is_the_output() -> None:
    """The final norm is applied once: applying it twice gives another row."""
    model = MODELS["pre"]()
    out = model(tiny_tokens(), capture=CAPTURE)
    assert out.trace is not None
    states = np.stack([out.trace.layers[layer]["resid_post"][0, 7].numpy() for layer in range(3)])
    lens = logit_lens(model, states, 41)
    probs = out.logits[0, 7].double().softmax(-1)
    assert lens.probs[-1] == pytest.approx(float(probs[41]), rel=1e-4)
    assert lens.top_ids[-1, 0] == int(probs.argmax())
    assert lens.ranks[-1] == int((probs > probs[41]).sum()) + 1
    twice = logit_lens(model, out.trace.final_normed[0, 7:8].numpy(), 41)
    assert abs(twice.probs[0] - lens.probs[-1]) > 1e-4


def test_planted_scores_find_a_head_made_to_look_back() -> None:
    """A head whose weights are put on the previous token by hand scores one there, and others do not."""
    model = MODELS["pre"]()
    plain = planted_scores(model, length=16)
    assert plain.previous.shape == (3, 4)
    pattern = torch.zeros(1, 4, 32, 32)
    pattern[:, :, torch.arange(1, 32), torch.arange(31)] = 1.0
    pattern[:, :, 0, 0] = 1.0
    original = model.forward

    def planted(tokens: torch.Tensor, **arguments: object) -> object:
        return original(tokens, edits=Edits(replace={(1, "pattern"): pattern}), **arguments)

    model.forward = planted  # type: ignore[method-assign]
    found = planted_scores(model, length=16)
    np.testing.assert_allclose(found.previous[1], 1.0)
    np.testing.assert_allclose(found.induction[1], 0.0)
    assert found.previous[0].max() < 0.9


def test_post_norm_models_are_refused() -> None:
    model = variant(wiring=Wiring(order="post"), final_norm=False)
    zeros = np.zeros((3, 48), np.float32)
    with pytest.raises(InputError, match="no sum"):
        attribute_logit(
            model,
            embedding=zeros[0],
            z=np.zeros((3, 4, 12), np.float32),
            attn_out=zeros,
            ffn_out=zeros,
            resid=zeros[0],
            token=1,
        )
