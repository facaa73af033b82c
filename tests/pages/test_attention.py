"""The Attention page: the payload holds lmcore's weights, and what is said beside it follows from them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from figures.payload import unpack
from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.errors import CapacityError
from lmcore.trace import Capture
from tests.pages.test_every_page import PROMPTS, open_page
from ui import heads, state
from ui.lru import ByteLRU

LONG = ("word " * 103)[:511]
"""512 tokens, with the one at the start."""


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def payload(at: AppTest, name: str = "attention") -> tuple[dict[str, Any], list[np.ndarray]]:
    [found] = [e for e in at.get("bidi_component") if e.proto.component_name.endswith(f"glassbox_{name}")]
    return unpack(found.proto.bytes)


def attention(**link: str) -> AppTest:
    at = open_page("attention", **link)
    assert not at.exception
    assert [e.value for e in at.error] == []
    return at


def patterns(loaded: Loaded, text: str) -> np.ndarray:
    """(L, H, T, T) of one forward."""
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode(text)[:512]])
    trace = loaded.model.forward(tokens, capture=Capture.of("pattern")).trace
    assert trace is not None
    return np.stack([trace.layers[layer]["pattern"][0].numpy() for layer in sorted(trace.layers)])


def tiles(at: AppTest) -> list[dict[str, Any]]:
    return payload(at, "twins")[0]["tiles"]


@pytest.mark.parametrize("text", [text for text in PROMPTS.values() if text and len(text) < 1000])
def test_every_weight_of_every_head_is_the_models(loaded: Loaded, text: str) -> None:
    at, expected = attention(prompt=text), patterns(loaded, text)
    meta, (packed, *_) = payload(at)
    layers, n_heads, count, _ = expected.shape
    assert meta["shape"] == [layers, n_heads, count]
    rows, columns = np.tril_indices(count)
    np.testing.assert_array_equal(packed, expected[:, :, rows, columns])
    assert [tile["state"] in {"equal", "rounding"} for tile in tiles(at)] == [True] * 3


def test_at_512_tokens_one_layer_is_exact_and_the_address_says_which(loaded: Loaded) -> None:
    expected = patterns(loaded, LONG)
    at = attention(prompt=LONG, layer="2", head="1")
    meta, (packed, _, _, _, thumbnails) = payload(at)
    assert meta["exact"] == {"layer": 2, "layers": 1, "head": 0, "heads": 4}
    rows, columns = np.tril_indices(512)
    np.testing.assert_array_equal(packed[0], expected[2][:, rows, columns])
    assert thumbnails.shape[1:3] == (4, 4)
    top = expected[:, :, : meta["block"], : meta["block"]].max((2, 3))
    np.testing.assert_allclose(((thumbnails[0, :, :, 0, 0] - 1.0) / 253) ** 2, top, atol=0.01)
    assert max(len(e.proto.bytes) for e in at.get("bidi_component")) < 8 * 2**20
    assert all("layer 2" in tile["name"] for tile in tiles(at))


def test_layer_and_head_of_a_bad_link_are_brought_into_range() -> None:
    meta, _ = payload(attention(prompt=LONG, layer="99", head="99"))
    assert meta["exact"]["layer"] == 3


def test_what_to_notice_is_computed_from_this_run(loaded: Loaded) -> None:
    text = "abcabcabc"
    at, expected = attention(prompt=text), patterns(loaded, text)
    last = expected[:, :, -1, 1:-1]
    layer, head, key = np.unravel_index(last.argmax(), last.shape)
    said = " ".join(element.value for element in at.markdown).replace("\\", "")
    assert f"at position {key + 1} most strongly in layer {layer}, head {head}: {last.max():.4f}" in said
    first = expected[:, :, 1:, 0].mean(-1)
    assert f"takes {np.median(first):.3f} of a head’s weight in the median over 16 heads" in said
    assert f"more than half of it in {(first > 0.5).sum()} of them" in said
    assert "45 of the 100 cells are hatched" in said.replace("\u2006", "")


def test_a_single_byte_is_read_after_the_start_token() -> None:
    at = attention(prompt="7", model=state.BUILTIN)
    assert payload(at)[0]["shape"][2] == 2  # <s> and one byte
    assert payload(at)[1][0].shape[-1] == 3


def test_an_empty_prompt_has_a_way_out() -> None:
    at = attention(prompt="")
    assert not at.main.get("bidi_component")
    at.button(key="empty_prompt").click().run()
    assert payload(at)[0]["shape"][2] > 60


def test_a_model_without_a_tokenizer_and_a_single_token(tmp_path: Path) -> None:
    from tests.lmcore.tiny import hf_llama

    hf_llama("gqa").save_pretrained(tmp_path)
    at = attention(model=state.TYPED, path=str(tmp_path), prompt="15")
    meta, (packed, *_) = payload(at)
    assert meta["tokens"] == [[["text", "15"]]]
    assert (packed == 1).all()
    assert "its weight is 1 in every head" in " ".join(element.value for element in at.markdown)


def test_a_wrong_weight_does_not_pass_as_rounding(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second derivation can fail: with another scale it disagrees, and the tile says so."""
    from ui import heads as module

    right = module.check_layer
    monkeypatch.setattr(module, "check_layer", lambda *a, scale, **k: right(*a, scale=scale * 1.01, **k))
    at = attention(prompt="a prompt that no other test has")
    assert tiles(at)[1]["state"] == "unequal"


def layer_by_layer(loaded: Loaded, monkeypatch: pytest.MonkeyPatch, key: str) -> tuple[Any, tuple[int, ...]]:
    """The model as the page opens it, and a prompt that passes the budget of one forward."""
    opened: Any = SimpleNamespace(model=loaded.model, config=loaded.model.cfg, key=key, dtype="float32", tokenizer=None)
    monkeypatch.setattr(heads, "FORWARD_BYTES", 4 * 4 * 40 * 40 * 3)
    return opened, tuple(range(40))


def test_weights_layer_by_layer_are_the_weights_at_once(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, ids = layer_by_layer(loaded, monkeypatch, "parts")
    trace = loaded.model.forward(torch.tensor([ids]), capture=Capture.of("pattern", "rot_q")).trace
    assert trace is not None
    said: list[str] = []
    seen = heads.awaited(opened, ids, said.append)
    assert seen.weights.layer_by_layer
    assert all(len(line.split()) >= 4 for line in said)
    for layer in (2, 0, 3):  # in no order: each from the residual stream before it
        np.testing.assert_array_equal(seen.weights[layer], trace.layers[layer]["pattern"][0].numpy())
        np.testing.assert_array_equal(seen.weights.stages(layer)["rot_q"], trace.layers[layer]["rot_q"][0].numpy())
    first = np.stack([trace.layers[layer]["pattern"][0, :, 1:, 0].mean(-1).numpy() for layer in range(4)])
    np.testing.assert_allclose(seen.summary.metrics[..., 0], first, rtol=1e-5)
    check = seen.check(1, 2)
    assert check is not None
    assert check.difference <= check.bound
    assert check.rows == 4 * 40  # of four layers, one head each
    assert check.place[1] == 2
    monkeypatch.setattr(heads, "_STREAMS", ByteLRU(max_entries=1, max_bytes=1, size=lambda streams: 1))
    again = seen.weights.captured(3, "pattern")["pattern"]  # nothing is known of the layers below
    np.testing.assert_allclose(again, trace.layers[3]["pattern"][0].numpy(), atol=1e-5)


def test_a_prompt_whose_layer_is_too_large_is_refused_with_the_numbers(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, ids = layer_by_layer(loaded, monkeypatch, "refused")
    monkeypatch.setattr(heads, "LAYER_BYTES", 4 * 4 * 30 * 30)
    with pytest.raises(CapacityError, match=r"25,600 bytes.*at most 14,400.*to 30 tokens"):
        heads.of(opened, ids)
    heads.of(opened, ids[:30])


def test_at_2048_tokens_one_head_is_exact_and_every_payload_is_bounded() -> None:
    at = attention(prompt="the cat sat. " * 200, layer="3", head="2")
    meta, (packed, *_) = payload(at)
    assert meta["shape"] == [4, 4, 2048]
    assert meta["exact"] == {"layer": 3, "layers": 1, "head": 2, "heads": 1}
    assert np.isfinite(packed).all()
    assert packed.shape == (1, 1, 2048 * 2049 // 2)
    assert max(len(e.proto.bytes) for e in at.get("bidi_component")) < 16 * 2**20
    assert all("layer 3" in tile["name"] for tile in tiles(at))
    said = " ".join(element.value for element in at.markdown)
    assert len(re.findall(r"The first \d+ of 2\D+048 tokens are run here", said)) == 3  # masks, break it, logit
    assert "The maps hold the first" in said
