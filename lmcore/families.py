"""From a file's own spelling to a `ModelConfig`: one field table for config.json, GGUF metadata and the UI's labels.

A key that changes the computation and is not understood is refused; a key on the list of inert ones is let pass; any
other is named in the notes, which the load report shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lmcore.config import Dense, GroupedQuery, ModelConfig, Norm, Rope
from lmcore.errors import ConfigError
from lmcore.specs import ACTIVATIONS


class Field(NamedTuple):
    """One fact of a config under its three spellings; `gguf` follows the architecture name and a dot."""

    ours: str
    hf: str
    gguf: str
    label: str
    default: Any = None


FIELDS = (
    Field("vocab_size", "vocab_size", "vocab_size", "vocabulary"),
    Field("d_model", "hidden_size", "embedding_length", "d_model"),
    Field("n_layers", "num_hidden_layers", "block_count", "layers"),
    Field("n_heads", "num_attention_heads", "attention.head_count", "query heads"),
    Field("n_kv_heads", "num_key_value_heads", "attention.head_count_kv", "KV heads"),
    Field("head_dim", "head_dim", "attention.key_length", "head dim"),
    Field("d_ff", "intermediate_size", "feed_forward_length", "d_ff"),
    Field("activation", "hidden_act", "", "activation", "silu"),
    Field("max_positions", "max_position_embeddings", "context_length", "trained context", 2048),
    Field("eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon", "norm eps", 1e-6),
    Field("base", "rope_theta", "rope.freq_base", "RoPE base", 10_000.0),
    Field("rotary_dim", "", "rope.dimension_count", "rotary dims"),
    Field("tied", "tie_word_embeddings", "", "tied head", False),
    Field("qkv_bias", "attention_bias", "", "q, k, v biases", False),
    Field("ffn_bias", "mlp_bias", "", "FFN biases", False),
)
BY_HF = {f.hf: f for f in FIELDS if f.hf}

INERT = frozenset(
    "architectures attention_dropout auto_map bos_token_id dtype eos_token_id initializer_range is_llama_config "
    "model_type name_or_path pad_token_id pretraining_tp quantization_config_note rope_interleaved torch_dtype "
    "transformers_version transformers.js_config unk_token_id use_cache _name_or_path".split()
)
ACTIVATION_NAMES = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
assert set(ACTIVATION_NAMES.values()) <= set(ACTIVATIONS)

FAMILIES = ("llama",)


class _Reader:
    """Typed access to a user's config.json that remembers which keys were used and which defaults were assumed."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw, self.where = raw, where
        self.used: set[str] = set()
        self.notes: list[str] = []

    def _fail(self, key: str, value: object, expected: str) -> ConfigError:
        return ConfigError(f"{key} is {str(value)[:80]!r}", expected=expected, where=f"{self.where}, field {key}")

    def value(self, key: str) -> Any:
        self.used.add(key)
        return self.raw.get(key)

    def integer(self, key: str, default: int | None = None, most: int = 2**40) -> int:
        value = self.value(key)
        if value is None:
            if default is None:
                raise ConfigError(f"{key} is missing", expected="an integer", where=f"{self.where}, field {key}")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise self._fail(key, value, f"an integer from 1 to {most:,}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.value(key)
        if value is None:
            self.assumed(key, default)
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._fail(key, value, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._fail(key, value, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._fail(key, value, "a string")
        return value

    def assumed(self, key: str, value: object) -> None:
        self.notes.append(f"{key} is not given: {value} is assumed, as the reference implementation does")


def _rope(read: _Reader, head_dim: int) -> Rope:
    """The rotary spec from `rope_theta` with `rope_scaling`, or from `rope_parameters`, which holds both."""
    scaling = read.value("rope_parameters") or read.value("rope_scaling") or {}
    read.used |= {"rope_parameters", "rope_scaling"}
    if not isinstance(scaling, Mapping):
        raise ConfigError(
            f"RoPE scaling is {str(scaling)[:80]!r}", expected="an object", where=f"{read.where}, field rope_scaling"
        )
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ConfigError(
            f"RoPE type {kind!r} is not known", expected="default", where=f"{read.where}, field rope_scaling"
        )
    if "rope_theta" in scaling:
        base = _Reader(scaling, read.where).number("rope_theta", 10_000.0)
        read.used.add("rope_theta")
    else:
        base = read.number("rope_theta", BY_HF["rope_theta"].default)
    return Rope(rotary_dim=head_dim, base=base)


def _llama(read: _Reader) -> ModelConfig:
    d_model, n_heads = read.integer("hidden_size"), read.integer("num_attention_heads")
    head_dim = read.value("head_dim")
    if head_dim is None:
        if d_model % n_heads:
            raise ConfigError(
                f"hidden_size {d_model} is no multiple of num_attention_heads {n_heads}, and head_dim is not given",
                expected="a head_dim, or a multiple",
                where=f"{read.where}, field head_dim",
            )
        head_dim = d_model // n_heads
    else:
        head_dim = read.integer("head_dim")
    activation = read.text("hidden_act", "silu")
    if activation not in ACTIVATION_NAMES:
        raise ConfigError(
            f"activation {activation!r} is not known",
            expected="one of " + ", ".join(ACTIVATION_NAMES),
            where=f"{read.where}, field hidden_act",
        )
    # Layers are listed one by one in the config: a bound keeps a hostile number from filling the memory.
    n_layers, bias = read.integer("num_hidden_layers", most=10_000), read.flag("attention_bias")
    n_kv_heads = read.integer("num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise ConfigError(
            f"num_attention_heads {n_heads} is no multiple of num_key_value_heads {n_kv_heads}",
            expected="a multiple, since each KV head serves equally many query heads",
            where=f"{read.where}, field num_key_value_heads",
        )
    return ModelConfig(
        vocab_size=read.integer("vocab_size"),
        d_model=d_model,
        n_layers=n_layers,
        max_positions=read.integer("max_position_embeddings", 2048),
        attention=GroupedQuery(
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            scale=head_dim**-0.5,
            qkv_bias=bias,
            out_bias=bias,
        ),
        ffn=Dense(
            d_ff=read.integer("intermediate_size"),
            activation=ACTIVATION_NAMES[activation],
            bias=read.flag("mlp_bias"),
        ),
        norm=Norm(eps=read.number("rms_norm_eps", 1e-6)),
        rope=_rope(read, head_dim),
        tied=read.flag("tie_word_embeddings"),
        layer_types=("full",) * n_layers,
    )


_READERS = {"llama": _llama}
assert tuple(_READERS) == FAMILIES


def config_from_hf(raw: Mapping[str, Any], where: str = "config.json") -> tuple[ModelConfig, tuple[str, ...]]:
    """The model that a Hugging Face `config.json` describes, and what had to be assumed or was left unread.

    Raises ConfigError, naming the field, for an unknown `model_type` or a value that describes no model.
    """
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in _READERS:
        raise ConfigError(
            "model_type is missing" if kind is None else f"model_type {str(kind)[:80]!r} is not known",
            expected="one of " + ", ".join(FAMILIES),
            where=f"{where}, field model_type",
        )
    read = _Reader(raw, where)
    cfg = _READERS[kind](read)
    left = sorted(key for key in raw if key not in read.used and key not in INERT)
    if left:
        read.notes.append("not read, because lmcore does not know what they do: " + ", ".join(left[:12]))
    return cfg, tuple(read.notes)


GGUF_ARCHITECTURES = {"llama": "llama"}

# Keys under the architecture's name that describe the file, not the computation.
GGUF_INERT = frozenset(("attention.causal", "vocab_size"))
# Keys that have to say the head dim once more.
GGUF_HEAD_DIMS = ("rope.dimension_count", "attention.value_length")
# Keys that leave the computation as it is at these values only.
GGUF_NEUTRAL = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "rope.scale_linear": (0.0, 1.0),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scaling.type": ("none",),
}


def hf_from_gguf(metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The `config.json` that says what the metadata of a GGUF file and the shapes of its tensors (rows first) say.

    GGUF has no key for a tied head or for biases: the tensors that are there say it.
    Raises ConfigError for an architecture that is not known and for a key that changes the computation.
    """
    arch, where = metadata.get("general.architecture"), "the GGUF metadata"
    if not isinstance(arch, str) or arch not in GGUF_ARCHITECTURES:
        raise ConfigError(
            "general.architecture is missing" if arch is None else f"GGUF architecture {str(arch)[:80]!r} is not known",
            expected="one of " + ", ".join(GGUF_ARCHITECTURES),
            where=f"{where}, key general.architecture",
        )
    if "rope_freqs.weight" in shapes:
        raise ConfigError(
            "tensor rope_freqs.weight scales RoPE", expected="unscaled RoPE", where="the tensors of the file"
        )
    prefix = f"{arch}."
    own = {key.removeprefix(prefix): _single(value) for key, value in metadata.items() if key.startswith(prefix)}
    raw: dict[str, Any] = {"model_type": GGUF_ARCHITECTURES[arch]}
    raw |= {field.hf: own.pop(field.gguf) for field in FIELDS if field.hf and field.gguf in own}
    if "token_embd.weight" in shapes:
        raw["vocab_size"] = shapes["token_embd.weight"][0]
    raw["tie_word_embeddings"] = "output.weight" not in shapes
    raw["attention_bias"] = "blk.0.attn_output.bias" in shapes
    raw["mlp_bias"] = "blk.0.ffn_down.bias" in shapes
    for key, value in own.items():
        if value not in GGUF_NEUTRAL.get(key, (value,)):
            raise ConfigError(
                f"{prefix}{key} is {str(value)[:80]!r}, which lmcore does not know how to run",
                expected=" or ".join(str(value) for value in GGUF_NEUTRAL[key]),
                where=f"{where}, key {prefix}{key}",
            )
        if key not in GGUF_NEUTRAL and key not in GGUF_INERT and key not in GGUF_HEAD_DIMS:
            raw[f"{prefix}{key}"] = str(value)[:80]
    return raw


def config_from_gguf(
    metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[ModelConfig, tuple[str, ...]]:
    """The model that a GGUF file describes, and what had to be assumed or was left unread; errors as `hf_from_gguf`."""
    cfg, notes = config_from_hf(hf_from_gguf(metadata, shapes), "the GGUF metadata")
    for key in GGUF_HEAD_DIMS:
        name = f"{metadata['general.architecture']}.{key}"
        value = _single(metadata.get(name, cfg.head_dim))
        if value != cfg.head_dim:
            raise ConfigError(
                f"{name} is {str(value)[:80]}",
                expected=f"the head dim, {cfg.head_dim}",
                where=f"the GGUF metadata, key {name}",
            )
    return cfg, notes


def _single(value: Any) -> Any:
    """A value that GGUF may give once or once per layer: the one when all layers agree, else the list."""
    if not hasattr(value, "tolist"):
        return value
    values = value.tolist()
    return values[0] if values and all(one == values[0] for one in values) else values
