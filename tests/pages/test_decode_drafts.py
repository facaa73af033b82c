"""Drafts by another model on the Decode page: lmcore's rounds, and what is said where there is no such model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from lmcore.checkpoint import load_pretrained
from lmcore.sampling import Sampler
from lmcore.speculative import ModelDraft, SpeculativeDecoder
from tests.lmcore.tiny import hf_llama
from tests.pages.test_decode import decode
from tests.pages.test_decode_sections import mounted
from ui import speculating, state

GREEDY = Sampler(temperature=0, top_k=40, top_p=0.95)


def folder(path: Path, words: int = 96, last: str = "w95", **sizes: int) -> str:
    path.mkdir()
    hf_llama("gqa", vocab_size=words, **sizes).save_pretrained(path)
    names = [f"w{index}" for index in range(words - 1)] + [last]
    backend = Backend(WordLevel({name: index for index, name in enumerate(names)}, unk_token="w0"))
    backend.pre_tokenizer = WhitespaceSplit()
    backend.save(str(path / "tokenizer.json"))
    return str(path)


def asked(target: str, drafter: str):
    at = decode(
        model=state.TYPED,
        path=target,
        prompt="w3 w7 w3 w7",
        decode_temperature="0",
        decode_draft=speculating.MODEL,
        decode_draft_path=drafter,
    )
    return at.button(key="decode_speculate").click().run()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return folder(tmp_path_factory.mktemp("pair") / "target")


def test_the_rounds_of_a_smaller_model_are_lmcores(target: str, tmp_path: Path) -> None:
    drafter = folder(tmp_path / "draft", hidden_size=16, num_hidden_layers=1)
    at = asked(target, drafter)
    assert not at.exception
    assert [error.value for error in at.error] == []
    model, small = (load_pretrained(Path(path), dtype="float32", device="cpu").model for path in (target, drafter))
    made = SpeculativeDecoder(model, [3, 7, 3, 7], GREEDY, ModelDraft(small, GREEDY, 0), most=4)
    while len(made.tokens) - 4 < 24:
        made.round()
    meta, _ = mounted(at, "decode_speculative", "speculative")
    assert [row["drafts"] for row in meta["rounds"]] == [list(done.proposed) for done in made.rounds]
    assert [row["kept"] for row in meta["rounds"]] == [done.accepted for done in made.rounds]
    _, same = mounted(at, "decode_speculative_tiles", "twins")[0]["tiles"]
    assert same["state"] == "equal"
    count = sum(parameter.numel() for parameter in small.parameters())
    [said] = [element.value for element in at.markdown if "The draft model has" in element.value]
    assert str(count) in "".join(letter for letter in said if letter.isdigit())


@pytest.mark.parametrize(("words", "last", "said"), [(90, "w89", "90 tokens"), (96, "other", "token 95 is")])
def test_a_model_of_other_tokens_is_refused(target: str, tmp_path: Path, words: int, last: str, said: str) -> None:
    at = asked(target, folder(tmp_path / "draft", words, last, hidden_size=16, num_hidden_layers=1))
    assert not at.exception
    assert any(said in error.value for error in at.error)


def test_without_a_partner_the_pairs_that_work_are_named() -> None:
    at = decode(model=state.BUILTIN, decode_draft=speculating.MODEL)
    assert any("is known to share the tokenizer" in element.value for element in at.markdown)
    assert not [button for button in at.button if button.key == "decode_speculate"]
    shown = " ".join(element.value for element in at.markdown)
    assert all(pair in shown for pair in speculating.pairs())
