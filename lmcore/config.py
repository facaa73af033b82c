"""The description of a model: frozen values, no name, device, dtype or path, and no sentinel that means "derive me".

Letters used in every docstring: B batch, T query length, S key length, D d_model, H query heads, K KV heads,
Dh head dim, F d_ff, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lmcore.errors import ConfigError
from lmcore.specs import (
    Dense,
    GroupedQuery,
    Latent,
    MoE,
    Norm,
    QKNorm,
    RelativeBias,
    Rope,
    Tuning,
    Wiring,
    need,
    positive,
)

__all__ = [
    "Dense",
    "GroupedQuery",
    "Latent",
    "MoE",
    "ModelConfig",
    "Norm",
    "QKNorm",
    "RelativeBias",
    "Rope",
    "Tuning",
    "Wiring",
]

PRE_NORM = Wiring()
LAYER_TYPES = ("full", "sliding", "chunked")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """A decoder-only Transformer. `layer_types` has one entry per layer; `window` belongs to the sliding ones.

    - `rope` turns q and k in every layer but `nope_layers`; in sliding layers `local_rope` takes its place if given.
    - `learned_positions`: rows of a learned table added to the embedding, the first `position_offset` of them unused.
    - `sinusoidal`: a fixed table added to the embedding, which has a row for any position.
    - `alibi`: largest exponent of the slopes of ALiBi's bias, when there is one; `relative_bias`: T5's.
    - `chunk` belongs to chunked layers: a query reads its own chunk only (Llama 4).
    - `moe` replaces `ffn` in `moe_layers`.
    - `embedding_scale`, `logit_scale` multiply; `logit_softcap` c gives c tanh(z / c) (Gemma 2).
    """

    vocab_size: int
    d_model: int
    n_layers: int
    max_positions: int
    attention: GroupedQuery | Latent
    ffn: Dense
    norm: Norm
    rope: Rope | None
    tied: bool
    layer_types: tuple[str, ...]
    window: int | None = None
    chunk: int | None = None
    local_rope: Rope | None = None
    nope_layers: tuple[int, ...] = ()
    learned_positions: int | None = None
    position_offset: int = 0
    sinusoidal: bool = False
    alibi: float | None = None
    relative_bias: RelativeBias | None = None
    wiring: Wiring = PRE_NORM
    moe: MoE | None = None
    moe_layers: tuple[int, ...] = ()
    embedding_scale: float = 1.0
    embedding_norm: bool = False
    final_norm: bool = True
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    head_bias: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "n_layers", "max_positions"):
            positive(getattr(self, name), name)
        for name in ("window", "chunk", "learned_positions"):
            if getattr(self, name) is not None:
                positive(getattr(self, name), name)
        if len(self.layer_types) != self.n_layers:
            raise ConfigError(
                f"layer_types has {len(self.layer_types)} entries",
                expected=f"one for each of {self.n_layers} layers",
                where="field layer_types",
            )
        for kind in sorted(set(self.layer_types)):
            need(kind, LAYER_TYPES, "layer type", "layer_types")
        for kind, length in (("sliding", "window"), ("chunked", "chunk")):
            if kind in self.layer_types and getattr(self, length) is None:
                raise ConfigError(
                    f"{kind} layers have no {length}", expected="a count of tokens", where=f"field {length}"
                )
        for rope in (self.rope, self.local_rope):
            if rope is not None and rope.rotary_dim > self.attention.rotary_room:
                raise ConfigError(
                    f"rotary_dim {rope.rotary_dim} is larger than the {self.attention.rotary_room} dims of a head",
                    expected="at most the head dim",
                    where="field rotary_dim",
                )
        if self.sinusoidal and self.d_model % 2:
            raise ConfigError(
                f"sinusoidal positions of width {self.d_model}", expected="an even width", where="field d_model"
            )
        if self.moe_layers and self.moe is None:
            raise ConfigError("moe_layers are given without experts", expected="a moe spec", where="field moe")

    @property
    def n_heads(self) -> int:
        return self.attention.n_heads

    @property
    def n_kv_heads(self) -> int:
        return self.attention.n_kv_heads

    @property
    def head_dim(self) -> int:
        """Dims of a head's q and k."""
        return self.attention.head_dim

    @property
    def d_ff(self) -> int:
        return self.ffn.d_ff

    def window_of(self, layer: int) -> int | None:
        """Keys that a query of this layer may read, its own included; None when all before it."""
        return self.window if self.layer_types[layer] == "sliding" else None

    def rope_of(self, layer: int) -> Rope | None:
        """The rotary spec of this layer, None where it has none."""
        if layer in self.nope_layers:
            return None
        return self.local_rope if self.local_rope is not None and self.layer_types[layer] == "sliding" else self.rope

    def ffn_of(self, layer: int) -> Dense | MoE:
        """The feed-forward spec of this layer."""
        return self.moe if self.moe is not None and layer in self.moe_layers else self.ffn

    def changed(self, **fields: object) -> ModelConfig:
        """A copy with some fields replaced, checked again."""
        return replace(self, **fields)  # type: ignore[arg-type]
