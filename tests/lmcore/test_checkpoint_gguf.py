"""GGUF files: our parser, the tables of names, the rows of q and k, and what is refused."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from hypothesis import given
from hypothesis import strategies as st

from lmcore.checkpoint import load_pretrained
from lmcore.checkpoint.gguf import BLOCKS, GGUFFile
from lmcore.errors import CheckpointError, ConfigError, LmcoreError
from lmcore.gguf_config import config_from_gguf
from tests.lmcore.folders import refusal
from tests.lmcore.gguf_files import byte_tokens, write_gguf
from tests.lmcore.tiny import hf_llama, tiny_tokens

QUANTS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
# Rows of 64: packed formats pack 32 numbers of a row.
SHAPE = {"hidden_size": 64, "vocab_size": 260, "head_dim": 16}


@pytest.fixture
def file(tmp_path: Path, cache: Path) -> Path:
    write_gguf(tmp_path / "model.gguf", hf_llama("gqa", **SHAPE))
    return tmp_path / "model.gguf"


def edited(file: Path, old: bytes, new: bytes) -> Path:
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new, 1))
    return file


@pytest.mark.parametrize("variant", ["gqa", "mha", "mqa", "tied", "biases", "base"])
def test_the_file_gives_the_model_it_was_written_from(variant: str, tmp_path: Path, cache: Path) -> None:
    theirs = hf_llama(variant)
    write_gguf(tmp_path / "x.gguf", theirs, tokenizer=None)
    loaded = load_pretrained(tmp_path / "x.gguf")
    state = loaded.model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in theirs.state_dict().items() if name in state)
    tokens = tiny_tokens()
    with torch.inference_mode():
        assert (loaded.model(tokens).logits - theirs(tokens).logits).abs().max() < 1e-4
    assert loaded.model.cfg.tied == (variant == "tied")
    assert loaded.model.cfg.norm.eps == 1e-5  # the shortest decimal of the float32 in the file
    assert loaded.report.quantisation is None
    assert loaded.tokenizer is None


def test_rows_left_interleaved_would_show(tmp_path: Path, cache: Path) -> None:
    """Negative control: the same check on a file whose rows were not reordered fails, for q and for k."""
    theirs = hf_llama("gqa")
    write_gguf(tmp_path / "x.gguf", theirs, interleaved=False, tokenizer=None)
    state = load_pretrained(tmp_path / "x.gguf").model.state_dict()
    for part in ("q_proj", "k_proj"):
        name = f"model.layers.0.self_attn.{part}.weight"
        assert not torch.equal(state[name], theirs.state_dict()[name])


@pytest.mark.parametrize("qtype", QUANTS)
def test_every_packed_format_gives_the_dequantised_numbers(qtype: str, tmp_path: Path, cache: Path) -> None:
    kind = GGMLQuantizationType[qtype]
    held = write_gguf(tmp_path / "x.gguf", hf_llama("gqa", **SHAPE), qtype=kind)
    loaded = load_pretrained(tmp_path / "x.gguf")
    for name, parameter in loaded.model.named_parameters():
        assert np.array_equal(parameter.numpy(), held[name]), name
    assert qtype in loaded.report.stored_dtype
    assert (loaded.report.quantisation is None) == (qtype in ("F32", "F16", "BF16"))
    assert loaded.report.bytes_read < (tmp_path / "x.gguf").stat().st_size


@pytest.mark.parametrize("number", BLOCKS)
def test_every_type_is_read_block_by_block(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random blocks, as the package dequantises them; read in more steps than one, and rows that are no whole step."""
    monkeypatch.setattr("lmcore.checkpoint.gguf.CHUNK_NUMBERS", 1200)
    kind = GGMLQuantizationType(number)
    numbers, nbytes = GGML_QUANT_SIZES[kind]
    rows, width = 7, 512
    # Bytes below 0x7c: wherever a block holds a float16 or float32, it is finite.
    data = np.random.default_rng(number).integers(0, 0x7C, (rows, width // numbers * nbytes), dtype=np.uint8)
    writer = GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("first", np.ones(3, np.float32))
    writer.add_tensor("packed", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile(tmp_path / "x.gguf") as file:
        info = file.tensors["packed"]
        assert (info.type, info.shape) == (kind.name, (rows, width))
        read = file.read(info)
    expected = quants.dequantize(data, kind)
    assert (read.dtype, read.shape) == (np.float32, (rows, width))
    assert np.array_equal(read, expected)
    assert np.abs(expected).max() > 0


def test_a_second_opening_equals_the_first(file: Path) -> None:
    first, second = load_pretrained(file), load_pretrained(file)
    one, two = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    changed = {"seconds": 0.0}
    assert {**_fields(first.report), **changed} == {**_fields(second.report), **changed}
    assert first.tokenizer is not None
    assert second.tokenizer is not None
    text = "the <s>théÿ\n"
    assert first.tokenizer.encode(text) == second.tokenizer.encode(text)


def _fields(report: object) -> dict[str, object]:
    return {name: getattr(report, name) for name in type(report).__slots__}  # type: ignore[attr-defined]


def test_a_converted_model_is_not_changed_by_changing_the_loaded_one(file: Path) -> None:
    load_pretrained(file).model.state_dict()["model.norm.weight"].fill_(3)
    assert not (load_pretrained(file).model.state_dict()["model.norm.weight"] == 3).any()


def test_parsed_as_by_the_reference_reader(file: Path) -> None:
    reader = GGUFReader(file)
    with GGUFFile(file) as parsed:
        assert set(parsed.metadata) == {key for key in reader.fields if not key.startswith("GGUF.")}
        for key, value in parsed.metadata.items():
            theirs = reader.fields[key].contents()
            assert (list(value) if isinstance(value, tuple | np.ndarray) else value) == (
                pytest.approx(theirs) if isinstance(value, float) else theirs
            )
        for tensor in reader.tensors:
            info = parsed.tensors[tensor.name]
            assert (info.start, info.nbytes, info.shape) == (
                tensor.data_offset,
                tensor.n_bytes,
                tuple(tensor.shape.tolist())[::-1],
            )


def test_block_sizes_equal_the_packages() -> None:
    for number, (name, numbers, nbytes) in BLOCKS.items():
        kind = GGMLQuantizationType(number)
        assert (kind.name, GGML_QUANT_SIZES[kind]) == (name, (numbers, nbytes))


def test_a_folder_with_one_gguf_opens_it(file: Path) -> None:
    assert load_pretrained(file.parent).report.architecture == "llama"
    (file.parent / "other.gguf").write_bytes(b"")
    assert "other.gguf" in refusal(file.parent)


# Refusals


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda d: d[:-1000], "truncated"),
        (lambda d: d[:300], "truncated"),
        (lambda d: b"", "empty"),
        (lambda d: b"ggjt" + d[4:], "not a GGUF file"),
        (lambda d: b"GGUF" + struct.pack(">I", 3) + d[8:], "big-endian"),
        (lambda d: b"GGUF" + struct.pack("<I", 1) + d[8:], "version 1"),
        (lambda d: b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (lambda d: d[:8] + struct.pack("<Q", 2**63) + d[16:], "truncated"),
        (lambda d: d[:16] + struct.pack("<Q", 2**63) + d[24:], ""),
        (lambda d: d[:24] + struct.pack("<Q", 2**62) + d[32:], "truncated"),
    ],
)
def test_broken_files(file: Path, change, word: str) -> None:
    file.write_bytes(change(file.read_bytes()))
    message = refusal(file)
    assert "model.gguf" in message
    assert word in message


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0}, "rope.scaling.type"),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0, "llama.rope.scaling.zorblax": 2},
            "zorblax",
        ),
        ({"llama.attention.value_length": 24}, "llama.attention.value_length"),
        ({"llama.rope.dimension_count": 6}, "llama.rope.dimension_count"),
        ({"llama.logit_scale": 0.5}, "llama.logit_scale"),
        ({"llama.attn_logit_softcapping": 50.0}, "llama.attn_logit_softcapping"),
    ],
)
def test_keys_that_would_change_the_computation_are_refused(
    tmp_path: Path, cache: Path, extra: dict, word: str
) -> None:
    write_gguf(tmp_path / "x.gguf", hf_llama("gqa"), extra=extra)
    assert word in refusal(tmp_path / "x.gguf", ConfigError)


def test_keys_that_are_not_known_are_named(tmp_path: Path, cache: Path) -> None:
    write_gguf(tmp_path / "x.gguf", hf_llama("gqa"), extra={"llama.zorblax": 3, "llama.rope.scaling.type": "none"})
    report = load_pretrained(tmp_path / "x.gguf").report
    assert any("llama.zorblax" in note for note in report.assumptions)
    assert not any("scaling" in note for note in report.assumptions)


def test_scaled_rope_and_unknown_architectures_are_refused(file: Path) -> None:
    edited(file, b"blk.0.attn_norm.weight", b"rope_freqs.weight_____")
    edited(
        file,
        b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama",
        b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0zorbl",
    )
    assert "zorbl" in refusal(file, ConfigError)


def test_missing_and_unknown_tensors(file: Path) -> None:
    edited(file, b"blk.1.attn_norm.weight", b"blk.1.attn_narm.weight")
    message = refusal(file)
    assert "model.layers.1.input_layernorm.weight" in message
    assert "blk.1.attn_narm.weight" in message


def test_a_bias_that_only_some_projections_have_is_refused(file: Path) -> None:
    edited(file, b"blk.2.ffn_norm.weight", b"blk.2.attn_q.bias\0\0\0\0")
    refusal(file, LmcoreError)


def test_a_type_number_that_is_not_known_is_named(file: Path) -> None:
    name = b"blk.0.ffn_up.weight"
    at = file.read_bytes().index(name) + len(name) + 4 + 16
    data = bytearray(file.read_bytes())
    data[at : at + 4] = struct.pack("<I", 99)
    file.write_bytes(data)
    message = refusal(file)
    assert "99" in message
    assert "blk.0.ffn_up.weight" in message


def test_not_finite_numbers_are_named(tmp_path: Path, cache: Path) -> None:
    model = hf_llama("gqa")
    model.state_dict()["model.layers.1.mlp.up_proj.weight"][0, 0] = float("nan")
    write_gguf(tmp_path / "x.gguf", model)
    assert "blk.1.ffn_up.weight" in refusal(tmp_path / "x.gguf")
    assert not list((cache / "converted").iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "whole.gguf"
    write_gguf(path, hf_llama("gqa", num_hidden_layers=1))
    return path


@given(st.data())
def test_damage_anywhere_is_a_checkpoint_error(whole: Path, data: st.DataObject) -> None:
    content = bytearray(whole.read_bytes())
    with GGUFFile(whole) as parsed:
        header = min(info.start for info in parsed.tensors.values())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, header - 9))
        patch = data.draw(st.binary(min_size=1, max_size=8) | st.just(b"\xff" * 8) | st.just(b"\0" * 8))
        content[at : at + len(patch)] = patch
    damaged = whole.with_name("damaged.gguf")
    damaged.write_bytes(content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))])
    with contextlib.suppress(CheckpointError):
        GGUFFile(damaged).file.close()


LLAMA = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 8, "llama.vocab_size": 9}
LLAMA |= {"llama.attention.head_count": 2, "llama.feed_forward_length": 8, "llama.context_length": 16}
VALUES = (
    st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.booleans()
    | st.text(max_size=5)
    | st.lists(st.integers(0, 5), max_size=3).map(np.array)
    | st.lists(st.text(max_size=2), max_size=3).map(tuple)
)


@given(st.dictionaries(st.sampled_from([*LLAMA, "llama.rope.freq_base", "llama.attention.key_length"]), VALUES))
def test_metadata_of_any_kind_are_a_config_or_a_config_error(changes: dict) -> None:
    assert config_from_gguf(LLAMA, {})[0].head_dim == 4
    with contextlib.suppress(LmcoreError):
        config_from_gguf(LLAMA | changes, {})


def test_a_number_given_once_per_layer_counts_when_all_layers_agree() -> None:
    same, other = np.array([1, 1]), np.array([1, 2])
    assert config_from_gguf(LLAMA | {"llama.attention.head_count_kv": same}, {})[0].n_kv_heads == 1
    with pytest.raises(ConfigError, match="num_key_value_heads"):
        config_from_gguf(LLAMA | {"llama.attention.head_count_kv": other}, {})


# Tokenizer


def test_the_tokenizer_of_the_metadata(file: Path) -> None:
    tokenizer = load_pretrained(file).tokenizer
    assert tokenizer is not None
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.adds_bos) == (0, 1, False)
    assert tokenizer.encode("the<s>é") == [byte_tokens()["tokens"].index("the"), 0, 2 + 0xC3, 2 + 0xA9]
    assert tokenizer.is_special(0)
    assert not tokenizer.is_special(5)


@pytest.mark.parametrize(("adds", "first"), [(True, [0]), (False, [])])
def test_bos_is_added_where_the_file_says_so(tmp_path: Path, cache: Path, adds: bool, first: list[int]) -> None:
    model = hf_llama("gqa", **SHAPE)
    write_gguf(tmp_path / "x.gguf", model, extra={"tokenizer.ggml.add_bos_token": adds})
    tokenizer = load_pretrained(tmp_path / "x.gguf").tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("") == first
    assert tokenizer.encode("a", add_special=False) == [2 + ord("a")]


def test_a_pre_tokenizer_that_is_not_known_leaves_the_model_without_tokenizer(file: Path) -> None:
    loaded = load_pretrained(edited(file, b"smollm", b"zorbla"))
    assert loaded.tokenizer is None
    assert any("zorbla" in note for note in loaded.report.assumptions)


def test_smollm2_is_the_model_and_the_tokenizer_that_transformers_reads(smollm2_source: str, cache: Path) -> None:
    """The expected numbers are those of `transformers` 5.24 with the same file (its own loading takes 15 seconds)."""
    loaded = load_pretrained(smollm2_source)
    assert loaded.report.parameter_count == 134_515_008
    assert (loaded.model.cfg.n_heads, loaded.model.cfg.n_kv_heads, loaded.model.cfg.tied) == (9, 3, True)
    assert os.listdir(cache / "converted")
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("  two spaces\n\nnewline") == [216, 827, 5600, 198, 198, 28160]
    text = "Hello world! 123 😀 日本語"
    ids = [19556, 905, 17, 216, 33, 34, 35, 40303, 218, 17097, 241, 115, 40993, 179, 120, 248]
    assert tokenizer.encode(text) == ids
    assert b"".join(tokenizer.pieces(ids)).decode() == text
    logits = loaded.model(torch.tensor([tokenizer.encode("The capital of France is")])).logits[0, -1]
    best = torch.log_softmax(logits, -1).topk(3)
    assert best.indices.tolist() == [7042, 260, 4528]
    assert best.values.tolist() == pytest.approx([-0.25806, -2.74074, -4.38435], abs=1e-3)
