"""Reading a user's config.json: typed access that names the field, and the parts that families share.

A key that changes the computation and is not understood is refused; a key on the list of inert ones is let pass; any
other is named in the notes, which the load report shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lmcore.errors import ConfigError
from lmcore.specs import ACTIVATIONS, Rope

MAX_LAYERS, MAX_EXPERTS = 10_000, 10_000


class Field(NamedTuple):
    """One fact of a config under its three spellings; `gguf` follows the architecture name and a dot."""

    ours: str
    hf: str
    gguf: str
    label: str


FIELDS = (
    Field("vocab_size", "vocab_size", "vocab_size", "vocabulary"),
    Field("d_model", "hidden_size", "embedding_length", "d_model"),
    Field("n_layers", "num_hidden_layers", "block_count", "layers"),
    Field("n_heads", "num_attention_heads", "attention.head_count", "query heads"),
    Field("n_kv_heads", "num_key_value_heads", "attention.head_count_kv", "KV heads"),
    Field("head_dim", "head_dim", "attention.key_length", "head dim"),
    Field("d_ff", "intermediate_size", "feed_forward_length", "d_ff"),
    Field("activation", "hidden_act", "", "activation"),
    Field("max_positions", "max_position_embeddings", "context_length", "trained context"),
    Field("eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon", "norm eps"),
    Field("base", "rope_theta", "rope.freq_base", "RoPE base"),
    Field("rotary_dim", "", "rope.dimension_count", "rotary dims"),
    Field("tied", "tie_word_embeddings", "", "tied head"),
    Field("qkv_bias", "attention_bias", "", "q, k, v biases"),
    Field("ffn_bias", "mlp_bias", "", "FFN biases"),
)

INERT = frozenset(
    "_name_or_path architectures attention_dropout attn_implementation attn_pdrop auto_map bos_token_id "
    "classifier_dropout dropout dtype embd_pdrop embedding_dropout emb_pdrop eos_token_id ep_size "
    "hidden_dropout init_device init_std initializer_context_window initializer_range is_decoder is_llama_config "
    "layerdrop model_type moe_layer_freq name_or_path num_mtp_layers num_nextn_predict_layers output_router_logits "
    "pad_token_id pretraining_tp resid_pdrop residual_dropout rope_interleaved router_aux_loss_coef "
    "router_jitter_noise seq_aux slow_but_exact summary_activation summary_first_dropout summary_proj_to_labels "
    "summary_type summary_use_proj torch_dtype transformers_version transformers.js_config unk_token_id use_cache "
    "aux_loss_alpha cache_implementation quantization_config_note task_specific_params reorder_and_upcast_attn "
    "add_cross_attention max_window_layers".split()
)

ACTIVATION_NAMES = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "relu": "relu",
    "relu2": "relu_squared",
}
assert set(ACTIVATION_NAMES.values()) == set(ACTIVATIONS)


class Reader:
    """Typed access to a user's config.json that remembers which keys were used and which defaults were assumed."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw, self.where = raw, where
        self.used: set[str] = set()
        self.notes: list[str] = []

    def fail(self, key: str, found: str, expected: str = "", todo: str = "") -> ConfigError:
        return ConfigError(found, expected=expected, where=f"{self.where}, field {key}", todo=todo)

    def _odd(self, key: str, value: object, expected: str) -> ConfigError:
        return self.fail(key, f"{key} is {str(value)[:80]!r}", expected)

    def value(self, *keys: str) -> Any:
        """The value of the first of these keys that is there and not null; each counts as read."""
        self.used.update(keys)
        return next((self.raw[key] for key in keys if self.raw.get(key) is not None), None)

    def integer(self, *keys: str, default: int | None = None, most: int = 2**40) -> int:
        """A whole number of at least 1 under one of these keys, or the default."""
        value = self.value(*keys)
        if value is None:
            if default is None:
                raise self.fail(keys[0], f"{keys[0]} is missing", "an integer")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise self._odd(keys[0], value, f"an integer from 1 to {most:,}")
        return value

    def count(self, key: str) -> int:
        """A whole number of at least 0."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**40:
            raise self._odd(key, value, "an integer of 0 or more")
        return value

    def layers(self, key: str) -> tuple[int, ...] | None:
        """A list of layer indices, or None when it is not there."""
        values = self.listed(key)
        if values is None:
            return None
        if not all(type(layer) is int and 0 <= layer < MAX_LAYERS for layer in values):
            raise self._odd(key, values, "a list of layer indices")
        return tuple(values)

    def number(self, *keys: str, default: float, say: bool = False) -> float:
        """A positive number under one of these keys; with `say` the default is noted as an assumption."""
        value = self.value(*keys)
        if value is None:
            if say:
                self.assumed(keys[0], default)
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-30 < value < 1e30:
            raise self._odd(keys[0], value, "a positive number")
        return float(value)

    def maybe(self, *keys: str) -> float | None:
        """A positive number, or None when it is not given."""
        return None if self.value(*keys) is None else self.number(*keys, default=1.0)

    def flag(self, *keys: str, default: bool = False) -> bool:
        value = self.value(*keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._odd(keys[0], value, "true or false")
        return value

    def text(self, *keys: str, default: str) -> str:
        value = self.value(*keys)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._odd(keys[0], value, "a string")
        return value

    def listed(self, key: str, length: int | None = None) -> list[Any] | None:
        """A list, of `length` entries if given, or None when it is not there."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MAX_LAYERS or (length is not None and len(value) != length):
            raise self._odd(key, value, "a list" + (f" of {length} entries, one per layer" if length else ""))
        return value

    def activation(self, *keys: str, default: str) -> str:
        name = self.text(*keys, default=default)
        if name not in ACTIVATION_NAMES:
            known = ", ".join(ACTIVATION_NAMES)
            raise self.fail(keys[0], f"activation {name[:40]!r} is not known", f"one of {known}")
        return ACTIVATION_NAMES[name]

    def refuse(self, key: str, *values: object) -> None:
        """Refuse a setting that lmcore does not run."""
        value = self.value(key)
        if value in values and value is not None:
            raise self.fail(key, f"{key} is {value!r}, which lmcore does not run")

    def part(self, key: str) -> Reader:
        """The object under `key`, or an empty one."""
        value = self.value(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._odd(key, value, "an object")
        return Reader(value or {}, f"{self.where}, object {key}")

    def with_values(self, **values: object) -> Reader:
        """This file with some values replaced; what is read and noted there counts here too."""
        other = Reader(dict(self.raw) | values, self.where)
        other.used, other.notes = self.used, self.notes
        return other

    def assumed(self, key: str, value: object) -> None:
        self.notes.append(f"{key} is not given: {value} is assumed, as the reference implementation does")

    def unread(self) -> list[str]:
        return sorted(key for key in self.raw if key not in self.used and key not in INERT)


ROPE_SPELLINGS = {"su": "longrope", "ntk-aware": "ntk"}


def rope_from(
    read: Reader, head_dim: int, *, base: float = 10_000.0, kind: str = "full", fraction: float = 1.0
) -> Rope:
    """The rotary spec from `rope_theta` with `rope_scaling`, or from `rope_parameters`, which holds both.

    `kind` chooses among parameters given per layer type ("full", "sliding"). The type is spelled `rope_type` or `type`.
    """
    both = read.part("rope_parameters")
    scaling = both if both.raw else read.part("rope_scaling")
    read.used |= {"rope_parameters", "rope_scaling"}
    per_kind = scaling.value(f"{kind}_attention")
    if per_kind is not None:
        scaling = scaling.part(f"{kind}_attention")
    type_ = scaling.text("rope_type", "type", default="default")
    type_ = ROPE_SPELLINGS.get(type_, type_)
    top = scaling if scaling.raw.get("rope_theta") is not None else read
    base = top.number("rope_theta", "rotary_emb_base", default=base, say=True)
    read.used |= {"rope_theta", "partial_rotary_factor", "rotary_pct", "original_max_position_embeddings"}
    fraction = scaling.number(
        "partial_rotary_factor",
        default=read.number("partial_rotary_factor", "rotary_pct", "rope_pct", default=fraction),
    )
    if fraction > 1:
        raise read.fail("partial_rotary_factor", f"it is {fraction}", "the part of a head that turns, at most 1")
    dims = head_dim if type_ == "proportional" else int(head_dim * fraction)
    max_positions = read.integer("max_position_embeddings", "n_positions", "max_seq_len", default=2048)
    original = scaling.value("original_max_position_embeddings") or read.value("original_max_position_embeddings")
    factor = scaling.maybe("factor")
    if original is not None and (isinstance(original, bool) or not isinstance(original, int) or original < 1):
        raise read.fail("original_max_position_embeddings", f"it is {str(original)[:40]!r}", "an integer")
    if factor is None:
        factor = max_positions / original if original and type_ in ("longrope", "yarn") else 1.0
    if original is None and type_ in ("yarn", "longrope", "llama3"):
        original = max_positions
        read.assumed("original_max_position_embeddings", original)
    return _known(read, scaling, type_, dims, base, factor, original, max_positions, fraction)


def _known(
    read: Reader,
    scaling: Reader,
    type_: str,
    dims: int,
    base: float,
    factor: float,
    original: int | None,
    max_positions: int,
    fraction: float,
) -> Rope:
    """The spec of a type that is in the table; any other is refused by name."""
    from lmcore.frequencies import FREQUENCIES

    if type_ not in FREQUENCIES or type_ == "divided":
        known = ", ".join(name for name in FREQUENCIES if name != "divided")
        raise read.fail("rope_scaling", f"RoPE type {type_[:40]!r} is not known", f"one of {known}")
    used = {
        "default": {},
        "linear": {"factor": factor},
        "ntk": {"factor": factor},
        "dynamic": {"factor": factor, "max_positions": max_positions},
        "proportional": {"factor": factor, "rotated_fraction": fraction},
        "llama3": {
            "factor": factor,
            "original_max_positions": original,
            "low_freq_factor": scaling.number("low_freq_factor", default=1.0),
            "high_freq_factor": scaling.number("high_freq_factor", default=4.0),
        },
        "yarn": {
            "factor": factor,
            "original_max_positions": original,
            "attention_factor": scaling.maybe("attention_factor"),
            "beta_fast": scaling.number("beta_fast", default=32.0),
            "beta_slow": scaling.number("beta_slow", default=1.0),
            "truncate": scaling.flag("truncate", default=True),
            "mscale": scaling.maybe("mscale"),
            "mscale_all_dim": scaling.maybe("mscale_all_dim"),
        },
        "longrope": {
            "factor": factor,
            "original_max_positions": original,
            "attention_factor": scaling.maybe("attention_factor"),
            "short_factor": _factors(scaling, "short_factor", type_),
            "long_factor": _factors(scaling, "long_factor", type_),
        },
    }[type_]
    left = scaling.unread()
    ignorable = {"factor", "original_max_position_embeddings", "finetuned", "short_mscale", "long_mscale"}
    if set(left) - ignorable - {"full_attention", "sliding_attention"}:
        read.notes.append(f"RoPE type {type_} does not use: " + ", ".join(sorted(set(left) - ignorable)))
    same = type_ == "longrope" and used["short_factor"] == used["long_factor"]
    if same and factor == 1 and used["attention_factor"] == 1:
        # No switch: so a conversion of a GGUF file writes the divisors that stand in place of Llama 3's rule there.
        return Rope(rotary_dim=dims, base=base, type="divided", short_factor=used["short_factor"])
    return Rope(rotary_dim=dims, base=base, type=type_, **used)


def _factors(scaling: Reader, key: str, type_: str) -> tuple[float, ...]:
    if type_ != "longrope":
        return ()
    values = scaling.listed(key) or []
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < 1e9 for v in values):
        raise scaling.fail(key, f"{key} holds something other than positive numbers", "a list of positive numbers")
    return tuple(float(v) for v in values)
