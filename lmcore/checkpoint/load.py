"""From a source to a running model: find it, check everything that can be checked unread, read, convert, report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from lmcore.checkpoint import builtin
from lmcore.checkpoint.convert import Progress, converted
from lmcore.checkpoint.hf import language_weights, open_weights, read_config, refuse_packed
from lmcore.checkpoint.names import rules_for
from lmcore.checkpoint.rules import EMBEDDING, HEAD, LoadReport, Mapped, Plan, apply, plan, refuse_not_finite
from lmcore.checkpoint.sources import BUILTIN, Fetched, Place, resolve
from lmcore.checkpoint.staging import joined
from lmcore.checkpoint.tables import HF_RULES
from lmcore.checkpoint.tensorfile import TORCH_DTYPES, Entry, TensorFile
from lmcore.config import ModelConfig
from lmcore.costs import weight_bytes
from lmcore.device import DTYPES, available_bytes, pick_device, pick_dtype
from lmcore.errors import CapacityError, CheckpointError
from lmcore.model import Transformer
from lmcore.presets import Described, described
from lmcore.tokenizer import Tokenizer


class Loaded(NamedTuple):
    """A model, its tokenizer when it has one, and what loading found, did and assumed."""

    model: Transformer
    tokenizer: Tokenizer | None
    report: LoadReport


class _Content(NamedTuple):
    """What one kind of source yields; the report is made of it."""

    cfg: ModelConfig
    tensors: dict[str, torch.Tensor]
    tokenizer: Tokenizer | None
    architecture: str
    mapped: tuple[Mapped, ...]
    unused: tuple[str, ...]
    stored: dict[str, int]
    quantisation: str | None
    notes: tuple[str, ...]
    bytes_read: int


class _Target(NamedTuple):
    """Where the weights go, in which dtype, and whom to tell."""

    device: str
    dtype: torch.dtype
    progress: Progress

    def check(self, cfg: ModelConfig) -> None:
        """Refuse a model that does not fit, by its config, before a tensor is read."""
        needed, free = weight_bytes(cfg, self.dtype.itemsize), available_bytes(self.device)
        if needed > free:
            raise CapacityError(
                f"the weights need {needed:,} bytes in {_name(self.dtype)} and {free:,} are free on {self.device}",
                expected="a model that fits",
                where="the memory of this machine",
                todo="Close other programs, choose a 16-bit dtype, or load a smaller model.",
            )


def load_pretrained(
    source: str | Path,
    *,
    dtype: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """The model at a source: "builtin", "teaching:<name>", "package:<name>", a folder, a .gguf file, .safetensors
    beside a config, or one of a hub ("owner/name", "owner/name@revision", "hub:owner/name/file.gguf"). Of a config
    alone, "config:<preset>" or "json:<text>", it is a model with random weights and no tokenizer.

    `progress(done, total, text)` is called often; what it raises cancels the load and passes through. Raises
    CheckpointError, ConfigError, CapacityError or InputError, each saying what was found and what to do.
    """
    started = time.perf_counter()
    device = pick_device(device)
    target = _Target(device, getattr(torch, pick_dtype(dtype, device)), progress or (lambda done, total, text: None))
    if isinstance(source, str) and (config := described(source)) is not None:
        target.check(config.config)
        return _random(config, source, target)
    place, fetched = _on_this_machine(resolve(source), target)
    if place.kind == BUILTIN:
        content = _builtin(target)
    elif place.kind == "gguf":
        content = _gguf(place, target)
    else:
        content = _folder(place, target)
    model = assemble(content.cfg, content.tensors)
    notes = (*fetched, *content.notes)
    if content.tokenizer is not None and content.tokenizer.vocab_size > content.cfg.vocab_size:
        rows = content.cfg.vocab_size
        notes += (f"the tokenizer has {content.tokenizer.vocab_size:,} tokens and the embedding {rows:,} rows",)
    report = LoadReport(
        source=str(source),
        path=str(place.path or ""),
        architecture=content.architecture,
        parameter_count=sum(parameter.numel() for parameter in model.parameters()),
        tensor_count=len(content.mapped) + len(content.unused),
        mapped=content.mapped,
        unused=content.unused,
        missing=(EMBEDDING,) if any(r.source == HEAD and EMBEDDING in r.targets for r in content.mapped) else (),
        dtype=_name(target.dtype),
        stored_dtype=", ".join(content.stored),
        quantisation=content.quantisation,
        assumptions=notes,
        bytes_read=content.bytes_read,
        seconds=time.perf_counter() - started,
    )
    return Loaded(model, content.tokenizer, report)


def _random(config: Described, source: str, target: _Target) -> Loaded:
    from lmcore.checkpoint.fresh import random_model  # only here: it builds on this module

    dtype = _name(target.dtype)
    return random_model(config, source=source, dtype=dtype, device=target.device, progress=target.progress)


def _on_this_machine(place: Place, target: _Target) -> Fetched:
    """The place, after what is elsewhere was downloaded and what is in pieces was joined, and notes on that."""
    if place.kind == "hub":
        from lmcore.checkpoint import hub  # only here: it imports an HTTP client

        return hub.fetch(place, lambda folder: target.check(read_config(folder)[0]), target.progress)
    if place.kind == "parts":
        return joined(place, target.progress)
    return Fetched(place, ())


class _Uninitialised(TorchFunctionMode):
    """Skips `torch.nn.init` in its thread: on the meta device it would set nothing and import for 1.7 seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # transformers, once imported, has put functions of its own in the place of torch's.
        if getattr(func, "__module__", None) in ("torch.nn.init", "transformers.initialization"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def on_meta(cfg: ModelConfig) -> Transformer:
    """The model without memory: its parameters have shapes and no numbers, whatever their count."""
    with torch.device("meta"), _Uninitialised():
        return Transformer(cfg)


def assemble(cfg: ModelConfig, tensors: dict[str, torch.Tensor]) -> Transformer:
    """The model with these tensors as its parameters: built without memory of its own, so nothing is held twice."""
    model = on_meta(cfg)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.requires_grad_(False).eval()


def _builtin(target: _Target) -> _Content:
    cfg = builtin.config()
    tensors = {name: tensor.to(target.device, target.dtype) for name, tensor in builtin.weights(cfg)}
    mapped = tuple(Mapped(name, (name,), "as it is") for name in tensors)
    return _Content(cfg, tensors, builtin.tokenizer(), "llama", mapped, (), {"float32": 1}, None, (builtin.NOTE,), 0)


def _gguf(place: Place, target: _Target) -> _Content:
    folder, found = converted(place, target.check, target.progress)
    cfg, family, notes = read_config(folder)
    target.check(cfg)
    with TensorFile(folder / "model.safetensors") as file:
        shapes = {name: entry.shape for name, entry in file.entries.items()}
        steps = plan(cfg, shapes, HF_RULES + rules_for(family, cfg), str(folder))
        rows = {row[0]: row for row in steps.rows}
        # Our own file: checked for NaN when it was written, and nobody but us writes to it, so it can stay mapped.
        parts = (part for name, tensor in file.mapped() for part in apply(rows[name], tensor, cfg).items())
        tensors = {name: tensor.to(target.device, target.dtype).contiguous() for name, tensor in parts}
        _refuse_overflow(tensors.items(), file.entries, target, str(place.path))
    types = found["types"]
    quantisation = ", ".join(f"{name} ({count} tensor{'s' if count > 1 else ''})" for name, count in types.items())
    mapped = tuple(Mapped(name, tuple(targets), change) for name, targets, change in found["mapped"])
    tokenizer, why = _tokenizer(folder)
    return _Content(
        cfg,
        tensors,
        tokenizer,
        found["architecture"],
        mapped,
        tuple(found["unused"]),
        types,
        quantisation if set(types) - {"F32", "F16", "BF16"} else None,
        (*notes, *(found["notes"] or why)),
        found["bytes_read"],
    )


def _folder(place: Place, target: _Target) -> _Content:
    assert place.path is not None
    single = place.kind == "safetensors"
    folder, only = (place.path.parent, place.path.name) if single else (place.path, None)
    cfg, architecture, notes = read_config(folder)
    target.check(cfg)
    with ExitStack() as stack:
        weights = language_weights(open_weights(folder, only, stack))
        rules = HF_RULES + rules_for(architecture, cfg)
        steps = plan(cfg, {name: entry.shape for name, (_, entry) in weights.tensors.items()}, rules, str(folder))
        target.check(steps.cfg)
        tensors = _read(steps, weights.tensors, target, str(folder))
    cfg, head_notes = _settle_head(cfg, steps.cfg, tensors)
    read = [weights.tensors[name][1] for name, _, _ in steps.rows]
    stored = Counter(_name(TORCH_DTYPES[entry.dtype]) for entry in read)
    tokenizer, why = _tokenizer(folder)
    return _Content(
        cfg,
        tensors,
        tokenizer,
        architecture,
        steps.mapped,
        steps.unused,
        dict(stored.most_common()),
        None,
        (*notes, *weights.notes, *steps.notes, *head_notes, *why),
        sum(entry.nbytes for entry in read),
    )


def _read(
    steps: Plan, found: Mapping[str, tuple[TensorFile, Entry]], target: _Target, where: str
) -> dict[str, torch.Tensor]:
    """The parameters, read one tensor at a time: at most one of them is in memory twice."""
    for name, _, _ in steps.rows:
        refuse_packed(name, found[name][1], where)
    total = sum(found[name][1].nbytes for name, _, _ in steps.rows)
    done, tensors = 0, {}
    for row in steps.rows:
        file, entry = found[row[0]]
        target.progress(done, total, f"Reading {entry.name}")
        tensor = file.read(entry)
        refuse_not_finite(entry.name, tensor, str(file.path), "The file is damaged: download it again.")
        for name, part in apply(row, tensor, steps.cfg).items():
            tensors[name] = part.to(target.device, target.dtype).contiguous()
        _refuse_overflow(((name, tensors[name]) for name in row[1]), {entry.name: entry}, target, where)
        done += entry.nbytes
    target.progress(total, total, "Building the model")
    return tensors


def _refuse_overflow(
    tensors: Iterable[tuple[str, torch.Tensor]], stored: dict[str, Entry], target: _Target, where: str
) -> None:
    """float16 ends at 65,504: larger weights, which the file may hold in another dtype, would become infinite."""
    if target.dtype == torch.float16 and any(entry.dtype != "F16" for entry in stored.values()):
        for name, tensor in tensors:
            refuse_not_finite(name, tensor, where, "In float16 it does; choose float32 or bfloat16.")


def _settle_head(
    said: ModelConfig, used: ModelConfig, tensors: dict[str, torch.Tensor]
) -> tuple[ModelConfig, tuple[str, ...]]:
    """The config and a note for a file that holds a head although its config says that the head is the embedding."""
    if not said.tied or used.tied:
        return used, ()
    if torch.equal(tensors[EMBEDDING], tensors[HEAD]):
        del tensors[HEAD]
        return said, (f"{HEAD} is stored too, and equals the embedding that it is tied to",)
    return used, (f"the config says that the head is tied, but {HEAD} differs from the embedding: it is used, untied",)


def _tokenizer(folder: Path) -> tuple[Tokenizer | None, tuple[str, ...]]:
    """The tokenizer of a folder, or none and why."""
    try:
        return Tokenizer.from_folder(folder), ()
    except CheckpointError as error:
        return None, (f"no tokenizer: {error}",)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


assert all(hasattr(torch, name) for name in DTYPES)
