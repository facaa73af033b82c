"""What a folder says of its tokenizer: the tokenizer itself, the names of its special tokens, its chat template.

tokenizer.json is read through `tokenizers`; where there is none, tokenizer.model (SentencePiece) or vocab.json with
merges.txt through `transformers`, which turns them into the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from lmcore.errors import CheckpointError

# tokenizer.json of a vocabulary of 260,000 has about 35 MB.
MAX_FILE_BYTES = 256 * 2**20
MAX_TEMPLATE_BYTES = 2**20
# What a tokenizer without a tokenizer.json is made of.
OLDER = (("tokenizer.model",), ("vocab.json", "merges.txt"))


def backend_of(folder: Path) -> tuple[Backend, Mapping[str, str]]:
    """The tokenizer of a folder and the names of its special tokens. Raises CheckpointError for none."""
    names = special_names(folder)
    if (folder / "tokenizer.json").exists() or not any(_all_there(folder, files) for files in OLDER):
        return _from_json(folder / "tokenizer.json"), names
    backend, found = _through_transformers(folder)
    return backend, found | dict(names)


def special_names(folder: Path) -> Mapping[str, str]:
    """bos_token, eos_token and their like, as tokenizer_config.json or special_tokens_map.json spell them."""
    found: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        for key, value in _json_object(folder / name).items():
            value = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(value, str):
                found[key] = value
    return found


def template_of(folder: Path) -> str | None:
    """The Jinja source of a folder's chat template: chat_template.jinja, else tokenizer_config.json (its default)."""
    try:
        with (folder / "chat_template.jinja").open(encoding="utf-8") as file:
            text = file.read(MAX_TEMPLATE_BYTES + 1)
    except (OSError, UnicodeDecodeError):
        given = _json_object(folder / "tokenizer_config.json").get("chat_template")
        if isinstance(given, list):  # several, by name
            named = {entry.get("name"): entry.get("template") for entry in given if isinstance(entry, dict)}
            given = named.get("default")
        text = given if isinstance(given, str) else ""
    return text if 0 < len(text) <= MAX_TEMPLATE_BYTES else None


def stops_of(folder: Path) -> tuple[int, ...]:
    """The ids that a folder's generation_config.json and config.json name as ends of a text, one or a list of them."""
    found: list[Any] = []
    for name in ("generation_config.json", "config.json"):
        given = _json_object(folder / name).get("eos_token_id")
        found += given if isinstance(given, list) else [given]
    return tuple(stop for stop in found if isinstance(stop, int) and not isinstance(stop, bool))


def _json_object(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one for a file that holds none: what it says is not needed to cut a text."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return {}
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return raw if isinstance(raw, dict) else {}


def _all_there(folder: Path, files: Iterable[str]) -> bool:
    return all((folder / name).is_file() for name in files)


def _refuse_large(file: Path) -> None:
    size = file.stat().st_size
    if size > MAX_FILE_BYTES:
        raise CheckpointError(
            f"{file.name} has {size:,} bytes", expected=f"at most {MAX_FILE_BYTES:,}", where=str(file)
        )


def _from_json(file: Path) -> Backend:
    """The backend that a tokenizer.json describes."""
    try:
        _refuse_large(file)
        # The file is read by us, not by the library, so that one without permission or in UTF-16 is told apart.
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise CheckpointError(
            "tokenizer.json is not in the folder",
            expected="it, tokenizer.model, or vocab.json with merges.txt",
            where=str(file.parent),
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"tokenizer.json cannot be read ({str(error)[:80]})", where=str(file)) from error
    try:
        return Backend.from_str(text)
    # The library raises bare Exception, and its Rust panics derive from BaseException only.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise CheckpointError(f"tokenizer.json describes no tokenizer ({str(error)[:120]})", where=str(file)) from error


def _through_transformers(folder: Path) -> tuple[Backend, dict[str, str]]:
    """The backend that `transformers` makes of a folder's older files, and the names of its special tokens."""
    for name in {name for files in OLDER for name in files}:
        if (folder / name).exists():
            _refuse_large(folder / name)
    if (folder / "tokenizer.model").exists() and find_spec("sentencepiece") is None:
        raise CheckpointError(
            "tokenizer.model is a SentencePiece file, and the package that reads it is not installed",
            where=str(folder),
            todo="Run `pip install sentencepiece`, or put the model's tokenizer.json beside it.",
        )
    try:
        from transformers import AutoTokenizer

        theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        backend = Backend.from_str(theirs.backend_tokenizer.to_str())
        return backend, {name: str(value) for name, value in theirs.special_tokens_map.items()}
    except BaseException as error:  # anything, in another's code that reads a stranger's files; and Rust's panics
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise CheckpointError(
            f"transformers makes no tokenizer of the folder's files ({' '.join(str(error).split())[:120]})",
            expected="tokenizer.json",
            where=str(folder),
            todo="Put the model's tokenizer.json beside them.",
        ) from error
