"""Three parsers that read what strangers wrote: only LmcoreError comes out, soon, and nothing is allocated on a word.

Examples are derived from a fixed seed: a run that is green today is green tomorrow.
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmcore.checkpoint import load_pretrained
from lmcore.checkpoint.gguf import GGUFFile
from lmcore.checkpoint.tensorfile import TensorFile
from lmcore.costs import kv_cache_bytes, weight_bytes
from lmcore.errors import CheckpointError, ConfigError, LmcoreError
from lmcore.families import FAMILIES, config_from_hf
from lmcore.gguf_config import ARCHITECTURES, config_from_gguf
from tests.lmcore.family_models import VARIANTS, config_of
from tests.lmcore.gguf_files import write_gguf
from tests.lmcore.tiny import hf_llama

FUZZ = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, -1, 1, 2, 3, 7, 2**31, 2**63, 10**30, 1e308, -0.5, 1e-300, float("nan"), float("inf")])
    | st.integers(-10, 200)
    | st.floats(allow_nan=True)
    | st.text(max_size=6)
    | st.sampled_from(["llama3", "yarn", "dynamic", "longrope", "silu", "default", "sliding_attention", *FAMILIES])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=6,
)
CONFIGS: dict[str, dict[str, Any]] = {}


def configs() -> dict[str, dict[str, Any]]:
    """The config.json of every variant, as plain JSON; made once."""
    if not CONFIGS:
        for name, variant in VARIANTS.items():
            CONFIGS[name] = json.loads(json.dumps(config_of(variant).to_dict(), default=str))
    return CONFIGS


KEYS = sorted({key for raw in configs().values() for key in raw} | {"rope_scaling", "rope_theta", "n_inner"})


def mutated(draw: st.DrawFn, raw: dict[str, Any]) -> dict[str, Any]:
    """A few values replaced, removed or added, at the top or one level down."""
    found = dict(raw)
    for _ in range(draw(st.integers(1, 4))):
        key = draw(st.sampled_from(KEYS) | st.sampled_from(sorted(found)) if found else st.just("x"))
        action = draw(st.sampled_from(["replace", "replace", "remove", "inside"]))
        if action == "remove":
            found.pop(key, None)
        elif action == "inside" and isinstance(found.get(key), dict):
            inner = dict(found[key])
            inner[draw(st.sampled_from([*inner, "factor", "type", "rope_type"]))] = draw(JSON)
            found[key] = inner
        else:
            found[key] = draw(JSON)
    return found


def quick(seconds: float, call: Callable[[], object]) -> None:
    """Run what may raise LmcoreError and nothing else, within some seconds."""
    started = time.perf_counter()
    with contextlib.suppress(LmcoreError):
        call()
    assert time.perf_counter() - started < seconds


# config.json


@pytest.mark.parametrize("name", VARIANTS)
@settings(FUZZ, max_examples=25)
@given(data=st.data())
def test_configs_with_a_few_values_changed(name: str, data: st.DataObject) -> None:
    raw = data.draw(st.composite(lambda draw: mutated(draw, configs()[name]))())
    quick(2.0, lambda: read_and_size(raw))


def read_and_size(raw: Any) -> None:
    """What happens to a config before a tensor is read."""
    cfg, notes = config_from_hf(raw)
    assert all(isinstance(note, str) for note in notes)
    assert weight_bytes(cfg, 4) > 0
    assert len(kv_cache_bytes(cfg, context=10)) == cfg.n_layers


@settings(FUZZ, max_examples=200)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), JSON, max_size=12), st.sampled_from(FAMILIES))
def test_configs_of_anything(raw: dict[str, Any], family: str) -> None:
    quick(2.0, lambda: read_and_size(raw))
    quick(2.0, lambda: read_and_size(raw | {"model_type": family}))
    quick(2.0, lambda: read_and_size({"model_type": "zorblax", "text_config": raw | {"model_type": family}}))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10_000, "num_local_experts": 10_000, "hidden_size": 4, "intermediate_size": 1},
        {"num_hidden_layers": 2**40},
        {"vocab_size": 2**40, "hidden_size": 2**30, "head_dim": 2**30},
        {"num_attention_heads": 2**39, "hidden_size": 2**40, "num_key_value_heads": 1},
        {"max_position_embeddings": 2**40},
    ],
)
def test_sizes_beyond_reason_cost_nothing(changes: dict[str, Any]) -> None:
    """Ten thousand layers of ten thousand experts would be 300 million names."""
    tracemalloc.start()
    try:
        quick(1.0, lambda: read_and_size(configs()["mixtral"] | changes))
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


# A whole folder


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    hf_llama("gqa", num_hidden_layers=1).save_pretrained(folder)
    return folder


@settings(FUZZ, max_examples=60)
@given(data=st.data())
def test_a_folder_with_a_changed_config(good: Path, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """The weights stay good: the model loads, or a message says why not."""
    work = tmp_path_factory.getbasetemp() / "changed-config"
    work.mkdir(exist_ok=True)
    if not (work / "model.safetensors").exists():
        (work / "model.safetensors").write_bytes((good / "model.safetensors").read_bytes())
    raw = json.loads((good / "config.json").read_text())
    text = json.dumps(data.draw(st.composite(lambda draw: mutated(draw, raw))()))
    cut = data.draw(st.just(len(text)) | st.integers(0, len(text)))
    (work / "config.json").write_text(text[:cut])
    quick(5.0, lambda: load_pretrained(work, device="cpu"))


@settings(FUZZ, max_examples=60)
@given(data=st.data())
def test_a_folder_with_damaged_weights(good: Path, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    work = tmp_path_factory.getbasetemp() / "damaged-weights"
    work.mkdir(exist_ok=True)
    (work / "config.json").write_text((good / "config.json").read_text())
    (work / "model.safetensors").write_bytes(damaged(data, (good / "model.safetensors").read_bytes(), 2500))
    quick(5.0, lambda: load_pretrained(work, device="cpu"))


def damaged(data: Any, content: bytes, header: int) -> bytes:
    """Bytes of the header overwritten in a few places, and perhaps the end cut off."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(header, len(content)) - 9))
        patch = data.draw(st.binary(min_size=1, max_size=8) | st.just(b"\xff" * 8) | st.just(b"\0" * 8))
        changed[at : at + len(patch)] = patch
    return bytes(changed[: data.draw(st.just(len(content)) | st.integers(0, len(content)))])


# safetensors

ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "BF16", "I8", "F8_E4M3", "Q9"]) | LEAVES,
        "shape": st.lists(st.integers(-2, 2**63), max_size=9) | LEAVES,
        "data_offsets": st.lists(st.integers(-2, 2**63), max_size=3) | LEAVES,
    }
)


@settings(FUZZ, max_examples=200)
@given(data=st.data())
def test_safetensors_headers(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    header = json.dumps(data.draw(st.dictionaries(st.text(max_size=4), ENTRY | JSON, max_size=4))).encode()
    length = data.draw(st.just(len(header)) | st.integers(0, 2**64 - 1))
    path.write_bytes(struct.pack("<Q", length) + header + data.draw(st.binary(max_size=64)))
    with contextlib.suppress(CheckpointError):
        TensorFile(path).file.close()


# GGUF


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "x.gguf"
    write_gguf(path, hf_llama("gqa", num_hidden_layers=1, vocab_size=260))
    return path.read_bytes()


@settings(FUZZ, max_examples=150)
@given(data=st.data())
def test_gguf_headers(gguf: bytes, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.gguf"
    path.write_bytes(damaged(data, gguf, 7000))
    with contextlib.suppress(CheckpointError):
        GGUFFile(path).file.close()


@settings(FUZZ, max_examples=40)
@given(data=st.data())
def test_a_damaged_gguf_opens_or_says_why(gguf: bytes, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    base = tmp_path_factory.getbasetemp()
    (base / "whole.gguf").write_bytes(damaged(data, gguf, 7000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSBOX_CACHE", str(base / "fuzz-cache"))
        quick(5.0, lambda: load_pretrained(base / "whole.gguf", device="cpu"))


GGUF_KEYS = (
    "block_count embedding_length attention.head_count attention.head_count_kv feed_forward_length context_length "
    "attention.key_length attention.value_length attention.layer_norm_rms_epsilon attention.layer_norm_epsilon "
    "rope.freq_base rope.dimension_count rope.scaling.type rope.scaling.factor rope.scaling.original_context_length "
    "rope.scaling.attn_factor rope.freq_base_swa attention.sliding_window attention.sliding_window_pattern "
    "expert_count expert_used_count expert_feed_forward_length attention.scale logit_scale embedding_scale "
    "attn_logit_softcapping use_parallel_residual attention.clamp_kqv attention.max_alibi_bias zorblax"
).split()
SHAPES = st.dictionaries(
    st.sampled_from(
        ["token_embd.weight", "output.weight", "rope_freqs.weight", "rope_factors_long.weight"]
        + [f"blk.0.{part}" for part in ("attn_q.bias", "ffn_norm.weight", "attn_norm_2.weight", "ffn_down_exps.weight")]
    ),
    st.lists(st.integers(1, 2**40), min_size=1, max_size=3).map(tuple),
    max_size=4,
)


@settings(FUZZ, max_examples=300)
@given(
    st.sampled_from(sorted(ARCHITECTURES)),
    st.dictionaries(st.sampled_from(GGUF_KEYS), LEAVES | st.lists(LEAVES, max_size=3).map(tuple), max_size=8),
    SHAPES,
    st.dictionaries(st.sampled_from(["rope_freqs.weight", "rope_factors_long.weight"]), st.lists(st.floats())),
)
def test_gguf_metadata(arch: str, values: dict[str, Any], shapes: dict, factors: dict) -> None:
    sizes = {"block_count": 2, "embedding_length": 16, "attention.head_count": 2, "feed_forward_length": 8}
    own = {f"{arch}.{key}": value for key, value in (sizes | values).items()}
    quick(2.0, lambda: config_from_gguf({"general.architecture": arch} | own, shapes, factors))


# Words about sizes


def _gguf_with(count: int, length: int) -> bytes:
    key = b"general.architecture"
    return (
        b"GGUF"
        + struct.pack("<IQQ", 3, count, count)
        + struct.pack("<Q", len(key))
        + key
        + struct.pack("<IQ", 8, length)
    )


HOSTILE = {
    "safetensors header of 2^40 bytes": (TensorFile, struct.pack("<Q", 2**40) + b"{}"),
    "safetensors header of 60 MiB that is not there": (TensorFile, struct.pack("<Q", 60 * 2**20) + b"{}"),
    "GGUF with 2^60 tensors": (GGUFFile, b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0)),
    "GGUF with 2^60 keys": (GGUFFile, b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60)),
    "GGUF string of 2^50 bytes": (GGUFFile, _gguf_with(1, 2**50)),
    "GGUF array of 2^50 numbers": (
        GGUFFile,
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 4, 2**50),
    ),
    "GGUF array of 2^50 strings": (
        GGUFFile,
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 8, 2**50),
    ),
    "GGUF tensor of 2^60 numbers": (
        GGUFFile,
        b"GGUF"
        + struct.pack("<IQQ", 3, 1, 0)
        + struct.pack("<Q", 1)
        + b"a"
        + struct.pack("<IQQ", 2, 2**30, 2**30)
        + struct.pack("<IQ", 0, 0),
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_is_allocated_on_a_word(what: str, tmp_path: Path) -> None:
    parser, content = HOSTILE[what]
    path = tmp_path / "x"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError):
            parser(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_deep_nesting_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(LmcoreError):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    with pytest.raises(LmcoreError):
        load_pretrained(tmp_path)


def test_python_in_a_folder_is_not_run(good: Path, tmp_path: Path) -> None:
    """Neither `auto_map`, nor a module of the name that it gives, nor a pickle beside the weights."""
    trace = tmp_path / "ran"
    code = f"open({str(trace)!r}, 'w').write('ran')\n"
    for name in ("modeling_zorblax.py", "configuration_zorblax.py", "sitecustomize.py", "__init__.py"):
        (tmp_path / name).write_text(code)
    raw = json.loads((good / "config.json").read_text())
    auto = {"AutoConfig": "configuration_zorblax.Z", "AutoModelForCausalLM": "modeling_zorblax.Z"}
    (tmp_path / "config.json").write_text(json.dumps(raw | {"auto_map": auto}))
    (tmp_path / "model.safetensors").write_bytes((good / "model.safetensors").read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch " + str(trace).encode() + b"'\ntR.")
    load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(raw | {"auto_map": auto, "model_type": "zorblax"}))
    with pytest.raises(ConfigError, match="zorblax"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="pickle"):
        load_pretrained(tmp_path)
    assert not trace.exists()
