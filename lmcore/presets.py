"""The configs of public models that come with Glassbox: architecture facts without weights, read without torch.

Only what the shape of a model follows from was written down. Where a file leaves a value out (a norm's eps), the note
that `config_from_hf` gives says what was assumed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from lmcore.config import ModelConfig
from lmcore.errors import ConfigError, InputError
from lmcore.families import config_from_hf, language_part

FOLDER = Path(__file__).parent.parent / "assets" / "configs"
MAX_CHARS = 200_000


class Preset(NamedTuple):
    """One shipped config: the name of its file without the ending, and what to call the model."""

    name: str
    title: str

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.json"


PRESETS = (
    Preset("gpt2", "GPT-2"),
    Preset("gpt2-medium", "GPT-2 Medium"),
    Preset("gpt2-xl", "GPT-2 XL"),
    Preset("gpt3-175b", "GPT-3 175B"),
    Preset("pythia-70m", "Pythia 70M"),
    Preset("pythia-160m", "Pythia 160M"),
    Preset("pythia-1b", "Pythia 1B"),
    Preset("pythia-1.4b", "Pythia 1.4B"),
    Preset("pythia-2.8b", "Pythia 2.8B"),
    Preset("pythia-12b", "Pythia 12B"),
    Preset("opt-125m", "OPT 125M"),
    Preset("opt-6.7b", "OPT 6.7B"),
    Preset("opt-30b", "OPT 30B"),
    Preset("bloom-176b", "BLOOM 176B"),
    Preset("falcon-7b", "Falcon 7B"),
    Preset("mpt-7b", "MPT 7B"),
    Preset("llama-7b", "LLaMA 7B"),
    Preset("llama-30b", "LLaMA 30B"),
    Preset("llama-2-7b", "Llama 2 7B"),
    Preset("llama-2-70b", "Llama 2 70B"),
    Preset("llama-3-8b", "Llama 3 8B"),
    Preset("llama-3.1-8b", "Llama 3.1 8B"),
    Preset("llama-3.1-405b", "Llama 3.1 405B"),
    Preset("llama-3.2-3b", "Llama 3.2 3B"),
    Preset("llama-3.3-70b", "Llama 3.3 70B"),
    Preset("mistral-7b-v0.1", "Mistral 7B v0.1"),
    Preset("mistral-7b-v0.3", "Mistral 7B v0.3"),
    Preset("mixtral-8x7b", "Mixtral 8x7B"),
    Preset("qwen2-7b", "Qwen2 7B"),
    Preset("qwen2.5-1.5b", "Qwen2.5 1.5B"),
    Preset("qwen2.5-72b", "Qwen2.5 72B"),
    Preset("qwen3-0.6b", "Qwen3 0.6B"),
    Preset("qwen3-8b", "Qwen3 8B"),
    Preset("qwen3-32b", "Qwen3 32B"),
    Preset("qwen3-30b-a3b", "Qwen3 30B-A3B"),
    Preset("gemma-2b", "Gemma 2B"),
    Preset("gemma-2-2b", "Gemma 2 2B"),
    Preset("gemma-2-27b", "Gemma 2 27B"),
    Preset("gemma-3-270m", "Gemma 3 270M"),
    Preset("gemma-3-4b-text", "Gemma 3 4B, text part"),
    Preset("gemma-3-27b-text", "Gemma 3 27B, text part"),
    Preset("phi-3-mini-4k", "Phi-3-mini 4k"),
    Preset("smollm2-135m", "SmolLM2 135M"),
    Preset("smollm2-360m", "SmolLM2 360M"),
    Preset("smollm3-3b", "SmolLM3 3B"),
    Preset("olmo2-7b", "OLMo 2 7B"),
    Preset("deepseek-v2-lite", "DeepSeek-V2-Lite"),
    Preset("deepseek-v3", "DeepSeek-V3"),
    Preset("yi-6b", "Yi 6B"),
    Preset("command-r-v01", "Command R"),
    Preset("tinyllama-1.1b", "TinyLlama 1.1B"),
    Preset("glm-4-9b-chat-hf", "GLM-4 9B"),
    Preset("gpt-oss-20b", "gpt-oss 20B"),
)


def preset(name: str) -> Preset:
    """The preset of that name. Raises InputError for any other."""
    found = next((preset for preset in PRESETS if preset.name == name), None)
    if found is None:
        raise InputError(
            f"there is no config named {name[:80]!r}",
            expected=f"one of the {len(PRESETS)} that come with Glassbox",
            where="the choice of a config",
            todo="Pick one from the list, or paste a config.json.",
        )
    return found


class Described(NamedTuple):
    """What a config.json says: the model, its `model_type`, what was assumed or left unread, and the object itself."""

    config: ModelConfig
    architecture: str
    notes: tuple[str, ...]
    raw: dict[str, Any]


def described(source: str) -> Described | None:
    """What "config:<preset>" or "json:<text of a config.json>" describes; None for any other source."""
    kind, _, rest = source.partition(":")
    readers = {"config": shipped, "json": pasted}
    return readers[kind](rest) if kind in readers else None


def shipped(name: str) -> Described:
    """The preset's model."""
    found = preset(name)
    return _described(json.loads(found.file.read_text(encoding="utf-8")), found.file.name)


def pasted(text: str) -> Described:
    """The model of a config.json given as text. Raises ConfigError with line and column, or naming the field."""
    where = "the pasted config.json"
    if not text.strip():
        raise ConfigError(
            "no config is given",
            expected="the text of a config.json",
            where=where,
            todo="Paste one, or pick a config from the list.",
        )
    if len(text) > MAX_CHARS:
        raise ConfigError(f"the text has {len(text):,} characters", expected=f"at most {MAX_CHARS:,}", where=where)
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"the text is not JSON ({error.msg}, line {error.lineno}, column {error.colno})",
            expected="a JSON object",
            where=where,
            todo="Paste the whole file, from its first { to its last }.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the text is not JSON ({str(error)[:80]})", expected="a JSON object", where=where) from error
    if not isinstance(raw, dict):
        raise ConfigError(f"the text holds a {type(raw).__name__}", expected="a JSON object", where=where)
    return _described(raw, where)


def _described(raw: dict[str, Any], where: str) -> Described:
    config, notes = config_from_hf(raw, where)
    return Described(config, str(language_part(raw)[0]["model_type"]), notes, raw)
