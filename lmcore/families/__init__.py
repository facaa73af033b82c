"""The families of checkpoints, by `model_type`: each a function from its own config.json to a `ModelConfig`.

What a family shares with LLaMA comes from `shared.llama_like`; a family says only where it differs. Defaults are those
of the reference implementation, used when a file leaves a key out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lmcore.config import ModelConfig
from lmcore.errors import ConfigError
from lmcore.families import classic, gated, sparse, teaching
from lmcore.frequencies import frequencies
from lmcore.reading import Reader

READERS: dict[str, Callable[[Reader], ModelConfig]] = {
    "llama": gated.llama,
    "mistral": gated.mistral,
    "mixtral": sparse.mixtral,
    "qwen2": gated.qwen2,
    "qwen2_moe": sparse.qwen2_moe,
    "qwen3": gated.qwen3,
    "qwen3_moe": sparse.qwen3_moe,
    "gemma": gated.gemma,
    "gemma2": gated.gemma2,
    "gemma3_text": gated.gemma3,
    "phi": classic.phi,
    "phi3": gated.phi3,
    "olmo2": gated.olmo2,
    "olmoe": sparse.olmoe,
    "smollm3": gated.smollm3,
    "granite": gated.granite,
    "cohere": gated.cohere,
    "glm": gated.glm,
    "glm4": gated.glm4,
    "stablelm": gated.stablelm,
    "starcoder2": classic.starcoder2,
    "nemotron": classic.nemotron,
    "gpt2": classic.gpt2,
    "gpt_neox": classic.gpt_neox,
    "gptj": classic.gptj,
    "opt": classic.opt,
    "falcon": classic.falcon,
    "bloom": classic.bloom,
    "mpt": classic.mpt,
    "gpt_oss": sparse.gpt_oss,
    "deepseek_v2": sparse.deepseek_v2,
    "deepseek_v3": sparse.deepseek_v3,
    "llama4_text": sparse.llama4,
    "glassbox": teaching.glassbox,
}
FAMILIES = tuple(READERS)
# Each expert has names of its own: a table of them is made before a tensor is read. DeepSeek-V3 has 14,848.
MAX_EXPERTS_IN_ALL = 200_000


def language_part(raw: Mapping[str, Any], where: str = "config.json") -> tuple[Mapping[str, Any], str]:
    """The config of the language model, and where it stands: the whole, or `text_config` of a multimodal wrapper."""
    inner = raw.get("text_config")
    if isinstance(inner, Mapping) and raw.get("model_type") not in READERS:
        return inner, f"{where}, object text_config"
    return raw, where


def config_from_hf(raw: Mapping[str, Any], where: str = "config.json") -> tuple[ModelConfig, tuple[str, ...]]:
    """The model that a Hugging Face `config.json` describes, and what had to be assumed or was left unread.

    Of a multimodal wrapper the language part (`text_config`) is read. Raises ConfigError, naming the field, for an
    unknown `model_type` or a value that describes no model.
    """
    notes: list[str] = []
    part, where = language_part(raw, where)
    if part is not raw:
        notes.append(f"model_type {str(raw.get('model_type'))[:40]} wraps a language model: only text_config is read")
    kind = part.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        raise ConfigError(
            "model_type is missing" if kind is None else f"model_type {str(kind)[:80]!r} is not known",
            expected="one of " + ", ".join(FAMILIES),
            where=f"{where}, field model_type",
        )
    read = Reader(part, where)
    cfg = READERS[kind](read)
    experts = 0 if cfg.moe is None else cfg.moe.n_experts * len(cfg.moe_layers)
    if experts > MAX_EXPERTS_IN_ALL:
        raise ConfigError(
            f"{len(cfg.moe_layers):,} layers have {experts:,} experts in all",
            expected=f"at most {MAX_EXPERTS_IN_ALL:,}",
            where=where,
        )
    # What the numbers of a spec cannot give is said now, not in the first forward.
    for rope in filter(None, (cfg.rope, cfg.local_rope)):
        for length in (1, cfg.max_positions):
            frequencies(rope, length)
    left = read.unread()
    if left:
        notes.append("not read, because lmcore does not know what they do: " + ", ".join(left[:12]))
    return cfg, (*notes, *dict.fromkeys(read.notes))
