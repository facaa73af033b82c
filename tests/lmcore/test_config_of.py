"""Configs read without weights: the same as those of the loaded models, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lmcore import load_pretrained, presets
from lmcore.checkpoint.config_of import config_of
from lmcore.errors import CheckpointError, ConfigError, NotInModel
from tests.lmcore.gguf_files import write_gguf
from tests.lmcore.tiny import hf_llama

ROOT = Path(__file__).parent.parent.parent


def test_a_folder_and_a_file_in_it(folder: Path) -> None:
    found = config_of(folder)
    assert found == load_pretrained(folder).model.cfg
    assert config_of(str(folder / "model.safetensors")) == found
    (folder / "model.safetensors").unlink()
    assert config_of(folder) == found


def test_a_gguf_header(tmp_path: Path, cache: Path) -> None:
    """The header says all that the conversion's config does, and nothing is converted."""
    path = tmp_path / "tiny.gguf"
    write_gguf(path, hf_llama("gqa"))
    found = config_of(path)
    assert not list(cache.iterdir())
    assert found == load_pretrained(path).model.cfg


def test_what_is_known_already() -> None:
    assert config_of("builtin").n_layers == load_pretrained("builtin").model.cfg.n_layers
    assert config_of("config:gpt2") == presets.shipped("gpt2").config


def test_quantised_weights_do_not_matter_to_a_count(folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text())
    found = config_of(folder)
    (folder / "config.json").write_text(json.dumps(raw | {"quantization_config": {"quant_method": "gptq"}}))
    assert config_of(folder) == found
    with pytest.raises(CheckpointError, match="quantised"):
        load_pretrained(folder)


def test_what_cannot_be_read_says_why(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(CheckpointError, match="nothing at"):
        config_of(folder / "elsewhere")
    with pytest.raises(CheckpointError, match=r"config\.json is not in the folder"):
        config_of(tmp_path_factory.mktemp("empty"))
    (folder / "config.json").write_text('{"model_type": "unheard of"}')
    with pytest.raises(ConfigError, match="unheard of"):
        config_of(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="line 1"):
        config_of(folder)
    (folder / "broken.gguf").write_bytes(b"GGUF\x03")
    with pytest.raises(CheckpointError, match="truncated"):
        config_of(folder / "broken.gguf")


def test_a_file_in_parts_has_to_be_joined_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from lmcore.checkpoint import config_of as module
    from lmcore.checkpoint.sources import Place

    monkeypatch.setattr(module, "resolve", lambda source: Place("parts", None, "x"))
    with pytest.raises(NotInModel, match="comes in parts"):
        config_of("package:some")


def test_no_torch(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, hf_llama("gqa"))
    code = (
        "import sys; from lmcore.checkpoint import hub; from lmcore.checkpoint.config_of import config_of\n"
        f"assert config_of({str(folder)!r}) and config_of({str(path)!r})\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
