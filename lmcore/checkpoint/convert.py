"""GGUF files turned, once, into folders of the user's cache: config.json, model.safetensors, tokenizer.json.

A conversion is built in a folder of its own beside its place and renamed there when all of it is on the disk, so that
one that was killed is never taken for a whole one, and two at once don't disturb each other.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from lmcore.checkpoint.cachefolder import cache_root, discard, publish, sweep
from lmcore.checkpoint.cachefolder import sync as _sync
from lmcore.checkpoint.gguf import GGUFFile
from lmcore.checkpoint.rules import Plan, apply, plan, refuse_not_finite
from lmcore.checkpoint.sources import Place
from lmcore.checkpoint.tables import GGUF_RULES
from lmcore.checkpoint.tensorfile import write_float32
from lmcore.config import ModelConfig
from lmcore.costs import weight_bytes
from lmcore.errors import CapacityError, CheckpointError
from lmcore.gguf_config import config_from_gguf, hf_from_gguf
from lmcore.shapes import param_shapes

Progress = Callable[[int, int, str], None]

# Part of each folder's name: raise it when the same file would be converted differently.
CONVERTER_VERSION = 1
MARKER = "conversion.json"


def folder_of(place: Place) -> Path:
    """Where the conversion of this very file (path, size and time, or package version) by this converter belongs."""
    key = hashlib.sha256(f"{CONVERTER_VERSION}|{place.identity}".encode()).hexdigest()[:24]
    return cache_root() / "converted" / key


def record(folder: Path) -> dict[str, Any] | None:
    """What the marker of a whole conversion says; None when the folder is none, or a file in it has another size."""
    try:
        found = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        sizes = found["files"]
        whole = bool(sizes) and all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return found if whole else None


def converted(place: Place, check: Callable[[ModelConfig], None], progress: Progress) -> tuple[Path, dict[str, Any]]:
    """The folder of the conversion and what its marker says, made now unless it is there.

    `check` may refuse the config before a tensor is read. Raises CheckpointError, ConfigError or CapacityError, and
    whatever `progress` raises; none of them leaves a file behind.
    """
    assert place.path is not None
    target = folder_of(place)
    if (found := record(target)) is not None:
        return target, found
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target.parent)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            found = _build(place.path, work, check, progress)
            _publish(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        _drop_older(target, found["source"])
    except OSError as error:
        raise CheckpointError(
            f"the converted model cannot be written ({error.strerror or error})",
            expected="a cache folder that can be written to",
            where=str(target.parent),
            todo="Free some space, or set GLASSBOX_CACHE to another folder.",
        ) from error
    return target, found


def _build(path: Path, work: Path, check: Callable[[ModelConfig], None], progress: Progress) -> dict[str, Any]:
    """Fill `work` with the conversion, all of it on the disk, the marker last. Returns what the marker says."""
    with GGUFFile(path) as source:
        cfg, _ = config_from_gguf(source.metadata, source.shapes)
        steps = plan(cfg, source.shapes, GGUF_RULES[source.metadata["general.architecture"]], str(path))
        check(steps.cfg)
        _refuse_full_disk(weight_bytes(steps.cfg, 4), work)
        shapes = {target: param_shapes(steps.cfg)[target] for _, targets, _ in steps.rows for target in targets}
        # float32, although the file has fewer bits: scale * integer + offset is exact in float32 and not in 16 bits.
        write_float32(work / "model.safetensors", shapes, _dequantised(source, steps, progress))
        _write(work / "config.json", hf_from_gguf(source.metadata, source.shapes) | {"dtype": "float32"})
        notes = [*steps.notes, *_save_tokenizer(source, work)]
        types = Counter(source.tensors[name].type for name, _, _ in steps.rows)
        found = {
            "source": str(path),
            "architecture": source.metadata["general.architecture"],
            "types": dict(types.most_common()),
            "mapped": [list(row) for row in steps.mapped],
            "unused": list(steps.unused),
            "notes": notes,
            "bytes_read": sum(source.tensors[name].nbytes for name, _, _ in steps.rows),
            "files": {file.name: file.stat().st_size for file in sorted(work.iterdir())},
        }
    for file in work.iterdir():
        _sync(file)
    _write(work / MARKER, found)
    _sync(work / MARKER)
    _sync(work)
    return found


def _dequantised(source: GGUFFile, steps: Plan, progress: Progress) -> Iterator[tuple[str, torch.Tensor]]:
    total = sum(source.tensors[name].nbytes for name, _, _ in steps.rows)
    done = 0
    for row in steps.rows:
        info = source.tensors[row[0]]
        progress(done, total, f"Converting {info.name} ({info.type})")
        tensor = torch.from_numpy(source.read(info))
        refuse_not_finite(info.name, tensor, str(source.path), "The file is damaged: download it again.")
        yield from apply(row, tensor, steps.cfg).items()
        done += info.nbytes
    progress(done, total, "Writing the converted model to the disk")


def _save_tokenizer(source: GGUFFile, work: Path) -> list[str]:
    """Write the tokenizer, or say why there is none: a model without one still opens, with token ids for a prompt."""
    from lmcore.checkpoint.gguf_tokenizer import rebuild, save

    try:
        save(rebuild(source.metadata), source.metadata, work)
    except CheckpointError as error:
        return [f"no tokenizer: {error}"]
    return []


def _publish(work: Path, target: Path) -> None:
    publish(work, target, whole=lambda folder: record(folder) is not None)


def _drop_older(target: Path, source: str) -> None:
    """Delete conversions of the same file as it was before, or by an older converter: nobody asks for them again."""
    for folder in target.parent.iterdir():
        if folder != target and not folder.name.startswith(".") and (record(folder) or {}).get("source") == source:
            discard(folder)


def _refuse_full_disk(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed + 64 * 2**20 > free:
        raise CapacityError(
            f"the converted model needs {needed:,} bytes on the disk and {free:,} are free",
            expected="room for the weights in float32",
            where=str(folder.parent),
            todo="Free some space, or set GLASSBOX_CACHE to a folder on another disk.",
        )


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
