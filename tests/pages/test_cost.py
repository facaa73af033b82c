"""The page Cost: any config without torch, every switch, what is not known, and the loaded model counted and timed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from figures.format import group
from figures.payload import unpack
from figures.sheet import copied
from lmcore import machine, presets
from lmcore.costs import param_counts
from lmcore.flops import decode_flops, prefill_flops, training_flops
from ui import configs, state

ROOT = Path(__file__).parent.parent.parent

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def open_page(**link: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for key, value in {"model": state.BUILTIN, **link}.items():
        at.query_params[key] = value
    at.switch_page("pages/cost.py").run()
    assert not at.exception
    return at


def payloads(at: AppTest, field: str) -> list[dict]:
    found = [unpack(element.proto.bytes)[0] for element in at.get("bidi_component")]
    return [payload for payload in found if field in payload]


def table(at: AppTest) -> list[list[str]]:
    """FLOPs by component and phase, as they are copied: the last row is the total."""
    return copied(payloads(at, "exact")[0])


def words(at: AppTest) -> str:
    return " ".join(element.value for element in at.markdown)


@pytest.mark.parametrize("context", ["2048", group(2048)])
def test_the_numbers_are_the_config_s(context: str) -> None:
    """The address holds the number; in older links its digits are grouped."""
    at = open_page(cost_config="Qwen3 30B-A3B", cost_context=context, cost_batch="4")
    assert not at.error
    assert not at.warning
    assert payloads(at, "groups")[0]["address"] == {"cost_context": 2048, "cost_batch": 4}
    cfg = presets.shipped("qwen3-30b-a3b").config
    phases = (
        training_flops(cfg, tokens=2048, batch=4),
        prefill_flops(cfg, tokens=2048, batch=4),
        decode_flops(cfg, position=2048, batch=4),
    )
    assert table(at)[-1] == ["all", *(str(sum(phase.values())) for phase in phases)]
    groups = payloads(at, "groups")[0]["groups"]
    assert groups[3]["value"] == f"{param_counts(cfg).total / 1e9:.2f}"


def test_switches_and_sliders_change_the_numbers() -> None:
    at = open_page()
    before = table(at)
    assert before[0][0] == "FLOPs"
    at.get("button_group")[0].set_value("MACs").run()
    after = table(at)
    assert after[0][0] == "MACs"
    assert [2 * int(n) for n in after[-1][1:]] == [int(n) for n in before[-1][1:]]
    # Only the figures ran again: the test sees no control any more.
    at = open_page()
    at.select_slider(key="cost_context").set_value(1024).run()
    assert int(table(at)[-1][1]) < int(before[-1][1])
    assert not at.get("select_slider") or at.select_slider[0].key == "cost_ranks"


def test_the_link_restores_the_page() -> None:
    link = {
        "cost_config": "Llama 2 70B",
        "cost_attention": "causal",
        "cost_machine": "L40S",
        "cost_ranks": "8",
        "cost_weights": "q4_0",
        "cost_over": "context",
    }
    at = open_page(**link)
    assert at.selectbox(key="cost_config").value == "Llama 2 70B"
    assert at.select_slider(key="cost_ranks").value == 8
    roofs = [payload["roofs"][0]["name"] for payload in payloads(at, "roofs")]
    assert roofs == ["8 × L40S, bfloat16"]
    machines = payloads(at, "exact")[1]
    assert machines["rows"][machines["marked"]][0] == "L40S"
    cfg = presets.shipped("llama-2-70b").config
    useful = prefill_flops(cfg, tokens=4096, attention="useful")
    assert table(at)[-1][2] == str(sum(useful.values()))


def test_a_length_that_the_link_makes_up_is_named_and_ignored() -> None:
    at = open_page(cost_context="4000", cost_batch="-1")
    assert ["4000" in at.warning[0].value, "1" in at.warning[1].value] == [True, True]
    assert at.select_slider(key="cost_context").value == 4096
    assert payloads(at, "groups")[0]["address"] == {"cost_context": None, "cost_batch": None}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"model_type": "mamba"}', "'mamba' is not known"),
        (json.dumps(LLAMA | {"num_attention_heads": 7}), "no multiple"),
        ("", "no config is given"),
    ],
)
def test_what_is_not_known_is_not_guessed(text: str, found: str) -> None:
    """No number is printed for it: hidden size over heads would be one."""
    at = open_page(cost_config=configs.PASTED, cost_json=text)
    assert found in at.error[0].value.replace("\\", "")
    assert not payloads(at, "groups")
    assert not payloads(at, "exact")


def test_heads_that_the_machines_cannot_share_are_named() -> None:
    at = open_page(cost_config="SmolLM2 135M", cost_ranks="2")
    assert "9 query heads cannot be split over 2 ranks" in at.error[0].value
    assert payloads(at, "groups")


def test_a_folder_s_config_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(presets.preset("gpt2").file.read_text())
    at = open_page(cost_config=configs.TYPED, cost_path=str(tmp_path))
    assert not at.error
    assert table(at) == table(open_page(cost_config="GPT-2"))
    at.text_input(key="cost_path").set_value(str(tmp_path / "nowhere")).run()
    assert "there is nothing at" in " ".join(error.value for error in at.error)


def test_a_machine_of_one_s_own() -> None:
    at = open_page(cost_machine="a machine of your own", cost_own_bandwidth="500", cost_own_peak="50")
    assert not at.error
    roof = payloads(at, "roofs")[0]["roofs"][0]
    assert (roof["bandwidth"], roof["peak"]) == (500e9, 50e12)


def test_it_opens_without_torch() -> None:
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        "at = AppTest.from_file('app.py', default_timeout=60); at.query_params['cost_config'] = 'DeepSeek-V3'\n"
        "at.switch_page('pages/cost.py').run(); assert not at.exception and not at.error\n"
        "assert len(at.get('bidi_component')) >= 5\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_loaded_model_is_counted_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "measure_machine", partial(machine.measure_machine, budget_s=0.02))
    at = open_page(prompt="abcdefgh")
    if not payloads(at, "tiles"):
        at.button(key="cost_open_model").click().run()
    tiles = {tile["name"]: tile["state"] for tile in payloads(at, "tiles")[0]["tiles"]}
    names = ("Projections", "Scores and mix", "Feed-forward", "Logits", "KV cache", "Kept for a backward")
    assert tiles == dict.fromkeys(names, "equal")
    at.button(key="cost_time").click().run()
    deadline = time.monotonic() + 90
    while len(payloads(at, "roofs")) < 2 and time.monotonic() < deadline:
        time.sleep(0.5)
        at.run()
    timed = payloads(at, "roofs")[1]
    assert [point["timed"] for point in timed["points"]] == [False, False, True, True]
    assert all(point["y"] > 0 for point in timed["points"])
    assert "The cache's bytes, used and allocated, equal the formula at each of" in words(at)
    assert "by the clock" in words(at)
