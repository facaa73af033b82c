"""The Positions page: what it hands to the browser is lmcore's, and a model without RoPE is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest
from transformers import GPT2Config, GPT2LMHeadModel

from figures.payload import unpack
from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.frequencies import frequencies
from lmcore.scalings import scaled
from lmcore.specs import Rope
from lmcore.trace import Capture, Edits
from tests.lmcore.family_models import VARIANTS, build
from tests.lmcore.tiny import hf_llama
from tests.pages.test_every_page import open_page
from ui import models, own_length, rotary, state
from ui.own_length import Asked

IDS = "3 14 15 92 65 35 89 79"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("llama")
    hf_llama("gqa").save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module")
def loaded(folder: str) -> Loaded:
    return load_pretrained(folder, dtype="float32", device="cpu")


def payloads(at: AppTest, name: str) -> list[tuple[dict[str, Any], list[np.ndarray]]]:
    elements = [e for e in at.get("bidi_component") if e.proto.component_name.endswith(f"glassbox_{name}")]
    return [unpack(element.proto.bytes) for element in elements]


def positions(folder: str, **link: str) -> AppTest:
    at = open_page("positions", **{"model": state.TYPED, "path": folder, "prompt": IDS, **link})
    assert not at.exception
    assert [e.value for e in at.error] == []
    return at


def said(at: AppTest) -> str:
    return " ".join(element.value for element in at.markdown).replace("\\", "")


def test_the_vectors_that_turn_are_the_models(folder: str, loaded: Loaded) -> None:
    at = positions(folder, positions_layer="1")
    [(meta, (q, k, theta))] = payloads(at, "turning")
    trace = loaded.model.forward(
        torch.tensor([[int(word) for word in IDS.split()]]), capture=Capture.of("q", "k", layers=[1])
    ).trace
    assert trace is not None
    for found, stage in ((q, "q"), (k, "k")):
        np.testing.assert_allclose(found, trace.layers[1][stage][0].numpy(), rtol=1e-6)
    rope = loaded.model.cfg.rope_of(1)
    assert rope is not None
    np.testing.assert_allclose(theta, frequencies(rope, 8)[0], rtol=1e-12)
    assert (meta["layer"], meta["trained"]) == (1, 128)
    assert "within float32 rounding" in said(at)
    tiles = {t["name"]: t for meta, _ in payloads(at, "twins") for t in meta["tiles"]}
    assert tiles["q · k moves, float32"]["state"] == "rounding"
    assert tiles["Positions in bf16"]["state"] == "unequal"


def test_a_scaling_of_the_link_is_applied_to_the_run_and_said(folder: str, loaded: Loaded) -> None:
    at = positions(folder, scale_applied="linear", scale_factor="2")
    assert loaded.model.cfg.rope is not None
    spec = Rope(rotary_dim=loaded.model.cfg.rope.rotary_dim, base=loaded.model.cfg.rope.base, type="linear", factor=2.0)
    tokens = torch.tensor([[int(word) for word in IDS.split()]])
    own, new = (loaded.model.forward(tokens, edits=edits).logits[0] for edits in (Edits(), Edits(rope=spec)))
    meta, (both,) = payloads(at, "beside")[0]
    ids = [row["id"] for row in meta["rows"]]
    for row, logits in zip(both, (own, new), strict=True):
        np.testing.assert_allclose(row[:-1], logits[-1].softmax(-1)[ids].numpy(), rtol=1e-4)
    largest = float((new - own).abs().max())
    tile = next(t for t in meta["tiles"] if t["name"] == "Largest change of a logit")
    assert float(tile["changed"]) == pytest.approx(largest, rel=1e-3)
    assert largest > 0.01
    words = said(at)
    assert "| factor | 1 | 2 |" in words
    assert "6 of 6 pairs change their frequency, from pair 0 (divided by 2.000) to pair 5 (divided by 2.000)" in words


def test_nothing_is_applied_unless_asked_and_a_bad_link_is_let_pass(folder: str) -> None:
    at = positions(folder, scale_applied="<b>", scale_factor="x", positions_base="-3", pair="999")
    assert not payloads(at, "beside")
    assert [meta["view"] for meta, _ in payloads(at, "frequencies")] == ["pairs", "scalings"]


def test_a_scaling_that_follows_the_length_changes_nothing_within_it(folder: str) -> None:
    at = positions(folder, scale_applied="dynamic")
    assert "Nothing moves" in said(at)
    assert "set L below the length of the prompt" in said(at)
    at = positions(folder, scale_applied="dynamic", scale_original="8", scale_factor="64")
    assert "Nothing moves" in said(at)


def test_a_model_without_rope_says_so_and_offers_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "default_model", lambda: state.BUILTIN)
    GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=32, n_embd=16, n_layer=2, n_head=2)).save_pretrained(tmp_path)
    at = positions(str(tmp_path))
    assert any("no RoPE: its positions are a learned table" in info.value for info in at.info)
    assert not payloads(at, "turning")
    at.button(key="positions_other_model").click().run()
    assert payloads(at, "turning")


def test_a_config_alone_has_its_frequencies_and_no_run() -> None:
    at = open_page("positions", model=state.CONFIG, config="Llama 3.1 405B")
    assert not at.exception
    assert not payloads(at, "turning")
    (pairs, _), (scalings, _) = payloads(at, "frequencies")
    assert pairs["rope"]["type"] == scalings["rope"]["type"] == "llama3"
    assert pairs["trained"] == 8192
    assert not scalings["runs"]


SLIDING, FULL = "2 sliding layers", "2 full layers"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four layers in turn: a window of 5 tokens and base 50, or all tokens, base 500 and linear scaling."""
    path = tmp_path_factory.mktemp("gemma3")
    build(VARIANTS["gemma3"]).save_pretrained(path)
    return str(path)


@pytest.mark.parametrize(("name", "layers"), [(SLIDING, {0, 2}), (FULL, {1, 3})])
def test_of_two_kinds_of_rotary_layers_the_chosen_one_is_scaled(gemma: str, name: str, layers: set[int]) -> None:
    at = positions(gemma, positions_scaled_layers=name, scale_applied="linear", scale_factor="2")
    model = load_pretrained(gemma, dtype="float32", device="cpu").model
    own = model.cfg.rope_of(min(layers))
    assert own is not None
    spec = Rope(rotary_dim=own.rotary_dim, base=own.base, type="linear", factor=2.0)
    tokens = torch.tensor([[int(word) for word in IDS.split()]])
    edits = (Edits(), Edits(rope=spec, rope_layers=frozenset(layers)), Edits(rope=spec))
    plain, new, everywhere = (model.forward(tokens, edits=one).logits[0] for one in edits)
    [(_, _), (meta, _)] = payloads(at, "frequencies")
    assert (meta["rope"]["base"], meta["target"]) == (own.base, f"the {name}")
    tile = next(t for t in payloads(at, "beside")[0][0]["tiles"] if t["name"] == "Largest change of a logit")
    assert float(tile["changed"]) == pytest.approx(float((new - plain).abs().max()), rel=1e-3)
    assert (new - everywhere).abs().max() > 0.05
    words = said(at)
    assert "in 2 layers and its own in the other 2" in words
    assert ("read the last 5 keys only" in words) == (name == SLIDING)


def test_of_two_kinds_of_rotary_layers_the_widest_is_offered_first(gemma: str) -> None:
    cfg = load_pretrained(gemma, device="cpu").model.cfg
    assert [kind.name for kind in rotary.kinds(cfg)] == [SLIDING, FULL]
    assert rotary.widest(cfg).name == rotary.named(cfg, "none of them").name == FULL
    own, asked = own_length.Asked(64, 1), Asked(64, 1, "yarn", SLIDING)
    assert own_length.kinds(cfg) == (own_length.OWN, *own_length.SCALINGS)
    assert (own_length.spec(cfg, own), own_length.scaled_layers(cfg, own)) == (None, None)
    assert cfg.local_rope is not None
    assert own_length.spec(cfg, asked) == scaled(cfg.local_rope, "yarn", factor=1.0, trained=64)
    assert own_length.scaled_layers(cfg, asked) == {0, 2}
    assert rotary.kinds(cfg.changed(rope=None, local_rope=None)) == ()
    [alone] = rotary.kinds(cfg.changed(local_rope=None))
    assert (alone.name, alone.only, alone.window) == (rotary.ALL, None, None)


def test_losses_past_the_trained_length_are_kept_by_the_layers_that_were_scaled(
    gemma: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = models._load(state.Choice(state.TYPED, gemma, "cpu", "float32"), lambda line: True)
    ids = tuple(np.random.default_rng(0).integers(3, 96, 64).tolist())
    monkeypatch.setattr(own_length, "text_of", lambda opened, tokens: ("ids", ids))
    wanted = [Asked(48, 1, "yarn", name) for name in (SLIDING, FULL)] + [Asked(48, 1, own_length.OWN, SLIDING)]
    for asked in wanted:
        assert own_length.losses(opened, asked) is None
        own_length.measure(opened, asked, lambda line: True)
    sliding, full, own = (own_length.losses(opened, asked) for asked in wanted)
    assert sliding is not None
    assert full is not None
    assert own is not None
    assert np.nanmax(np.abs(sliding - full)) > 0.05
    assert own_length.losses(opened, Asked(48, 1)) is own
