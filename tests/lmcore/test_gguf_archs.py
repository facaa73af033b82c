"""GGUF files of every architecture, against the models that they were written from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter

from lmcore.checkpoint import load_pretrained
from lmcore.checkpoint.convert import converted
from lmcore.checkpoint.gguf_names import GGUF_ARCHITECTURES
from lmcore.checkpoint.sources import resolve
from lmcore.gguf_config import ARCHITECTURES, config_from_gguf
from tests.lmcore.gguf_archs import FILES, write_arch
from tests.lmcore.test_families import TOKENS, worst


@pytest.mark.parametrize("name", FILES)
def test_the_file_gives_the_model_it_was_written_from(name: str, tmp_path: Path, cache: Path) -> None:
    theirs = write_arch(tmp_path / "x.gguf", FILES[name])
    loaded = load_pretrained(tmp_path / "x.gguf", dtype="float32", device="cpu")
    with torch.inference_mode():
        assert worst(loaded.model(TOKENS).logits, theirs(TOKENS).logits) <= 1e-4
    assert loaded.report.architecture == FILES[name].arch
    assert loaded.report.unused == ()
    assert not [note for note in loaded.report.assumptions if "not read" in note]
    mapped = [target for row in loaded.report.mapped for target in row.targets]
    assert sorted(mapped) == sorted(loaded.model.state_dict())


def test_every_architecture_is_written() -> None:
    assert {written.arch for written in FILES.values()} == set(ARCHITECTURES) == set(GGUF_ARCHITECTURES)


@pytest.mark.parametrize("name", ["llama biased", "granite", "gemma2", "gemma3", "nemotron", "gptneox", "bloom"])
def test_what_the_converter_changes_would_show(name: str, tmp_path: Path, cache: Path) -> None:
    """Negative control: files whose numbers were left as they are give other logits."""
    theirs = write_arch(tmp_path / "x.gguf", FILES[name], changed=False)
    with torch.inference_mode():
        assert worst(load_pretrained(tmp_path / "x.gguf").model(TOKENS).logits, theirs(TOKENS).logits) > 0.01


@pytest.mark.parametrize("name", ["gemma3", "olmo2", "qwen3moe", "granite", "falcon", "gpt2"])
def test_transformers_reads_the_conversion(name: str, tmp_path: Path, cache: Path) -> None:
    """The proof for the user runs the reference on the converted folder."""
    from transformers import AutoModelForCausalLM

    theirs = write_arch(tmp_path / "x.gguf", FILES[name])
    folder, _ = converted(resolve(tmp_path / "x.gguf"), lambda cfg: None, lambda done, total, text: None)
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        assert worst(again(TOKENS).logits, theirs(TOKENS).logits) <= 1e-4


# RoPE scalings in keys and in tensors


def rope_file(path: Path, arch: str, keys: dict, tensors: dict[str, np.ndarray]) -> None:
    writer = GGUFWriter(path, arch)
    for key, value in keys.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"{arch}.{key}", value)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


BASE = {"block_count": 1, "embedding_length": 16, "attention.head_count": 2, "feed_forward_length": 8}
BASE |= {"context_length": 64, "rope.freq_base": 100.0}


def config(arch: str, keys: dict, factors: dict[str, list[float]] | None = None):
    metadata = {f"{arch}.{key}": value for key, value in (BASE | keys).items()} | {"general.architecture": arch}
    shapes = {name: (len(values),) for name, values in (factors or {}).items()} | {"token_embd.weight": (9, 16)}
    cfg, notes = config_from_gguf(metadata, shapes, factors)
    assert not [note for note in notes if "not read" in note]
    assert cfg.rope is not None
    return cfg.rope


def test_linear_scaling_by_either_key() -> None:
    new = config("llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
    assert (new.type, new.factor) == ("linear", 4.0)
    assert config("llama", {"rope.scale_linear": 4.0}) == new
    assert config("llama", {"rope.scaling.factor": 4.0}) == new
    assert config("llama", {"rope.scaling.type": "none"}).type == "default"


def test_yarn() -> None:
    keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}
    rope = config("qwen2", keys)
    assert (rope.type, rope.factor, rope.original_max_positions) == ("yarn", 4.0, 16)


def test_llama3_divisors_come_from_the_tensor() -> None:
    """They are the same at every length, so keys stay rotated in the cache."""
    rope = config("llama", {}, {"rope_freqs.weight": [1.0, 1.5, 4.0, 8.0]})
    assert (rope.type, rope.short_factor) == ("divided", (1.0, 1.5, 4.0, 8.0))
    assert not rope.follows_length


def test_longrope_factors_come_from_their_tensors() -> None:
    factors = {"rope_factors_short.weight": [1.0, 1.1, 1.2, 1.3], "rope_factors_long.weight": [1.0, 2.0, 3.0, 4.0]}
    keys = {"rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.2}
    rope = config("phi3", keys, factors)
    assert (rope.type, rope.original_max_positions, rope.attention_factor) == ("longrope", 16, 1.2)
    assert (rope.short_factor, rope.long_factor) == tuple(tuple(values) for values in factors.values())


def test_factors_are_read_from_the_file(tmp_path: Path, cache: Path) -> None:
    written = FILES["llama"]
    theirs = write_arch(tmp_path / "x.gguf", written)
    from lmcore.checkpoint.gguf import GGUFFile

    with GGUFFile(tmp_path / "x.gguf") as file:
        tensors = {name: file.read(info) for name, info in file.tensors.items()}
        keys = {key.removeprefix("llama."): v for key, v in file.metadata.items() if key.startswith("llama.")}
    divisors = np.array([1.0, 2.0, 8.0, 8.0], np.float32)
    rope_file(tmp_path / "y.gguf", "llama", keys, tensors | {"rope_freqs.weight": divisors})
    mine = load_pretrained(tmp_path / "y.gguf")
    assert mine.model.cfg.rope is not None
    assert mine.model.cfg.rope.short_factor == (1.0, 2.0, 8.0, 8.0)
    theirs.model.rotary_emb.inv_freq /= torch.from_numpy(divisors)
    with torch.inference_mode():
        assert worst(mine.model(TOKENS).logits, theirs(TOKENS).logits) <= 1e-4
    assert any(row.source == "rope_freqs.weight" and row.transform == "not needed" for row in mine.report.mapped)


def test_the_converted_config_is_a_whole_one(tmp_path: Path, cache: Path) -> None:
    write_arch(tmp_path / "x.gguf", FILES["gemma3"])
    folder, found = converted(resolve(tmp_path / "x.gguf"), lambda cfg: None, lambda done, total, text: None)
    raw = json.loads((folder / "config.json").read_text())
    assert raw["model_type"] == "gemma3_text"
    assert any("llama.cpp" in note for note in found["notes"])
