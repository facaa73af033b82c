"""The page Model: every source, its errors, configs without weights, the comparison, and what the others say then."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from figures.format import group
from figures.payload import unpack
from lmcore.checkpoint import load
from lmcore.config import ModelConfig
from tests.lmcore.tiny import hf_llama
from ui import proofs, state

ROOT = Path(__file__).parent.parent.parent


def open_page(name: str = "model", **link: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for key, value in link.items():
        at.query_params[key] = value
    at.switch_page(f"pages/{name}.py").run()
    assert not at.exception
    return at


def payloads(at: AppTest) -> list[dict]:
    return [unpack(element.proto.bytes)[0] for element in at.get("bidi_component")]


def facts(at: AppTest) -> dict[str, str]:
    return {f["label"]: f"{f['value']} {f['note']}" for p in payloads(at) for f in p.get("facts", [])}


def tiles(at: AppTest) -> dict[str, dict]:
    return {tile["name"]: tile for p in payloads(at) for tile in p.get("tiles", [])}


def digits(text: str) -> str:
    return "".join(sign for sign in text if sign.isdigit())


def sidebar(at: AppTest) -> str:
    return " ".join(element.value for element in at.sidebar.markdown).replace("\\", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    hf_llama("gqa").save_pretrained(path)
    return path


def test_a_loaded_model_is_described_and_its_numbers_have_twins():
    at = open_page(model=state.BUILTIN)
    assert not at.error
    assert "4 query heads on 2 KV heads of 16 dims" in facts(at)["Attention"]
    assert tiles(at)["Parameters"]["state"] == "equal"
    assert tiles(at)["Weights"]["state"] == "equal"
    assert "Not compared with transformers" in sidebar(at)


def test_a_folder_is_opened_by_its_path(folder: Path):
    at = open_page(model=state.TYPED, path=str(folder))
    assert not at.error
    assert str(folder) in facts(at)["Source"]
    assert "token ids are typed, here 1 to 12 for the example" in sidebar(at)


def test_a_config_of_671_billion_opens_without_weights_and_is_counted_once(monkeypatch: pytest.MonkeyPatch):
    at = open_page(model=state.CONFIG, config="DeepSeek-V3")
    assert not at.error
    assert facts(at)["Weights"].startswith("none")
    parameters = tiles(at)["Parameters"]
    assert parameters["state"] == "equal"
    assert digits(parameters["calculated"]) == "671026404352"
    assert "experts" in facts(at)["Feed-forward"]
    assert "without weights" in sidebar(at)
    assert not [button for button in at.button if button.key == "model_compare"]
    built: list[ModelConfig] = []
    build = load.on_meta
    monkeypatch.setattr(load, "on_meta", lambda config: built.append(config) or build(config))
    at.run()
    assert not at.exception
    assert tiles(at)["Parameters"] == parameters
    assert built == []
    open_page(model=state.CONFIG, config="Mixtral 8x7B")
    assert len(built) == 1


def test_the_context_moves_the_cache_and_the_flops():
    at = open_page(model=state.CONFIG, config="Llama 3.1 405B")
    at.select_slider(key="model_context").set_value(1024).run()
    # 126 layers, 8 KV heads of 128 dims, K and V, float32
    assert digits(tiles(at)[f"KV cache, {group(1024)} positions"]["calculated"]) == str(2 * 126 * 8 * 128 * 4 * 1024)


def test_a_small_config_becomes_a_random_model_that_says_so():
    at = open_page(model=state.CONFIG, config="Pythia 70M")
    assert "random weights" in sidebar(at)
    assert "random" in facts(at)["Assumed"]
    assert tiles(at)["Weights"]["state"] == "equal"


SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def test_a_pasted_config_is_a_model_on_every_page():
    text = json.dumps(SMALL)
    for name in ("model", "overview", "tokens", "attention", "decode"):
        at = open_page(name, model=state.CONFIG, config=state.PASTED, json=text)
        assert not at.error, name
        assert not at.info or name == "tokens", name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no config is given"),
        ("{,}", "line 1"),
        (json.dumps(SMALL | {"model_type": "mamba"}), "is not known"),
        (json.dumps(SMALL | {"num_attention_heads": 7}), "no multiple"),
    ],
)
def test_a_bad_config_is_answered_and_the_model_before_stays(text: str, words: str):
    at = open_page(model=state.BUILTIN)
    at.selectbox(key="model").set_value(state.CONFIG).run()
    at.selectbox(key="config").set_value(state.PASTED).run()
    at.text_area(key="json").set_value(text).run()
    assert words in at.error[0].value.replace("\\", "")
    assert facts(at)["Source"].startswith(("builtin", "GPT-2"))


@pytest.mark.parametrize("name", ["tokens", "attention", "decode"])
def test_pages_that_run_a_prompt_say_that_there_are_no_weights(name: str):
    at = open_page(name, model=state.CONFIG, config="Llama 3.1 405B")
    assert not at.error
    assert "config without weights" in at.info[0].value
    assert at.get("page_link")


def test_the_overview_draws_a_config_without_weights():
    at = open_page("overview", model=state.CONFIG, config="Llama 3.1 405B")
    assert not at.error
    assert not at.info
    diagram = next(p for p in payloads(at) if "layers" in p and "block" in p)
    assert diagram["layers"] == 126


@pytest.mark.parametrize(
    ("label", "link", "words"),
    [
        (state.TYPED, {}, "no path is given"),
        (state.TYPED, {"path": "/nowhere/at/all"}, "there is nothing at"),
        (state.HUB, {}, "no hub id is given"),
        (state.HUB, {"hub": "not a hub id"}, "names no model of a hub"),
    ],
)
def test_what_cannot_be_opened_says_why_without_asking_the_network(
    label: str, link: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
):
    asked: list[object] = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *given, **more: asked.append(given))
    at = open_page(model=label, **link)
    assert words in at.error[0].value.replace("\\", "")
    assert asked == []


def test_uploaded_files_are_opened_and_stay_when_the_page_is_left(folder: Path, cache: Path):
    at = open_page(model=state.UPLOAD)
    assert not at.error
    files = [(name, (folder / name).read_bytes(), "") for name in ("config.json", "model.safetensors")]
    at.file_uploader(key="model_upload").set_value(files).run()
    assert not at.error
    assert str(cache) in facts(at)["Source"]
    at.switch_page("pages/overview.py").run()
    assert not at.error
    assert "parameters in" in sidebar(at)


def test_an_upload_that_is_refused_says_why(cache: Path):
    at = open_page(model=state.UPLOAD)
    at.file_uploader(key="model_upload").set_value([("config.json", b"{}", ""), ("config.json", b"{}", "")]).run()
    assert "uploaded twice" in at.error[0].value
    assert not list(cache.rglob("config.json"))


def test_an_upload_belongs_to_its_session():
    at = open_page("overview", model=state.UPLOAD)
    assert "no file is uploaded" in at.error[0].value


def compared(at: AppTest, *, within_s: float = 90) -> AppTest:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        time.sleep(0.5)
        at.run()
        if "Comparing with" not in sidebar(at):
            return at
    raise AssertionError("the comparison does not end")


def test_the_comparison_is_told_on_the_page_and_in_the_sidebar_of_every_page():
    at = open_page(model=state.BUILTIN, dtype="float32")
    at.button(key="model_compare").click().run()
    assert "Comparing with transformers" in sidebar(at)
    compared(at)
    assert not at.error
    assert "Equal to transformers 5." in sidebar(at)
    assert tiles(at)["Layers that are equal"]["difference"] == "0"
    rows = next(p["rows"] for p in payloads(at) if "rows" in p)
    assert [row["name"] for row in rows] == ["0", "1", "2", "3"]
    at.switch_page("pages/overview.py").run()
    assert "Equal to transformers 5." in sidebar(at)
    assert "Not compared" in sidebar(open_page("overview", model=state.BUILTIN, dtype="float16"))


def test_a_comparison_can_be_cancelled_and_a_failed_one_says_why():
    at = open_page(model=state.CONFIG, config="Pythia 70M")
    at.button(key="model_compare").click().run()
    compared(at)
    assert "not written to a file" in at.error[0].value.replace("\\", "")
    at = open_page(model=state.BUILTIN, dtype="bfloat16")
    at.button(key="model_compare").click().run()
    at.button(key="model_cancel").click().run()
    compared(at, within_s=10)
    assert "was cancelled" in at.info[0].value
    assert proofs.PATIENCE_S > 60


def test_a_link_restores_source_config_and_context():
    at = open_page(model=state.CONFIG, config="Gemma 3 270M", model_context="128", prompt="1 2 3")
    assert at.selectbox(key="config").value == "Gemma 3 270M"
    assert at.select_slider(key="model_context").value == 128


def test_an_unknown_config_of_a_link_is_named():
    at = open_page(model=state.CONFIG, config="GPT-9")
    assert any("GPT" in warning.value and "others" in warning.value for warning in at.warning)


def test_chat_and_bos_are_said_beside_the_prompt(smollm2_source: str):
    at = open_page("tokens", model=state.SMOLLM2, prompt="Hello")
    assert [box.label for box in at.sidebar.checkbox] == ["as a chat message"]
    plain = sidebar(at)
    at.sidebar.checkbox(key="chat").check().run()
    assert sidebar(at) != plain
    assert not at.error
    at = open_page("tokens", model=state.SMOLLM2, prompt="Hello", chat="true")
    assert at.sidebar.checkbox(key="chat").value is True
    assert not open_page("tokens", model=state.BUILTIN).sidebar.checkbox
    assert "stands twice" in sidebar(open_page("tokens", model=state.BUILTIN, prompt="<s>Hello"))
