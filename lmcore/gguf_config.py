"""From the metadata of a GGUF file to a `ModelConfig`, by way of the `config.json` that says the same.

What each architecture means by its keys is in `gguf_families`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lmcore.config import ModelConfig
from lmcore.errors import ConfigError
from lmcore.families import config_from_hf
from lmcore.gguf_families import ARCHITECTURES, Arch, File, Raw, Shapes, width_per_head
from lmcore.reading import FIELDS

WHERE = "the GGUF metadata"


# Keys under the architecture's name that describe the file, not the computation.
GGUF_INERT = frozenset(("attention.causal", "vocab_size", "tensor_data_layout", "interleave_moe_layer_step"))
# Keys that leave the computation as it is at these values only.
GGUF_NEUTRAL = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0, 1),
    "expert_gating_func": (1,),
    "expert_weights_scale": (0.0, 1.0),
    "attention.sliding_window": (0,),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "logit_scale": (0.0, 1.0),
    "use_parallel_residual": (False,),
}


def hf_from_gguf(
    metadata: Mapping[str, Any], shapes: Shapes, factors: Mapping[str, list[float]] | None = None
) -> dict[str, Any]:
    """The `config.json` that says what the metadata of a GGUF file and the shapes of its tensors (rows first) say.

    `factors` are the numbers in the RoPE tensors of the file, by name. GGUF has no key for a tied head or for biases:
    the tensors that are there say it. Raises ConfigError for an architecture that is not known and for a key that
    changes the computation.
    """
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        raise ConfigError(
            "general.architecture is missing" if arch is None else f"GGUF architecture {str(arch)[:80]!r} is not known",
            expected="one of " + ", ".join(ARCHITECTURES),
            where=f"{WHERE}, key general.architecture",
        )
    kind, prefix = ARCHITECTURES[arch], f"{arch}."
    own = {key.removeprefix(prefix): _single(value) for key, value in metadata.items() if key.startswith(prefix)}
    file = File(own, shapes, factors or {})
    raw: Raw = {"model_type": kind.model_type}
    raw |= {field.hf: own.pop(field.gguf) for field in FIELDS if field.hf and field.gguf in own}
    raw |= {hf: own.pop(key) for key, hf in kind.keys.items() if key in own}
    _counts(raw)
    if "token_embd.weight" in shapes:
        raw["vocab_size"] = shapes["token_embd.weight"][0]
    raw["tie_word_embeddings"] = "output.weight" not in shapes
    if file.has("attn_output.bias") and kind.biases:
        raw["attention_bias"] = True
    if file.has("ffn_down.bias") and kind.biases:
        raw["mlp_bias"] = True
    raw |= _scaled_rope(file, raw)
    _rotary_part(file, raw, kind, arch)
    raw |= kind.more(file, raw) if kind.more else {}
    for token in ("bos", "eos"):
        if isinstance(metadata.get(f"tokenizer.ggml.{token}_token_id"), int):
            raw[f"{token}_token_id"] = metadata[f"tokenizer.ggml.{token}_token_id"]
    _rest(own, raw, prefix)
    return {key: value for key, value in raw.items() if value is not None or key == "sliding_window"}


def _counts(raw: Raw) -> None:
    """The head dim, which GGUF leaves out when it is D / H, and no bad number in what it is worked out from."""
    for key in ("hidden_size", "num_attention_heads"):
        if type(raw.get(key)) is not int or raw[key] < 1:
            raise ConfigError(f"{key} is {str(raw.get(key))[:80]!r}", expected="an integer of 1 or more", where=WHERE)
    if raw.get("head_dim") is None:
        if raw["hidden_size"] % raw["num_attention_heads"]:
            raise ConfigError(
                f"embedding_length {raw['hidden_size']} is no multiple of head_count {raw['num_attention_heads']}",
                expected="a multiple, or attention.key_length",
                where=WHERE,
            )
        raw["head_dim"] = width_per_head(raw)
    if type(raw["head_dim"]) is not int or not 0 < raw["head_dim"] < 2**20:
        raise ConfigError(f"attention.key_length is {str(raw['head_dim'])[:80]!r}", expected="a size", where=WHERE)


def _rotary_part(file: File, raw: Raw, kind: Arch, arch: str) -> None:
    """`rope.dimension_count` and `attention.value_length` say the head dim once more, or the part that turns."""
    for key in ("rope.dimension_count", "attention.value_length"):
        value = file.own.pop(key, raw["head_dim"])
        if key.startswith("rope") and kind.partial and type(value) is int and 0 < value <= raw["head_dim"]:
            raw["partial_rotary_factor"] = value / raw["head_dim"]
        elif value != raw["head_dim"]:
            raise ConfigError(
                f"{arch}.{key} is {str(value)[:80]}",
                expected=f"the head dim, {raw['head_dim']}",
                where=f"{WHERE}, key {arch}.{key}",
            )


def _scaled_rope(file: File, raw: Raw) -> Raw:
    """`rope_scaling`, from the keys under rope.scaling and from the tensors that hold a divisor for each pair."""
    own, trained = file.own, raw.get("max_position_embeddings")
    scaling = {key.removeprefix("rope.scaling."): own.pop(key) for key in list(own) if key.startswith("rope.scaling.")}
    old = own.pop("rope.scale_linear", None)
    factor = scaling.pop("factor", None) or old or 1.0
    original = scaling.pop("original_context_length", None) or trained
    kind = scaling.pop("type", "linear")
    attention = scaling.pop("attn_factor", None)
    scaling.pop("finetuned", None)
    if "rope_factors_short.weight" in file.shapes or "rope_factors_long.weight" in file.shapes:
        short, long = (file.factors.get(f"rope_factors_{name}.weight") for name in ("short", "long"))
        made: Raw = {"short_factor": short or [], "long_factor": long or [], "attention_factor": attention or 1.0}
        kind, given = "longrope", made | {"original_max_position_embeddings": original}
    elif "rope_freqs.weight" in file.shapes:
        divisors = file.factors.get("rope_freqs.weight") or []
        if kind not in ("none", "linear") or factor != 1.0:
            raise _not_run(f"rope.scaling.type {kind!r} with rope_freqs.weight", "one of the two")
        # The same divisors at every length: LongRoPE without its switch.
        given = {"short_factor": divisors, "long_factor": divisors, "attention_factor": 1.0}
        kind, given = "longrope", given | {"factor": 1.0, "original_max_position_embeddings": trained}
    elif kind == "yarn":
        given = {"factor": factor, "original_max_position_embeddings": original}
        if attention not in (None, 1.0) and isinstance(attention, float) and isinstance(factor, float) and factor > 1:
            given["attention_factor"] = attention * (0.1 * math.log(factor) + 1)
        for side in ("fast", "slow"):
            beta = scaling.pop(f"yarn_beta_{side}", None)
            given |= {} if beta is None else {f"beta_{side}": beta}
    elif kind == "none" or (kind == "linear" and factor == 1.0):
        given = {}
    elif kind == "linear":
        given = {"factor": factor}
    else:
        raise _not_run(f"rope.scaling.type is {str(kind)[:40]!r}", "none, linear or yarn, or factors in tensors")
    if scaling and given:
        raise _not_run("rope.scaling." + ", ".join(sorted(scaling))[:80], "none of these keys")
    found: Raw = {"rope_scaling": {"rope_type": kind} | given} if given else {}
    if kind == "longrope" and given and original != trained:
        found["original_max_position_embeddings"] = original
    return found


def _not_run(found: str, expected: str) -> ConfigError:
    return ConfigError(f"{found}, which lmcore does not know how to run", expected=expected, where=WHERE)


def _rest(own: Raw, raw: Raw, prefix: str) -> None:
    """Refuse a key that would change the computation; name in the config, and so in the report, what is not known."""
    for key, value in own.items():
        if key in GGUF_NEUTRAL and value not in GGUF_NEUTRAL[key]:
            raise ConfigError(
                f"{prefix}{key} is {str(value)[:80]!r}, which lmcore does not know how to run",
                expected=" or ".join(str(neutral) for neutral in GGUF_NEUTRAL[key]),
                where=f"{WHERE}, key {prefix}{key}",
            )
        if key not in GGUF_NEUTRAL and key not in GGUF_INERT:
            raw[f"{prefix}{key}"] = str(value)[:80]


def config_from_gguf(
    metadata: Mapping[str, Any], shapes: Shapes, factors: Mapping[str, list[float]] | None = None
) -> tuple[ModelConfig, tuple[str, ...]]:
    """The model that a GGUF file describes, and what had to be assumed or was left unread; errors as `hf_from_gguf`."""
    return config_from_hf(hf_from_gguf(metadata, shapes, factors), WHERE)


def _single(value: Any) -> Any:
    """A value that GGUF may give once or once per layer: the one when all layers agree, else the list."""
    if not hasattr(value, "tolist"):
        return value
    values = value.tolist()
    return values[0] if values and all(one == values[0] for one in values) else values
