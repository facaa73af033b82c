"""The model library of Glassbox. Torch-free parts (config, shapes, costs, families, errors) import alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmcore.checkpoint import Loaded, LoadReport, load_pretrained
    from lmcore.config import ModelConfig
    from lmcore.decode import Decoder
    from lmcore.model import Transformer
    from lmcore.sampling import Sampler
    from lmcore.trace import Capture

_HOMES = {
    "Capture": "trace",
    "Decoder": "decode",
    "LoadReport": "checkpoint",
    "Loaded": "checkpoint",
    "ModelConfig": "config",
    "Sampler": "sampling",
    "Transformer": "model",
    "load_pretrained": "checkpoint",
}

__all__ = ["Capture", "Decoder", "LoadReport", "Loaded", "ModelConfig", "Sampler", "Transformer", "load_pretrained"]


def __getattr__(name: str) -> object:
    """Resolve a public name on first use, so that importing the package loads neither torch nor a tokenizer."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lmcore' has no attribute {name!r}")
    return getattr(import_module(f"lmcore.{_HOMES[name]}"), name)
