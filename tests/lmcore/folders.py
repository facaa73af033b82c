"""Folders of good models, changed on purpose, and the message that comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lmcore.checkpoint import load_pretrained
from lmcore.errors import CheckpointError, LmcoreError

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(source: Path | str, kind: type[LmcoreError] = CheckpointError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        load_pretrained(source, **options)
    return str(caught.value)
