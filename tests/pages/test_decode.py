"""The Decode page: what the components are given is what lmcore's decoder gives, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import lmcore.decode
from figures.payload import unpack
from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.costs import kv_cache_bytes
from lmcore.decode import Decoder
from lmcore.sampling import Sampler, pick
from tests.pages.test_every_page import PROMPTS, open_page
from ui import decoding, state

SAMPLER = Sampler(temperature=0.7, top_k=40, top_p=0.95)
LONG = "word " * 700


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def payload(at: AppTest, name: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    [found] = [e for e in at.get("bidi_component") if e.proto.component_name.endswith(f"glassbox_{name}")]
    return unpack(found.proto.bytes)


def kept(at: AppTest, name: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What the browser is given to hold under a name."""
    found = [e for e in at.get("bidi_component") if e.proto.component_name.endswith("glassbox_held")]
    [one] = [(meta, arrays) for meta, arrays in (unpack(e.proto.bytes) for e in found) if meta["name"] == name]
    return one


def decode(**link: str) -> AppTest:
    """The page, with the steps of its link made."""
    at = open_page("decode", **link)
    assert not at.exception
    assert [e.value for e in at.error] == []
    while "_decode_plan" in at.session_state and at.session_state["_decode_plan"][1].linked:
        at.run()
    return at


def press(at: AppTest, *keys: str) -> AppTest:
    for key in keys:
        whole(at.button(key=f"decode_{key}").click().run())
    return at


def whole(at: AppTest) -> AppTest:
    """A press of a button or a slider runs the parts of the page that it changes, of which alone AppTest then knows."""
    assert not at.exception
    return at.run()


def tokens(at: AppTest) -> list[int]:
    return [step["token"] for step in payload(at, "decode")[0]["steps"]]


def straight(loaded: Loaded, text: str, count: int, *, sampler: Sampler = SAMPLER, seed: int = 0, **forced: int):
    """The same steps by a decoder of its own."""
    assert loaded.tokenizer is not None
    decoder = Decoder(loaded.model, loaded.tokenizer.encode(text), sampler, seed=seed)
    for index in range(count):
        decoder.step(forced.get(f"at{index}"))
    return decoder


@pytest.mark.parametrize("text", [*(text for text in PROMPTS.values() if text and text != LONG), "word " * 150])
def test_steps_and_cache_are_lmcores(loaded: Loaded, text: str) -> None:
    at = press(decode(prompt=text), "step", "step")
    expected = straight(loaded, text, 3)
    meta, (ids, raw, after) = payload(at, "decode")
    assert tokens(at) == [step.token for step in expected.steps]
    for row, step in enumerate(expected.steps):
        found = SAMPLER.distribution(step.logits)
        listed = ids[row][ids[row] >= 0]
        assert step.token in listed
        assert found.raw.argmax() == listed[0]
        np.testing.assert_allclose(raw[row][: listed.size], found.raw[listed], atol=2e-5)
        np.testing.assert_allclose(after[row][: listed.size], found.probs[listed], atol=2e-4)
        assert [stage[0] for stage in meta["steps"][row]["stages"]] == [stage.name for stage in found.stages]
    cache, (lengths,) = payload(at, "cache")
    assert cache["fills"] == [[s.cache_length, s.used_bytes, s.used_bytes] for s in expected.steps]
    assert cache["allocated"] == sum(kv_cache_bytes(loaded.model.cfg, context=cache["capacity"], itemsize=4))
    if cache["pooled"] == 1:
        keys = [expected.cache.keys(layer)[0].norm(dim=-1).numpy() for layer in range(loaded.model.cfg.n_layers)]
        np.testing.assert_allclose(lengths, np.stack(keys), atol=1e-4)


def test_an_empty_prompt_has_a_way_out_and_no_buttons() -> None:
    at = decode(prompt="")
    assert not at.main.get("bidi_component")
    at.button(key="empty_prompt").click().run()
    assert len(tokens(at)) == 1


def test_back_and_step_gives_the_same_token_and_restart_the_first(loaded: Loaded) -> None:
    at = press(decode(prompt="abc"), "step", "step", "step")
    before = tokens(at)
    assert tokens(press(at, "back", "back")) == before[:2]
    assert tokens(press(at, "step", "step")) == before
    assert tokens(press(at, "restart")) == before[:1]


def test_play_makes_steps_while_the_page_is_looked_at_and_waits_when_it_was_left(loaded: Loaded) -> None:
    at = press(decode(prompt="abc"), "play")
    assert at.button(key="decode_play").label == "Pause"
    plan = at.session_state["_decode_plan"][1]
    for _ in range(2):
        plan.stepped_at -= 1
        at.run()
    made = tokens(at)
    assert len(made) >= 4, "more where the machine is slow: each run of the page makes a step once its time has come"
    assert made == [step.token for step in straight(loaded, "abc", len(made)).steps]
    plan.stepped_at -= 60
    at.run()
    assert tokens(at) == made
    assert not plan.playing


def test_a_leap_makes_its_steps_and_stands_in_the_address(loaded: Loaded) -> None:
    at = press(decode(prompt="abc"), "leap")
    while at.session_state["_decode_plan"][1].active:
        at.run()
    meta, _ = payload(at, "decode")
    made = tokens(at)
    assert made == [step.token for step in straight(loaded, "abc", len(made)).steps]
    assert len(made) == 17 or made[-1] == 257
    assert meta["address"]["decode_steps"] == len(made)


def test_another_sampler_runs_no_forward(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    at = press(decode(prompt="abc"), "step", "step", "step")
    greedy = straight(loaded, "abc", 4, sampler=Sampler(temperature=0, top_k=40, top_p=0.95))
    monkeypatch.setattr(decoding.Decoding, "ahead", lambda run, plan: None)
    ran, plain = [], lmcore.decode.prefill
    monkeypatch.setattr(
        lmcore.decode, "prefill", lambda model, new, **given: ran.append(new) or plain(model, new, **given)
    )
    whole(at.slider(key="decode_temperature").set_value(0.0).run())
    left = tokens(at)
    assert left
    assert ran == []
    assert left == [step.token for step in greedy.steps][: len(left)]
    while len(tokens(at)) < 4:
        press(at, "step")
    assert tokens(at) == [step.token for step in greedy.steps]
    assert len(ran) == 4 - len(left)


def test_the_browser_holds_the_step_that_a_press_then_makes_and_its_forward_has_run(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = press(decode(prompt="abc"), "step")
    ran, plain = [], lmcore.decode.prefill
    monkeypatch.setattr(
        lmcore.decode, "prefill", lambda model, new, **given: ran.append(new) or plain(model, new, **given)
    )
    for _ in range(2):
        before, held = payload(at, "decode")[0], kept(at, "next")[0]
        assert len(before["steps"]) == before["address"]["decode_steps"]
        assert held["keys"][0] == before["keys"][-1]
        assert held["settings"] == before["settings"]
        ran.clear()
        at.button(key="decode_step").click().run()
        after = payload(at, "decode")[0]
        assert after["steps"][-1] == held["steps"][0]
        assert (after["address"], after["keys"][-2:]) == (held["address"], held["keys"])
        assert len(ran) == 1, "of the step after that, which is held now"
        whole(at)
        assert len(ran) == 1


def test_the_browser_holds_what_the_newest_step_was_chosen_from(loaded: Loaded) -> None:
    at = press(decode(prompt="abc abc", decode_seed="5"), "step")
    newest = straight(loaded, "abc abc", 2, seed=5)
    meta, (logits, history) = kept(at, f"logits {payload(at, 'decode')[0]['keys'][-2]}")
    np.testing.assert_allclose(logits, newest.steps[-1].logits, atol=1e-5)
    assert set(history.tolist()) == set(newest.tokens[:-1])
    found = SAMPLER.distribution(newest.steps[-1].logits, newest.tokens[:-1])
    assert pick(found.probs, meta["point"]) == newest.steps[-1].token
    assert str(newest.steps[-1].token) in meta["texts"]


def test_while_steps_are_made_nothing_is_held(loaded: Loaded) -> None:
    at = press(decode(prompt="abc"), "play")
    assert not [e for e in at.get("bidi_component") if e.proto.component_name.endswith("glassbox_held")]


def test_another_seed_chooses_again(loaded: Loaded) -> None:
    at = press(decode(prompt="abc"), "step")
    whole(at.number_input(key="decode_seed").set_value(11).run())
    while len(tokens(at)) < 3:
        press(at, "step")
    assert tokens(at) == [step.token for step in straight(loaded, "abc", 3, seed=11).steps]


def test_a_link_makes_the_run_again(loaded: Loaded) -> None:
    at = decode(
        prompt="abc", decode_steps="6", decode_forced="2:65,4:66", decode_temperature="1.3", decode_seed="7", step="2"
    )
    sampler = Sampler(temperature=1.3, top_k=40, top_p=0.95)
    expected = straight(loaded, "abc", 6, sampler=sampler, seed=7, at2=65, at4=66)
    meta, _ = payload(at, "decode")
    assert tokens(at) == [step.token for step in expected.steps]
    assert [step["forced"] for step in meta["steps"]] == [False, False, True, False, True, False]
    assert meta["address"] == {"decode_steps": 6, "decode_forced": "2:65,4:66", "decode_branches": None}


@pytest.mark.parametrize(
    "link",
    [
        {"decode_steps": "999"},
        {"decode_steps": "x"},
        {"decode_steps": "4", "decode_forced": "2:258"},
        {"decode_steps": "4", "decode_forced": "9:1"},
        {"decode_steps": "4", "decode_forced": "<b>"},
        {"decode_steps": "4", "decode_forced": "1:2:3"},
    ],
)
def test_a_bad_link_is_named_and_its_part_ignored(link: dict[str, str]) -> None:
    at = decode(prompt="abc", **link)
    assert len(at.warning) == 1
    assert not any(step["forced"] for step in payload(at, "decode")[0]["steps"])


def test_another_prompt_begins_anew(loaded: Loaded) -> None:
    at = press(decode(prompt="abc", decode_steps="3"), "step")
    at.text_area(key="prompt").set_value("xyz").run()
    assert tokens(at) == [straight(loaded, "xyz", 1).steps[0].token]


def test_the_run_ends_with_the_cache_and_says_so() -> None:
    at = decode(prompt="abc", decode_steps=str(decoding.MAX_STEPS))
    while len(tokens(at)) < decoding.MAX_STEPS:
        at.run()
    at.run()
    assert at.button(key="decode_step").disabled
    assert any("The cache is full" in element.value for element in at.markdown)
    press(at, "back")
    assert not at.button(key="decode_step").disabled


def test_a_prompt_of_the_trained_limit_leaves_one_step_and_says_why() -> None:
    at = decode(prompt=LONG)
    assert len(tokens(at)) == 1
    assert at.button(key="decode_step").disabled
    assert any("the trained limit" in element.value for element in at.markdown)


def test_a_run_that_was_let_go_is_made_again_from_its_plan(loaded: Loaded) -> None:
    at = press(decode(prompt="abc"), "step", "step")
    before = tokens(at)
    decoding._RUNS.drop(lambda key: True)
    at.run()
    assert tokens(at) == before


def test_a_model_without_a_tokenizer_decodes_ids(tmp_path: Path, loaded: Loaded) -> None:
    from tests.lmcore.tiny import hf_llama

    hf_llama("gqa").save_pretrained(tmp_path)
    at = press(decode(model=state.TYPED, path=str(tmp_path), prompt="1 15 27"), "step")
    meta, _ = payload(at, "decode")
    assert meta["prompt"] == [[["text", "1"]], [["text", "15"]], [["text", "27"]]]
    assert "".join(step["text"] for step in meta["steps"]).split() == [str(token) for token in tokens(at)]


def test_every_filter_stands_in_its_order_and_a_change_computes_each_step_once(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = {"penalty": "1.3", "temperature": "1.2", "top_k": "60", "top_p": "0.9", "min_p": "0.01", "typical": "0.8"}
    at = press(decode(prompt="abc abc", **{f"decode_{name}": value for name, value in link.items()}), "step", "step")
    sampler = Sampler(temperature=1.2, top_k=60, top_p=0.9, min_p=0.01, typical_p=0.8, repetition_penalty=1.3)
    expected = straight(loaded, "abc abc", 3, sampler=sampler)
    meta, (ids, _, after) = payload(at, "decode")
    assert tokens(at) == [step.token for step in expected.steps]
    names = ["repetition penalty", "temperature", "top-k", "top-p", "min-p", "typical"]
    for row, step in enumerate(expected.steps):
        found = sampler.distribution(step.logits, expected.tokens[: step.position])
        assert [stage[0] for stage in meta["steps"][row]["stages"]] == names
        listed = ids[row][ids[row] >= 0]
        np.testing.assert_allclose(after[row][: listed.size], found.probs[listed], atol=2e-4)
    monkeypatch.setattr(decoding.Decoding, "ahead", lambda run, plan: None)
    made, plain = [], Sampler.distribution
    monkeypatch.setattr(
        Sampler, "distribution", lambda self, logits, history=(): made.append(1) or plain(self, logits, history)
    )
    at.slider(key="decode_typical").set_value(1.0).run()
    assert len(made) == len(tokens(at))
