"""Branches and this step's attention on the page: the tree, the way back, one cursor, the link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from lmcore.checkpoint import Loaded
from tests.pages.test_decode import decode, loaded, payload, press, straight, tokens  # noqa: F401
from tests.pages.test_decode_sections import mounted
from ui import branches, components


def answers(monkeypatch: pytest.MonkeyPatch, key: str, answer: Mapping[str, float]) -> None:
    """The component under `key` has sent its cursor: AppTest cannot move anything inside a component."""
    plain = components.sent
    monkeypatch.setattr(
        components, "sent", lambda at, name, default=None: answer if at == key else plain(at, name, default)
    )


def caught_up(count: int, **link: str) -> AppTest:
    at = decode(decode_steps=str(count), **link)
    while len(tokens(at)) < count:
        at.run()
    return at


def test_a_link_restores_branches_with_their_log_probabilities(loaded: Loaded) -> None:  # noqa: F811
    left = [tuple(b"xyz"), tuple(b"xy!?")]
    link = branches.to_link(left)
    assert link is not None
    at = caught_up(3, prompt="abc", decode_branches=link)
    at.run()
    meta, (chosen, _, parents, rows, log_probs, _) = mounted(at, "decode_tree", "tree")
    found = []
    for end in meta["ends"]:
        path, node = [], end
        while node >= 0:
            path.append(node)
            node = int(parents[node])
        found.append(path[::-1])
    assert [tuple(chosen[path].tolist()) for path in found] == [tuple(tokens(at)), *reversed(left)]
    assert not rows[found[0]].any()
    for path, text in zip(found[1:], reversed(left), strict=True):
        forced: dict[str, Any] = {f"at{index}": token for index, token in enumerate(text)}
        steps = straight(loaded, "abc", len(text), **forced).steps
        logits = np.stack([step.logits for step in steps]).astype(np.float64)
        given = logits[range(len(text)), text] - np.log(np.exp(logits).sum(-1))
        np.testing.assert_allclose(log_probs[path], given, atol=1e-5)
    assert payload(at, "decode")[0]["address"]["decode_branches"] == link


@pytest.mark.parametrize("text", ["0_76", "x", "9_1", "0_1-" * 20])
def test_bad_branches_in_a_link_are_named_and_ignored(text: str) -> None:
    at = decode(prompt="abc", decode_branches=text)
    assert len(at.warning) == 1
    assert "decode_tree" not in at.session_state
    assert payload(at, "decode")[0]["address"]["decode_branches"] is None


def test_two_branches_of_the_readers_choice_are_compared() -> None:
    link = branches.to_link([tuple(b"xyz"), tuple(b"xy!?")])
    at = decode(prompt="abc", decode_branches=str(link))
    at.run()
    at.selectbox(key="decode_branch_one").select_index(1).run()
    at.selectbox(key="decode_branch").select_index(2).run()
    texts = mounted(at, "decode_branches", "texts")[0]["texts"]
    assert [(row["same"], row["own"]) for row in texts] == [("xy", "!?"), ("xy", "z")]
    assert any("They part at step 2" in element.value for element in at.markdown)
    at.button(key="decode_return").click().run()
    assert bytes(tokens(at)) == b"xyz"


def test_the_cursor_of_one_section_moves_the_other_until_another_step_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = caught_up(5, prompt="abcdef", step="3")
    assert [mounted(at, *names)[0]["step"] for names in (("decode_reads", "reads"), ("decode_lens", "lens"))] == [3, 3]
    answers(monkeypatch, "decode_reads", {"step": 1, "of": 5, "when": 7.0})
    at.run()
    assert [mounted(at, *names)[0]["step"] for names in (("decode_reads", "reads"), ("decode_lens", "lens"))] == [1, 1]
    press(at, "step")
    assert [mounted(at, *names)[0]["step"] for names in (("decode_reads", "reads"), ("decode_lens", "lens"))] == [5, 5]


def test_a_head_opens_on_the_attention_page_with_the_text_so_far_where_that_gives_the_same_tokens() -> None:
    forced = ",".join(f"{index}:{token}" for index, token in enumerate(b"def"))
    at = caught_up(3, prompt="abc", decode_forced=forced)
    meta, (weights, _) = mounted(at, "decode_reads", "reads")
    assert meta["text"] == "abcde"
    assert meta["positions"] == weights.shape[-1] == len("<abcde")
    at = caught_up(3, prompt="abc", decode_forced="0:226,1:152,2:149")
    assert mounted(at, "decode_reads", "reads")[0]["text"] is None
