"""Tokenizers rebuilt from GGUF metadata, against what `transformers` rebuilds from the same."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

from lmcore.checkpoint.gguf_tokenizer import SPLITS, rebuild
from lmcore.tokenizer import byte_alphabet

NORMAL, CONTROL, WHOLE, BYTE = 1, 3, 4, 6
TEXTS = (
    "Hello world, hello there",
    "  two spaces\n\nnewline   and three",
    "def f(x):\n    return x + 1  # ок\n",
    "Привет, мир",
    "你好，世界",
    "こんにちは",
    "안녕하세요",
    "مرحبا",
    "שלום",
    "नमस्ते",
    "สวัสดี",
    "Γειά σου",
    "😀👩‍👧🇩🇪",
    "1234567 3.14",
    "<bos>hi<eos> <turn>x",
    "\t\r\n\n\n",
    "it's I'LL they've DON'T",
    "",
    "e\u0301tude étude",
    " " * 9 + "x",
)


def gemma_like() -> dict:
    """Specials, runs of spaces and newlines as user-defined tokens, bytes, pieces, single characters last."""
    words = [
        "▁he",
        "ll",
        "▁hell",
        "▁hello",
        "lo",
        "▁w",
        "or",
        "▁wor",
        "ld",
        "▁world",
        "th",
        "▁th",
        "ere",
        "in",
        "the",
        "▁the",
    ]
    letters = sorted({c for text in TEXTS for c in text if c not in " \n"} | set("▁abcdefghijklmnopqrstuvwxyzHD"))
    known = [letter for letter in letters if ord(letter) < 0x600 or letter == "▁"]
    rows = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", CONTROL), ("<turn>", WHOLE)]
    rows += [("\n" * n, WHOLE) for n in (1, 2, 3)]
    rows += [(" " * n, WHOLE) for n in (2, 3, 4, 5)]
    rows += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    pieces = ["he", "hel", "ello", *words]
    rows += [(piece, NORMAL) for piece in dict.fromkeys([*pieces, *known])]
    scores = [-float(i) if kind == NORMAL else -1000.0 for i, (_, kind) in enumerate(rows)]
    return {
        "general.architecture": "gemma3",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tuple(token for token, _ in rows),
        "tokenizer.ggml.token_type": np.array([kind for _, kind in rows], np.int32),
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
    }


def theirs(metadata: dict) -> Backend:
    parts = {
        "tokenizer_type": metadata["tokenizer.ggml.model"],
        "tokens": list(metadata["tokenizer.ggml.tokens"]),
        "token_type": metadata["tokenizer.ggml.token_type"].tolist(),
        "pre_tokenizer_type": metadata.get("tokenizer.ggml.pre"),
    }
    for key in ("scores", "merges"):
        if f"tokenizer.ggml.{key}" in metadata:
            parts[key] = list(metadata[f"tokenizer.ggml.{key}"])
    return convert_gguf_tokenizer(metadata["general.architecture"], parts)[0]


def ids(tokenizer: Backend, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("text", TEXTS)
def test_gemma_as_in_transformers(text: str) -> None:
    metadata = gemma_like()
    mine = rebuild(metadata)
    assert ids(mine, text) == ids(theirs(metadata), text)
    assert mine.decode(ids(mine, text), skip_special_tokens=False) == text
    assert mine.encode(text).ids == [2, *ids(mine, text)]


def test_spaces_taken_as_they_are_spelled_would_show() -> None:
    """Negative control: nine spaces are five and four by the longest first, and four and five by Gemma's merges."""
    metadata = gemma_like() | {"general.architecture": "llama"}
    text = " " * 9 + "x"
    assert ids(rebuild(metadata), text) != ids(rebuild(gemma_like()), text)


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "tekken", "gpt-4o", "llama4", "dbrx"])
@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_splits_as_in_transformers(pre: str, text: str) -> None:
    """Merges across every boundary, so that a split in another place gives other tokens."""
    letters = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)
    pairs = [(a, b) for a in "Ġ'.123eĊhl" for b in "Ġ'.123eĊhlIstLv"]
    vocab = [*letters, *dict.fromkeys(a + b for a, b in pairs), "<|end|>"]
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tuple(vocab),
        "tokenizer.ggml.token_type": np.array([NORMAL] * (len(vocab) - 1) + [CONTROL], np.int32),
        "tokenizer.ggml.merges": tuple(f"{a} {b}" for a, b in pairs),
        "tokenizer.ggml.add_bos_token": False,
    }
    assert pre in SPLITS
    mine = rebuild(metadata)
    assert ids(mine, text) == ids(theirs(metadata), text)
    assert mine.decode(ids(mine, text)) == text
