"""A checkpoint's tokenizer, with the exact bytes of every token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer as Backend

from lmcore.errors import InputError
from lmcore.tokenizer_files import backend_of, stops_of, template_of

TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>")
"""What chat templates write after a turn of the model: ChatML, Llama 3, Gemma, Phi-3, and the ends of a document."""
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """The byte that each of GPT-2's 256 printable stand-ins spells (Radford et al. 2019, `bytes_to_unicode`).

    Printable bytes of Latin-1 stand for themselves; the other 68, in order, for U+0100 onwards: " " is "Ġ".
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class Tokenizer:
    """Text to token ids and back. Holds no state that a call changes, so threads may share one.

    Special tokens typed in a text (`<s>`) become the special token, as in `transformers`; a BOS that the tokenizer adds
    by itself comes on top of a typed one.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        bos: str | None = None,
        eos: str | None = None,
        names: Mapping[str, str] | None = None,
        chat_template: str | None = None,
        stops: Iterable[int] = (),
    ) -> None:
        # Both can be switched on in the file, and would silently cut or lengthen a prompt.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._added = {token_id: (t.content, t.special) for token_id, t in backend.get_added_tokens_decoder().items()}
        steps = _kinds(backend.decoder)
        self._alphabet = byte_alphabet() if "ByteLevel" in steps else None
        self._byte_pieces = "ByteFallback" in steps
        self._space = "▁" if steps & {"Replace", "Metaspace"} and "▁" in _text(backend.decoder) else None
        self._prefix = _added_space(backend)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.chat_template = chat_template
        """Jinja source, or None; `lmcore.chat` renders it."""
        self.special_names: Mapping[str, str] = dict(names or {})
        """Special tokens by their part: bos_token, eos_token, ..."""
        self.eos_id: int | None = None if eos is None else backend.token_to_id(eos)
        turn_ends = [backend.token_to_id(name) for name in TURN_ENDS if name in (chat_template or "")]
        self.stop_ids = frozenset(
            stop for stop in (self.eos_id, *stops, *turn_ends) if stop is not None and self._known(stop)
        )
        """Tokens with which the model ends a text or a turn: its EOS, what its files name, what its template writes."""
        self.bos_id: int | None = self._first_added() if bos is None else backend.token_to_id(bos)
        self.adds_bos: bool = self.bos_id is not None and self.encode("")[:1] == [self.bos_id]

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a folder. Raises CheckpointError when there is none, or a broken one."""
        folder = Path(path)
        backend, names = backend_of(folder)
        return cls(
            backend,
            bos=names.get("bos_token"),
            eos=names.get("eos_token"),
            names=names,
            chat_template=template_of(folder),
            stops=stops_of(folder),
        )

    def bos_report(self, ids: Sequence[int]) -> Literal["once", "doubled", "missing", "not used"]:
        """Whether a sequence begins with the BOS as the model's tokenizer has it.

        "doubled" for two or more in a row; "missing" only for a tokenizer that adds one; "not used" for one that adds
        none, where the sequence has none either.
        """
        count = 0
        while count < len(ids) and ids[count] == self.bos_id:
            count += 1
        if count > 1:
            return "doubled"
        if count == 1:
            return "once"
        return "missing" if self.adds_bos else "not used"

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Token ids of a text; with `add_special`, what the tokenizer itself adds around it (a BOS, say).

        Raises InputError for text that is no Unicode (half of a surrogate pair).
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the text has half of a surrogate pair at character {error.start}",
                expected="Unicode text",
                where="the prompt",
            ) from error
        return self._backend.encode(text, add_special_tokens=add_special).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, special tokens spelled out; bytes that complete no character become U+FFFD."""
        return self._backend.decode([i for i in ids if self._known(i)], skip_special_tokens=False)

    def pieces(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes that each token of a sequence stands for: joined, they are the text that was encoded.

        SentencePiece tokenizers put a space in front of the text (or of each stretch between special tokens) that was
        not in it; here it is taken off again, which needs the whole sequence.
        """
        pieces, at_start = [], True
        for token_id in ids:
            piece = self.piece_bytes(token_id)
            if self.is_special(token_id):
                at_start = at_start or self._prefix == "each"
            elif at_start and self._prefix:
                piece, at_start = piece.removeprefix(b" "), False
            pieces.append(piece)
        return pieces

    def piece_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; those of its name for a special token, none for an id without a token."""
        if token_id in self._added:
            return self._added[token_id][0].encode()
        if not self._known(token_id):
            return b""
        name = self.name(token_id)
        if self._alphabet is not None:
            if all(char in self._alphabet for char in name):
                return bytes(self._alphabet[char] for char in name)
            return name.encode()
        if self._byte_pieces and (match := _BYTE_PIECE.fullmatch(name)):
            return bytes([int(match[1], 16)])
        return (name.replace(self._space, " ") if self._space else name).encode()

    def is_special(self, token_id: int) -> bool:
        """Whether a token stands for no text: a special token, or an id that the vocabulary leaves unused."""
        return self._added[token_id][1] if token_id in self._added else not self._known(token_id)

    def name(self, token_id: int) -> str:
        """The vocabulary's own spelling of a token; `unused 200` for an id (a padded embedding row) without one."""
        return (self._backend.id_to_token(token_id) if token_id >= 0 else None) or f"unused {token_id}"

    def _first_added(self) -> int | None:
        """The special token that the tokenizer puts in front of a text, for a folder that names no BOS."""
        plain, full = self.encode("a", add_special=False), self.encode("a")
        in_front = len(full) > len(plain) and full[:1] != plain[:1] and self.is_special(full[0])
        return full[0] if in_front and full[0] != self.eos_id else None

    def _known(self, token_id: int) -> bool:
        return token_id >= 0 and self._backend.id_to_token(token_id) is not None


def _text(part: Any) -> str:
    """The JSON of a part (decoder, normalizer, pre-tokenizer) of the backend; empty when it has none."""
    return "" if part is None else part.__getstate__().decode()


def _kinds(part: Any) -> set[str]:
    """The types of a part and of everything inside it, by name."""

    def walk(value: Any) -> set[str]:
        if isinstance(value, list):
            return {kind for item in value for kind in walk(item)}
        if not isinstance(value, dict):
            return set()
        own = {value["type"]} if isinstance(value.get("type"), str) else set()
        return own | {kind for item in value.values() for kind in walk(item)}

    return walk(json.loads(_text(part) or "{}"))


def _added_space(backend: Backend) -> str:
    """Where the tokenizer puts a space of its own: before "each" stretch between special tokens, the "first", or ""."""
    if "Prepend" in _kinds(backend.normalizer):
        return "each"
    state = _text(backend.pre_tokenizer)
    if "Metaspace" in _kinds(backend.pre_tokenizer):
        return "each" if '"always"' in state else "first" if '"first"' in state else ""
    return "first" if '"add_prefix_space":true' in state else ""
