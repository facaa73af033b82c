"""Which tokens end a text: what the files name and what the chat template writes, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Backend

from lmcore.checkpoint.gguf_tokenizer import save
from lmcore.tokenizer import Tokenizer

WORDS = ["a", "b", "<eos>", "<|im_end|>", "<|eot_id|>", "<pad>"]
TEMPLATE = "{% for m in messages %}{{ m['content'] + '<|im_end|>' }}{% endfor %}"


def written(folder: Path) -> Backend:
    backend = Backend(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="a"))
    backend.add_special_tokens([AddedToken(word, special=True) for word in WORDS[2:]])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return backend


@pytest.mark.parametrize(
    ("generation", "template", "expected"),
    [
        (None, None, {2}),
        ({"eos_token_id": 4}, None, {2, 4}),
        ({"eos_token_id": [2, 4]}, TEMPLATE, {2, 3, 4}),
        ({"eos_token_id": [99, -1, None, True, "4"]}, TEMPLATE.replace("im_end", "other"), {2}),
        ([4], None, {2}),
    ],
)
def test_stops_of_a_folder(tmp_path: Path, generation: object, template: str | None, expected: set[int]) -> None:
    written(tmp_path)
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    if template is not None:
        (tmp_path / "chat_template.jinja").write_text(template)
    assert Tokenizer.from_folder(tmp_path).stop_ids == expected


def test_a_gguf_file_keeps_its_end_of_turn(tmp_path: Path) -> None:
    metadata = {
        f"tokenizer.ggml.{key}_token_id": WORDS.index(word) for key, word in (("eos", "<eos>"), ("eot", "<|eot_id|>"))
    }
    save(written(tmp_path), metadata | {"tokenizer.ggml.tokens": WORDS}, tmp_path)
    assert Tokenizer.from_folder(tmp_path).stop_ids == {2, 4}
