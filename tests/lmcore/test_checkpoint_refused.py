"""Bad folders: each gets the words for what is wrong with it, and nothing runs, hangs or is allocated on its word."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lmcore.checkpoint import hf, load_pretrained
from lmcore.errors import CapacityError, ConfigError, InputError, LmcoreError
from tests.lmcore.folders import EMBEDDING, HEAD, edit_config, edit_tensors, refusal
from tests.lmcore.tiny import hf_llama

# Configs


def test_config_that_is_cut_names_file_and_line(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text()[:200])
    message = refusal(folder)
    assert "config.json" in message
    assert "line" in message


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000, '{"model_type": ' + "1" * 5000 + "}", "\ufeff\x00"])
def test_config_that_is_no_object_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    assert "config.json" in refusal(folder, LmcoreError)


def test_unknown_type_and_auto_map_are_refused_and_run_nothing(folder: Path) -> None:
    (folder / "modeling_zorblax.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling_zorblax.Zorblax"})
    loaded = load_pretrained(folder)
    assert any("auto_map" in note for note in loaded.report.assumptions)
    edit_config(folder, model_type="zorblax")
    message = refusal(folder, ConfigError)
    assert "zorblax" in message
    assert "llama" in message
    assert "never run" in message
    assert not (folder / "ran").exists()


def test_heads_that_do_not_divide_name_the_field(folder: Path) -> None:
    edit_config(folder, num_key_value_heads=3)
    assert "num_key_value_heads" in refusal(folder, ConfigError)


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8"])
def test_quantised_formats_are_refused_by_name(folder: Path, method: str) -> None:
    edit_config(folder, quantization_config={"quant_method": method})
    assert method in refusal(folder)


def test_packed_tensors_are_refused_even_if_the_config_is_silent(folder: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    edit_tensors(folder, lambda t: t.update({name: t[name].to(torch.float8_e4m3fn)}))
    assert "F8_E4M3" in refusal(folder)
    edit_tensors(folder, lambda t: t.update({name + "_scale_inv": torch.ones(1, 1)}))
    assert "quantised" in refusal(folder)


def test_adapter_and_missing_config_say_what_they_are(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "config.json" in refusal(folder)
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/base"}')
    assert "adapter" in refusal(folder)


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_opened(folder: Path) -> None:
    edit_config(folder, hidden_size=2**20, intermediate_size=2**22, num_attention_heads=2**10)
    (folder / "model.safetensors").unlink()
    message = refusal(folder, CapacityError)
    assert message.count(",") > 6  # both numbers, in digits
    assert "float32" in message


def test_hostile_sizes_neither_hang_nor_allocate(folder: Path) -> None:
    edit_config(folder, num_hidden_layers=2**39)
    assert "num_hidden_layers" in refusal(folder, ConfigError)
    edit_config(folder, num_hidden_layers=9_999, vocab_size=2**39)
    refusal(folder, CapacityError)


def test_dtype_and_device_that_are_not_there(folder: Path) -> None:
    assert "int8" in refusal(folder, InputError, dtype="int8")
    assert "npu" in refusal(folder, InputError, device="npu")


# Files


def test_pickles_are_refused_and_not_opened(folder: Path) -> None:
    class Canary:
        def __reduce__(self) -> tuple:
            return (open, (str(folder / "ran"), "w"))

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Canary()))
    load_pretrained(folder)
    (folder / "model.safetensors").unlink()
    assert "pickle" in refusal(folder)
    assert "pickle" in refusal(folder / "pytorch_model.bin")
    assert not (folder / "ran").exists()


def broken(data: bytes) -> dict[str, tuple[bytes, str]]:
    """Variants of a good file's bytes, and a word that the message must have."""
    (length,) = struct.unpack("<Q", data[:8])
    return {
        "truncated": (data[:-1000], "truncated"),
        "in header": (data[: length // 2], "truncated"),
        "longer": (data + b"x", "belong to no tensor"),
        "empty": (b"", "empty"),
        "short": (b"abc", "header length"),
        "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
        "huge": (struct.pack("<Q", 2**40) + data[8:], "header"),
        "no JSON": (data[:8] + b"\xff" * length + data[8 + length :], "no JSON"),
    }


@pytest.mark.parametrize("kind", broken(b"\0" * 2000))
def test_broken_files_are_refused_with_a_word_for_what_is_wrong(folder: Path, kind: str) -> None:
    path = folder / "model.safetensors"
    data, word = broken(path.read_bytes())[kind]
    path.write_bytes(data)
    message = refusal(folder)
    assert "model.safetensors" in message
    assert word in message


def test_a_pipe_is_refused_without_waiting_for_a_writer(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    assert "plain file" in refusal(folder)


# Sharded folders


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    hf_llama("gqa").save_pretrained(tmp_path, max_shard_size="40KB")
    return tmp_path


def edit_map(shards: Path, tensor: str, file: object) -> None:
    path = shards / hf.INDEX
    index = json.loads(path.read_text())
    index["weight_map"][tensor] = file
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    "file", ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\b.safetensors", 7, "x.bin"]
)
def test_an_index_leads_nowhere_else(shards: Path, file: object) -> None:
    edit_map(shards, HEAD, file)
    assert HEAD in refusal(shards)


def test_a_link_out_of_the_folder_is_refused_but_a_hub_cache_is_not(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("hub")
    snapshot, blobs = home / "snapshots" / "abc", home / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (folder / "model.safetensors").rename(blobs / "0123")
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
    (snapshot / "config.json").write_text((folder / "config.json").read_text())
    assert load_pretrained(snapshot).report.tensor_count == 30
    (folder / "model.safetensors").symlink_to(blobs / "0123")
    assert "leads out" in refusal(folder)


def test_missing_shards_are_all_named(shards: Path) -> None:
    names = sorted(path.name for path in shards.glob("model-*.safetensors"))
    for name in names[:2]:
        (shards / name).unlink()
    message = refusal(shards)
    assert all(name in message for name in names[:2])
    (shards / hf.INDEX).unlink()
    assert "missing" in refusal(shards)


def test_a_lost_or_wrong_index_is_noted(shards: Path) -> None:
    other = sorted(path.name for path in shards.glob("model-*.safetensors"))[-1]
    edit_map(shards, EMBEDDING, other)
    notes = load_pretrained(shards).report.assumptions
    assert any(EMBEDDING in note and "wrong file" in note for note in notes)
    (shards / hf.INDEX).unlink()
    assert any("index" in note for note in load_pretrained(shards).report.assumptions)


def test_one_tensor_in_two_shards_is_refused(shards: Path) -> None:
    name = sorted(path.name for path in shards.glob("model-*.safetensors"))[0]
    extra = load_file(shards / name)
    save_file(extra, shards / "extra.safetensors")
    edit_map(shards, "another", "extra.safetensors")
    assert "in both" in refusal(shards)
