"""Folders as Hugging Face writes them: the config, which files hold the weights, and their checked headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from lmcore.checkpoint.files import CONFIG, INDEX, SINGLE, raw_config, read_json
from lmcore.checkpoint.sources import PICKLE_TODO
from lmcore.checkpoint.tensorfile import TORCH_DTYPES, Entry, TensorFile
from lmcore.config import ModelConfig
from lmcore.errors import CheckpointError, ConfigError
from lmcore.families import config_from_hf, language_part

_SHARD = re.compile(r"(?P<stem>.*)-(?P<index>\d+)-of-(?P<count>\d+)\.safetensors")


class Weights(NamedTuple):
    """The weight files of a folder, open: which file holds which tensor, and what was odd about them."""

    tensors: Mapping[str, tuple[TensorFile, Entry]]
    notes: tuple[str, ...]


def read_config(folder: Path) -> tuple[ModelConfig, str, tuple[str, ...]]:
    """The config of a folder, its `model_type`, and notes. Raises CheckpointError or ConfigError; runs no code."""
    path, raw = folder / CONFIG, raw_config(folder)
    method = raw.get("quantization_config")
    if method:
        name = str(method.get("quant_method") if isinstance(method, dict) else method)[:40]
        raise CheckpointError(
            f"the weights are quantised with {name!r} (quantization_config)",
            expected="float32, bfloat16 or float16 weights, or a GGUF file",
            where=str(path),
            todo="Load the unquantised model.",
        )
    notes: list[str] = []
    if raw.get("auto_map"):
        notes.append("auto_map names Python code in the folder: it was not run, the architecture is lmcore's own")
    try:
        cfg, assumed = config_from_hf(raw, str(path))
    except ConfigError as error:
        if raw.get("auto_map"):
            error.todo = "The model needs its own code (auto_map), which is never run here."
        raise
    return cfg, str(language_part(raw)[0]["model_type"]), (*assumed, *notes)


# Where multimodal wrappers keep their language model, in the order in which they are looked for.
WRAPPERS = ("language_model.", "model.language_model.")


def language_weights(weights: Weights) -> Weights:
    """The tensors of the language model under their own names; those of other towers are left out and counted."""
    for prefix in WRAPPERS:
        inside = {name.removeprefix(prefix): held for name, held in weights.tensors.items() if name.startswith(prefix)}
        if inside:
            if prefix == "model.language_model.":
                inside = {
                    name if name.startswith("lm_head.") else f"model.{name}": held for name, held in inside.items()
                }
                inside |= {name: held for name, held in weights.tensors.items() if name.startswith("lm_head.")}
            left = len(weights.tensors) - len(inside)
            return Weights(inside, (*weights.notes, f"{left} tensors outside the language model were not read"))
    return weights


def open_weights(folder: Path, only: str | None, stack: ExitStack) -> Weights:
    """The weights of a folder, every header checked, kept open until `stack` closes.

    Order as in `transformers`: `only` when given, model.safetensors, the index; else a complete set of shards.
    """
    notes: list[str] = []
    weight_map: Mapping[str, str] = {}
    if only is not None or (folder / SINGLE).exists():
        names = [only or SINGLE]
    elif (folder / INDEX).exists():
        weight_map = _weight_map(folder / INDEX)
        names = sorted(set(weight_map.values()))
    else:
        names = _unlisted_shards(folder)
        notes.append(f"{INDEX} is not there: all {len(names)} shards were read")
    absent = [name for name in names if not (folder / name).exists()]
    if absent:
        raise CheckpointError(
            f"{len(absent)} of {len(names)} weight files are missing: {', '.join(absent[:6])}",
            expected=f"all files that {INDEX} lists",
            where=str(folder),
            todo="Download them.",
        )
    tensors: dict[str, tuple[TensorFile, Entry]] = {}
    for name in names:
        file = stack.enter_context(TensorFile(_inside(folder, name)))
        for entry in file.entries.values():
            if entry.name in tensors:
                other = tensors[entry.name][0].path.name
                raise CheckpointError(
                    f"tensor {entry.name} is in both {other} and {name}", expected="one", where=str(folder)
                )
            tensors[entry.name] = (file, entry)
    moved = [name for name, file in weight_map.items() if name in tensors and tensors[name][0].path.name != file]
    if moved:
        notes.append(f"{INDEX} names the wrong file for {', '.join(moved[:4])}; the tensor was found in another")
    return Weights(tensors, tuple(notes))


def refuse_packed(name: str, entry: Entry, where: str) -> None:
    """Raise CheckpointError for a tensor whose numbers are no plain floats."""
    if entry.dtype not in TORCH_DTYPES:
        raise CheckpointError(
            f"tensor {name} is stored as {entry.dtype}, a quantised format",
            expected="one of " + ", ".join(TORCH_DTYPES),
            where=where,
            todo="Load the unquantised model, or a GGUF file of it.",
        )


def _weight_map(path: Path) -> Mapping[str, str]:
    """Which file holds which tensor; each file a plain name, so that no entry leads out of the folder."""
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path.name} has no weight_map", expected="tensor names and files", where=str(path))
    for tensor, file in weight_map.items():
        plain = isinstance(file, str) and file.endswith(".safetensors") and not set(file) & set("/\\:\0")
        if not plain:
            kind = "a pickle" if str(file).endswith((".bin", ".pt", ".pth")) else "not a plain file name"
            raise CheckpointError(
                f"{path.name} puts tensor {tensor[:80]} into {str(file)[:80]!r}, {kind}",
                expected="a .safetensors file of the same folder",
                where=str(path),
                todo="Do not trust this folder: nothing outside it was read.",
            )
    return weight_map


def _unlisted_shards(folder: Path) -> list[str]:
    """All shards of a folder that has lost its index. Raises CheckpointError when there is no complete set."""
    names = sorted(path.name for path in folder.iterdir())
    shards = [match for name in names if (match := _SHARD.fullmatch(name))]
    counts = {(match["stem"], int(match["count"])) for match in shards}
    if len(counts) == 1:
        stem, count = counts.pop()
        have = {int(match["index"]) for match in shards}
        if have == set(range(1, count + 1)):
            return [match.string for match in shards]
        raise CheckpointError(
            f"{count - len(have)} of {count} weight files {stem}-... are missing, and so is {INDEX}",
            expected="all of them",
            where=str(folder),
            todo="Download them.",
        )
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
    if pickles:
        raise CheckpointError(
            f"the weights are only there as a pickle ({pickles[0]})",
            expected=SINGLE,
            where=str(folder),
            todo=PICKLE_TODO,
        )
    raise CheckpointError(
        "there are no weights in the folder", expected=f"{SINGLE} or {INDEX} with its files", where=str(folder)
    )


def _inside(folder: Path, name: str) -> Path:
    """A file of the folder. A link may lead to that folder, or to the `blobs` of its hub cache."""
    path = folder / name
    real, home = path.resolve(), folder.resolve()
    allowed = {home, home.parent.parent / "blobs"} if home.parent.name == "snapshots" else {home}
    if real.parent not in allowed:
        raise CheckpointError(
            f"{name} is a link that leads out of the folder",
            expected="a file of the folder",
            where=str(folder),
            todo="Copy the file there.",
        )
    return path
