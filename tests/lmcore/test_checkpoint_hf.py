"""Folders as Hugging Face writes them: the right numbers from good ones, the right words for bad ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lmcore.checkpoint import load, load_pretrained
from tests.lmcore.folders import EMBEDDING, HEAD, edit_tensors, refusal
from tests.lmcore.tiny import LLAMAS, hf_llama, tiny_tokens

BIAS = "model.layers.0.self_attn.q_proj.bias"


@pytest.mark.parametrize("variant", LLAMAS)
def test_every_variant_loads_to_the_logits_of_transformers(variant: str, tmp_path: Path) -> None:
    theirs = hf_llama(variant)
    theirs.save_pretrained(tmp_path)
    mine = load_pretrained(tmp_path)
    tokens = tiny_tokens()
    with torch.inference_mode():
        assert (mine.model(tokens).logits - theirs(tokens).logits).abs().max() < 1e-4
    assert mine.tokenizer is None
    assert any("no tokenizer" in note for note in mine.report.assumptions)
    assert mine.report.parameter_count == theirs.num_parameters()
    assert (mine.report.architecture, mine.report.dtype, mine.report.stored_dtype) == ("llama", "float32", "float32")
    assert mine.report.bytes_read == 4 * theirs.num_parameters()
    assert not mine.report.unused
    assert not any(parameter.requires_grad for parameter in mine.model.parameters())


def test_shards_give_the_tensors_of_one_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shards = tmp_path_factory.mktemp("shards")
    hf_llama("gqa").save_pretrained(shards, max_shard_size="20KB")
    # A stray file beside the shards is not theirs: the index says which files count.
    save_file({"tok_embeddings.weight": torch.ones(3)}, shards / "consolidated.safetensors")
    assert len(list(shards.glob("model-*.safetensors"))) > 2
    one, many = load_pretrained(folder).model.state_dict(), load_pretrained(shards).model.state_dict()
    assert one.keys() == many.keys()
    assert all(torch.equal(one[name], many[name]) for name in one)


def test_a_lone_file_beside_its_config(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    assert load_pretrained(folder / "other.safetensors").report.tensor_count == 30
    assert "no weights" in refusal(folder)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("wanted", ["float32", "bfloat16", "float16"])
def test_dtype_is_the_users_choice_and_conversion_is_plain(
    folder: Path, stored: torch.dtype, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_tensors(folder, lambda t: t.update({name: tensor.to(stored) for name, tensor in t.items()}))
    loaded = load_pretrained(folder, dtype=wanted)
    in_file = load_file(folder / "model.safetensors")
    for name, parameter in loaded.model.named_parameters():
        assert torch.equal(parameter, in_file[name].to(getattr(torch, wanted)))
    assert loaded.report.stored_dtype == str(stored).removeprefix("torch.")
    assert loaded.report.dtype == wanted


def test_float16_that_overflows_is_refused(folder: Path) -> None:
    edit_tensors(folder, lambda t: t[EMBEDDING].view(-1)[0].fill_(1e6))
    assert load_pretrained(folder).model is not None
    message = refusal(folder, dtype="float16")
    assert EMBEDDING in message
    assert "bfloat16" in message


def test_user_files_are_not_left_mapped(folder: Path) -> None:
    loaded = load_pretrained(folder)
    before = loaded.model.lm_head.weight.clone()
    os.truncate(folder / "model.safetensors", 100)
    assert torch.equal(loaded.model.lm_head.weight, before)


# Heads and embeddings


def test_tied_with_an_equal_head_is_tied_with_a_note(tmp_path: Path) -> None:
    hf_llama("tied").save_pretrained(tmp_path)
    edit_tensors(tmp_path, lambda t: t.update({HEAD: t[EMBEDDING].clone()}))
    loaded = load_pretrained(tmp_path)
    assert loaded.model.cfg.tied
    assert any("equals the embedding" in note for note in loaded.report.assumptions)


def test_tied_with_another_head_uses_the_head(tmp_path: Path) -> None:
    """As transformers 5.24 does."""
    from transformers import AutoModelForCausalLM

    hf_llama("tied").save_pretrained(tmp_path)
    edit_tensors(tmp_path, lambda t: t.update({HEAD: t[EMBEDDING].flip(0)}))
    loaded, theirs = load_pretrained(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = tiny_tokens()
    with torch.inference_mode():
        assert (loaded.model(tokens).logits - theirs(tokens).logits).abs().max() < 1e-4
    assert not loaded.model.cfg.tied
    assert any("differs from the embedding" in note for note in loaded.report.assumptions)


def test_tied_with_only_a_head_uses_it_for_both(tmp_path: Path) -> None:
    theirs = hf_llama("tied")
    theirs.save_pretrained(tmp_path)
    edit_tensors(tmp_path, lambda t: t.update({HEAD: t.pop(EMBEDDING)}))
    loaded = load_pretrained(tmp_path)
    tokens = tiny_tokens()
    with torch.inference_mode():
        assert (loaded.model(tokens).logits - theirs(tokens).logits).abs().max() < 1e-4
    assert loaded.report.missing == (EMBEDDING,)


def test_untied_without_a_head_is_refused(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.pop(HEAD))
    assert HEAD in refusal(folder)


# Tensors that do not fit


def test_missing_unused_and_ignored_tensors(folder: Path) -> None:
    old = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(folder, lambda t: t.update({old: torch.ones(6), "model.layers.3.mlp.up_proj.weight": torch.ones(2)}))
    report = load_pretrained(folder).report
    assert report.unused == ("model.layers.3.mlp.up_proj.weight",)
    assert [row for row in report.mapped if row.source == old and row.targets == ()]
    assert report.tensor_count == 32
    assert any("inv_freq" in note for note in report.assumptions)
    edit_tensors(folder, lambda t: t.pop("model.layers.1.input_layernorm.weight"))
    assert "model.layers.1.input_layernorm.weight" in refusal(folder)


def test_a_wrong_shape_names_tensor_both_shapes_and_fields(folder: Path) -> None:
    name = "model.layers.1.self_attn.o_proj.weight"
    edit_tensors(folder, lambda t: t.update({name: torch.ones(20, 48)}))
    message = refusal(folder)
    for part in (name, "(20, 48)", "(48, 48)", "num_attention_heads x head_dim"):
        assert part in message


def test_a_bias_without_a_home_is_refused(folder: Path) -> None:
    edit_tensors(folder, lambda t: t.update({BIAS: torch.ones(48)}))
    assert BIAS in refusal(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_counted_and_named(folder: Path, value: float) -> None:
    name = "model.layers.0.self_attn.v_proj.weight"
    edit_tensors(folder, lambda t: t[name].view(-1)[:2].fill_(value))
    message = refusal(folder)
    assert name in message
    assert ("2 NaN" if value != value else "2 infinite") in message


def test_large_finite_numbers_pass(folder: Path) -> None:
    edit_tensors(folder, lambda t: t[EMBEDDING].fill_(3e38))
    assert load_pretrained(folder).report.tensor_count == 30


# Progress


def test_progress_grows_to_its_total_and_can_cancel(folder: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    load_pretrained(folder, progress=lambda *step: seen.append(step))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0
    assert len(seen) > 20

    class Stop(Exception):
        pass

    def stop(done: int, total: int, text: str) -> None:
        if done:
            raise Stop

    with pytest.raises(Stop):
        load_pretrained(folder, progress=stop)


def test_building_the_model_sets_no_weights_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Initialisation on the meta device would import torch's decompositions, which takes longer than loading."""
    called = []
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, *a, **k: called.append("uniform") or self)
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, *a, **k: called.append("normal") or self)
    load_pretrained("builtin")
    assert called == []
    torch.nn.Linear(2, 2)
    assert called
    assert load.Loaded
