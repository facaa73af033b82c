"""Heads and the KV cache: opens without torch, calculates what the link says, and declines what it doesn't know."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from figures.payload import unpack
from lmcore import presets
from lmcore.checkpoint import load_pretrained
from lmcore.kv_costs import kv_cache_bytes
from tests.pages.test_every_page import open_page
from ui import configs, state

ROOT = Path(__file__).parent.parent.parent


def kv(**link: str) -> AppTest:
    at = open_page("kv", **link)
    assert not at.exception
    return at


def payloads(at: AppTest, name: str) -> list[tuple[dict[str, Any], list[np.ndarray]]]:
    found = [e for e in at.get("bidi_component") if e.proto.component_name.endswith(f"glassbox_{name}")]
    return [unpack(element.proto.bytes) for element in found]


def words(at: AppTest) -> str:
    return " ".join(element.value for element in at.markdown).replace("\u2006", "").replace("\u2060", "")


def test_the_page_opens_without_torch() -> None:
    """Calculators and all, for the built-in model and for a config of 671B parameters."""
    code = f"""
import sys
from streamlit.testing.v1 import AppTest
at = AppTest.from_file({str(ROOT / "app.py")!r}, default_timeout=120)
at.query_params["model"], at.query_params["config"] = "A config.json", "DeepSeek-V3"
at.switch_page("pages/kv.py").run()
assert not at.exception and not at.error, at.error
assert len(at.get("bidi_component")) >= 4
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_link_restores_everything() -> None:
    at = kv(kv_models="DeepSeek-V3", kv_context="8k", kv_batch="4", kv_unit="GB", kv_format="q8_0", kv_machine="L4")
    meta, arrays = payloads(at, "lines")[0]
    assert (meta["current"], [line["name"] for line in meta["lines"]]) == (8192, ["DeepSeek-V3"])
    assert meta["limits"] == [[24.0, "L4: 24.0 GB"]]
    from lmcore.formats import FORMATS

    cfg = presets.shipped("deepseek-v3").config
    expected = sum(kv_cache_bytes(cfg, context=8192, batch=4, quantised=FORMATS["q8_0"]))
    assert arrays[1][list(arrays[0]).index(8192)] == pytest.approx(expected / 1e9)
    assert at.select_slider(key="kv_batch").value == 4
    at.select_slider(key="kv_batch").set_value(8).run()
    _, arrays = payloads(at, "lines")[0]
    assert arrays[1][list(arrays[0]).index(8192)] == pytest.approx(2 * expected / 1e9)
    assert f"{2 * expected:,}".replace(",", "") in words(at)


def test_an_impossible_division_is_explained_and_leaves_the_rest() -> None:
    at = kv(kv_models="Llama 3.1 8B", kv_kind="KV heads", kv_heads="12")
    assert "32 query heads cannot share 12 KV heads" in at.error[0].value
    assert payloads(at, "lines")[0][0]["lines"][0]["name"] == "Llama 3.1 8B"
    at = kv(kv_models="Llama 3.1 8B", kv_kind="KV heads", kv_heads="1")
    assert not at.error
    assert payloads(at, "lines")[0][0]["lines"][0]["name"] == "Llama 3.1 8B, changed"
    at = kv(kv_models="Llama 3.1 8B", kv_ranks="64")
    assert "Llama 3.1 8B: 32 query heads cannot be split over 64 ranks" in at.error[0].value.replace("\\", "")
    assert not payloads(at, "lines")


def test_an_unknown_architecture_is_not_known() -> None:
    """Fields from which hidden / heads could be guessed change nothing."""
    text = json.dumps({"model_type": "mamba9", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2})
    at = kv(kv_models="A pasted config.json", kv_json=text)
    assert "**Not known.**" in words(at)
    assert "mamba9" in words(at)
    assert not payloads(at, "lines")


def test_a_pasted_config_is_calculated() -> None:
    raw = presets.shipped("gemma-3-270m").raw
    at = kv(kv_models="A pasted config.json", kv_json=json.dumps(raw))
    (meta, arrays), *_ = payloads(at, "lines")
    assert meta["lines"][0]["name"] == "pasted config"
    expected = sum(kv_cache_bytes(presets.shipped("gemma-3-270m").config, context=32_768)) / 2**30
    assert arrays[1][list(arrays[0]).index(32_768)] == pytest.approx(expected)


def test_who_reads_whom_begins_with_the_sidebars_model() -> None:
    meta, _ = payloads(kv(), "who")[0]
    assert (meta["heads"], meta["shared"], meta["dim"]) == (4, 2, 16)


def test_what_needs_a_model_waits_to_be_asked_and_says_what_it_measured() -> None:
    at = kv(kv_open="true", kv_text="The prompt", prompt="abcabc the the and so on for a while")
    for widget in ("kv_steps", "kv_surgery", "kv_quantise"):
        at.button(key=f"{widget}_run").click().run()
        for _ in range(300):
            if not [b for b in at.button if b.key in (f"{widget}_run", f"{widget}_cancel")]:
                break
            at.run()
        assert not at.exception
        assert not at.error
    lines = payloads(at, "lines")
    assert [meta["file"] for meta, _ in lines] == ["kv-cache", "kv-steps", "kv-surgery", "kv-formats"]
    (tiles,) = [meta for meta, _ in payloads(at, "twins")]
    assert [tile["state"] for tile in tiles["tiles"]] == ["equal"] * 3
    assert len(payloads(at, "fields")[0][0]["fields"]) == 1
    at.selectbox(key="kv_cut").set_value("1 KV head").run()
    assert len(payloads(at, "fields")[0][0]["fields"]) == 2
    at.button(key="kv_undo").click().run()
    assert len(payloads(at, "fields")[0][0]["fields"]) == 1
    assert "agree in 6 of 6 formats" in words(at) or "no group of 32 keys is full" in words(at)


def test_configs_without_opening_are_those_of_the_opened_models() -> None:
    assert configs._unopened("builtin") == load_pretrained("builtin", dtype="float32").model.cfg
    assert configs._unopened("config:gpt2") == presets.shipped("gpt2").config
    for source in state.TEACHING.values():
        assert configs._unopened(source) == load_pretrained(source, dtype="float32").model.cfg


def test_the_package_is_what_its_preset_says(smollm2_source: str) -> None:
    mine, theirs = configs._unopened(smollm2_source), load_pretrained(smollm2_source, dtype="bfloat16").model.cfg
    assert mine is not None
    assert (mine.attention, mine.n_layers, mine.layer_types) == (theirs.attention, theirs.n_layers, theirs.layer_types)
