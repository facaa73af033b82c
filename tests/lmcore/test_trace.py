"""The one door: what is recorded, what is put in its place, and that a plain forward is left alone."""

from __future__ import annotations

import threading

import pytest
import torch

from lmcore.errors import CapacityError, ConfigError, InputError
from lmcore.masks import Mask
from lmcore.model import Transformer
from lmcore.shapes import stage_shapes
from lmcore.trace import STAGES, Capture, Edits
from tests.lmcore.tiny import hf_llama, ours, tiny_tokens


@pytest.fixture(scope="module")
def model() -> Transformer:
    return ours(hf_llama("gqa"))


def test_every_stage_has_its_shape_and_follows_from_the_one_before(model: Transformer) -> None:
    trace = model(tiny_tokens(batch=2), capture=Capture.of(*STAGES)).trace
    assert trace is not None
    shapes = stage_shapes(model.cfg, 2, 12, 12)
    assert set(shapes) == set(STAGES)
    for t in trace.layers.values():
        assert {name: tuple(t[name].shape) for name in STAGES} == shapes
        torch.testing.assert_close(t["scores_scaled"], t["scores_raw"] * 12**-0.5)
        grouped = t["rot_k"].repeat_interleave(2, dim=1)
        torch.testing.assert_close(t["scores_raw"], t["rot_q"] @ grouped.mT, atol=1e-4, rtol=1e-4)
        future = torch.ones(12, 12, dtype=torch.bool).triu(1)
        assert bool(t["scores_masked"][..., future].isneginf().all())
        torch.testing.assert_close(t["pattern"], t["scores_masked"].softmax(-1))
        torch.testing.assert_close(t["z"], t["pattern"] @ t["v"].repeat_interleave(2, dim=1), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(t["resid_mid"], t["resid_pre"] + t["attn_out"])
        torch.testing.assert_close(t["resid_post"], t["resid_mid"] + t["ffn_out"])
        torch.testing.assert_close(t["ffn_act"], torch.nn.functional.silu(t["ffn_gate"]) * t["ffn_up"])
    assert torch.equal(trace.layers[1]["resid_pre"], trace.layers[0]["resid_post"])


def test_capturing_one_stage_does_not_change_another(model: Transformer) -> None:
    """Stages nobody keeps are overwritten: keeping any subset must give the same tensors."""
    everything = model(tiny_tokens(), capture=Capture.of(*STAGES)).trace
    assert everything is not None
    for name in STAGES:
        alone = model(tiny_tokens(), capture=Capture.of(name)).trace
        assert alone is not None
        for layer in range(3):
            torch.testing.assert_close(alone.layers[layer][name], everything.layers[layer][name], atol=1e-4, rtol=1e-4)


def test_only_the_layers_asked_for(model: Transformer) -> None:
    trace = model(tiny_tokens(), capture=Capture.of("z", layers=[2, 0])).trace
    assert trace is not None
    assert sorted(trace.layers) == [0, 2]
    with pytest.raises(InputError, match="pattern was not captured"):
        trace.layers[0]["pattern"]


def test_equal_requests_are_equal_keys() -> None:
    assert Capture.of("z", "q", "z", layers=[2, 0]) == Capture.of("q", "z", layers=(0, 2, 2))
    with pytest.raises(ConfigError, match="hook_z"):
        Capture.of("hook_z")


def test_a_trace_over_the_budget_is_refused_with_its_size(model: Transformer) -> None:
    size = 3 * 4 * 12 * 12 * 4
    assert model(tiny_tokens(), capture=Capture.of("pattern", max_bytes=size)).trace is not None
    with pytest.raises(CapacityError, match=f"{size:,} bytes"):
        model(tiny_tokens(), capture=Capture.of("pattern", max_bytes=size - 1))


def test_replacing_a_stage_moves_what_comes_after(model: Transformer) -> None:
    """Patching resid_post of layer 1 from another prompt gives that prompt's logits."""
    first, second = tiny_tokens(seed=1), tiny_tokens(seed=2)
    other = model(second, capture=Capture.of("resid_post"))
    assert other.trace is not None
    patch = {(1, "resid_post"): other.trace.layers[1]["resid_post"]}
    torch.testing.assert_close(model(first, edits=Edits(replace=patch)).logits, other.logits, atol=1e-4, rtol=0)
    assert (model(first).logits - other.logits).abs().max() > 0.1
    with pytest.raises(InputError, match="shape"):
        model(tiny_tokens(5), edits=Edits(replace=patch))


def test_a_replaced_pattern_is_used_and_not_written_to(model: Transformer) -> None:
    """Uniform weights put in place of layer 0's scores; the caller's tensor stays as it was."""
    scores = torch.zeros(1, 4, 12, 12)
    edits = Edits(replace={(0, "scores_raw"): scores})
    trace = model(tiny_tokens(), capture=Capture.of("pattern", layers=[0]), edits=edits).trace
    assert trace is not None
    uniform = torch.ones(12, 12).tril() / torch.arange(1, 13)[:, None]
    torch.testing.assert_close(trace.layers[0]["pattern"][0, 2], uniform)
    assert scores.abs().max() == 0
    assert (model(tiny_tokens(), edits=edits).logits - model(tiny_tokens()).logits).abs().max() > 0.1


def test_ablations_equal_their_second_derivation(model: Transformer) -> None:
    tokens = tiny_tokens()
    plain = model(tokens, capture=Capture.of("z", "resid_pre", "resid_mid")).trace
    assert plain is not None
    without = plain.layers[1]["z"].clone()
    without[:, 3] = 0
    by_patch = model(tokens, edits=Edits(replace={(1, "z"): without})).logits
    torch.testing.assert_close(model(tokens, edits=Edits(zero_heads=frozenset({(1, 3)}))).logits, by_patch)
    skip_ffn = model(tokens, edits=Edits(replace={(0, "resid_post"): plain.layers[0]["resid_mid"]})).logits
    torch.testing.assert_close(model(tokens, edits=Edits(zero_ffn=frozenset({0}))).logits, skip_ffn)
    skip_attention = model(tokens, edits=Edits(replace={(0, "resid_mid"): plain.layers[0]["resid_pre"]})).logits
    torch.testing.assert_close(model(tokens, edits=Edits(zero_attention=frozenset({0}))).logits, skip_attention)


def test_a_mask_tried_on_the_running_model(model: Transformer) -> None:
    """Without a mask the future leaks: an early token's logits depend on a later one; with it they do not."""
    tokens, changed = tiny_tokens(), tiny_tokens()
    changed[0, 11] = (changed[0, 11] + 1) % 96
    torch.testing.assert_close(model(tokens).logits[:, :11], model(changed).logits[:, :11], atol=1e-5, rtol=0)
    leak = Edits(mask=Mask(causal=False))
    assert (model(tokens, edits=leak).logits[:, :11] - model(changed, edits=leak).logits[:, :11]).abs().max() > 0.01


def test_forwards_in_threads_do_not_meet(model: Transformer) -> None:
    """One model, four threads, four prompts: each gets its own trace and logits."""
    prompts = [tiny_tokens(seed=s) for s in range(4)]
    alone = [model(p, capture=Capture.of("pattern")) for p in prompts]
    seen: dict[int, list[torch.Tensor]] = {i: [] for i in range(4)}

    def work(i: int) -> None:
        for _ in range(20):
            trace = model(prompts[i], capture=Capture.of("pattern")).trace
            assert trace is not None
            seen[i].append(trace.layers[2]["pattern"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        expected = alone[i].trace
        assert expected is not None
        assert len(seen[i]) == 20
        assert all(torch.allclose(p, expected.layers[2]["pattern"], atol=1e-6) for p in seen[i])


def test_gradients_are_recorded_in_training_mode_only(model: Transformer) -> None:
    """Training goes through the same forward, also where the attention is written out."""
    trained = ours(hf_llama("gqa"))
    assert not trained(tiny_tokens()).logits.requires_grad
    trained.train()
    written, fused = [], []
    for found, capture in ((written, Capture.of("pattern")), (fused, None)):
        trained.zero_grad()
        trained(tiny_tokens(), capture=capture).logits.square().mean().backward()
        found += [p.grad for p in trained.parameters()]
    assert all(g is not None and bool(g.any()) for g in written)
    for a, b in zip(written, fused, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
