"""The text that the family is trained on: where its last tenth begins, and the tokens of both parts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from lmcore.errors import InputError
from lmcore.teaching import VOCABULARY

SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
ORIGIN = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
HELDOUT_SHARE = 0.1
EXCERPT_CHARS = 20_000


class Corpus(NamedTuple):
    """Token ids of the first nine tenths, of the held-out rest and of the end of that which is shipped, and how many
    bytes each token stands for."""

    train: Int[np.ndarray, " N"]
    heldout: Int[np.ndarray, " M"]
    excerpt: Int[np.ndarray, " E"]
    token_bytes: Int[np.ndarray, " V"]
    tokenizer: Tokenizer
    sha256: str


def read_text(path: Path, sha256: str | None = SHA256) -> str:
    """The text of a file. Raises InputError when it isn't there or isn't the text that the family was trained on."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"the text cannot be read ({error.strerror})", where=str(path), todo=f"Get it from {ORIGIN}."
        ) from error
    found = hashlib.sha256(raw).hexdigest()
    if sha256 is not None and found != sha256:
        raise InputError(
            f"the text has sha256 {found}", expected=sha256, where=str(path), todo=f"Get it from {ORIGIN}."
        )
    return raw.decode()


def split(text: str) -> tuple[str, str]:
    """The first nine tenths and the rest, by characters."""
    at = round(len(text) * (1 - HELDOUT_SHARE))
    return text[:at], text[at:]


def excerpt(text: str) -> str:
    """The last whole speeches of the text, about 20 kB: speeches begin after an empty line."""
    return text[text.find("\n\n", max(0, len(text) - EXCERPT_CHARS)) + 1 :].lstrip("\n")


def trained_tokenizer(text: str, vocabulary: int = VOCABULARY) -> Tokenizer:
    """Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019): all 256 bytes, then the most frequent merges."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator([text], trainer)
    return backend


def corpus(text: str, vocabulary: int = VOCABULARY) -> Corpus:
    """Both parts of a text in tokens; the tokenizer has seen the first part only."""
    first, rest = split(text)
    backend = trained_tokenizer(first, vocabulary)
    train, heldout, end = (np.array(backend.encode(part).ids, dtype=np.int64) for part in (first, rest, excerpt(text)))
    # A byte is one character of the vocabulary's spelling.
    spelling = backend.get_vocab(with_added_tokens=False)
    token_bytes = np.zeros(len(spelling), dtype=np.int64)
    for name, index in spelling.items():
        token_bytes[index] = len(name)
    return Corpus(train, heldout, end, token_bytes, backend, hashlib.sha256(text.encode()).hexdigest())
