"""Our safetensors parser: what a header says is checked before anything is done with it; what we write is standard."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from lmcore.checkpoint.tensorfile import MAX_HEADER_BYTES, TensorFile, write_float32
from lmcore.errors import CheckpointError

TENSORS = {"a": torch.randn(3, 5), "b.c": torch.randn(2, 3, 4), "d": torch.randn(()), "é": torch.empty(0, 4)}


def test_reads_what_the_reference_library_writes(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x.safetensors", metadata={"format": "pt"})
    with TensorFile(tmp_path / "x.safetensors") as file:
        assert file.entries.keys() == TENSORS.keys()
        for name, entry in file.entries.items():
            assert torch.equal(file.read(entry), TENSORS[name])


def test_writes_what_the_reference_library_reads(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_float32(path, {name: tuple(t.shape) for name, t in TENSORS.items()}, TENSORS.items())
    read = load_file(path)
    assert all(torch.equal(read[name], tensor) for name, tensor in TENSORS.items())
    with TensorFile(path) as file:
        assert min(entry.start for entry in file.entries.values()) % 64 == 0
        mapped = dict(file.mapped())
    assert all(torch.equal(mapped[name], tensor) for name, tensor in TENSORS.items())
    mapped["a"].fill_(7)  # private to the process: the file keeps its numbers
    assert torch.equal(load_file(path)["a"], TENSORS["a"])


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "4 bytes, expected 8"),
        ({"dtype": "F32", "shape": [2**61], "data_offsets": [0, 8]}, "shape"),
        ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, "integers"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}, "gap"),
        ({"dtype": "Q9", "shape": [2], "data_offsets": [0, 8]}, "Q9"),
        ({"dtype": "F32", "shape": [2]}, "wrongly"),
        ({"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}, "F32"),
        ([], "wrongly"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, entry: object, word: str) -> None:
    header = json.dumps({"a": entry}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    with pytest.raises(CheckpointError, match=word):
        TensorFile(tmp_path / "x.safetensors")


def test_overlapping_tensors_are_refused(tmp_path: Path) -> None:
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    header = json.dumps({"a": one, "b": one}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    with pytest.raises(CheckpointError, match="second tensor"):
        TensorFile(tmp_path / "x.safetensors")


@given(st.data())
def test_no_header_makes_the_parser_fail_otherwise(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Damage anywhere: the file opens, or CheckpointError says why not."""
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    if data.draw(st.booleans()):
        content = data.draw(st.binary(max_size=300))
    else:
        leaf = st.none() | st.integers() | st.text(max_size=4) | st.floats() | st.lists(st.integers(0, 20), max_size=3)
        entry = st.fixed_dictionaries(
            {"dtype": st.sampled_from(["F32", "I8"]) | leaf, "shape": leaf, "data_offsets": leaf}
        )
        header = json.dumps(data.draw(st.dictionaries(st.text(max_size=3), entry | leaf, max_size=4))).encode()
        length = data.draw(st.just(len(header)) | st.integers(0, 2**64 - 1))
        content = struct.pack("<Q", length) + header + data.draw(st.binary(max_size=40))
    path.write_bytes(content)
    with contextlib.suppress(CheckpointError):
        TensorFile(path).file.close()


def test_a_header_length_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", MAX_HEADER_BYTES) + b"{}")
    with pytest.raises(CheckpointError, match="truncated"):
        TensorFile(tmp_path / "x.safetensors")
