"""The Tokens page from app.py: what its components are given is what lmcore computes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from lmcore import load_pretrained
from lmcore.trace import Capture
from tests.pages.test_every_page import open_page
from tests.pages.test_overview import payload
from ui import state

MODEL, TOKENIZER, _ = load_pretrained("builtin")
assert TOKENIZER is not None
PROMPTS = {
    "normal": "日本 ☕ the end",
    "hostile": "<s> <b>x</b> $x$\tand\n:red[no] *y*",
    "repeated": "the the the the",
    "512 tokens": ("the river " * 60)[:511],
}


@pytest.fixture(params=PROMPTS)
def opened(request: pytest.FixtureRequest) -> tuple[AppTest, list[int]]:
    prompt = PROMPTS[request.param]
    at = open_page("tokens", prompt=prompt)
    assert not at.exception
    assert [e.value for e in at.error] == []
    return at, TOKENIZER.encode(prompt)[:512]


def logits_of(ids: list[int]) -> torch.Tensor:
    return MODEL(torch.tensor([ids])).logits[0].double()


def test_strip_has_ids_bytes_and_the_characters_they_complete():
    at = open_page("tokens", prompt="日x")
    meta, _ = payload(at, "tokens_strip")
    assert meta["ids"] == [256, 0xE6, 0x97, 0xA5, ord("x")]
    assert meta["bytes"][1:] == ["E6", "97", "A5", "78"]
    assert meta["characters"] == [None, "日", "日", "日", None]
    assert meta["below"] == ["256", "230 日", "151 日", "165 日", "120"]


def test_loss_is_taken_apart_for_every_position(opened: tuple[AppTest, list[int]]):
    at, ids = opened
    logits = logits_of(ids)
    meta, (logit, total, counts, edges) = payload(at, "tokens_loss")
    assert meta["ids"] == ids
    np.testing.assert_allclose(logit[1:], logits[range(len(ids) - 1), ids[1:]], atol=1e-4)
    np.testing.assert_allclose(total[1:], torch.logsumexp(logits[:-1], -1), atol=1e-4)
    assert counts.sum(axis=1).tolist() == [MODEL.cfg.vocab_size] * len(ids)
    assert edges[0] <= float(logits.min()) + 1e-4
    assert edges[-1] >= float(np.nanmax(total)) - 1e-4


def test_perplexity_is_exp_of_the_mean_loss(opened: tuple[AppTest, list[int]]):
    at, ids = opened
    mean = torch.nn.functional.cross_entropy(logits_of(ids)[:-1], torch.tensor(ids[1:])).item()
    tiles = payload(at, "tokens_tiles")[0]["tiles"]
    assert float(tiles[0]["calculated"]) == pytest.approx(mean, rel=1e-5)
    assert float(tiles[1]["calculated"].replace("\u2006", "")) == pytest.approx(math.exp(mean), rel=1e-4)
    assert {tile["state"] for tile in tiles} <= {"rounding", "equal"}


def test_dot_products_stand_beside_the_models_logits(opened: tuple[AppTest, list[int]]):
    at, ids = opened
    output = MODEL(torch.tensor([ids]), capture=Capture.of())
    assert output.trace is not None
    assert output.trace.final_normed is not None
    _, (candidates, product, logit, _, _) = payload(at, "tokens_dots")
    last = len(ids) - 1
    shown = candidates[last][candidates[last] >= 0].astype(int)
    assert shown[0] == int(output.logits[0, last].argmax())
    expected = output.trace.final_normed[0, last].double() @ MODEL.unembedding[shown].double().T
    np.testing.assert_allclose(product[last, : len(shown)], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logit[last, : len(shown)], output.logits[0, last, shown], rtol=1e-4, atol=1e-5)
    for position in range(last):
        assert ids[position + 1] in candidates[position]


def test_scripts_are_cut_by_this_tokenizer():
    rows = payload(open_page("tokens", prompt=""), "tokens_scripts")[0]["rows"]
    for row in rows:
        assert len(row["tokens"]) == len(TOKENIZER.encode(row["text"], add_special=False))
        assert row["ratio"] == pytest.approx(row["characters"] / len(row["tokens"]))


def test_bos_and_untied_head_are_told():
    text = " ".join(element.value for element in open_page("tokens", prompt="a").main.markdown)
    assert r"this tokenizer puts \<s\>, id 256" in text
    assert "unembedding is untied" in text


def test_empty_prompt_leaves_the_scripts():
    at = open_page("tokens", prompt="")
    assert not at.error
    assert at.button(key="empty_prompt")
    assert [e.proto.component_name for e in at.main.get("bidi_component")] == ["glassbox_scripts"]


def test_one_token_of_the_real_model_has_no_loss_and_says_so(smollm2_source: str):
    at = open_page("tokens", model="SmolLM2-135M", prompt="a")
    assert not at.error
    _, (logit, *_) = payload(at, "tokens_loss")
    assert np.isnan(logit).all()
    text = " ".join(element.value for element in at.main.markdown)
    assert "One token alone has no loss" in text
    assert "puts nothing in front" in text
    assert "unembedding is tied" in text


def test_without_a_tokenizer_tokens_are_told_by_their_ids(bare_folder: str):
    at = open_page("tokens", model=state.TYPED, path=bare_folder, prompt="1, 15 27")
    assert not at.error
    assert payload(at, "tokens_strip")[0]["ids"] == [1, 15, 27]
    assert "has no tokenizer" in at.main.info[0].value
