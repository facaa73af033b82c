"""Safetensors files, read and written by ourselves: the whole header is checked before anything is allocated.

Layout: u64 little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import torch

from lmcore.checkpoint.files import LFS_MARK, open_regular
from lmcore.errors import CheckpointError

# The reference implementation allows 100 MB; real headers stay below 16 MiB.
MAX_HEADER_BYTES = 64 * 2**20

TORCH_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# Known, so that their byte ranges can be checked, but no weights we could run: integers and packed formats.
ITEM_BYTES = {name: dtype.itemsize for name, dtype in TORCH_DTYPES.items()} | {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("U16", "I16"), 2),
    **dict.fromkeys(("U32", "I32"), 4),
    **dict.fromkeys(("U64", "I64", "C64"), 8),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: its dtype as the file spells it, its shape, and its bytes [start, stop) in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class TensorFile:
    """An open safetensors file: `entries` by name, checked; `read` copies one tensor, `mapped` leaves it in the file.

    A mapped file that someone truncates kills the process at the next access, so `mapped` is only for files that
    nobody but ourselves writes, and writes once: those of our own cache folder.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, open_regular(path)
        try:
            self.size = os.fstat(self.file.fileno()).st_size
            self.entries = {entry.name: entry for entry in _entries(self.file, self.size, path)}
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def read(self, entry: Entry) -> torch.Tensor:
        """The tensor in the dtype of the file, in memory of its own."""
        tensor = torch.empty(entry.shape, dtype=TORCH_DTYPES[entry.dtype])
        if entry.nbytes:
            view = tensor.view(-1).view(torch.uint8).numpy().data
            self.file.seek(entry.start)
            if self.file.readinto(view) != entry.nbytes:
                raise CheckpointError(
                    f"{self.path.name} became shorter while it was read",
                    expected=f"{self.size:,} bytes",
                    where=f"tensor {entry.name}",
                    todo="Load it again when nothing writes to it.",
                )
        return tensor

    def mapped(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each tensor as a view of the file's pages, private to this process (writing to it changes no file)."""
        storage = torch.UntypedStorage.from_file(str(self.path), shared=False, nbytes=self.size)
        whole = torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[call-overload]
        for entry in self.entries.values():
            part = whole[entry.start : entry.stop].view(TORCH_DTYPES[entry.dtype])
            yield entry.name, part.view(entry.shape)


def _entries(file: BufferedReader, size: int, path: Path) -> list[Entry]:
    def fail(found: str, expected: str = "", todo: str = "Download it again.") -> NoReturn:
        raise CheckpointError(f"{path.name} {found}", expected=expected, where=str(path), todo=todo)

    if size == 0:
        fail("is empty", "a safetensors file")
    start = file.read(8)
    if LFS_MARK.startswith(start):
        fail(
            "is a Git LFS pointer, not the weights",
            todo="Run `git lfs pull` in the folder, or download the file itself.",
        )
    if len(start) < 8:
        fail(f"has {size} bytes", "a header length of 8 bytes")
    (length,) = struct.unpack("<Q", start)
    if length > MAX_HEADER_BYTES:
        fail(f"says that its header has {length:,} bytes", f"at most {MAX_HEADER_BYTES:,}; it is no safetensors file")
    if length > size - 8:
        fail(f"is truncated: its header has {length:,} bytes and the file {size:,}", f"{8 + length:,} bytes or more")
    try:
        header = json.loads(file.read(length).decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        fail(f"has a header that is no JSON ({str(error)[:80]})", "safetensors")
    if not isinstance(header, dict):
        fail("has a header that is no JSON object", "safetensors")
    header.pop("__metadata__", None)
    entries = [_entry(name, value, 8 + length, fail) for name, value in header.items()]
    end = max((entry.stop for entry in entries), default=8 + length)
    if end > size:
        fail(f"is truncated: it has {size:,} bytes", f"{end:,} bytes, as its header says")
    at = 8 + length
    for entry in sorted(entries, key=lambda entry: (entry.start, entry.stop)):
        if entry.start != at:
            fail(
                f"has a {'gap' if entry.start > at else 'second tensor'} where {entry.name} begins",
                "tensors back to back",
            )
        at = entry.stop
    if at != size:
        fail(f"has {size - at:,} bytes that belong to no tensor", f"{at:,} bytes")
    return entries


def _entry(name: str, value: Any, base: int, fail: Any) -> Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        fail(f"describes tensor {name[:80]!r} wrongly", "dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        fail(f"stores tensor {name[:80]!r} as {str(dtype)[:20]!r}", "one of " + ", ".join(ITEM_BYTES))
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 2**62 for n in numbers):
            fail(f"gives tensor {name[:80]!r} the numbers {str(numbers)[:80]}", "lists of integers")
    if len(shape) > 8 or len(offsets) != 2:
        fail(f"gives tensor {name[:80]!r} {len(shape)} dims and {len(offsets)} offsets", "at most 8, and 2")
    count = 1
    for n in shape:
        count *= n
    if offsets[1] - offsets[0] != count * ITEM_BYTES[dtype]:
        fail(
            f"gives tensor {name[:80]!r} of shape {tuple(shape)} and dtype {dtype} {offsets[1] - offsets[0]:,} bytes",
            f"{count * ITEM_BYTES[dtype]:,}",
        )
    return Entry(name, dtype, tuple(shape), base + offsets[0], base + offsets[1])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different; ValueError otherwise (a second entry would hide the first)."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def write_float32(
    path: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """Write float32 tensors, one at a time in the order of `shapes`, and flush them to the disk.

    The header is padded so that the data begin on a multiple of 64 bytes, where mapped tensors are read fastest.
    """
    header, at = {}, 0
    for name, shape in shapes.items():
        nbytes = 4
        for n in shape:
            nbytes *= n
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for (name, shape), (given, tensor) in zip(shapes.items(), tensors, strict=True):
            assert (name, shape, torch.float32) == (given, tuple(tensor.shape), tensor.dtype)
            file.write(tensor.contiguous().view(-1).numpy().data)
        file.flush()
        os.fsync(file.fileno())
