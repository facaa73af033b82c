"""The token strip's payload."""

import numpy as np
import pytest

from figures.payload import unpack
from figures.strip import strip_payload
from figures.tokens import Token

CUP = "☕".encode()
TOKENS = [Token(1, b"<s>", "<s>"), Token(9, b" " + CUP[:1]), Token(7, CUP[1:]), Token(9, b"<b>")]
NAMES = {3: Token(3, b" x"), 4: Token(4, b"\n"), 5: Token(5, b"\xff")}


def payload(**changes):
    settings = {
        "loss": np.array([np.nan, 1.5, np.inf, 0.25]),
        "rank": np.array([0, 2, 900, 1]),
        "top_ids": np.array([[3, 4], [4, 3], [5, 3], [3, 5]]),
        "top_probs": np.array([[0.5, 0.25], [0.9, 0.05], [0.6, 0.3], [0.2, 0.1]]),
        "token_of": NAMES.__getitem__,
        "vocab_size": 1000,
    }
    return unpack(strip_payload(TOKENS, **{**settings, **changes}))


def test_every_position_s_numbers_are_there():
    meta, (loss, rank, top_ids, top_probs) = payload()
    assert meta["ids"] == [1, 9, 7, 9]
    np.testing.assert_array_equal(loss, np.array([np.nan, 1.5, np.inf, 0.25], np.float32))
    assert rank.tolist() == [0, 2, 900, 1]
    assert top_ids.tolist() == [[3, 4], [4, 3], [5, 3], [3, 5]]
    assert top_probs[1, 0] == np.float32(0.9)


def test_tokens_are_shown_from_their_bytes():
    meta, _ = payload()
    assert meta["tokens"][0] == [["special", "<s>"]]
    assert meta["tokens"][3] == [["text", "<b>"]]
    assert meta["special"] == [True, False, False, False]
    assert meta["bytes"][1:3] == ["20 E2", "98 95"]
    assert meta["characters"] == [None, "☕", "☕", None]
    assert meta["vocabulary"] == {"3": [["space", "·"], ["text", "x"]], "4": [["newline", "¶"]], "5": [["byte", "FF"]]}


@pytest.mark.parametrize(("asked", "given"), [(None, 3), (1, 1), (99, 3), (-5, 0)])
def test_the_selected_position_is_one_of_the_prompt_s(asked, given):
    assert payload(selected=asked)[0]["selected"] == given


def test_one_token_alone():
    meta, (loss, _, top_ids, _) = unpack(
        strip_payload(
            [Token(3, b"a")],
            loss=np.array([np.nan]),
            rank=np.array([0]),
            top_ids=np.array([[3]]),
            top_probs=np.array([[1.0]]),
            token_of=NAMES.__getitem__,
            vocab_size=5,
        )
    )
    assert meta["selected"] == 0
    assert np.isnan(loss[0])
    assert top_ids.shape == (1, 1)
