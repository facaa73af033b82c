"""The decode steps' payload: the right tokens, honest rests, and text that is never broken."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from figures.decode import (
    MAX_LOGIT_BYTES,
    TOP,
    Chosen,
    StepView,
    decode_payload,
    logits_payload,
    next_payload,
    step_view,
    streamed,
    text_keys,
)
from figures.payload import unpack
from figures.tokens import token_parts
from lmcore.sampling import Sampler

PIECES = {0: b"<s>", 1: b"\xe2\x98", 2: b"\x95", 3: b" <b>x</b>"}


def piece(token: int) -> bytes:
    return PIECES.get(token, b"w%d" % token)


def parts(token: int) -> list[list[str]]:
    return token_parts(piece(token), "<s>" if token == 0 else None)


def distribution(size: int = 100, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Any]:
    logits = np.random.default_rng(seed).normal(size=size).astype(np.float32) * 2
    return Sampler(temperature=0.8, top_k=20, top_p=0.7).distribution(logits)


def view(token: int, seed: int = 0, **changes: Any) -> StepView:
    raw, probs, stages = distribution(seed=seed)
    given = {"position": 5, "time_s": 0.1, "forward_tokens": 1, "stages": [tuple(s) for s in stages]} | changes
    return step_view(raw, probs, token=token, **given)


def test_the_likeliest_tokens_in_order_with_both_probabilities():
    raw, probs, _ = distribution()
    shown = view(int(raw.argmax()))
    order = sorted(range(100), key=lambda token: (-raw[token], token))[:TOP]
    assert shown.ids.tolist() == order
    np.testing.assert_allclose(shown.raw, raw[order], rtol=1e-6)
    np.testing.assert_allclose(shown.probs, probs[order], rtol=1e-6)
    assert (shown.rank, shown.vocab_size) == (0, 100)


def test_a_token_chosen_from_far_down_is_listed_with_its_rank():
    raw, _, _ = distribution()
    unlikely = int(raw.argmin())
    shown = view(unlikely)
    assert (shown.ids.size, shown.ids[-1], shown.rank) == (TOP + 1, unlikely, 99)


def test_what_is_not_listed_is_in_the_rest():
    shown = view(0)
    assert shown.raw.sum() + shown.rest[0] == pytest.approx(1, abs=1e-6)
    assert shown.probs.sum() + shown.rest[1] == pytest.approx(1, abs=1e-6)


def test_mass_of_a_filter_that_removed_no_token_is_zero_not_rounding():
    shown = view(0, stages=[("top-k 20", 20, 0.3), ("top-p 0.99", 20, 2.2e-16), ("min-p 0.1", 7, 0.1)])
    assert shown.stages == (("top-k 20", 20, 0.3), ("top-p 0.99", 20, 0.0), ("min-p 0.1", 7, 0.1))


def test_a_vocabulary_smaller_than_the_list():
    shown = step_view(np.array([0.5, 0.5]), np.array([1.0, 0.0]), token=0, position=0, time_s=0.0, forward_tokens=1)
    assert (shown.ids.tolist(), shown.kept, shown.rest) == ([0, 1], 1, (0.0, 0.0))


def test_payload_lists_each_step_beside_its_arrays():
    steps = [view(1), view(99, seed=3, position=6, forced=True)]
    meta, (ids, raw, probs) = unpack(decode_payload([parts(0)], steps, piece=piece, parts=parts, url="step"))
    for row, step in enumerate(steps):
        listed = meta["steps"][row]["listed"]
        assert ids[row, :listed].tolist() == step.ids.tolist()
        np.testing.assert_array_equal(raw[row, :listed], step.raw)
        np.testing.assert_array_equal(probs[row, :listed], step.probs)
    assert [step["forced"] for step in meta["steps"]] == [False, True]
    assert {int(token) for token in meta["vocabulary"]} == {int(t) for step in steps for t in step.ids}
    assert meta["prompt"] == [[["special", "<s>"]]]


def test_before_the_first_step_there_is_only_the_prompt():
    meta, (ids, _, _) = unpack(decode_payload([parts(3)], [], piece=piece, parts=parts))
    assert (meta["steps"], ids.shape, len(meta["prompt"])) == ([], (0, 0), 1)


def test_500_steps_stay_within_the_stated_size():
    steps = [view(token % 100, seed=token, position=token) for token in range(500)]
    assert len(decode_payload([], steps, piece=piece, parts=parts)) < 500 * 1400


def test_the_next_step_is_the_last_row_of_a_payload_with_it():
    steps = [view(1), view(2, seed=3, position=6)]
    keys, chosen_by = text_keys("m", [7, 8], [1, 2]), Chosen({"temperature": 0.5}, {"temperature": "Heat"})
    given: dict[str, Any] = {"piece": piece, "parts": parts, "keys": keys, "chosen_by": chosen_by}
    whole, arrays = unpack(decode_payload([parts(0)], steps, **given))
    alone, own = unpack(next_payload(steps, **given))
    assert alone["steps"] == whole["steps"][1:]
    assert alone["steps"][0]["text"] == "☕", "its text goes on from the bytes of the step before"
    assert (alone["keys"], whole["keys"]) == (keys[1:], keys)
    assert (alone["name"], alone["settings"], alone["controls"]) == (
        "next",
        {"temperature": 0.5},
        {"temperature": "Heat"},
    )
    for mine, its in zip(own, arrays, strict=True):
        np.testing.assert_array_equal(mine[0], its[1, : mine.shape[1]])


def test_keys_are_alike_for_the_same_text_of_the_same_model_alone():
    one = text_keys("m", [7, 8], [1, 2, 3])
    assert text_keys("m", [7, 8], [1, 2, 4])[:3] == one[:3]
    assert text_keys("m", [7, 8, 1], [2])[0] == one[1]
    others = [
        text_keys("m", [7, 8], [1, 2, 4])[-1],
        text_keys("n", [7, 8], [1, 2, 3])[-1],
        text_keys("m", [8, 7], [])[0],
    ]
    assert len({*one, *others}) == 7


def test_logits_go_out_whole_or_not_at_all():
    logits = np.linspace(-3, 3, 100, dtype=np.float32)
    given: dict[str, Any] = {"key": "k", "point": 0.1 + 0.2, "texts": {4: ("x", 0)}}
    payload = logits_payload(logits, history=[9, 4, 9], **given)
    assert payload is not None
    meta, (found, history) = unpack(payload)
    np.testing.assert_array_equal(found, logits)
    assert (meta["name"], meta["point"], meta["texts"]) == ("logits k", 0.1 + 0.2, {"4": ["x", 0]})
    assert history.tolist() == [4, 9]
    assert logits_payload(logits[:0], history=[], **given) is None
    assert logits_payload(np.zeros(MAX_LOGIT_BYTES // 4 + 1, np.float32), history=[], **given) is None


def test_a_character_spread_over_tokens_appears_with_its_last_byte():
    assert streamed([b"a", b"\xe2\x98", b"\x95!", b"\xe2"]) == [("a", 0), ("", 2), ("☕!", 0), ("", 1)]


def test_bytes_that_are_no_text_are_written_in_hexadecimal():
    assert streamed([b"\xe2", b"(", b"\xff"]) == [("", 1), ("\\xe2(", 0), ("\\xff", 0)]


def test_control_characters_are_written_in_hexadecimal_but_for_those_that_lay_text_out():
    assert streamed([b"a\x07", b"\x7f", b"\xc2\x85", b"b\tc\r\n"]) == [
        ("a\\x07", 0),
        ("\\x7f", 0),
        ("\\x85", 0),
        ("b\tc\r\n", 0),
    ]


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\t\r\n")), st.lists(st.integers(0, 60))
)
def test_however_text_is_cut_the_stream_is_the_text(text: str, cuts: list[int]):
    data = text.encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    shown = streamed([data[a:b] for a, b in pairwise(edges)])
    assert "".join(said for said, _ in shown) == text
