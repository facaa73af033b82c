"""The sections below the run: each number is lmcore's own, made here a second time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from figures.decode import streamed
from figures.payload import unpack
from lmcore.cache import KVCache
from lmcore.checkpoint import Loaded
from lmcore.costs import forward_flops
from lmcore.sampling import Sampler
from lmcore.speculative import ModelDraft, PromptLookup, SpeculativeDecoder
from lmcore.trace import Capture
from tests.pages.test_decode import decode, loaded, press, straight, tokens  # noqa: F401
from ui import breaks_view, replays, speculating, state, uncached_view


def mounted(at: AppTest, key: str, name: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The payload of the component `name` that is mounted under `key`."""
    [found] = [
        element
        for element in at.get("bidi_component")
        if element.proto.component_name.endswith(f"glassbox_{name}") and f"-{key}" in element.proto.id
    ]
    return unpack(found.proto.bytes)


def asks(monkeypatch: pytest.MonkeyPatch, key: str, name: str) -> None:
    """The button of a tile is pressed at the next run: AppTest cannot click inside a component."""
    from ui import components

    plain, left = components.sent, [name]
    monkeypatch.setattr(
        components,
        "sent",
        lambda at, what, default=None: left.pop() if at == key and left else plain(at, what, default),
    )


def test_a_step_equals_the_forward_of_the_whole_text(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    at = press(decode(prompt="abcdef", decode_steps="6"))
    while len(tokens(at)) < 6:
        at.run()
    before, _ = mounted(at, "decode_uncached", "twins")
    assert before["tiles"][0]["state"] == "missing"
    asks(monkeypatch, "decode_uncached", uncached_view.NAME)
    at.run()
    assert not at.exception
    meta, _ = mounted(at, "decode_uncached", "twins")
    expected = straight(loaded, "abcdef", 6)
    differences = []
    for step in expected.steps[1:]:
        ids = torch.tensor([expected.tokens[: step.position]])
        full = loaded.model(ids).logits[0, -1].float().numpy()
        differences.append(float(np.abs(full - step.logits).max()))
    assert max(differences) < 1e-3
    logits, cached, full = meta["tiles"]
    assert logits["state"] == "equal" or logits["reason"] == "float32 rounding"
    position = expected.steps[-1].position
    for tile, given in ((cached, {"tokens": 1, "cached": position - 1}), (full, {"tokens": position})):
        flops = sum(forward_flops(loaded.model.cfg, **given, logits=1).values())
        assert tile["state"] == "equal"
        assert tile["calculated"].replace("\u2006", "") == str(flops)
    assert len(at.get("plotly_chart")) == 2


def test_nothing_is_compared_before_a_step() -> None:
    at = decode(prompt="abc")
    assert any("there is nothing to compare yet" in element.value for element in at.markdown)


def test_a_long_text_is_compared_at_few_steps_the_newest_among_them() -> None:
    class Step:
        def __init__(self, position: int) -> None:
            self.position, self.logits = position, np.ones(1)

    def places(first: int, count: int) -> list[int]:
        run = SimpleNamespace(steps=[Step(first + index) for index in range(count)])
        return [step.position for step in replays.compared(run)]  # type: ignore[arg-type]

    assert places(500, 40)[-1] == 539
    assert 1 < len(places(500, 40)) <= replays.TOKENS // 539
    assert places(10, 3) == [11, 12]
    assert places(10, 1) == []
    assert len(places(10, 120)) == replays.MOST


@pytest.mark.parametrize("step", [0, 2, 3])
def test_the_lens_is_the_head_on_every_layer_and_ends_in_the_output(loaded: Loaded, step: int) -> None:  # noqa: F811
    at = press(decode(prompt="abcdef", decode_steps="4", **({"step": str(step)} if step < 3 else {})))
    while len(tokens(at)) < 4:
        at.run()
    meta, (ids, probs, chosen, ranks) = mounted(at, "decode_lens", "lens")
    made = straight(loaded, "abcdef", 4)
    token = made.steps[step].token
    assert meta["token"] == token
    text = torch.tensor([made.tokens[: made.steps[step].position]])
    trace = loaded.model(text, capture=Capture.of("resid_post")).trace
    assert trace is not None
    for layer, stages in trace.layers.items():
        row = loaded.model.unembed(stages["resid_post"][:, -1:])[0, 0].double().softmax(-1).numpy()
        np.testing.assert_allclose(probs[layer], np.sort(row)[::-1][: probs.shape[1]], atol=1e-4)
        np.testing.assert_allclose(row[ids[layer]], probs[layer], atol=1e-4)
        assert chosen[layer] == pytest.approx(row[token], abs=1e-4)
        assert abs(ranks[layer] - 1 - (row > row[token] + 1e-6).sum()) <= 1
    [tile] = mounted(at, "decode_lens_tile", "twins")[0]["tiles"]
    assert tile["state"] == "equal" or tile["reason"] == "float32 rounding"
    output = made.steps[step].logits.astype(np.float64)
    output = np.exp(output - output.max())
    assert float(tile["measured"].split()[0]) == pytest.approx(output[token] / output.sum(), abs=1e-4)


def test_a_model_without_a_tokenizer_and_a_single_token_have_every_section(bare_folder: str) -> None:
    at = press(decode(model=state.TYPED, path=bare_folder, prompt="7"), "step")
    meta, (ids, *_) = mounted(at, "decode_lens", "lens")
    assert meta["vocabulary"][str(ids[0, 0])] == [["text", str(ids[0, 0])]]
    assert mounted(at, "decode_uncached", "twins")[0]["tiles"]


@pytest.mark.parametrize("kind", [speculating.LOOKUP, speculating.LAYERS])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_speculative_decoding_is_lmcores_and_greedy_equals_plain(loaded: Loaded, kind: str, temperature: float) -> None:  # noqa: F811
    assert loaded.tokenizer is not None
    link = {"decode_temperature": str(temperature), "decode_draft": kind, "decode_drafts": "3", "decode_depth": "2"}
    at = decode(prompt="abcabcabc", decode_seed="4", **link)
    at.button(key="decode_speculate").click().run()
    assert not at.exception
    meta, (numbers,) = mounted(at, "decode_speculative", "speculative")
    sampler = Sampler(temperature=temperature, top_k=40, top_p=0.95)
    ids = loaded.tokenizer.encode("abcabcabc")
    vocabulary = loaded.model.cfg.vocab_size
    draft = PromptLookup(vocabulary) if kind == speculating.LOOKUP else ModelDraft(loaded.model, sampler, 4, depth=2)
    made = SpeculativeDecoder(loaded.model, ids, sampler, draft, 4, most=3)
    while len(made.tokens) - len(ids) < 24:
        made.round()
    assert [r["drafts"] for r in meta["rounds"]] == [list(done.proposed) for done in made.rounds]
    assert [(r["kept"], r["token"]) for r in meta["rounds"]] == [(done.accepted, done.token) for done in made.rounds]
    checks = [(c.p, c.q, c.uniform) for done in made.rounds for c in done.drafts]
    np.testing.assert_allclose(numbers, np.reshape(checks, (-1, 3)), atol=1e-4)
    per_pass, same = mounted(at, "decode_speculative_tiles", "twins")[0]["tiles"]
    assert float(per_pass["measured"]) == pytest.approx(made.tokens_per_pass, rel=1e-4)
    assert same["state"] == ("equal" if temperature == 0 else "impossible")


def test_no_room_for_drafts_is_said(bare_folder: str) -> None:
    """The trained limit is 128 there."""
    at = decode(model=state.TYPED, path=bare_folder, prompt=" ".join(["7"] * 127))
    assert any("no room for drafts" in element.value for element in at.markdown)


def test_positions_forgotten_give_other_logits_and_the_right_run_is_greedy_decoding(loaded: Loaded) -> None:  # noqa: F811
    at = decode(prompt="abcdef")
    at.button(key="decode_forget").click().run()
    assert not at.exception
    meta, _ = mounted(at, "decode_forget_beside", "beside")
    made = straight(loaded, "abcdef", 2, sampler=Sampler(temperature=0))
    cache = KVCache.empty(loaded.model.cfg, 64)
    loaded.model(torch.tensor([made.prompt]), cache=cache)
    token = torch.tensor([[made.steps[0].token]])
    wrong = loaded.model(token, positions=torch.tensor([0]), cache=cache).logits[0, -1].numpy()
    difference = float(np.abs(wrong - made.steps[1].logits).max())
    assert difference > 0.01
    assert float(meta["tiles"][0]["changed"]) == pytest.approx(difference, rel=0.01)
    texts = mounted(at, "decode_forget_texts", "texts")[0]["texts"]
    assert loaded.tokenizer is not None
    greedy = straight(loaded, "abcdef", 16, sampler=Sampler(temperature=0)).steps
    pieces = [loaded.tokenizer.piece_bytes(step.token) for step in greedy]
    assert texts[0]["same"] + texts[0]["own"] == "".join(text for text, _ in streamed(pieces))


@pytest.mark.parametrize(
    ("kind", "said"),
    [(breaks_view.OVERFLOW, "do not fit into a cache"), (breaks_view.AXIS, "along the time axis")],
)
def test_a_full_cache_and_a_wrong_axis_are_refused_and_nothing_is_stored(kind: str, said: str) -> None:
    at = decode(prompt="abcdef", decode_break=kind)
    assert any(said in element.value.replace("\\", "") for element in at.markdown)
    [tile] = mounted(at, "decode_refused", "twins")[0]["tiles"]
    assert tile["state"] == "equal"


def test_a_branch_that_was_left_is_compared_and_returned_to(loaded: Loaded) -> None:  # noqa: F811
    at = press(decode(prompt="abcdef"), "step", "step", "step")
    assert not [e for e in at.get("bidi_component") if e.proto.id.endswith("-decode_branches")]
    before = tokens(at)
    press(at, "back", "back")
    at.number_input(key="decode_seed").set_value(9).run()
    while len(tokens(at)) < 3:
        press(at, "step")
    after = tokens(at)
    assert after != before[:3]
    rows = mounted(at, "decode_branches", "texts")[0]["texts"]
    made = straight(loaded, "abcdef", 4).steps
    given = sum(np.log(Sampler().distribution(step.logits).raw[step.token]) for step in made)
    assert f"{abs(given):.2f}"[:4] in rows[1]["note"]
    press(at, "return")
    assert tokens(at) == before
    at.number_input(key="decode_seed").set_value(0).run()
    assert tokens(at) == before
