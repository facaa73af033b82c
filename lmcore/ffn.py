"""Feed-forward sublayers: dense, and mixtures of experts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmcore.specs import Dense, MoE
from lmcore.trace import Tap


def activate(x: Tensor, name: str) -> Tensor:
    """SiLU `x sigmoid(x)`; GELU `x Phi(x)`, its tanh and sigmoid approximations (Hendrycks & Gimpel 2016); ReLU, its
    square (So et al. 2021).
    """
    if name == "silu":
        return F.silu(x)
    if name == "relu":
        return F.relu(x)
    if name == "relu_squared":
        return F.relu(x).square()
    if name == "gelu_sigmoid":
        return x * torch.sigmoid(1.702 * x)
    return F.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")


class FeedForward(nn.Module):
    """Gated: `down(act(gate x) * up x)`, SwiGLU when act is SiLU (Shazeer 2020, eq. 6). Plain: `down(act(up x))`."""

    def __init__(self, d_model: int, spec: Dense) -> None:
        super().__init__()
        if spec.gated:
            self.gate_proj = nn.Linear(d_model, spec.d_ff, bias=spec.bias)
        self.up_proj = nn.Linear(d_model, spec.d_ff, bias=spec.bias)
        self.down_proj = nn.Linear(spec.d_ff, d_model, bias=spec.bias)
        self.spec = spec

    def forward(self, x: Float[Tensor, "B T D"], tap: Tap) -> Float[Tensor, "B T D"]:
        if self.spec.gated:
            gate = tap("ffn_gate", self.gate_proj(x))  # (B, T, F)
            up = tap("ffn_up", self.up_proj(x))
            hidden = tap("ffn_act", activate(gate, self.spec.activation) * up)
        else:
            hidden = tap("ffn_act", activate(tap("ffn_up", self.up_proj(x)), self.spec.activation))
        return tap("ffn_out", self.down_proj(hidden))


class Expert(nn.Module):
    """One gated expert: as `FeedForward`, or with gpt-oss's clamp, `(min(g, c) sigmoid(a g)) (clip(u, c) + 1)`."""

    def __init__(self, d_model: int, spec: MoE, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)
        self.spec = spec

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        gate, up = self.gate_proj(x), self.up_proj(x)
        if self.spec.limit is not None:
            gate, up = gate.clamp(max=self.spec.limit), up.clamp(-self.spec.limit, self.spec.limit)
            return self.down_proj((up + 1) * gate * torch.sigmoid(self.spec.alpha * gate))
        return self.down_proj(activate(gate, self.spec.activation) * up)


class Router(nn.Module):
    """Which experts a token goes to and with what weight, from `softmax` or `sigmoid` of W x (see `MoE`)."""

    e_score_correction_bias: Tensor

    def __init__(self, d_model: int, spec: MoE) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.n_experts, d_model).normal_(0, d_model**-0.5))
        if spec.router_bias:
            self.bias = nn.Parameter(torch.zeros(spec.n_experts))
        if spec.choice_bias:
            # Moved by the load balancing, not by gradients: stored with the weights, but no parameter.
            self.register_buffer("e_score_correction_bias", torch.zeros(spec.n_experts))
        self.spec = spec

    def forward(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
        """Weights and indices of the `top_k` experts of each token, computed in float32."""
        s = self.spec
        logits = F.linear(x.float(), self.weight.float(), self.bias.float() if s.router_bias else None)
        if s.score == "softmax_after":
            best, chosen = logits.topk(s.top_k, dim=-1)
            return best.softmax(-1) * s.scale, chosen
        scores = logits.sigmoid() if s.score == "sigmoid" else logits.softmax(-1)
        ranked = scores + self.e_score_correction_bias.float() if s.choice_bias else scores
        chosen = self._within_groups(ranked).topk(s.top_k, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if s.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * s.scale, chosen

    def _within_groups(self, ranked: Float[Tensor, "N E"]) -> Float[Tensor, "N E"]:
        """Scores with those outside the best groups set to -inf, so that the choice stays within `top_groups`."""
        s = self.spec
        if s.groups == 1:
            return ranked
        grouped = ranked.view(ranked.shape[0], s.groups, -1)
        worth = grouped.topk(2, dim=-1).values.sum(-1) if s.group_rank == "top2" else grouped.amax(-1)
        best = worth.topk(s.top_groups, dim=-1).indices
        kept = torch.zeros_like(worth, dtype=torch.bool).scatter(1, best, True)
        return grouped.masked_fill(~kept[..., None], float("-inf")).flatten(1)


class Mixture(nn.Module):
    """`sum over the chosen experts of weight * expert(x)`, plus the shared expert that every token passes."""

    def __init__(self, d_model: int, spec: MoE) -> None:
        super().__init__()
        self.gate = Router(d_model, spec)
        self.experts = nn.ModuleList(Expert(d_model, spec, spec.d_ff, spec.bias) for _ in range(spec.n_experts))
        if spec.shared_d_ff:
            self.shared_experts = Expert(d_model, spec, spec.shared_d_ff, bias=False)
        if spec.shared_gate:
            self.shared_expert_gate = nn.Linear(d_model, 1, bias=False)
        self.spec = spec

    def forward(self, x: Float[Tensor, "B T D"], tap: Tap) -> Float[Tensor, "B T D"]:
        flat = x.flatten(0, 1)  # (N, D)
        weights, chosen = self.gate(flat)
        weights = weights.to(x.dtype)
        out = torch.zeros_like(flat)
        for index in self._used(chosen):
            token, slot = (chosen == index).nonzero(as_tuple=True)
            weight = weights[token, slot, None]
            if self.spec.scale_input:
                out = out.index_add(0, token, self.experts[index](flat[token] * weight))
            else:
                out = out.index_add(0, token, self.experts[index](flat[token]) * weight)
        if self.spec.shared_d_ff:
            shared = self.shared_experts(flat)
            out = out + (torch.sigmoid(self.shared_expert_gate(flat)) * shared if self.spec.shared_gate else shared)
        return tap("ffn_out", out.view_as(x))

    def _used(self, chosen: Int[Tensor, "N k"]) -> list[int]:
        return chosen.unique().tolist()
