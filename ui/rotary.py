"""Which layers of a model turn q and k, and how: the kinds of its rotary layers, of which one is chosen and scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from figures.format import group
from lmcore.config import ModelConfig
from lmcore.specs import Rope

ALL = "all layers"
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@dataclass(frozen=True)
class Kind:
    """Layers that have the same rotary spec. `window`: how many keys each of them reads at most, None if all.

    `name` is what the choice calls them; `only` is the layers for `Edits(rope_layers=...)`, None where there are no
    others.
    """

    name: str
    rope: Rope
    layers: tuple[int, ...]
    window: int | None

    @property
    def only(self) -> frozenset[int] | None:
        return None if self.name == ALL else frozenset(self.layers)


def kinds(cfg: ModelConfig) -> tuple[Kind, ...]:
    """The kinds of rotary layers, in the order in which they first come; empty for a model without RoPE."""
    found: dict[Rope, list[int]] = {}
    for layer in range(cfg.n_layers):
        if (rope := cfg.rope_of(layer)) is not None:
            found.setdefault(rope, []).append(layer)
    return tuple(
        Kind(ALL if len(found) == 1 else _name(cfg, layers), rope, tuple(layers), _window(cfg, layers))
        for rope, layers in found.items()
    )


def _name(cfg: ModelConfig, layers: list[int]) -> str:
    words = " and ".join(sorted({cfg.layer_types[layer] for layer in layers}))
    return f"{len(layers)} {words} layer{'s' if len(layers) > 1 else ''}"


def _window(cfg: ModelConfig, layers: list[int]) -> int | None:
    windows = {cfg.window_of(layer) for layer in layers}
    return windows.pop() if len(windows) == 1 else None


def widest(cfg: ModelConfig) -> Kind:
    """The kind with the largest base: the layers that are to reach far. The model must have RoPE."""
    return max(kinds(cfg), key=lambda kind: kind.rope.base)


def named(cfg: ModelConfig, name: str) -> Kind:
    """The kind of that name; the widest where none has it."""
    return next((kind for kind in kinds(cfg) if kind.name == name), widest(cfg))


def choose(cfg: ModelConfig, key: str) -> Kind:
    """The model's rotary layers; where there are several kinds, those that are chosen under `key`, also in the link."""
    names = [kind.name for kind in kinds(cfg)]
    if len(names) == 1:
        return widest(cfg)
    chosen = st.segmented_control("Layers", names, default=widest(cfg).name, key=key, required=True, **_LINK)
    return named(cfg, str(chosen))


def trained(cfg: ModelConfig, rope: Rope) -> int:
    """The context at which the unscaled frequencies were trained."""
    return rope.original_max_positions or cfg.max_positions


def reach_said(kind: Kind) -> str:
    """What a window means for a scaling, as a sentence; empty where the layers read everything."""
    if kind.window is None:
        return ""
    return (
        f"These layers read the last {group(kind.window)} keys only: the distances that they meet stay below that, "
        "however long the text. A scaling squeezes what they have learned and opens nothing new to them."
    )
