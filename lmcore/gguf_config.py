"""From the metadata of a GGUF file to a `ModelConfig`, by way of the `config.json` that says the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmcore.config import ModelConfig
from lmcore.errors import ConfigError
from lmcore.families import config_from_hf
from lmcore.reading import FIELDS

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
