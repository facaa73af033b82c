"""Pretrained weights from folders, safetensors, GGUF files and packages. Resolved lazily: `sources` needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmcore.checkpoint.load import Loaded, load_pretrained
    from lmcore.checkpoint.rules import LoadReport, Mapped

_HOMES = {"LoadReport": "rules", "Loaded": "load", "Mapped": "rules", "load_pretrained": "load"}

__all__ = ["LoadReport", "Loaded", "Mapped", "load_pretrained"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'lmcore.checkpoint' has no attribute {name!r}")
    return getattr(import_module(f"lmcore.checkpoint.{_HOMES[name]}"), name)
