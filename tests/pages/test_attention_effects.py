"""What heads do: contributions, parts of a logit that sum to it, and the planted test, all lmcore's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from figures.payload import unpack
from lmcore.block import Block
from lmcore.checkpoint import Loaded
from lmcore.effects import planted_scores
from lmcore.trace import Capture
from tests.lmcore.family_models import VARIANTS, build
from tests.pages.test_attention_masks import TEXT, attention, loaded, words
from ui import effects_view, state

__all__ = ["loaded"]


def panels(at: AppTest, name: str) -> list[tuple[dict[str, Any], list[np.ndarray]]]:
    found = [e for e in at.get("bidi_component") if e.proto.component_name.endswith(f"glassbox_{name}")]
    return [unpack(e.proto.bytes) for e in found]


def contribution(at: AppTest) -> tuple[dict[str, Any], list[np.ndarray]]:
    [found] = [p for p in panels(at, "fields") if p[0]["by_head"]]
    return found


@pytest.fixture(scope="module")
def trace(loaded: Loaded) -> Any:
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode(TEXT)])
    return loaded.model.forward(tokens, capture=Capture.of("pattern", "v", "resid_post"))


def test_the_map_is_the_length_of_what_is_added(loaded: Loaded, trace: Any) -> None:
    """Derived again: the vector A_ij v_j W_O itself, its length taken, head by head."""
    meta, (weights, lengths) = contribution(attention())
    cfg = loaded.model.cfg
    assert meta["by_head"] == [cfg.n_layers, cfg.n_heads]
    for layer, head, query, key in ((0, 0, 5, 0), (2, 3, 9, 4), (3, 1, 12, 12)):
        t = trace.trace.layers[layer]
        block = cast(Block, loaded.model.model.layers[layer])
        w = block.self_attn.o_proj.weight[:, head * cfg.head_dim : (head + 1) * cfg.head_dim]
        value = t.v[0, head // (cfg.n_heads // cfg.n_kv_heads), key]
        added = t.pattern[0, head, query, key] * (w @ value)
        assert lengths[layer, head, query, key] == pytest.approx(float(added.norm()), rel=1e-4)
        assert weights[layer, head, query, key] == pytest.approx(float(t.pattern[0, head, query, key]), rel=1e-5)
    future = np.triu(np.ones(weights.shape[-2:], bool), 1)
    assert (lengths[..., future] == -1).all()


def test_the_parts_of_the_likeliest_tokens_logit_sum_to_it(loaded: Loaded, trace: Any) -> None:
    [(meta, [grid])] = panels(attention(), "ranked")
    [panel] = meta["panels"]
    logits = trace.logits[0, -1]
    totals = {name: text for _, name, text in panel["totals"]}
    number = float(totals["logit of the model"].replace("−", "-"))
    assert number == pytest.approx(float(logits.max()), abs=1e-4)
    assert totals["sum of all parts"][:6] == totals["logit of the model"][:6]
    assert "× 10⁻" in totals["difference"] or totals["difference"] == "0"
    assert grid.shape == (4, 5)
    sizes = [abs(entry["value"]) for entry in panel["entries"]]
    assert sizes == sorted(sizes, reverse=True)
    for entry in panel["entries"]:
        if entry["layer"] is not None:
            assert grid[entry["layer"], entry["head"]] == pytest.approx(entry["value"], rel=1e-5)
    listed = sum(entry["value"] for entry in panel["entries"])
    [others] = [float(text.replace("−", "-")) for name, text in totals.items() if "other parts" in name]
    assert listed + others == pytest.approx(number, abs=1e-3)


def test_another_token_has_other_parts() -> None:
    at = attention()
    before = panels(at, "ranked")[0][1][0]
    box = at.selectbox(key="attention_logit_token")
    box.select_index(3).run()
    _, [after] = panels(at, "ranked")[0]
    assert not at.exception
    assert np.abs(after - before).max() > 0.01
    assert [e.value for e in at.error] == []


def test_the_planted_test_is_lmcores_and_ranked(loaded: Loaded) -> None:
    at = attention()
    assert len(panels(at, "ranked")) == 1
    at.button(key="attention_planted").click().run()
    assert not at.exception
    assert loaded.tokenizer is not None
    expected = planted_scores(loaded.model, length=64, seed=0, first=loaded.tokenizer.bos_id)
    meta, grids = panels(at, "ranked")[1]
    for panel, grid, scores in zip(
        meta["panels"], grids, (expected.induction, expected.previous, expected.same), strict=True
    ):
        np.testing.assert_allclose(grid, scores, atol=1e-6)
        first = panel["entries"][0]
        assert scores[first["layer"], first["head"]] == scores.max()
        assert len(panel["entries"]) == 10
        values = [entry["value"] for entry in panel["entries"]]
        assert values == sorted(values, reverse=True)
        assert panel["definition"]
    assert [panel["beside"] for panel in meta["panels"]] == ["on the prompt"] * 3
    assert "of its ten best heads" in words(at)


def test_on_a_text_without_repeats_the_prompt_says_nothing_of_induction(loaded: Loaded) -> None:
    at = attention(prompt="abcdefg")
    if any(button.key == "attention_planted" for button in at.button):
        at.button(key="attention_planted").click().run()
    meta, _ = panels(at, "ranked")[1]
    assert {entry["beside"] for entry in meta["panels"][0]["entries"]} == {"undefined"}
    assert "is undefined, since no token comes twice" in words(at)


@pytest.mark.parametrize(
    "case", ["llama", "deepseek_v3", "gpt2", "gpt_oss", "gemma2", "falcon", "bloom", "olmo2", "mixtral", "mistral"]
)
def test_every_kind_of_model_has_its_sections(case: str, tmp_path: Path) -> None:
    build(VARIANTS[case]).save_pretrained(tmp_path)
    at = attention(model=state.TYPED, path=str(tmp_path), prompt="3 4 5 3 4 5 9 10")
    at.button(key="attention_planted").click().run()
    assert not at.exception
    assert [e.value for e in at.error] == []
    logit, _ = panels(at, "ranked")
    totals = {name: text for _, name, text in logit[0]["panels"][0]["totals"]}
    assert totals["difference"] == "0" or "× 10⁻" in totals["difference"] or float(totals["difference"]) < 1e-3


@pytest.mark.parametrize("text", ["15", "word " * 60])
def test_one_token_and_many(text: str, bare_folder: str) -> None:
    link = {"model": state.TYPED, "path": bare_folder} if text == "15" else {}
    meta, (weights, _) = contribution(attention(prompt=text, **link))
    assert weights.shape[-1] == len(meta["tokens"])
    assert weights.nbytes <= effects_view.MAP_BYTES
    assert len(meta["tokens"]) == (1 if text == "15" else 247)  # of 16 heads
