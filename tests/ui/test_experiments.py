"""How much of a prompt an experiment runs, and that layer by layer it measures what one forward gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lmcore.masks import Mask
from lmcore.model import Transformer
from lmcore.presets import shipped
from lmcore.trace import Capture
from tests.lmcore.tiny import hf_llama, ours
from ui import experiments, heads, last_position
from ui.experiments import PLAIN, Change

IDS = tuple(n % 90 + 3 for n in range(0, 7 * 150, 7))


def opened(model: Transformer) -> Any:
    return SimpleNamespace(model=model, config=model.cfg, key="tiny experiments", dtype="float32")


@pytest.fixture(scope="module")
def model() -> Transformer:
    return ours(hf_llama("gqa"))


@pytest.mark.parametrize(
    ("tokens", "seconds", "keeps_weights", "used", "why"),
    [
        (128, 60.0, True, 128, None),
        (373, 1.0, True, 373, None),
        (374, 1.0, True, 373, "the weights of every head would take 144 MiB"),
        (2048, 4.0, True, 373, "would take 270 MiB"),
        (2048, 4.0, False, 512, ""),
        (300, 10.0, False, 150, "one forward of 300 would take about 10 s"),
        (2048, 4000.0, True, 128, "one forward of 373 would take about"),
        (512, None, False, 512, None),
    ],
)
def test_a_prompt_is_cut_to_what_bytes_and_seconds_allow_and_the_number_is_said(
    monkeypatch: pytest.MonkeyPatch, tokens: int, seconds: float | None, keeps_weights: bool, used: int, why: str | None
) -> None:
    monkeypatch.setattr(heads, "seconds", lambda opened, ids: seconds)
    smollm2: Any = SimpleNamespace(config=shipped("smollm2-135m").config, key="config")
    cut = experiments.cut(smollm2, tuple(range(tokens)), keeps_weights=keeps_weights)
    assert cut.ids == tuple(range(used))
    said = cut.said.replace("\u2006", "").replace("\u2060", "")
    if why is None:
        assert said == ""
    else:
        assert said.startswith(f"The first {used} of {tokens} tokens are run here")
        assert why in said


def test_the_seconds_are_those_of_the_prompts_own_forward(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = opened(model)
    for limit in (2**30, 1):  # in one forward, and layer by layer
        ids = (*IDS[:40], limit % 90)
        monkeypatch.setattr(heads, "FORWARD_BYTES", limit)
        assert heads.seconds(given, ids) is None
        heads.of(given, ids)
        assert (heads.seconds(given, ids) or 0) > 0


@pytest.mark.parametrize(
    "change", [PLAIN, Change(mask=Mask(window=5)), Change(softmax="mask_after"), Change(scale=1.0)]
)
def test_layer_by_layer_it_is_one_forward(model: Transformer, change: Change) -> None:
    found = experiments.measure(opened(model), IDS, change)
    kept = experiments.weights(opened(model), IDS, change)
    tokens = torch.tensor([IDS])
    out = model.forward(tokens, capture=Capture.of("pattern", "scores_raw"), edits=change.edits())
    assert out.trace is not None
    loss = torch.nn.functional.cross_entropy(out.logits[0, :-1].double(), tokens[0, 1:], reduction="none")
    np.testing.assert_allclose(found.losses[1:], loss, atol=1e-5)
    assert np.isnan(found.losses[0])
    np.testing.assert_allclose(found.logits, out.logits[0, -1], atol=1e-5)
    layers = [out.trace.layers[layer] for layer in range(model.cfg.n_layers)]
    np.testing.assert_allclose(kept, np.stack([layer["pattern"][0].numpy() for layer in layers]), atol=1e-6)
    sums = kept.sum(-1, dtype=np.float64)
    assert found.row_sums == pytest.approx((sums.min(), sums.mean(), sums.max()))
    allowed = experiments.readable(opened(model), len(IDS), change)
    raw = np.stack([layer["scores_raw"][0].double().numpy() for layer in layers])[:, :, allowed]
    assert found.variance == pytest.approx(raw.var(-1).mean(), rel=1e-5)
    scale = model.cfg.attention.scale if change.scale is None else change.scale
    assert found.largest == pytest.approx(raw.max() * scale, rel=1e-5)
    assert (found.bad_rows, found.bad_layer) == (0, None)


def test_the_layers_are_told_and_an_interrupted_run_leaves_nothing(model: Transformer) -> None:
    heard: list[int] = []

    class Rerun(Exception):
        pass

    def say(layer: int) -> None:
        heard.append(layer)
        if layer == 1:
            raise Rerun

    some = IDS[:9]
    with pytest.raises(Rerun):
        experiments.measure(opened(model), some, PLAIN, say)
    assert heard == [0, 1]
    assert not experiments.known(opened(model), some, PLAIN)
    experiments.measure(opened(model), some, PLAIN, heard.append)
    assert heard == [0, 1, *range(model.cfg.n_layers)]


def test_the_last_position_is_that_of_one_forward(model: Transformer) -> None:
    found = last_position.of(opened(model), IDS)
    names = ("z", "attn_out", "ffn_out", "resid_post")
    out = model.forward(torch.tensor([IDS]), capture=Capture.of(*names))
    assert out.trace is not None
    assert out.trace.embedding is not None
    last = {
        n: np.stack([out.trace.layers[at][n][0, ..., -1, :].numpy() for at in sorted(out.trace.layers)]) for n in names
    }
    np.testing.assert_allclose(found.z, last["z"], atol=1e-5)
    np.testing.assert_allclose(found.attn_out, last["attn_out"], atol=1e-5)
    np.testing.assert_allclose(found.ffn_out, last["ffn_out"], atol=1e-5)
    np.testing.assert_allclose(found.resid, last["resid_post"][-1], atol=1e-5)
    np.testing.assert_allclose(found.embedding, out.trace.embedding[0, -1], atol=1e-6)
    np.testing.assert_allclose(found.logits, out.logits[0, -1], atol=1e-5)
