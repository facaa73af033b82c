"""Each broken run shows the failure that its row names, in numbers of lmcore's own forward."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.masks import Mask
from lmcore.trace import Capture, Edits
from tests.lmcore.family_models import VARIANTS, build
from tests.pages.test_attention_masks import TEXT, attention, loaded, payload, words
from ui import broken_view, experiments, state

__all__ = ["loaded"]

EDITS = {
    "Mask after the softmax": Edits(softmax="mask_after"),
    "No mask": Edits(mask=Mask(causal=False)),
    "No 1/√Dₕ": Edits(scale=1.0),
    "Softmax in float16 without the row’s maximum": Edits(softmax="unsafe_float16"),
    "RoPE on V as well": Edits(rotate_values=True),
    "Halves mixed with interleaved": Edits(pairing="interleaved"),
}


def broken(**link: str) -> dict[str, dict[str, Any]]:
    """The rows of the table by name, once they are run."""
    at = attention(**link)
    rows = payload(at, "breaks")[0]["rows"]
    assert {row["loss_text"] for row in rows} <= {"not run"} or not at.button
    if any(button.key == "attention_breaks" for button in at.button):
        at.button(key="attention_breaks").click().run()
    assert not at.exception
    assert [e.value for e in at.error] == []
    return {row["name"]: row for row in payload(at, "breaks")[0]["rows"]}


def forward(loaded: Loaded, edits: Edits) -> tuple[float, np.ndarray]:
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode(TEXT)])
    out = loaded.model.forward(tokens, capture=Capture.of("pattern"), edits=edits)
    assert out.trace is not None
    loss = torch.nn.functional.cross_entropy(out.logits[0, :-1].double(), tokens[0, 1:])
    return float(loss), np.stack([out.trace.layers[n]["pattern"][0].double().numpy() for n in sorted(out.trace.layers)])


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    return broken()


@pytest.mark.parametrize("name", ["The right run", *EDITS])
def test_loss_and_entropy_are_those_of_lmcores_forward(loaded: Loaded, rows: dict[str, dict[str, Any]], name: str):
    loss, weights = forward(loaded, EDITS.get(name, Edits()))
    entropy = -np.where(weights > 0, weights * np.log(np.maximum(weights, 1e-300)), 0).sum(-1).mean()
    assert rows[name]["loss"] == pytest.approx(loss, abs=1e-4)
    assert rows[name]["entropy"] == pytest.approx(entropy, abs=1e-4)


def found(rows: dict[str, dict[str, Any]], name: str) -> str:
    return " ".join(rows[name]["found"]).replace("\u2006", "")


def test_each_row_shows_the_failure_that_it_names(loaded: Loaded, rows: dict[str, dict[str, Any]]):
    _, after = forward(loaded, EDITS["Mask after the softmax"])
    sums = after.sum(-1)
    assert sums.min() < 0.5
    assert f"mean {sums.mean():.3f}, largest {sums.max():.3f}" in found(rows, "Mask after the softmax")
    leaked = re.search(r"by up to ([\d.]+); in the right run by (\S+)\.", found(rows, "No mask"))
    assert leaked is not None
    assert float(leaked[1]) > 0.01
    assert leaked[2] == "0" or "× 10" in found(rows, "No mask")
    assert rows["No 1/√Dₕ"]["entropy"] < 0.5 * rows["The right run"]["entropy"]
    assert "against Dₕ = 16" in found(rows, "No 1/√Dₕ")
    assert "rows hold NaN or infinity" in found(rows, "Softmax in float16 without the row’s maximum")
    for name in ("RoPE on V as well", "Halves mixed with interleaved"):
        moved = re.search(r"differ by up to ([\d.]+\d)", found(rows, name))
        assert moved is not None
        assert float(moved[1]) > 0.01


def test_the_count_of_broken_rows_is_lmcores(tmp_path: Path):
    """With queries eight times as long the scores overflow float16 at the right scale."""
    model = build(VARIANTS["llama"])
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data *= 30
    model.save_pretrained(tmp_path)
    link = {"model": state.TYPED, "path": str(tmp_path), "prompt": "3 4 5 6 7 8 9 10"}
    rows = broken(**link)
    ours = load_pretrained(tmp_path, dtype="float32", device="cpu").model
    edits = Edits(softmax="unsafe_float16")
    trace = ours.forward(torch.tensor([range(3, 11)]), capture=Capture.of("pattern"), edits=edits).trace
    assert trace is not None
    weights = torch.stack([trace.layers[n]["pattern"][0] for n in sorted(trace.layers)])
    bad = int((~weights.isfinite()).any(-1).sum())
    assert bad > 0
    name = "Softmax in float16 without the row’s maximum"
    assert f"{bad} of {weights[..., 0].numel()} rows" in found(rows, name)
    assert rows[name]["loss"] is None
    assert rows[name]["loss_text"] == "NaN"


def test_the_relative_property_holds_unless_q_and_k_differ(loaded: Loaded, rows: dict[str, dict[str, Any]]):
    from types import SimpleNamespace

    opened: Any = SimpleNamespace(model=loaded.model, config=loaded.model.cfg, key="spread")
    spread = experiments.offset_spread(opened, (1, 2, 3, 4))
    assert spread is not None
    assert spread["half-split"] < 1e-5
    assert spread["interleaved"] < 1e-5
    assert spread["mixed"] > 0.01
    assert "no longer a function of the offset" in found(rows, "Halves mixed with interleaved")


def test_each_row_names_the_line_of_source_that_does_it(rows: dict[str, dict[str, Any]]):
    root = Path(broken_view.__file__).parent.parent
    for row in list(rows.values())[1:]:
        where, text = row["line"].split("  ", 1)
        path, _, number = where.partition(":")
        assert (root / path).read_text().splitlines()[int(number) - 1].strip() == text


@pytest.mark.parametrize("case", ["deepseek_v3", "gpt2", "gpt_oss", "gemma2", "falcon"])
def test_what_a_model_lacks_is_said_and_the_rest_is_run(case: str, tmp_path: Path):
    build(VARIANTS[case]).save_pretrained(tmp_path)
    rows = broken(model=state.TYPED, path=str(tmp_path), prompt="3 4 5 6 7 8 9 10")
    lacking = {
        "deepseek_v3": {"RoPE on V as well"},
        "gpt2": {"RoPE on V as well", "Halves mixed with interleaved"},
        "gpt_oss": {"Softmax in float16 without the row’s maximum"},
    }.get(case, set())
    assert {name for name, row in rows.items() if row["loss_text"] == "not run"} == lacking
    assert all(row["found"] for row in rows.values())


def test_one_token_has_weights_and_no_loss(bare_folder: str):
    rows = broken(model=state.TYPED, path=bare_folder, prompt="15")
    assert rows["The right run"]["loss_text"] == "NaN"
    assert math.isclose(rows["The right run"]["entropy"], 0)


def test_nothing_is_run_before_it_is_asked_for():
    at = attention(prompt="a prompt that is never broken")
    assert {row["loss_text"] for row in payload(at, "breaks")[0]["rows"]} == {"not run"}
    assert "costs most" not in words(at)
