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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from lmcore.checkpoint.cachefolder import cache_root, discard, publish, sweep
from lmcore.checkpoint.cachefolder import sync as _sync
from lmcore.checkpoint.gguf import GGUFFile, rope_factors
from lmcore.checkpoint.gguf_names import gguf_rules
from lmcore.checkpoint.names import rules_for
from lmcore.checkpoint.rules import Mapped, Plan, Renamed, Row, apply, plan, refuse_not_finite, renamed
from lmcore.checkpoint.sources import Place
from lmcore.checkpoint.tables import HF_RULES
from lmcore.checkpoint.tensorfile import write_float32
from lmcore.config import ModelConfig
from lmcore.costs import weight_bytes
from lmcore.errors import CapacityError, CheckpointError
from lmcore.families import config_from_hf
from lmcore.gguf_config import hf_from_gguf
from lmcore.gguf_families import IMPLIED

Progress = Callable[[int, int, str], None]

# Part of each folder's name: raise it when the same file would be converted differently.
CONVERTER_VERSION = 2
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
        raw = hf_from_gguf(source.metadata, source.shapes, rope_factors(source))
        arch = source.metadata["general.architecture"]
        cfg, _ = config_from_hf(raw, "the GGUF metadata")
        steps = renamed(cfg, source.shapes, gguf_rules(arch, source.shapes), str(path))
        parameters = plan(cfg, steps.shapes, HF_RULES + rules_for(raw["model_type"], cfg), str(path))
        refuse_left_over(parameters.unused, str(path))
        check(parameters.cfg)
        _refuse_full_disk(weight_bytes(parameters.cfg, 4), work)
        # float32, although the file has fewer bits: scale * integer + offset is exact in float32 and not in 16 bits.
        kept = [row for row in steps.rows if not set(row[1]) & set(parameters.unused)]
        shapes = {target: steps.shapes[target] for _, targets, _ in kept for target in targets}
        write_float32(work / "model.safetensors", shapes, _dequantised(source, kept, cfg, progress))
        _write(work / "config.json", raw | {"dtype": "float32"})
        types = Counter(source.tensors[name].type for name, _, _ in kept)
        implied = [note for name, note in IMPLIED.items() if name == arch]
        found = {
            "source": str(path),
            "architecture": arch,
            "types": dict(types.most_common()),
            "mapped": [list(row) for row in _mapped(steps, parameters)],
            "unused": list(parameters.unused),
            "notes": [*implied, *steps.notes, *parameters.notes, *_save_tokenizer(source, work)],
            "bytes_read": sum(source.tensors[name].nbytes for name, _, _ in kept),
            "files": {file.name: file.stat().st_size for file in sorted(work.iterdir())},
        }
    for file in work.iterdir():
        _sync(file)
    _write(work / MARKER, found)
    _sync(work / MARKER)
    _sync(work)
    return found


def refuse_left_over(unused: Iterable[str], where: str) -> None:
    """Raise CheckpointError for a tensor inside a layer that no rule names: leaving it out would be silently wrong."""
    left = [name for name in unused if name.startswith("blk.")]
    if left:
        raise CheckpointError(
            f"{len(left)} tensors of the layers have no place in this architecture: {', '.join(left[:4])}",
            expected="the tensors of the architecture alone",
            where=where,
            todo="The file is damaged, or of a variant that lmcore does not run.",
        )


def _mapped(steps: Renamed, parameters: Plan) -> tuple[Mapped, ...]:
    """For each tensor of the file, the parameters it becomes in the end, and what is done to it on the way."""
    later = {row.source: row for row in parameters.mapped}
    rows = []
    for name, targets, transform in steps.rows:
        then = [later[target] for target in targets if target in later]
        if not then:
            continue
        changes = dict.fromkeys([transform.__name__.replace("_", " ")] if transform else [])
        changes |= dict.fromkeys(row.transform for row in then if row.transform != "as it is")
        became = tuple(target for row in then for target in row.targets)
        rows.append(Mapped(name, became, ", then ".join(changes) or "as it is"))
    return (*rows, *(Mapped(name, (), "not needed") for name in steps.ignored))


def _dequantised(
    source: GGUFFile, rows: list[Row], cfg: ModelConfig, progress: Progress
) -> Iterator[tuple[str, torch.Tensor]]:
    total = sum(source.tensors[name].nbytes for name, _, _ in rows)
    done = 0
    for row in rows:
        info = source.tensors[row[0]]
        progress(done, total, f"Converting {info.name} ({info.type})")
        tensor = torch.from_numpy(source.read(info))
        refuse_not_finite(info.name, tensor, str(source.path), "The file is damaged: download it again.")
        yield from apply(row, tensor, cfg).items()
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
