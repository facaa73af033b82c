"""Another rotary spec in some layers only, as in a model that has two kinds of them: a Gemma 3 of four layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.extrapolate import token_losses
from lmcore.model import Transformer
from lmcore.scalings import SCALINGS, scaled
from lmcore.specs import Rope
from lmcore.trace import Edits
from tests.lmcore.family_models import VARIANTS, build
from tests.lmcore.tiny import tiny_tokens

SLIDING, FULL = frozenset({0, 2}), frozenset({1, 3})
TOKENS = tiny_tokens(24)


@pytest.fixture(scope="module")
def theirs() -> transformers.PreTrainedModel:
    return build(VARIANTS["gemma3"])


@pytest.fixture(scope="module")
def model(theirs: transformers.PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    folder = tmp_path_factory.mktemp("gemma3")
    theirs.save_pretrained(folder)
    return load_pretrained(str(folder), dtype="float32", device="cpu").model


def ropes(model: Transformer) -> tuple[Rope, Rope]:
    assert model.cfg.rope is not None
    assert model.cfg.local_rope is not None
    return model.cfg.local_rope, model.cfg.rope


def test_the_models_own_spec_in_its_own_layers_changes_nothing(model: Transformer) -> None:
    own = model(TOKENS).logits
    for rope, layers in zip(ropes(model), (SLIDING, FULL), strict=True):
        assert torch.equal(model(TOKENS, edits=Edits(rope=rope, rope_layers=layers)).logits, own)
        other = model(TOKENS, edits=Edits(rope=rope)).logits
        assert (other - own).abs().max() > 0.1
    assert torch.equal(model(TOKENS, edits=Edits(rope=ropes(model)[0], rope_layers=frozenset())).logits, own)


@pytest.mark.parametrize("kind", SCALINGS)
def test_scaling_one_kind_of_layers_is_the_model_with_that_config(model: Transformer, kind: str) -> None:
    own = model(TOKENS).logits
    found = {}
    for field, rope, layers in zip(("local_rope", "rope"), ropes(model), (SLIDING, FULL), strict=True):
        spec = scaled(rope, kind, factor=6, trained=8)
        again = Transformer(model.cfg.changed(**{field: spec}))
        again.load_state_dict(model.state_dict())
        found[field] = model(TOKENS, edits=Edits(rope=spec, rope_layers=layers)).logits
        assert torch.equal(found[field], again(TOKENS).logits)
        if kind != "none" or field == "rope":
            assert (found[field] - own).abs().max() > 0.05
    assert (found["rope"] - found["local_rope"]).abs().max() > 0.05


def test_the_sliding_layers_alone_are_those_of_transformers(
    theirs: transformers.PreTrainedModel, model: Transformer
) -> None:
    config = theirs.config.to_dict()
    config["rope_parameters"]["sliding_attention"]["rope_theta"] = 700.0
    other = type(theirs)._from_config(type(theirs.config)(**config), dtype=torch.float32, attn_implementation="eager")
    other.load_state_dict(theirs.state_dict())
    edits = Edits(rope=replace(ropes(model)[0], base=700.0), rope_layers=SLIDING)
    with torch.inference_mode():
        expected, before = other.eval()(TOKENS).logits, theirs(TOKENS).logits
    assert (model(TOKENS, edits=edits).logits - expected).abs().max() <= 1e-4
    assert (expected - before).abs().max() > 0.05


def test_a_spec_that_follows_the_length_in_one_kind_of_layers_and_a_cache(model: Transformer) -> None:
    """The held keys are run again when the frequencies have moved, in these layers as in all."""
    edits = Edits(rope=scaled(ropes(model)[1], "dynamic", factor=1, trained=8), rope_layers=FULL)
    cache = KVCache.empty(model.cfg, 24, dtype=model.dtype, device=model.device)
    found = [model(part, cache=cache, edits=edits).logits for part in TOKENS.split(6, dim=1)]
    torch.testing.assert_close(found[-1], model(TOKENS, edits=edits).logits[:, -6:], atol=1e-4, rtol=1e-4)


def test_losses_take_the_layers_along(model: Transformer) -> None:
    texts = TOKENS.numpy()
    spec = scaled(ropes(model)[1], "yarn", factor=4, trained=8)
    found = token_losses(model, texts, spec, layers=FULL, piece=7)
    logits = model(TOKENS, edits=Edits(rope=spec, rope_layers=FULL)).logits
    expected = torch.nn.functional.cross_entropy(logits[0, :-1], TOKENS[0, 1:], reduction="none")
    np.testing.assert_allclose(found[0, 1:], expected, atol=2e-5)
    assert np.nanmax(np.abs(found - token_losses(model, texts, spec, piece=7))) > 0.05
