"""The parts of a `ModelConfig`: attention, rotary positions, norms, feed-forward, wiring. Frozen, checked when made."""

from __future__ import annotations

from dataclasses import dataclass

from lmcore.errors import ConfigError

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "gelu_sigmoid", "relu", "relu_squared")
NORMS = ("rms", "layer")
ORDERS = ("pre", "post", "sandwich", "output")


def positive(value: object, name: str, least: int = 1) -> None:
    """Refuse what is no integer of at least `least`, naming the field."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} is {value!r}", expected=f"an integer of at least {least}", where=f"field {name}")


def need(value: str, known: tuple[str, ...], what: str, name: str) -> None:
    """Refuse a word that is not in the list, with the list."""
    if value not in known:
        words = ", ".join(known)
        raise ConfigError(f"{what} {value!r} is not known", expected=f"one of {words}", where=f"field {name}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Norm:
    """RMSNorm or LayerNorm with eps inside the root; `unit_offset` multiplies by 1 + weight (Gemma, Nemotron)."""

    eps: float = 1e-5
    kind: str = "rms"
    bias: bool = False
    unit_offset: bool = False

    def __post_init__(self) -> None:
        need(self.kind, NORMS, "norm", "kind of the norm")
        if not 0 < self.eps < 1:
            raise ConfigError(f"eps is {self.eps!r}", expected="a number between 0 and 1", where="field eps")


@dataclass(frozen=True, kw_only=True, slots=True)
class QKNorm:
    """Norm of q and k, over what: "head", one weight for all heads (Qwen 3); "each", a weight for each head (Cohere);
    "width", the whole projection (OLMo 2); "unit", the root mean square without weights, after RoPE (Llama 4).
    """

    over: str
    norm: Norm

    def __post_init__(self) -> None:
        need(self.over, ("head", "each", "width", "unit"), "q/k norm", "over of qk_norm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """Llama 4 multiplies q of layers without RoPE by `scale * ln(floor((position + 1) / floor) + 1) + 1`."""

    scale: float
    floor: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupedQuery:
    """Attention whose H query heads share K KV heads: MHA is K = H, MQA is K = 1 (Ainslie et al. 2023, GQA).

    `scale` multiplies `q . k`; it is `head_dim ** -0.5` unless the model says otherwise (Vaswani et al. 2017, eq. 1).
    `softcap` c gives c tanh(s / c) of the scaled scores (Gemma 2); `sinks` is a learned logit per head that takes part
    in the softmax and is then dropped (gpt-oss); `clip` bounds q, k and v.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    scale: float
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: QKNorm | None = None
    softcap: float | None = None
    sinks: bool = False
    clip: float | None = None
    tuning: Tuning | None = None

    def __post_init__(self) -> None:
        for name in ("n_heads", "n_kv_heads", "head_dim"):
            positive(getattr(self, name), name)
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

    @property
    def rotary_room(self) -> int:
        """The most dims of a head that RoPE may turn."""
        return self.head_dim

    @property
    def value_dim(self) -> int:
        return self.head_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): keys and values are re-expanded from a latent.

    The cache holds `kv_rank + rope_dim` numbers a position and layer: the latent, normed, and one rotary key shared by
    all heads. q comes through a rank of its own when `q_rank` is given; a head's q is `nope_dim + rope_dim` wide.
    """

    n_heads: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    scale: float
    q_rank: int | None = None
    bias: bool = False
    eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("n_heads", "kv_rank", "nope_dim", "rope_dim", "value_dim"):
            positive(getattr(self, name), name)
        if self.q_rank is not None:
            positive(self.q_rank, "q_rank")
        if not self.scale > 0:
            raise ConfigError(f"scale is {self.scale!r}", expected="a positive number", where="field scale")

    @property
    def n_kv_heads(self) -> int:
        """Every head has keys and values of its own, once expanded."""
        return self.n_heads

    @property
    def head_dim(self) -> int:
        return self.nope_dim + self.rope_dim

    @property
    def group_size(self) -> int:
        return 1

    @property
    def rotary_room(self) -> int:
        return self.rope_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense:
    """Feed-forward sublayer: gated, `down(act(gate x) * up x)` (Shazeer 2020), or plain, `down(act(up x))`.

    With `d_ff` 0 there is none, and no norm before it: the block is attention only (Elhage et al. 2021).
    """

    d_ff: int
    activation: str = "silu"
    gated: bool = True
    bias: bool = False

    def __post_init__(self) -> None:
        positive(self.d_ff, "d_ff", 0)
        need(self.activation, ACTIVATIONS, "activation", "activation")


@dataclass(frozen=True, kw_only=True, slots=True)
class MoE:
    """Mixture of gated experts: a router gives each token `top_k` of `n_experts`, `d_ff` wide each.

    - `score`: "softmax" over all experts before the choice, "softmax_after" over the chosen ones, "sigmoid".
    - `normalise` makes the chosen weights sum to one; `scale` multiplies them; `scale_input` multiplies the experts'
      input instead of their output (Llama 4).
    - `groups`, `top_groups`: experts are chosen from the best groups, ranked by their best expert (`group_rank` "max",
      DeepSeek-V2) or the sum of their best two (`"top2"`, DeepSeek-V3).
    - `choice_bias`: a learned bias that takes part in the choice and not in the weights (DeepSeek-V3).
    - `shared_d_ff`: width of an expert that every token passes; `shared_gate` weights it by a sigmoid (Qwen 2 MoE).
    - `limit`, `alpha`: gpt-oss clamps gate and up and uses `gate sigmoid(alpha gate) (up + 1)`.
    """

    n_experts: int
    top_k: int
    d_ff: int
    activation: str = "silu"
    score: str = "softmax"
    normalise: bool = False
    scale: float = 1.0
    scale_input: bool = False
    groups: int = 1
    top_groups: int = 1
    group_rank: str = "max"
    choice_bias: bool = False
    shared_d_ff: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    bias: bool = False
    limit: float | None = None
    alpha: float = 1.702

    def __post_init__(self) -> None:
        for name in ("n_experts", "top_k", "d_ff", "groups", "top_groups"):
            positive(getattr(self, name), name)
        positive(self.shared_d_ff, "shared_d_ff", 0)
        need(self.activation, ACTIVATIONS, "activation", "activation")
        need(self.score, ("softmax", "softmax_after", "sigmoid"), "router score", "score")
        need(self.group_rank, ("max", "top2"), "group rank", "group_rank")
        if self.top_k > self.n_experts or self.n_experts % self.groups or self.top_groups > self.groups:
            raise ConfigError(
                f"top {self.top_k} of {self.n_experts} experts in {self.groups} groups, {self.top_groups} chosen",
                expected="top_k at most n_experts, groups that divide n_experts, top_groups at most groups",
                where="the moe spec",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Wiring:
    """How a block's two sublayers f meet the residual stream x.

    `order`: "pre" x + f(norm x); "post" norm(x + f x); "sandwich" x + norm(f(norm x)); "output" x + norm(f x).
    `parallel`: both sublayers read the same x, through one norm when `shared_norm`. `residual_scale` multiplies f.
    """

    order: str = "pre"
    parallel: bool = False
    shared_norm: bool = False
    residual_scale: float = 1.0

    def __post_init__(self) -> None:
        need(self.order, ORDERS, "block order", "order of the wiring")

    @property
    def norms_input(self) -> bool:
        return self.order in ("pre", "sandwich")

    @property
    def norms_output(self) -> bool:
        return self.order in ("sandwich", "output", "post")


@dataclass(frozen=True, kw_only=True, slots=True)
class RelativeBias:
    """T5's bias on the scaled scores: one learned number per head and bucket of distance, shared by all layers
    (Raffel et al. 2020, section 2.1); `lmcore.positions.t5_buckets` says which distances share a bucket.
    """

    buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        positive(self.buckets, "buckets of the relative bias", 2)
        positive(self.max_distance, "max_distance of the relative bias", self.buckets // 2 + 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rope:
    """Rotary positions (Su et al. 2021, eq. 15) on the first `rotary_dim` dims of each head, half-split pairing.

    `type` names the entry of `lmcore.rope.FREQUENCIES` that turns the other fields into frequencies; each of them is
    read by the types whose docstring there names it, and None where the file doesn't give it.
    """

    rotary_dim: int
    base: float = 10_000.0
    type: str = "default"
    factor: float = 1.0
    original_max_positions: int | None = None
    max_positions: int | None = None
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    rotated_fraction: float = 1.0

    def __post_init__(self) -> None:
        positive(self.rotary_dim, "rotary_dim")
        if self.rotary_dim % 2:
            raise ConfigError(
                f"rotary_dim is {self.rotary_dim}",
                expected="an even number, since RoPE turns pairs",
                where="field rotary_dim",
            )
        if not 0 < self.base < float("inf"):
            raise ConfigError(f"base is {self.base!r}", expected="a positive number", where="field base")
        if not 1e-9 < self.factor < float("inf"):
            raise ConfigError(f"factor is {self.factor!r}", expected="a positive number", where="field factor of rope")

    @property
    def follows_length(self) -> bool:
        """Whether the frequencies depend on the current length, so that rotated keys cannot be kept."""
        return self.type in ("dynamic", "longrope")
