"""Feed-forward sublayers."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lmcore.config import Dense
from lmcore.trace import Tap


def activate(x: Tensor, name: str) -> Tensor:
    """SiLU `x sigmoid(x)`, GELU `x Phi(x)`, its tanh approximation (Hendrycks & Gimpel 2016), or ReLU."""
    if name == "silu":
        return F.silu(x)
    if name == "relu":
        return F.relu(x)
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
