"""Tokens are shown from their bytes: nothing lost, nothing invented."""

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from figures.tokens import completed_characters, flat, hexadecimal, token_parts

SIGNS = {"space": " ", "newline": "\n", "tab": "\t"}


def bytes_of(parts: list[list[str]]) -> bytes:
    """The bytes that the parts stand for, by the documented meaning of each kind."""
    out = b""
    for kind, text in parts:
        if kind in SIGNS:
            out += SIGNS[kind].encode() * len(text)
        elif kind == "byte":
            out += bytes.fromhex(text)
        elif kind == "mark":
            out += chr(int(text.removeprefix("U+"), 16)).encode()
        else:
            out += text.encode()
    return out


@st.composite
def cut_text(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """A text and its bytes cut anywhere, also inside a character."""
    text = draw(st.text(max_size=30))
    data = text.encode()
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=12)) | {0, len(data)})
    return text, [data[a:b] for a, b in itertools.pairwise(cuts)]


@given(st.binary(max_size=60))
def test_parts_stand_for_exactly_the_bytes(piece):
    assert bytes_of(token_parts(piece)) == piece


@given(st.binary(max_size=60))
def test_no_part_is_empty_and_none_holds_a_sign_that_cannot_be_seen(piece):
    for kind, text in token_parts(piece):
        assert text
        assert "\ufffd" not in text or "\ufffd".encode() in piece
        if kind == "text":
            assert not any(unicodedata.category(sign)[0] in "CZ" for sign in text)
            assert unicodedata.category(text[0])[0] != "M"


@given(cut_text())
def test_pieces_join_to_the_text_and_each_shared_character_is_in_it(case):
    text, pieces = case
    assert b"".join(bytes_of(token_parts(piece)) for piece in pieces).decode() == text
    found = completed_characters(pieces)
    assert len(found) == len(pieces)
    for piece, characters in zip(pieces, found, strict=True):
        broken = any(kind == "byte" for kind, _ in token_parts(piece))
        assert (characters is not None) == broken
        assert characters is None or all(character in text for character in characters)


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (b" Mary", "·Mary"),
        (b"\n\n", "¶¶"),
        (b"\t\tx", "→→x"),
        (b" \xe2", "·‹E2›"),
        (b"\xe2\x80\x8b", "‹U+200B›"),
        ("e\u0301".encode(), "e\u0301"),
        ("\u0301".encode(), "‹U+0301›"),
        ("a\u202eb".encode(), "a‹U+202E›b"),
        (b"\r", "‹U+000D›"),
        (b"\x00", "‹U+0000›"),
        ("日本".encode(), "日本"),
        (b"<b>$x$", "<b>$x$"),
        (b"\xc0\x80", "‹C0›‹80›"),
        (b"", ""),
    ],
)
def test_what_is_shown(piece, shown):
    assert flat(token_parts(piece)) == shown


def test_a_special_token_is_its_name_and_text_that_looks_like_one_is_text():
    assert token_parts(b"<s>", "<s>") == [["special", "<s>"]]
    assert token_parts(b"<s>") == [["text", "<s>"]]
    assert flat(token_parts(b"", "<|endoftext|>")) == "‹<|endoftext|>›"


def test_the_character_that_partial_tokens_spell():
    cup = "☕".encode()
    assert completed_characters([b"a", b" " + cup[:1], cup[1:2], cup[2:], b"b"]) == [None, "☕", "☕", "☕", None]
    assert completed_characters([cup[:2], b"x"]) == [None, None]
    family = "日本".encode()
    assert completed_characters([family[:2], family[2:4], family[4:]]) == ["日", "日本", "本"]
    assert completed_characters([]) == []


def test_bytes_in_hexadecimal():
    assert hexadecimal(b"\xe2\x98\x95") == "E2 98 95"
