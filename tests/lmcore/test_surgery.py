"""KV heads merged and projections cut: against numpy, against models in which nothing is lost, original untouched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lmcore import surgery
from lmcore.config import GroupedQuery, Latent, ModelConfig, Norm, QKNorm, Rope
from lmcore.errors import Cancelled, InputError, NotInModel
from lmcore.fidelity import compare, mean_loss
from lmcore.kv_costs import kv_cache_bytes
from lmcore.model import Transformer
from lmcore.trace import Capture
from tests.lmcore.tiny import hf_llama, ours, refill, tiny_tokens

TOKENS = tiny_tokens(14)


def grouped(cfg: ModelConfig) -> GroupedQuery:
    assert isinstance(cfg.attention, GroupedQuery)
    return cfg.attention


def mha(**changes: object) -> Transformer:
    return ours(hf_llama("mha", **changes))


def rows(model: Transformer, name: str) -> np.ndarray:
    """(heads, Dh, D) of a projection of layer 1."""
    weight = model.state_dict()[f"model.layers.1.self_attn.{name}.weight"].numpy()
    return weight.reshape(-1, model.cfg.head_dim, weight.shape[1])


def test_pooling_is_the_mean_over_neighbours() -> None:
    """By numpy; pooling heads that are not neighbours gives another matrix."""
    model = mha()
    merged = surgery.merge_kv_heads(model, 2)
    assert merged.cfg == model.cfg.changed(attention=replace(grouped(model.cfg), n_kv_heads=2))
    for name in ("k_proj", "v_proj"):
        full = rows(model, name)
        expected = np.stack([(full[0] + full[1]) / 2, (full[2] + full[3]) / 2])
        np.testing.assert_allclose(rows(merged, name), expected, atol=1e-6)
        assert not np.allclose(rows(merged, name), (full[:2] + full[2:]) / 2, atol=1e-3)


@pytest.mark.parametrize("over", ["none", "head", "each", "width"])
def test_merging_equal_heads_changes_nothing(over: str) -> None:
    """Two KV heads and their copies, with biases and each norm of keys; with unequal heads the logits move."""
    a = GroupedQuery(n_heads=8, n_kv_heads=4, head_dim=12, scale=0.3, qkv_bias=True)
    if over != "none":
        a = replace(a, qk_norm=QKNorm(over=over, norm=Norm()))
    model = Transformer(mha().cfg.changed(attention=a))
    refill(model)
    unequal = (model(TOKENS).logits - surgery.merge_kv_heads(model, 2)(TOKENS).logits).abs().max()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if any(part in name for part in ("k_proj", "v_proj", "k_norm")) and tensor.shape[0] in (48, 4):
                tensor.copy_(tensor.unflatten(0, (2, 2, -1))[:, :1].expand(2, 2, -1, *tensor.shape[1:]).flatten(0, 2))
    difference = (model(TOKENS).logits - surgery.merge_kv_heads(model, 2)(TOKENS).logits).abs().max()
    assert difference < 1e-5 * model(TOKENS).logits.abs().max()
    assert unequal > 1e3 * difference


def test_one_head_is_mqa() -> None:
    """Merged to one KV head: the config of an MQA model, a quarter of the cache; and it decodes."""
    model = mha()
    merged = surgery.merge_kv_heads(model, 1)
    assert merged.cfg == ours(hf_llama("mqa")).cfg
    assert 4 * sum(kv_cache_bytes(merged.cfg, context=9)) == sum(kv_cache_bytes(model.cfg, context=9))
    pattern = merged(TOKENS, capture=Capture.of("pattern")).trace
    assert pattern is not None
    assert pattern.layers[0]["pattern"].shape == (1, 4, 14, 14)


def test_the_original_is_bit_equal_and_shared() -> None:
    """Nothing of it changes, and what was not changed takes no memory again."""
    model = mha(tie_word_embeddings=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    factors = surgery.factorise(model)
    for made in (surgery.merge_kv_heads(model, 2), surgery.cut(model, factors, 5)):
        own = 0
        for name, tensor in made.state_dict().items():
            same = tensor.data_ptr() == model.state_dict()[name].data_ptr()
            assert same != ("k_proj" in name or "v_proj" in name), name
            own += 0 if same else tensor.nbytes
        assert 0 < own < 0.25 * sum(tensor.nbytes for tensor in before.values())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("joint", [True, False])
def test_cut_is_the_best_of_its_rank(joint: bool) -> None:
    """By numpy's own SVD; the error falls with the rank, and at full rank the model is as it was."""
    model = mha()
    factors = surgery.factorise(model, joint=joint)
    made = surgery.cut(model, factors, 7)
    both = [rows(model, name).reshape(-1, model.cfg.d_model).astype(float) for name in ("k_proj", "v_proj")]
    cuts = [rows(made, name).reshape(-1, model.cfg.d_model) for name in ("k_proj", "v_proj")]
    if joint:
        both, cuts = [np.concatenate(both)], [np.concatenate(cuts)]
    for whole, found in zip(both, cuts, strict=True):
        assert np.linalg.matrix_rank(found, tol=1e-4) == 7
        u, s, v = np.linalg.svd(whole, full_matrices=False)
        np.testing.assert_allclose(found, (u[:, :7] * s[:7]) @ v[:7], atol=1e-5)
        assert np.square(found - whole).sum() == pytest.approx(np.square(s[7:]).sum(), rel=1e-4)
    logits = model(TOKENS).logits
    gaps = [float((surgery.cut(model, factors, r)(TOKENS).logits - logits).abs().max()) for r in (2, 24, 48)]
    assert factors.full_rank == 48
    assert gaps[0] > gaps[1] > 1e-2
    assert gaps[2] < 1e-4
    assert factors.kept_energy(48) == pytest.approx(1)
    assert factors.kept_energy(7) < factors.kept_energy(8)
    assert factors.numbers(7) == (7 if joint else 14)


def test_latent_bytes_at_full_width_are_the_cache() -> None:
    """As many numbers as keys and values have: the ordinary cache's bytes, windows included."""
    cfg = mha().cfg.changed(window=5, layer_types=("sliding", "full", "sliding"))
    for context in (3, 5, 40):
        both = 2 * cfg.n_kv_heads * cfg.head_dim
        found = surgery.latent_cache_bytes(cfg, both, context=context, batch=2, itemsize=4)
        assert found == sum(kv_cache_bytes(cfg, context=context, batch=2, itemsize=4))


def test_refused_with_the_reason() -> None:
    model = mha()
    with pytest.raises(InputError, match="one of 2, 1"):
        surgery.merge_kv_heads(model, 3)
    with pytest.raises(InputError, match="rank 49"):
        surgery.cut(model, surgery.factorise(model), 49)
    with pytest.raises(NotInModel, match="one KV head"):
        surgery.merge_kv_heads(ours(hf_llama("mqa")), 1)
    mla = Latent(n_heads=4, kv_rank=12, nope_dim=8, rope_dim=4, value_dim=10, scale=0.3)
    latent = Transformer(model.cfg.changed(attention=mla, rope=Rope(rotary_dim=4)))
    with pytest.raises(NotInModel, match="latent"):
        surgery.merge_kv_heads(latent, 1)
    with pytest.raises(NotInModel, match="latent"):
        surgery.factorise(latent)


def test_factorising_can_be_cancelled() -> None:
    def stop(done: int, total: int) -> None:
        if done == 1:
            raise Cancelled(f"at {done} of {total}")

    with pytest.raises(Cancelled, match="1 of 3"):
        surgery.factorise(mha(), progress=stop)


def test_fidelity_by_torch() -> None:
    """KL, agreement and loss against PyTorch's functions; a model against itself loses nothing."""
    model = mha()
    p = model(TOKENS).logits[0]
    q = surgery.merge_kv_heads(model, 1)(TOKENS).logits[0]
    ids = TOKENS[0].tolist()
    found = compare(p.numpy(), q.numpy(), ids)
    expected = torch.nn.functional.kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="batchmean", log_target=True)
    assert found.divergence == pytest.approx(float(expected), rel=1e-4)
    assert found.loss == pytest.approx(float(torch.nn.functional.cross_entropy(q[:-1], TOKENS[0, 1:])), rel=1e-5)
    assert found.agreement == float((p.argmax(-1) == q.argmax(-1)).double().mean())
    same = compare(p.numpy(), p.numpy(), ids)
    assert (same.divergence, same.agreement) == (0, 1)
    assert np.isnan(mean_loss(p[:1].numpy(), ids[:1]))
