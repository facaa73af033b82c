"""The Overview page from app.py: what its components are given is what lmcore computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from figures.format import group
from figures.payload import unpack
from lmcore import load_pretrained
from lmcore.costs import forward_flops, kv_cache_bytes, param_counts
from lmcore.trace import Capture
from tests.pages.test_every_page import open_page
from ui import state

MODEL, TOKENIZER, REPORT = load_pretrained("builtin")
assert TOKENIZER is not None
PROMPTS = {
    "normal": "the café ☕",
    "hostile": "<s> <b>x</b> $x$\tand\n:red[no] *y*",
    "512 tokens": ("the river " * 60)[:511],
}


def payload(at: AppTest, key: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    (blob,) = [e.proto.bytes for e in at.get("bidi_component") if e.proto.id.endswith(f"-{key}")]
    return unpack(blob)


@pytest.fixture(params=["normal", "hostile", "512 tokens"])
def opened(request: pytest.FixtureRequest) -> tuple[AppTest, list[int]]:
    prompt = PROMPTS[request.param]
    at = open_page("overview", prompt=prompt)
    assert not at.exception
    assert [e.value for e in at.error] == []
    return at, TOKENIZER.encode(prompt)[:512]


def test_strip_and_diagram_hold_this_run(opened: tuple[AppTest, list[int]]):
    at, ids = opened
    output = MODEL(torch.tensor([ids]), capture=Capture.of("resid_post"))
    meta, (loss, _, top_ids, top_probs) = payload(at, "overview_strip")
    assert meta["ids"] == ids
    expected = torch.nn.functional.cross_entropy(output.logits[0, :-1], torch.tensor(ids[1:]), reduction="none")
    np.testing.assert_allclose(loss[1:], expected.numpy(), atol=1e-4)
    assert top_ids[-1, 0] == int(output.logits[0, -1].argmax())
    np.testing.assert_allclose(top_probs[-1], torch.softmax(output.logits[0, -1], -1).topk(6).values, atol=1e-5)
    meta, (lengths,) = payload(at, "overview_arch")
    assert meta["tokens"] == len(ids)
    assert output.trace is not None
    for layer, record in output.trace.layers.items():
        assert record.resid_post is not None
        np.testing.assert_allclose(lengths[layer + 1], record.resid_post[0].norm(dim=-1).numpy(), rtol=1e-4)


def test_tiles_say_formula_measurement_and_no_difference(opened: tuple[AppTest, list[int]]):
    at, ids = opened
    tiles = payload(at, "overview_tiles")[0]["tiles"]
    numbers = [
        group(param_counts(MODEL.cfg).total),
        group(sum(forward_flops(MODEL.cfg, tokens=len(ids)).values())),
        f"{group(sum(kv_cache_bytes(MODEL.cfg, context=len(ids), itemsize=4)))} B",
    ]
    assert [tile["calculated"] for tile in tiles[:3]] == [tile["measured"] for tile in tiles[:3]] == numbers
    assert [tile["state"] for tile in tiles[:3]] == ["equal"] * 3
    assert tiles[3]["state"] in {"rounding", "equal"}
    assert group(MODEL.cfg.n_layers * MODEL.cfg.n_heads * len(ids)) in tiles[3]["unit"]


def test_shares_are_counted_from_the_tensors(opened: tuple[AppTest, list[int]]):
    shares = payload(opened[0], "overview_arch")[0]["shares"]
    assert sum(share["counted"] for share in shares) == sum(p.numel() for p in MODEL.parameters())
    assert all(share["counted"] == share["calculated"] for share in shares)


def test_load_report_is_the_loaders():
    at = open_page("overview", prompt="a")
    facts = {fact["label"]: fact for fact in payload(at, "overview_report")[0]["facts"]}
    assert facts["Tensors mapped"]["value"] == f"{REPORT.tensor_count} of {REPORT.tensor_count}"
    assert facts["Tensors unused"]["value"] == facts["Parameters missing"]["value"] == "none"
    assert facts["Runs in"]["value"] == "float32"
    assert REPORT.assumptions[0] in facts["Assumed"]["note"]


def test_empty_prompt_leaves_the_diagram_and_what_needs_no_run():
    at = open_page("overview", prompt="")
    assert not at.error
    assert at.button(key="empty_prompt")
    meta, (lengths,) = payload(at, "overview_arch")
    assert meta["tokens"] == 0
    assert lengths.shape[1] == 0
    tiles = payload(at, "overview_tiles")[0]["tiles"]
    assert [tile["state"] for tile in tiles] == ["equal", "missing", "missing"]


def test_one_token_of_the_real_model(smollm2_source: str):
    at = open_page("overview", model="SmolLM2-135M", prompt="a")
    assert not at.error
    tiles = payload(at, "overview_tiles")[0]["tiles"]
    assert tiles[0]["measured"] == group(134_515_008)
    assert tiles[2]["measured"] == f"{group(46_080)} B"
    assert {tile["state"] for tile in tiles} == {"equal"}
    assert payload(at, "overview_arch")[1][0].shape == (31, 1)


def test_half_precision_rows_are_within_its_rounding():
    tiles = payload(open_page("overview", prompt="the river runs", dtype="bfloat16"), "overview_tiles")[0]["tiles"]
    assert [tile["state"] for tile in tiles[:3]] == ["equal"] * 3
    assert tiles[3]["state"] in {"rounding", "equal"}


def test_second_visit_computes_nothing_again(monkeypatch: pytest.MonkeyPatch):
    open_page("overview", prompt="only once")

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("lmcore.measure.measured_pass", fail)
    monkeypatch.setattr("lmcore.model.Transformer.forward", fail)
    at = open_page("overview", prompt="only once")
    assert [e.value for e in at.error] == []
    assert len(payload(at, "overview_tiles")[0]["tiles"]) == 4


def test_without_a_tokenizer_the_prompt_is_token_ids(bare_folder: str):
    at = open_page("overview", model=state.TYPED, path=bare_folder, prompt="1, 15 27")
    assert not at.error
    meta, _ = payload(at, "overview_strip")
    assert meta["ids"] == [1, 15, 27]
    assert meta["bytes"] == ["", "", ""]


@pytest.mark.parametrize(("prompt", "words"), [("hello", "expected token ids"), ("1 999999", "outside the vocabulary")])
def test_prompt_that_cannot_run_leaves_the_model_to_see(bare_folder: str, prompt: str, words: str):
    at = open_page("overview", model=state.TYPED, path=bare_folder, prompt=prompt)
    assert words in at.main.error[0].value
    assert payload(at, "overview_arch")[0]["tokens"] == 0
    assert payload(at, "overview_report")[0]["facts"]
