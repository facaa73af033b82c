"""GGUF files: metadata and tensor table, parsed by ourselves with every length checked before it is used.

The reader of the `gguf` package makes a numpy view of each token's string, which takes seconds for a vocabulary of
49,152 and trusts the file's lengths; its dequantisers are used. Format: ggml-org/ggml, docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import os
import struct
from io import BufferedReader
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from lmcore.checkpoint.files import LFS_MARK, open_regular
from lmcore.errors import CheckpointError

# A vocabulary of 260,000 tokens with its merges takes about 15 MiB.
MAX_METADATA_BYTES = 64 * 2**20
MAX_DIMS = 4
# Tensors that belong to the RoPE spec. A head has at most a few hundred dims: what claims more is not read.
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
MAX_ROPE_PAIRS = 4096
# Numbers turned into float32 at a time: a large embedding would otherwise be in memory several times.
CHUNK_NUMBERS = 2**21

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY, _FLOAT32 = 8, 9, 6

# Types that can be turned into float32 weights, by their number in the file: (numbers, bytes) of a block.
BLOCKS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}


class TensorInfo(NamedTuple):
    """A tensor of the file: its type as the file names it, its shape with rows first, and its bytes in the file."""

    name: str
    type: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


class GGUFFile:
    """An open GGUF file: `metadata` (numbers, strings, tuples of strings, numpy arrays of numbers) and `tensors`."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, open_regular(path)
        try:
            self.size = os.fstat(self.file.fileno()).st_size
            cursor = _Cursor(self.file, self.size, path)
            self.metadata, tensor_count = _metadata(cursor)
            self.tensors = {info.name: info for info in _tensors(cursor, tensor_count, self.metadata)}
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: info.shape for name, info in self.tensors.items()}

    def read(self, info: TensorInfo) -> np.ndarray:
        """The tensor as float32 in memory of its own, dequantised by the `gguf` package."""
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        rows = prod(info.shape[:-1])
        out = np.empty((rows, info.shape[-1]), np.float32)
        # A tensor of no rows has no bytes per row to speak of.
        row_bytes = info.nbytes // max(1, rows)
        step = max(1, CHUNK_NUMBERS // max(1, info.shape[-1]))
        self.file.seek(info.start)
        for start in range(0, rows, step):
            data = np.empty((min(step, rows - start), row_bytes), np.uint8)
            if self.file.readinto(data.data) != data.nbytes:
                raise CheckpointError(
                    f"{self.path.name} became shorter while it was read",
                    expected=f"{self.size:,} bytes",
                    where=f"tensor {info.name}",
                    todo="Load it again when nothing writes to it.",
                )
            out[start : start + step] = dequantize(data, GGMLQuantizationType[info.type])
        return out.reshape(info.shape)


def rope_factors(source: GGUFFile) -> dict[str, list[float]]:
    """The divisors of RoPE's frequencies that the file holds as tensors, as the shortest decimals of their float32."""
    found = {}
    for name in ROPE_TENSORS:
        info = source.tensors.get(name)
        if info is not None and prod(info.shape) <= MAX_ROPE_PAIRS:
            found[name] = [float(str(value)) for value in source.read(info).ravel()]
    return found


class _Cursor:
    """A position in the file that refuses to be led past its end."""

    def __init__(self, file: BufferedReader, size: int, path: Path) -> None:
        self.file, self.size, self.path, self.at = file, size, path, 0

    def fail(self, found: str, expected: str = "", todo: str = "Download it again.") -> CheckpointError:
        return CheckpointError(f"{self.path.name} {found}", expected=expected, where=str(self.path), todo=todo)

    def take(self, count: int) -> bytes:
        if count > min(self.size, MAX_METADATA_BYTES) - self.at:
            if self.at + count > self.size:
                raise self.fail(
                    f"is truncated: it has {self.size:,} bytes",
                    f"{self.at + count:,} bytes or more, as its header says",
                )
            raise self.fail("has metadata that are too large", f"at most {MAX_METADATA_BYTES:,} bytes of metadata")
        data = self.file.read(count)
        if len(data) != count:
            raise self.fail("became shorter while it was read", f"{self.size:,} bytes")
        self.at += count
        return data

    def scalar(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def string(self) -> str:
        # Tokens may hold bytes that are no UTF-8; the vocabulary then has a replacement character there.
        return self.take(self.scalar("<Q")).decode(errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _FLOAT32:
            # The shortest decimal that rounds to the stored float32: 1e-05, not 9.999999747378752e-06.
            return float(str(np.float32(self.scalar("<f"))))
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise self.fail(f"has a metadata value of type {kind}", "a type from 0 to 12")
        kind, count = self.scalar("<I"), self.scalar("<Q")
        if kind == _STRING:
            if count * 8 > self.size - self.at:
                raise self.fail(f"is truncated: it says that {count:,} strings follow", f"{count * 8:,} bytes or more")
            return tuple(self.string() for _ in range(count))
        if kind not in _SCALARS:
            raise self.fail(f"has an array of values of type {kind}", "an array of numbers or strings")
        item = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.take(count * item.itemsize), item)


def _metadata(cursor: _Cursor) -> tuple[dict[str, Any], int]:
    """The metadata by key, and the number of tensors that the header says."""
    if cursor.size == 0:
        raise cursor.fail("is empty", "a GGUF file")
    magic = cursor.file.read(4)
    if LFS_MARK.startswith(magic):
        raise cursor.fail(
            "is a Git LFS pointer, not the weights", todo="Run `git lfs pull`, or download the file itself."
        )
    if magic != b"GGUF":
        raise cursor.fail(f"is not a GGUF file: it begins with {magic!r}", "the letters GGUF")
    cursor.at = 4
    version = cursor.scalar("<I")
    if version not in (2, 3):
        big = version in (2 << 24, 3 << 24)
        raise cursor.fail(
            f"is a {'big-endian GGUF file' if big else f'GGUF file of version {version}'}",
            "a little-endian GGUF file of version 2 or 3",
            todo="Convert the model again with a current llama.cpp.",
        )
    tensor_count, count = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string()
        if key in metadata:
            raise cursor.fail(f"has the metadata key {key[:80]!r} twice", "each key once")
        metadata[key] = cursor.value(cursor.scalar("<I"))
    return metadata, tensor_count


def _tensors(cursor: _Cursor, count: int, metadata: dict[str, Any]) -> list[TensorInfo]:
    align = metadata.get("general.alignment", 32)
    if not isinstance(align, int) or not 0 < align <= 2**20 or align & (align - 1):
        raise cursor.fail(f"has general.alignment {str(align)[:40]}", "a power of two")
    if metadata.get("split.count", 1) not in (0, 1):
        raise cursor.fail(
            "is one part of a model that is split over several GGUF files",
            "the whole model in one file",
            todo="Join the parts with `llama-gguf-split --merge`.",
        )
    table: list[tuple[str, int, tuple[int, ...], int]] = []
    for _ in range(count):
        name, n_dims = cursor.string(), cursor.scalar("<I")
        if n_dims > MAX_DIMS:
            raise cursor.fail(f"gives tensor {name[:80]!r} {n_dims} dims", f"at most {MAX_DIMS}")
        dims = struct.unpack(f"<{n_dims}Q", cursor.take(8 * n_dims))
        table.append((name, cursor.scalar("<I"), dims[::-1], cursor.scalar("<Q")))
    base = cursor.at + -cursor.at % align
    infos = [_info(cursor, base, align, *row) for row in table]
    if len({info.name for info in infos}) != len(infos):
        raise cursor.fail("has two tensors of one name", "each name once")
    end = max((info.start + info.nbytes for info in infos), default=cursor.at)
    if end > cursor.size:
        raise cursor.fail(f"is truncated: it has {cursor.size:,} bytes", f"{end:,} bytes, as its header says")
    at, last = base, ""
    for info in sorted(infos, key=lambda info: (info.start, info.nbytes)):
        if info.start < at:
            raise cursor.fail(
                f"has tensors {last[:80]!r} and {info.name[:80]!r} in the same place", "tensors side by side"
            )
        at, last = info.start + info.nbytes, info.name
    return infos


def _info(cursor: _Cursor, base: int, align: int, name: str, kind: int, shape: tuple[int, ...], at: int) -> TensorInfo:
    if kind not in BLOCKS:
        raise cursor.fail(
            f"stores tensor {name[:80]!r} in GGUF type number {kind}",
            "one of " + ", ".join(type_name for type_name, _, _ in BLOCKS.values()),
            todo="Load another quantisation of the model.",
        )
    type_name, numbers, nbytes = BLOCKS[kind]
    if not shape or shape[-1] % numbers or at % align:
        raise cursor.fail(
            f"describes tensor {name[:80]!r} wrongly (shape {shape}, type {type_name}, offset {at})",
            f"rows of a multiple of {numbers} numbers, at a multiple of {align} bytes",
        )
    return TensorInfo(name, type_name, shape, base + at, prod(shape) // numbers * nbytes)
