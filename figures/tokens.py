"""How a token is shown: from its exact bytes, so that nothing it holds is lost or invented.

A token's bytes need not be text: a character outside ASCII is often spread over several tokens. What is shown is a list
of parts, `[kind, text]`:

    text      characters as they are
    space     one or more spaces, each a middle dot
    newline   line feeds, each a pilcrow
    tab       tabs, each an arrow
    byte      one byte that is no text in this token alone, as two hexadecimal digits
    mark      one character without a shape of its own (zero width, combining with nothing, control), as its code point
    special   a special token, by the name that the vocabulary gives it

The last three are drawn as plates, and on one line as ‹E2›. Parts are plain data, ready for a component's header.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Parts = list[list[str]]

_SIGNS = {" ": ("space", "·"), "\n": ("newline", "¶"), "\t": ("tab", "→")}
_PLATES = {"byte", "mark", "special"}
_SHAPELESS = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
_COMBINING = {"Mn", "Me", "Mc"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token as a figure needs it: its id, its exact bytes and, if it is a special one, its name in the vocabulary."""

    id: int
    piece: bytes
    special_name: str | None = None

    @property
    def parts(self) -> Parts:
        return token_parts(self.piece, self.special_name)


def token_parts(piece: bytes, special_name: str | None = None) -> Parts:
    """The parts of one token; `special_name` is the vocabulary's name of a special token, None for any other.

    A combining mark after a character of the same token stays with it as text; at the start of a token it would be
    drawn on its neighbour, so there it is shown by its code point. No bytes give no parts.
    """
    if special_name is not None:
        return [["special", special_name]]
    parts: Parts = []
    for start, end, character in _characters(piece):
        if character is None:
            parts.extend(["byte", f"{byte:02X}"] for byte in piece[start:end])
            continue
        kind, text = _shown(character, after_text=bool(parts) and parts[-1][0] == "text")
        if parts and parts[-1][0] == kind and kind not in _PLATES:
            parts[-1][1] += text
        else:
            parts.append([kind, text])
    return parts


def flat(parts: Parts) -> str:
    """The parts on one line, for an axis or a label: plates in single angle quotes, ‹E2›."""
    return "".join(f"‹{text}›" if kind in _PLATES else text for kind, text in parts)


def hexadecimal(piece: bytes) -> str:
    """The bytes in hexadecimal, apart: E2 98 95."""
    return piece.hex(" ").upper()


def completed_characters(pieces: Sequence[bytes]) -> list[str | None]:
    """For each token the characters of which it holds some bytes and its neighbours the others, None where none.

    The three pieces b' \\xe2', b'\\x98', b'\\x95' all belong to '☕'. Bytes that no neighbour completes belong to none.
    """
    owners = [index for index, piece in enumerate(pieces) for _ in piece]
    found: list[str] = [""] * len(pieces)
    for start, end, character in _characters(b"".join(pieces)):
        sharers = dict.fromkeys(owners[start:end])
        if character is not None and len(sharers) > 1:
            for index in sharers:
                found[index] += character
    return [characters or None for characters in found]


def _shown(character: str, *, after_text: bool) -> tuple[str, str]:
    if character in _SIGNS:
        return _SIGNS[character]
    category = unicodedata.category(character)
    if category in _SHAPELESS or (category in _COMBINING and not after_text):
        return "mark", f"U+{ord(character):04X}"
    return "text", character


def _characters(data: bytes) -> Iterator[tuple[int, int, str | None]]:
    """(start, end, character) over all bytes in order; a byte that starts no valid UTF-8 stands alone, with None."""
    start = 0
    while start < len(data):
        end = start + _sequence_length(data[start])
        try:
            character = data[start:end].decode("utf-8")
        except UnicodeDecodeError:
            end, character = start + 1, None
        yield start, end, character
        start = end


def _sequence_length(lead: int) -> int:
    """How many bytes a UTF-8 sequence with this first byte has (RFC 3629); 1 for a byte that cannot be a first one."""
    if lead >= 0xF0:
        return 4
    if lead >= 0xE0:
        return 3
    return 2 if lead >= 0xC0 else 1
