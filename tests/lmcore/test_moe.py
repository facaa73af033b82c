"""Mixtures of experts: which expert a token goes to and with what weight, against a loop over tokens and experts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lmcore.errors import ConfigError
from lmcore.ffn import Mixture, Router, activate
from lmcore.specs import MoE
from lmcore.trace import NO_EDITS, Capture, Tap

D, TOKENS = 12, 40
SIZES: dict[str, Any] = {"n_experts": 8, "top_k": 3, "d_ff": 9}
SPECS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "normalised": {"normalise": True},
    "one expert": {"top_k": 1},
    "all experts": {"top_k": 8},
    "softmax after the choice": {"score": "softmax_after"},
    "sigmoid": {"score": "sigmoid"},
    "sigmoid, input scaled": {"score": "sigmoid", "scale_input": True, "top_k": 1},
    "scaled": {"scale": 2.5},
    "best groups by their best expert": {"groups": 4, "top_groups": 2, "group_rank": "max"},
    "best groups by their best two": {
        "groups": 2,
        "top_groups": 1,
        "group_rank": "top2",
        "choice_bias": True,
        "score": "sigmoid",
        "normalise": True,
    },
    "shared": {"shared_d_ff": 10},
    "shared, gated": {"shared_d_ff": 10, "shared_gate": True},
    "clamped": {"limit": 0.8, "bias": True, "router_bias": True, "score": "softmax_after"},
}


def mixture(name: str) -> Mixture:
    layer = Mixture(D, MoE(**SIZES | SPECS[name]))
    random = torch.Generator().manual_seed(3)
    for tensor in (*layer.parameters(), *layer.buffers()):
        scale = 0.3 if tensor.ndim == 1 else tensor.shape[-1] ** -0.5
        tensor.data.copy_(torch.randn(tensor.shape, generator=random) * scale)
    return layer.double().requires_grad_(False)


def x_of(seed: int = 0) -> Tensor:
    return torch.randn(TOKENS, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


def run_expert(expert: Any, spec: MoE, x: Tensor) -> Tensor:
    gate, up = expert.gate_proj(x), expert.up_proj(x)
    if spec.limit is None:
        return expert.down_proj(activate(gate, "silu") * up)
    gate = torch.minimum(gate, torch.tensor(spec.limit))
    up = torch.maximum(torch.minimum(up, torch.tensor(spec.limit)), torch.tensor(-spec.limit))
    return expert.down_proj(gate / (1 + torch.exp(-spec.alpha * gate)) * (up + 1))


def choice(layer: Mixture, x: Tensor) -> dict[int, float]:
    """The experts of one token and their weights, one comparison after the other."""
    s, router = layer.spec, layer.gate
    logits = [float(router.weight[e] @ x) + (float(router.bias[e]) if s.router_bias else 0.0) for e in range(8)]
    raw = torch.tensor(logits, dtype=torch.float64)
    scores = (1 / (1 + torch.exp(-raw)) if s.score == "sigmoid" else raw.softmax(-1)).tolist()
    if s.score == "softmax_after":
        scores = logits
    ranked = [scores[e] + (float(router.e_score_correction_bias[e]) if s.choice_bias else 0.0) for e in range(8)]
    size = 8 // s.groups
    worth = {}
    for g in range(s.groups):
        inside = sorted(ranked[g * size : (g + 1) * size], reverse=True)
        worth[g] = inside[0] if s.group_rank == "max" else sum(inside[:2])
    groups = sorted(worth, key=worth.__getitem__, reverse=True)[: s.top_groups]
    open_to = [e for e in range(8) if e // size in groups]
    chosen = sorted(open_to, key=ranked.__getitem__, reverse=True)[: s.top_k]
    weights = {e: scores[e] for e in chosen}
    if s.score == "softmax_after":
        total = sum(torch.tensor(scores[e]).double().exp().item() for e in chosen)
        weights = {e: torch.tensor(scores[e]).double().exp().item() / total for e in chosen}
    if s.normalise:
        weights = {e: w / sum(weights.values()) for e, w in weights.items()}
    return {e: w * s.scale for e, w in weights.items()}


@pytest.mark.parametrize("name", SPECS)
def test_the_router_chooses_as_a_loop_does(name: str) -> None:
    layer, x = mixture(name), x_of()
    weights, chosen = layer.gate(x)
    for row in range(TOKENS):
        expected = choice(layer, x[row])
        found = dict(zip(chosen[row].tolist(), weights[row].tolist(), strict=True))
        assert found.keys() == expected.keys()
        assert all(found[e] == pytest.approx(expected[e], rel=1e-5) for e in expected)


@pytest.mark.parametrize("name", SPECS)
def test_the_output_is_the_weighted_sum(name: str) -> None:
    layer, x = mixture(name), x_of()
    out = layer(x[None], Tap(0, Capture.of("ffn_out"), NO_EDITS))[0]
    s = layer.spec
    for row in range(TOKENS):
        expected = torch.zeros(D, dtype=torch.float64)
        for e, weight in choice(layer, x[row]).items():
            one = layer.experts[e]
            if s.scale_input:
                expected += run_expert(one, s, x[row] * weight)
            else:
                expected += weight * run_expert(one, s, x[row])
        if s.shared_d_ff:
            shared = layer.shared_experts
            open_ = 1.0
            if s.shared_gate:
                open_ = torch.sigmoid(layer.shared_expert_gate.weight[0] @ x[row])
            plain = shared.down_proj(activate(shared.gate_proj(x[row]), "silu") * shared.up_proj(x[row]))
            expected += open_ * plain
        # Routers work in float32 whatever the model's dtype.
        torch.testing.assert_close(out[row], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_the_bias_moves_the_choice_and_not_the_weights(score: str) -> None:
    router = Router(D, MoE(n_experts=4, top_k=1, d_ff=3, score=score, choice_bias=True))
    x = x_of()[:1].float()
    with torch.no_grad():
        _, first = router(x)
        unliked = (int(first) + 1) % 4
        router.e_score_correction_bias[unliked] = 100.0
        weights, chosen = router(x)
        logits = router.weight @ x[0]
        scores = logits.sigmoid() if score == "sigmoid" else logits.softmax(-1)
    assert int(chosen) == unliked
    assert float(weights) == pytest.approx(float(scores[unliked]), rel=1e-6)


def test_experts_that_nobody_chose_are_not_run() -> None:
    layer, x = mixture("one expert"), x_of()
    _, chosen = layer.gate(x)
    idle = next(e for e in range(8) if not bool((chosen == e).any())) if len(chosen.unique()) < 8 else None
    ran: list[int] = []
    for e, expert in enumerate(layer.experts):
        expert.register_forward_hook(lambda module, args, out, e=e: ran.append(e))
    layer(x[None], Tap(0, None, NO_EDITS))
    assert sorted(ran) == sorted(chosen.unique().tolist())
    assert idle not in ran


@pytest.mark.parametrize(
    "fields", [{"top_k": 9}, {"groups": 3}, {"groups": 2, "top_groups": 3}, {"score": "zorblax"}, {"group_rank": "min"}]
)
def test_specs_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MoE(**SIZES | fields)
