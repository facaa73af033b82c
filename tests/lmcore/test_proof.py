"""The comparison with transformers: equal where it is, the first bad layer where it is not, and what stops it."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import pytest
import torch

from lmcore import proof
from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.checkpoint.builtin import config as builtin_config
from lmcore.checkpoint.export import weights_folder, write_folder
from lmcore.config import Norm
from lmcore.errors import Cancelled, CapacityError, CheckpointError, InputError
from lmcore.model import Transformer
from lmcore.proof import LayerDifference, Proof, compare_with_transformers
from tests.lmcore.folders import edit_config
from tests.lmcore.tiny import hf_llama

TOKENS = [5, 17, 3, 88, 42, 9, 61, 30]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Loaded, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    hf_llama("gqa").save_pretrained(folder)
    return load_pretrained(folder, dtype="float32", device="cpu"), folder


def test_a_good_model_is_equal_in_every_layer_with_its_noise(tiny: tuple[Loaded, Path]):
    loaded, folder = tiny
    said: list[str] = []
    found = compare_with_transformers(loaded.model, folder, TOKENS, noise=True, progress=said.append)
    assert found.equal
    assert found.first_bad is None
    assert [layer.layer for layer in found.layers] == [0, 1, 2]
    assert found.same_choices == found.tokens == len(TOKENS)
    assert found.noise is not None
    assert found.noise > 0
    assert found.logits <= max(1e-4, 10 * found.noise)
    assert all(layer.pattern is not None and layer.pattern < 1e-5 for layer in found.layers)
    assert found.embedding == 0
    assert found.transformers.count(".") == 2
    assert found.torch == torch.__version__.partition("+")[0]
    assert abs(found.measured_at - time.time()) < 60
    assert "transformers runs the prompt" in said


@pytest.fixture(scope="module")
def answer(tiny: tuple[Loaded, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What transformers says of the tiny model, asked once."""
    path = tmp_path_factory.mktemp("answer") / "answer.safetensors"
    proof._run_reference(tiny[1], TOKENS, False, path, lambda line: None)
    return path


@pytest.fixture
def answered(answer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons read that answer instead of starting transformers again."""
    monkeypatch.setattr(proof, "_run_reference", lambda f, t, n, to, p: to.write_bytes(answer.read_bytes()))


@pytest.mark.usefixtures("answered")
@pytest.mark.parametrize("layer", [0, 1])
def test_negative_control_names_the_perturbed_layer_first(tiny: tuple[Loaded, Path], layer: int):
    loaded, folder = tiny
    wrong = copy.deepcopy(loaded.model)
    wrong.model.layers[layer].mlp.down_proj.weight.data *= 1.01
    found = compare_with_transformers(wrong, folder, TOKENS)
    assert not found.equal
    assert found.first_bad == layer
    assert all(not found.is_bad(other) for other in found.layers[:layer])


@pytest.mark.usefixtures("answered")
def test_negative_control_of_the_attention_weights(tiny: tuple[Loaded, Path]):
    """Sharper scores in one layer show in that layer's weights, and nowhere before."""
    loaded, folder = tiny
    wrong = copy.deepcopy(loaded.model)
    wrong.model.layers[1].self_attn.q_proj.weight.data *= 1.05
    found = compare_with_transformers(wrong, folder, TOKENS)
    assert found.first_bad == 1
    assert found.layers[1].pattern is not None
    assert found.layers[1].pattern > 1e-3


@pytest.mark.usefixtures("answered")
def test_a_half_precision_model_is_held_to_its_own_format(tiny: tuple[Loaded, Path]):
    _, folder = tiny
    found = compare_with_transformers(load_pretrained(folder, dtype="bfloat16", device="cpu").model, folder, TOKENS)
    assert found.dtype == "bfloat16"
    assert found.tolerance > 1e-2
    assert found.logits > 1e-4


def difference(residual: float, pattern: float | None = None) -> Proof:
    return Proof(
        tokens=1,
        dtype="float32",
        logits=0.0,
        largest_logit=1.0,
        same_choices=1,
        embedding=0.0,
        layers=(LayerDifference(0, 0.0, 0.0), LayerDifference(1, residual, pattern)),
        noise=None,
        transformers="0",
        torch="0",
        measured_at=0.0,
        seconds=0.0,
    )


@pytest.mark.parametrize(("residual", "pattern"), [(float("nan"), None), (1e-3, 0.0), (0.0, 1e-3), (float("inf"), 0.0)])
def test_what_is_no_small_number_is_bad(residual: float, pattern: float | None):
    assert difference(residual, pattern).first_bad == 1
    assert not difference(residual, pattern).equal


def test_small_differences_are_not_bad():
    assert difference(1e-6, 1e-7).equal


def test_the_built_in_model_is_compared_through_a_folder_that_is_gone_afterwards():
    loaded = load_pretrained("builtin", dtype="float32", device="cpu")
    with weights_folder(loaded.model, loaded.report) as folder:
        found = compare_with_transformers(loaded.model, folder, [1, 2, 3, 200])
        assert (folder / "model.safetensors").exists()
    assert found.equal
    assert not folder.exists()


def test_a_gguf_file_is_compared_through_its_conversion(cache: Path, smollm2_source: str):
    loaded = load_pretrained(smollm2_source, dtype="float32", device="cpu")
    with weights_folder(loaded.model, loaded.report) as folder:
        assert folder.is_relative_to(cache)
        found = compare_with_transformers(loaded.model, folder, [1, 504, 2103, 284])
    assert found.equal
    assert len(found.layers) == 30
    assert found.logits < 1e-3


def test_a_lone_safetensors_file_is_found_under_any_name(tiny: tuple[Loaded, Path], tmp_path: Path):
    _, folder = tiny
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name.replace("model.", "weights.")).write_bytes((folder / name).read_bytes())
    loaded = load_pretrained(tmp_path / "weights.safetensors", dtype="float32", device="cpu")
    with weights_folder(loaded.model, loaded.report) as found:
        assert sorted(path.name for path in found.iterdir()) == ["config.json", "model.safetensors"]
        assert compare_with_transformers(loaded.model, found, TOKENS).equal


def test_random_weights_of_another_family_are_not_written(tmp_path: Path):
    cfg = builtin_config()
    other = Transformer(cfg.changed(norm=Norm(kind="layer")))
    with pytest.raises(CheckpointError) as caught:
        write_folder(other, tmp_path)
    assert "not written" in caught.value.found
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_transformers_refuses_says_so(tiny: tuple[Loaded, Path], tmp_path: Path):
    loaded, _ = tiny
    hf_llama("gqa").save_pretrained(tmp_path)
    edit_config(tmp_path, model_type="nobody_knows")
    with pytest.raises(CheckpointError) as caught:
        compare_with_transformers(loaded.model, tmp_path, TOKENS)
    assert "does not run this model" in caught.value.found
    assert "nobody_knows" in caught.value.found


def test_cancelling_ends_the_reference_at_once(tiny: tuple[Loaded, Path]):
    import psutil

    loaded, folder = tiny
    begun = time.monotonic()

    def stop(line: str) -> None:
        if time.monotonic() - begun > 0.5:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        compare_with_transformers(loaded.model, folder, TOKENS, progress=stop)
    assert time.monotonic() - begun < 2.5
    assert not [p for p in psutil.Process().children() if "lmcore.reference" in " ".join(p.cmdline())]


def test_a_model_over_the_memory_is_refused_before_anything_runs(
    tiny: tuple[Loaded, Path], monkeypatch: pytest.MonkeyPatch
):
    loaded, folder = tiny
    monkeypatch.setattr(proof, "available_bytes", lambda device: 2**20)
    monkeypatch.setattr(proof.subprocess, "Popen", None)
    with pytest.raises(CapacityError) as caught:
        compare_with_transformers(loaded.model, folder, TOKENS)
    assert "second copy" in caught.value.found


def test_no_tokens_are_an_error_and_many_are_cut(tiny: tuple[Loaded, Path]):
    loaded, folder = tiny
    with pytest.raises(InputError):
        compare_with_transformers(loaded.model, folder, [])
    assert len(proof.comparable(loaded.model.cfg, [1] * 1000)) == proof.MAX_TOKENS
    assert (
        len(proof.comparable(loaded.model.cfg.changed(n_layers=2000, layer_types=("full",) * 2000), [1] * 1000)) < 100
    )
