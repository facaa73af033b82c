"""What autograd keeps of a training forward: the walk through the config against the tensors that are really held.

Each kind of model differs from the first in one thing. Equality is exact, component by component: a forgotten
or doubled tensor shows as its size.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lmcore.checkpoint.load import assemble
from lmcore.config import ModelConfig
from lmcore.errors import CapacityError, InputError
from lmcore.families import config_from_hf
from lmcore.kept import COMPONENTS, kept_bytes
from lmcore.kept_measured import measured_kept_bytes
from lmcore.model import Transformer
from lmcore.specs import ACTIVATIONS, Dense, GroupedQuery, Latent, MoE, Norm, QKNorm, Rope, Tuning, Wiring
from lmcore.traffic import activation_bytes
from tests.lmcore import teaching_models
from tests.lmcore.tiny import refill

PLAIN = config_from_hf(teaching_models.raw("rope"))[0]
assert isinstance(PLAIN.attention, GroupedQuery)
HEADS: GroupedQuery = PLAIN.attention
LATENT = Latent(n_heads=4, kv_rank=12, nope_dim=8, rope_dim=4, value_dim=10, scale=0.3)
LAYER = Norm(kind="layer", bias=True)
MIXED = MoE(n_experts=5, top_k=2, d_ff=24)


def heads(**fields: object) -> ModelConfig:
    return PLAIN.changed(attention=replace(HEADS, **fields))  # type: ignore[arg-type]


def latent(rope: bool = True, **fields: object) -> ModelConfig:
    spec = replace(LATENT, **fields)  # type: ignore[arg-type]
    return PLAIN.changed(attention=spec, rope=Rope(rotary_dim=spec.rope_dim) if rope else None)


def experts(**fields: object) -> ModelConfig:
    return PLAIN.changed(moe=replace(MIXED, **fields), moe_layers=(1,))  # type: ignore[arg-type]


KINDS = {
    **{name: config_from_hf(teaching_models.raw(name))[0] for name in teaching_models.KINDS},
    "MHA": heads(n_kv_heads=4),
    "MQA": heads(n_kv_heads=1),
    "one head": heads(n_heads=1, n_kv_heads=1),
    "biases, clipped": heads(qkv_bias=True, out_bias=True, clip=0.5),
    "soft-capped": heads(softcap=3.0),
    "sinks": heads(sinks=True),
    "partly rotated": PLAIN.changed(rope=Rope(rotary_dim=4)),
    "windows": PLAIN.changed(layer_types=("sliding", "full"), window=4, local_rope=Rope(rotary_dim=8, base=99.0)),
    "chunks, tuned": heads(tuning=Tuning(scale=0.1, floor=4.0)).changed(
        layer_types=("chunked", "full"), chunk=4, nope_layers=(1,)
    ),
    **{f"q/k norm over {over}": heads(qk_norm=QKNorm(over=over, norm=Norm())) for over in ("head", "each", "unit")},
    "q/k LayerNorm": heads(qk_norm=QKNorm(over="width", norm=LAYER)),
    "LayerNorm, 1 + w": PLAIN.changed(norm=replace(LAYER, unit_offset=True)),
    "RMSNorm, 1 + w, scaled": PLAIN.changed(norm=Norm(unit_offset=True), embedding_scale=5.0, logit_softcap=9.0),
    **{f"order {order}": PLAIN.changed(wiring=Wiring(order=order)) for order in ("post", "sandwich", "output")},
    "parallel": PLAIN.changed(wiring=Wiring(parallel=True)),
    "parallel, one LayerNorm": PLAIN.changed(wiring=Wiring(parallel=True, shared_norm=True), norm=LAYER),
    **{f"plain {name}": PLAIN.changed(ffn=Dense(d_ff=40, activation=name, gated=False)) for name in ACTIVATIONS},
    **{f"gated {name}": PLAIN.changed(ffn=Dense(d_ff=40, activation=name)) for name in ("relu", "gelu_sigmoid")},
    "MLA": latent(),
    "MLA, low-rank query, no rotation": latent(rope=False, q_rank=14),
    "MLA, one width": latent(value_dim=12),
    "MLA, one head": latent(n_heads=1),
    "experts": experts(),
    "experts, shared": experts(shared_d_ff=20, shared_gate=True, normalise=True),
    "experts of the best groups": experts(n_experts=6, groups=3, top_groups=2, score="sigmoid", choice_bias=True),
    "experts of groups by two": experts(n_experts=6, groups=2, group_rank="top2", normalise=True),
    "experts, clamped": experts(score="softmax_after", bias=True, router_bias=True, limit=2.0),
    "experts, input scaled": experts(top_k=1, score="sigmoid", scale_input=True),
}


def made(cfg: ModelConfig, dtype: torch.dtype = torch.float32) -> Transformer:
    model = Transformer(cfg)
    refill(model)
    return model.to(dtype)


def ids(count: int) -> list[int]:
    return [(3 + 7 * place) % PLAIN.vocab_size for place in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_formula_equals_what_is_held(kind: str) -> None:
    """In both dtypes; one token and several, one sequence and two, since copies depend on either."""
    cfg = KINDS[kind]
    model = made(cfg)
    for dtype, batch, tokens in ((torch.float32, 2, 9), (torch.float32, 1, 1), (torch.bfloat16, 1, 9)):
        formula = kept_bytes(cfg, tokens=tokens, batch=batch, itemsize=dtype.itemsize)
        assert measured_kept_bytes(model.to(dtype), ids(tokens), batch=batch) == formula, (dtype, batch, tokens)


def test_a_changed_model_keeps_something_else() -> None:
    """The comparison sees a single tensor: another activation keeps one more of T F numbers a layer."""
    relu, silu = (PLAIN.changed(ffn=Dense(d_ff=40, activation=name, gated=False)) for name in ("relu", "silu"))
    more = measured_kept_bytes(made(silu), ids(9))["ffn"] - measured_kept_bytes(made(relu), ids(9))["ffn"]
    assert more == PLAIN.n_layers * 9 * 40 * 4
    assert measured_kept_bytes(made(silu), ids(9)) != kept_bytes(relu, tokens=9)


def test_lmcore_keeps_more_than_the_fused_convention() -> None:
    """By hand for LLaMA's block in float32: a layer and token keep norms 4 D + 2 and the inputs of the two products
    after them 2 D, q, k and v, z twice, H normalisers, and 4 F; the convention 4 D, q, k, v and z, and 3 F."""
    d, f, heads_, kv, dim, t = 32, 48, 4, 2, 8, 9
    found = kept_bytes(PLAIN, tokens=t)
    layers = PLAIN.n_layers
    assert found["norms"] == 4 * t * (layers * (4 * d + 2) + 2 * d + 1)
    qkv, z, angles = (heads_ + 2 * kv) * dim, heads_ * dim, 2 * t * dim // 2
    assert found["attention"] == 4 * (layers * t * (d + qkv + 2 * z + heads_) + angles)
    assert found["ffn"] == 4 * layers * t * (d + 4 * f)
    assert sum(found.values()) > sum(activation_bytes(PLAIN, tokens=t, itemsize=4).values())


def test_the_model_stays_as_it_was() -> None:
    """It runs for others meanwhile: no gradient switched on, no mode changed, no hook left; loaded weights as well."""
    cfg = KINDS["experts"]
    model = assemble(cfg, dict(made(cfg).state_dict()))
    before = model(torch.tensor([ids(5)])).logits.clone()
    measured_kept_bytes(model, ids(5))
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(model(torch.tensor([ids(5)])).logits, before)


def test_too_much_is_refused_with_its_size() -> None:
    model = made(PLAIN)
    size = sum(kept_bytes(PLAIN, tokens=9).values())
    assert sum(measured_kept_bytes(model, ids(9), max_bytes=size).values()) == size
    with pytest.raises(CapacityError, match=f"{size:,} bytes"):
        measured_kept_bytes(model, ids(9), max_bytes=size - 1)
    with pytest.raises(InputError, match="no tokens"):
        measured_kept_bytes(model, [])
    with pytest.raises(InputError, match="argument tokens"):
        kept_bytes(PLAIN, tokens=0)
    assert tuple(kept_bytes(PLAIN, tokens=1)) == COMPONENTS
