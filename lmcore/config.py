"""The description of a model: frozen values, no name, device, dtype or path, and no sentinel that means "derive me".

Letters used in every docstring: B batch, T query length, S key length, D d_model, H query heads, K KV heads,
Dh head dim, F d_ff, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lmcore.errors import ConfigError

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")
LAYER_TYPES = ("full", "sliding")


def _positive(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} is {value!r}", expected="an integer of at least 1", where=f"field {name}")


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupedQuery:
    """Attention whose H query heads share K KV heads: MHA is K = H, MQA is K = 1 (Ainslie et al. 2023, GQA).

    `scale` multiplies `q . k`; it is `head_dim ** -0.5` unless the model says otherwise (Vaswani et al. 2017, eq. 1).
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    scale: float
    qkv_bias: bool = False
    out_bias: bool = False

    def __post_init__(self) -> None:
        for name in ("n_heads", "n_kv_heads", "head_dim"):
            _positive(getattr(self, name), name)
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(
                f"{self.n_heads} query heads cannot share {self.n_kv_heads} KV heads evenly",
                expected="n_heads to be a multiple of n_kv_heads",
                where="fields n_heads and n_kv_heads",
                todo="Choose a divisor of n_heads as the number of KV heads.",
            )
        if not self.scale > 0:
            raise ConfigError(f"scale is {self.scale!r}", expected="a positive number", where="field scale")

    @property
    def group_size(self) -> int:
        """Query heads per KV head, G = H / K; query head h reads KV head h // G."""
        return self.n_heads // self.n_kv_heads


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense:
    """Feed-forward sublayer: gated, `down(act(gate x) * up x)` (Shazeer 2020), or plain, `down(act(up x))`."""

    d_ff: int
    activation: str = "silu"
    gated: bool = True
    bias: bool = False

    def __post_init__(self) -> None:
        _positive(self.d_ff, "d_ff")
        if self.activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation {self.activation!r} is not known",
                expected="one of " + ", ".join(ACTIVATIONS),
                where="field activation",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Norm:
    """RMSNorm (Zhang & Sennrich 2019): `x / sqrt(mean(x^2) + eps) * weight`."""

    eps: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 < self.eps < 1:
            raise ConfigError(f"eps is {self.eps!r}", expected="a number between 0 and 1", where="field eps")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rope:
    """Rotary positions (Su et al. 2021, eq. 15) on the first `rotary_dim` dims of each head, half-split pairing.

    `type` names the entry of `lmcore.rope.FREQUENCIES` that turns the other fields into frequencies.
    """

    rotary_dim: int
    base: float = 10_000.0
    type: str = "default"

    def __post_init__(self) -> None:
        _positive(self.rotary_dim, "rotary_dim")
        if self.rotary_dim % 2:
            raise ConfigError(
                f"rotary_dim is {self.rotary_dim}",
                expected="an even number, since RoPE turns pairs",
                where="field rotary_dim",
            )
        if not self.base > 0:
            raise ConfigError(f"base is {self.base!r}", expected="a positive number", where="field base")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """A decoder-only Transformer. `layer_types` has one entry per layer; `window` belongs to the sliding ones."""

    vocab_size: int
    d_model: int
    n_layers: int
    max_positions: int
    attention: GroupedQuery
    ffn: Dense
    norm: Norm
    rope: Rope | None
    tied: bool
    layer_types: tuple[str, ...]
    window: int | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "n_layers", "max_positions"):
            _positive(getattr(self, name), name)
        if self.window is not None:
            _positive(self.window, "window")
        if len(self.layer_types) != self.n_layers:
            raise ConfigError(
                f"layer_types has {len(self.layer_types)} entries",
                expected=f"one for each of {self.n_layers} layers",
                where="field layer_types",
            )
        unknown = sorted(set(self.layer_types) - set(LAYER_TYPES))
        if unknown:
            raise ConfigError(
                f"layer type {unknown[0]!r} is not known",
                expected="one of " + ", ".join(LAYER_TYPES),
                where="field layer_types",
            )
        if "sliding" in self.layer_types and self.window is None:
            raise ConfigError("sliding layers have no window", expected="a number of tokens", where="field window")
        if self.rope is not None and self.rope.rotary_dim > self.head_dim:
            raise ConfigError(
                f"rotary_dim {self.rope.rotary_dim} is larger than head_dim {self.head_dim}",
                expected="at most the head dim",
                where="field rotary_dim",
            )

    @property
    def n_heads(self) -> int:
        return self.attention.n_heads

    @property
    def n_kv_heads(self) -> int:
        return self.attention.n_kv_heads

    @property
    def head_dim(self) -> int:
        return self.attention.head_dim

    @property
    def d_ff(self) -> int:
        return self.ffn.d_ff

    def window_of(self, layer: int) -> int | None:
        """Keys that a query of this layer may read, its own included; None when all before it."""
        return self.window if self.layer_types[layer] == "sliding" else None

    def changed(self, **fields: object) -> ModelConfig:
        """A copy with some fields replaced, checked again."""
        return replace(self, **fields)  # type: ignore[arg-type]
