"""Every family against `transformers`: logits, residuals, weights, cache and greedy tokens, each able to fail."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.checkpoint.load import Loaded
from lmcore.costs import kv_cache_bytes, param_counts
from lmcore.decode import Decoder
from lmcore.families import FAMILIES
from lmcore.model import Transformer
from lmcore.sampling import Sampler
from lmcore.trace import Capture
from tests.lmcore.family_models import VARIANTS, VOCABULARY, Variant, build

TOKENS = torch.randint(3, VOCABULARY, (2, 15), generator=torch.Generator().manual_seed(1))
TRACED = Capture.of("pattern", "resid_pre", "resid_post")


class Pair(NamedTuple):
    """A reference and the same model read from the folder that it saved, with the reference's answers."""

    variant: Variant
    theirs: PreTrainedModel
    loaded: Loaded
    logits: Tensor
    residuals: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    tolerance: float


@torch.inference_mode()
def noise(model: PreTrainedModel, tokens: Tensor, logits: Tensor) -> float:
    """The reference's largest distance from itself in float64."""
    return worst(copy.deepcopy(model).double()(tokens).logits, logits)


def worst(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def saved(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=VARIANTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    variant = VARIANTS[request.param]
    theirs = build(variant)
    loaded = load_pretrained(saved(theirs, tmp_path_factory.mktemp("family")), dtype="float32", device="cpu")
    with torch.inference_mode():
        out = theirs(TOKENS, output_hidden_states=True, output_attentions=True)
    tolerance = max(1e-4, 10 * noise(theirs, TOKENS, out.logits))
    return Pair(variant, theirs, loaded, out.logits, out.hidden_states, out.attentions, tolerance)


def test_every_family_has_a_variant() -> None:
    ours = {"glassbox"}  # which transformers doesn't have: see test_teaching.py
    assert {name.split()[0].replace("gemma3", "gemma3_text") for name in VARIANTS} == set(FAMILIES) - ours


def test_logits_residuals_and_weights_equal(pair: Pair) -> None:
    mine = pair.loaded.model
    out = mine(TOKENS, capture=TRACED)
    assert out.trace is not None
    assert worst(out.logits, pair.logits) <= pair.tolerance
    assert worst(mine(TOKENS).logits, pair.logits) <= pair.tolerance
    assert len(out.trace.layers) == len(pair.weights) == len(pair.residuals) - 1
    for layer, stages in out.trace.layers.items():
        assert worst(stages["pattern"], pair.weights[layer]) <= 2e-5
        assert worst(stages["resid_pre"], pair.residuals[layer]) <= 1e-5 * pair.residuals[layer].abs().max()
    assert worst(out.trace.final_normed, pair.residuals[-1]) <= 1e-5 * pair.residuals[-1].abs().max()


def test_attention_is_not_flat(pair: Pair) -> None:
    """The reference itself would let a wrong rotation or scale pass if its attention were."""
    last = torch.stack([weights[:, :, -1].max(-1).values.mean() for weights in pair.weights])
    assert last.max() > 2.5 / TOKENS.shape[1]


def test_a_mistake_of_this_family_would_show(pair: Pair) -> None:
    mine = pair.loaded.model
    wrong = Transformer(pair.variant.wrong(mine.cfg))
    assert wrong.cfg != mine.cfg
    wrong.load_state_dict(mine.state_dict(), strict=False)
    assert worst(wrong(TOKENS).logits, pair.logits) > 100 * pair.tolerance


def test_cached_equals_one_forward(pair: Pair) -> None:
    """Prefill in chunks of 5, 1 and 4, then single steps; the bytes used are the calculator's."""
    mine = pair.loaded.model
    cache = KVCache.empty(mine.cfg, 15, batch=2)
    parts = [mine(part, cache=cache).logits for part in TOKENS.split([5, 1, 4, 1, 1, 1, 1, 1], dim=1)]
    assert worst(torch.cat(parts, dim=1), pair.logits) <= pair.tolerance
    assert cache.used_bytes == sum(kv_cache_bytes(mine.cfg, context=15, batch=2, itemsize=4))


def test_greedy_tokens_equal(pair: Pair) -> None:
    assert pair.theirs.generation_config is not None
    pair.theirs.generation_config.eos_token_id = None
    decoder = Decoder(pair.loaded.model, TOKENS[0].tolist(), Sampler(temperature=0))
    for _ in range(8):
        decoder.step()
    theirs = pair.theirs.generate(TOKENS[:1], max_new_tokens=8, do_sample=False)[0].tolist()  # type: ignore[operator]
    assert list(decoder.tokens) == theirs


def test_parameters_are_those_of_the_reference(pair: Pair) -> None:
    """Counted from the config alone; nothing in the file is left over, and nothing in the config unread."""
    buffers = sum(b.numel() for name, b in pair.theirs.named_buffers() if "correction_bias" in name)
    counted = sum(p.numel() for p in pair.theirs.parameters())
    assert param_counts(pair.loaded.model.cfg).total in (counted, counted + buffers)
    assert pair.loaded.report.unused == ()
    assert not [note for note in pair.loaded.report.assumptions if "not read" in note]


# Spellings


def rewritten(folder: Path, drop: tuple[str, ...], **changes: object) -> Path:
    path = folder / "config.json"
    raw = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in raw.items() if key not in drop} | changes))
    return folder


OLD_SPELLINGS = {
    "gemma3": (
        ("rope_parameters", "layer_types"),
        {
            "rope_theta": 500.0,
            "rope_local_base_freq": 50.0,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
            "sliding_window_pattern": 2,
        },
    ),
    "qwen2 sliding": (("layer_types",), {}),
    "gemma2": (("layer_types",), {}),
    "smollm3": (("layer_types",), {}),
    "phi3 partial": (("rope_parameters",), {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "glm": (("rope_parameters",), {"rope_theta": 10000.0}),
    "stablelm": (("rope_parameters",), {}),
    "nemotron": (("rope_parameters",), {}),
    "gpt_neox": (("rope_parameters",), {"rotary_pct": 0.5, "rotary_emb_base": 10000}),
    "gpt_oss": (("layer_types",), {}),
    "llama4_text": (("layer_types", "moe_layers"), {}),
    "mixtral": (("num_experts",), {}),
}


@pytest.mark.parametrize("name", OLD_SPELLINGS)
def test_older_spellings_say_the_same(name: str, tmp_path: Path) -> None:
    folder = saved(build(VARIANTS[name]), tmp_path)
    now = load_pretrained(folder).model.cfg
    drop, changes = OLD_SPELLINGS[name]
    assert load_pretrained(rewritten(folder, drop, **changes)).model.cfg == now


def test_names_without_their_prefix(tmp_path: Path) -> None:
    """Files of the bare GPT-2 have no `transformer.` in front; its masks and a head that equals the embedding may be
    there too.
    """
    from safetensors.torch import load_file, save_file

    theirs = build(VARIANTS["gpt2"])
    folder = saved(theirs, tmp_path)
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(folder / "model.safetensors").items()}
    tensors |= {"h.0.attn.bias": torch.ones(1, 1, 64, 64), "lm_head.weight": tensors["wte.weight"].clone()}
    save_file(tensors, folder / "model.safetensors")
    with torch.inference_mode():
        assert worst(load_pretrained(folder).model(TOKENS).logits, theirs(TOKENS).logits) <= 1e-4


def test_the_language_part_of_a_wrapper(tmp_path: Path) -> None:
    """Weights under `language_model.`, those of the other tower left out and counted."""
    from safetensors.torch import load_file, save_file

    theirs = build(VARIANTS["gemma3"])
    folder = saved(theirs, tmp_path)
    inner = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "zorblax_vision", "text_config": inner}))
    tensors = {f"language_model.{name}": t for name, t in load_file(folder / "model.safetensors").items()}
    save_file(tensors | {"vision_tower.patch.weight": torch.ones(3, 3)}, folder / "model.safetensors")
    loaded = load_pretrained(folder)
    with torch.inference_mode():
        assert worst(loaded.model(TOKENS).logits, theirs(TOKENS).logits) <= 1e-4
    assert any("1 tensors outside" in note for note in loaded.report.assumptions)
