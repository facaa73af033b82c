"""Masks tried on the running model: what the page shows is lmcore's forward under that mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from figures.payload import unpack
from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.masks import Mask
from lmcore.trace import Capture, Edits
from tests.lmcore.family_models import VARIANTS, build
from tests.pages.test_every_page import open_page
from ui import experiments, masks_view, state

TEXT = "abcabc the the"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def attention(**link: str) -> AppTest:
    at = open_page("attention", **{"prompt": TEXT, **link})
    assert not at.exception
    assert [e.value for e in at.error] == []
    return at


def payload(at: AppTest, name: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    found = [e for e in at.get("bidi_component") if e.proto.component_name.endswith(f"glassbox_{name}")]
    return unpack(found[0].proto.bytes)


def words(at: AppTest) -> str:
    return " ".join(element.value for element in at.markdown).replace("\u2006", "").replace("\u2060", "")


def forward(loaded: Loaded, text: str, mask: Mask | None) -> tuple[float, np.ndarray, np.ndarray]:
    """Mean loss by torch, weights (L, H, T, T), probabilities of the next token."""
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode(text)])
    out = loaded.model.forward(tokens, capture=Capture.of("pattern"), edits=Edits(mask=mask))
    assert out.trace is not None
    loss = torch.nn.functional.cross_entropy(out.logits[0, :-1].double(), tokens[0, 1:])
    weights = np.stack([out.trace.layers[layer]["pattern"][0].numpy() for layer in sorted(out.trace.layers)])
    return float(loss), weights, out.logits[0, -1].double().softmax(-1).numpy()


MASKS = {
    "causal": (Mask(), {}),
    "sliding window": (Mask(window=3), {"attention_window": "3"}),
    "sinks + window": (Mask(window=3, sinks=2), {"attention_window": "3", "attention_sinks": "2"}),
    "prefix-LM": (Mask(prefix=6), {"attention_prefix": "6"}),
    "bidirectional": (Mask(causal=False), {}),
    "packed documents": (Mask(documents=(5, 10)), {"attention_documents": "3"}),
}


@pytest.mark.parametrize("kind", MASKS)
def test_loss_weights_and_next_token_are_those_of_a_forward_under_the_mask(loaded: Loaded, kind: str) -> None:
    mask, link = MASKS[kind]
    at = attention(attention_mask=kind, **link)
    plain_loss, plain, plain_next = forward(loaded, TEXT, None)
    loss, weights, following = forward(loaded, TEXT, mask)
    meta, [both] = payload(at, "beside")
    assert [tile["name"] for tile in meta["tiles"]] == ["Mean loss", "Largest change of a weight"]
    assert float(meta["tiles"][0]["plain"]) == pytest.approx(plain_loss, abs=1e-3)
    assert float(meta["tiles"][0]["changed"]) == pytest.approx(loss, abs=1e-3)
    ids = [row["id"] for row in meta["rows"]]
    np.testing.assert_allclose(both[0, :-1], plain_next[ids], atol=1e-6)
    np.testing.assert_allclose(both[1, :-1], following[ids], atol=1e-6)
    np.testing.assert_allclose(both.sum(1), 1)
    meta, (drawn, before, after) = payload(at, "fields")
    count = plain.shape[-1]
    allowed = mask.allows(torch.arange(count), torch.arange(count)).numpy()
    np.testing.assert_array_equal(drawn == 0, allowed)
    moved = np.abs(weights - plain).max((2, 3))
    layer, head = np.unravel_index(int(moved.argmax()), moved.shape)
    assert (kind == "causal") == (moved.max() < 1e-6)
    if kind != "causal":
        assert f"layer {layer}, head {head}" in meta["fields"][1]["title"]
        np.testing.assert_allclose(before[np.tri(count, dtype=bool)], plain[layer, head][np.tri(count, dtype=bool)])
        np.testing.assert_allclose(after[allowed], weights[layer, head][allowed], atol=1e-6)
    assert (after[~allowed] == -1).all()


def test_a_leak_is_named_with_the_weight_of_the_answer(loaded: Loaded) -> None:
    text = words(attention(attention_mask="bidirectional"))
    _, weights, _ = forward(loaded, TEXT, Mask(causal=False))
    count = weights.shape[-1]
    answer = weights[:, :, np.arange(count - 1), np.arange(1, count)].mean()
    assert "The future leaks." in text
    assert f"give it {answer:.3f} of their weight" in text
    assert "The future leaks." not in words(attention(attention_mask="sliding window"))


def test_the_head_selected_above_is_shown_on_demand(loaded: Loaded) -> None:
    at = attention(attention_mask="bidirectional", attention_mask_head="selected above", layer="2", head="3")
    meta, (_, before, _) = payload(at, "fields")
    assert "layer 2, head 3" in meta["fields"][1]["title"]
    _, plain, _ = forward(loaded, TEXT, None)
    lower = np.tri(len(before), dtype=bool)
    np.testing.assert_allclose(before[lower], plain[2, 3][lower], atol=1e-6)


@pytest.mark.parametrize("kind", masks_view.KINDS)
@pytest.mark.parametrize("text", ["15", "word " * 60, ""])
def test_every_mask_with_one_token_with_many_and_with_none(
    kind: str, text: str, bare_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "RUN_S", 1e6)
    link = {"model": state.TYPED, "path": bare_folder} if text == "15" else {}
    at = attention(prompt=text, attention_mask=kind, **link)
    if text:
        count = len(payload(at, "fields")[0]["tokens"])
        assert count == (1 if text == "15" else 301)
        assert "tokens are run here" not in words(at)


@pytest.mark.parametrize("case", ["deepseek_v3", "mistral", "gpt2", "gpt_oss"])
def test_models_with_latents_with_windows_and_without_rope(case: str, tmp_path: Path) -> None:
    build(VARIANTS[case]).save_pretrained(tmp_path)
    at = attention(model=state.TYPED, path=str(tmp_path), prompt="3 4 5 6 7 8 9 10", attention_mask="bidirectional")
    assert float(payload(at, "beside")[0]["tiles"][0]["changed"]) > 0
