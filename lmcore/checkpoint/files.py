"""Small files that a user's folder holds, read with their size and kind checked first. No torch."""

from __future__ import annotations

import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from lmcore.errors import CheckpointError

MAX_JSON_BYTES = 64 * 2**20
CONFIG = "config.json"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
LFS_MARK = b"version https://git-lfs"


def open_regular(path: Path) -> BufferedReader:
    """The file, opened for reading. Raises CheckpointError for a folder, a pipe, a device, or no access."""
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to would hang for ever.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read ({error.strerror})", where=str(path)) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise CheckpointError(f"{path.name} is not a plain file", expected="a file", where=str(path))
    return os.fdopen(handle, "rb")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a user's file. Raises CheckpointError with file and line."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_JSON_BYTES:
            raise CheckpointError(
                f"{path.name} has {size:,} bytes", expected=f"at most {MAX_JSON_BYTES:,}", where=str(path)
            )
        data = file.read(MAX_JSON_BYTES)
    if not data.strip():
        raise CheckpointError(
            f"{path.name} is empty", expected="a JSON object", where=str(path), todo="Download it again."
        )
    if data.startswith(LFS_MARK):
        raise CheckpointError(f"{path.name} is a Git LFS pointer", where=str(path), todo="Run `git lfs pull`.")
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"{path.name} is not JSON ({error.msg}, line {error.lineno}, column {error.colno})",
            expected="a JSON object",
            where=str(path),
            todo="Download it again.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name} is not JSON ({str(error)[:80]})", where=str(path)) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.name} holds a {type(value).__name__}", expected="a JSON object", where=str(path))
    return value


def raw_config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder as it is. Raises CheckpointError where there is none, or only an adapter's."""
    path = folder / CONFIG
    if not path.exists():
        if (folder / "adapter_config.json").exists():
            base = read_json(folder / "adapter_config.json").get("base_model_name_or_path")
            raise CheckpointError(
                "this is an adapter (adapter_config.json), not a whole model",
                expected="config.json and all weights",
                where=str(folder),
                todo=f"Merge it into its base model ({str(base)[:80]}) and load the result.",
            )
        raise CheckpointError(
            "config.json is not in the folder", expected="config.json beside the weights", where=str(folder)
        )
    return read_json(path)
