"""The tokenizer that GGUF metadata describe, rebuilt as a tokenizer.json.

The metadata hold vocabulary, merges or scores, and token types; how text is split before merging is a name,
`tokenizer.ggml.pre`, whose meaning is written in llama.cpp (src/llama-vocab.cpp) and in the models' own tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from lmcore.errors import CheckpointError

_CONTROL, _USER_DEFINED = 3, 4

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# As Llama 3's, with each digit on its own.
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+END"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*END"
    r"|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = _WORDS.replace("END", "").replace("NUMBER", r"\p{N}")
_GPT4O = _WORDS.replace("END", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?").replace("NUMBER", r"\p{N}{1,3}")
# Splits by the name in tokenizer.ggml.pre, applied one after the other.
SPLITS = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais"), (_GPT2,)),
    # Each digit is a token of its own.
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), (r"\p{N}", _GPT2)),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "dbrx", "smaug-bpe"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), (_QWEN2,)),
    "chatglm-bpe": (_LLAMA3,),
    "glm4": (_LLAMA3,),
    "tekken": (_TEKKEN,),
    "gpt-4o": (_GPT4O,),
    "llama4": (_GPT4O,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
# A BOS that these add unless add_bos_token says otherwise, and their whole-word tokens win over merges.
_LLAMA3_NAMES = frozenset(name for name, splits in SPLITS.items() if splits == (_LLAMA3,)) - {
    "dbrx",
    "smaug-bpe",
    "chatglm-bpe",
    "glm4",
}


def rebuild(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF file. Raises CheckpointError when the metadata describe none that is known."""
    kind, tokens = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, tuple) or not tokens:
        raise _refused("there is no tokenizer.ggml.tokens", "a list of tokens")
    if not isinstance(kind, str) or kind not in ("gpt2", "llama"):
        raise _refused(f"tokenizer.ggml.model is {str(kind)[:40]!r}", "gpt2 or llama")
    if _by_order(metadata):
        # Gemma's runs of spaces are written as spaces in the file and as ▁ in its own vocabulary.
        tokens = tuple("▁" * len(token) if token.isspace() and set(token) == {" "} else token for token in tokens)
    vocab: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        vocab.setdefault(token, token_id)
    try:
        tokenizer = _byte_level(metadata, vocab) if kind == "gpt2" else _sentencepiece(metadata, vocab)
        _add_tokens(tokenizer, metadata)
        _add_bos(tokenizer, metadata, tokens)
    except CheckpointError:
        raise
    except Exception as error:  # the library raises bare Exception for a merge that makes no token, say
        raise _refused(
            f"the vocabulary and the merges do not fit together ({str(error)[:80]})", "a whole tokenizer"
        ) from error
    return tokenizer


def save(tokenizer: Tokenizer, metadata: Mapping[str, Any], folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, as `transformers` reads them too, and the chat template."""
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    names = {key: _special(metadata, key) for key in ("bos", "eos", "unknown", "padding")}
    config = {"bos_token": names["bos"], "eos_token": names["eos"], "unk_token": names["unknown"]}
    config |= {"pad_token": names["padding"], "tokenizer_class": "PreTrainedTokenizerFast"}
    text = json.dumps({key: value for key, value in config.items() if value is not None}, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    stops = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    generation = {"eos_token_id": [stop for stop in stops if isinstance(stop, int)]}
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _byte_level(metadata: Mapping[str, Any], vocab: dict[str, int]) -> Tokenizer:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if not isinstance(pre, str) or pre not in SPLITS:
        raise _refused(f"tokenizer.ggml.pre is {str(pre)[:40]!r}", "one of " + ", ".join(SPLITS))
    merges = [_pair(merge) for merge in metadata.get("tokenizer.ggml.merges", ())]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in _LLAMA3_NAMES))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[pre]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    """The two tokens of a merge; the first is at least one character, so a space in front belongs to it."""
    cut = merge.find(" ", 1)
    if cut < 0:
        raise _refused(f"the merge {merge[:40]!r} is not a pair", "two tokens with a space between them")
    return merge[:cut], merge[cut + 1 :]


def _sentencepiece(metadata: Mapping[str, Any], vocab: dict[str, int]) -> Tokenizer:
    """BPE by score, spaces as ▁ with one put in front unless the file says no, bytes for what the vocabulary lacks.

    As in llama.cpp and in the tokenizer.json of Llama 2, the space in front is unconditional.
    """
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    unk = next((token for token, token_id in vocab.items() if token_id == unknown), None)
    merges = metadata.get("tokenizer.ggml.merges")
    pairs = _merges_of_scores(metadata, vocab) if merges is None else [_pair(merge) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, unk_token=unk, fuse_unk=True, byte_fallback=True))
    spaced = metadata.get("tokenizer.ggml.add_space_prefix", True) is True
    steps = [normalizers.Prepend("▁")] if spaced else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if spaced else parts)
    return tokenizer


def _by_order(metadata: Mapping[str, Any]) -> bool:
    """Whether merges go by the order of the vocabulary, which Gemma's scores do not follow in user-defined tokens."""
    arch = metadata.get("general.architecture")
    return isinstance(arch, str) and arch.startswith("gemma") and metadata.get("tokenizer.ggml.model") == "llama"


def _merges_of_scores(metadata: Mapping[str, Any], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Merges, best first: SentencePiece merges the pair whose result has the best score; ties go by the parts' ids."""
    scores, by_order = metadata.get("tokenizer.ggml.scores"), _by_order(metadata)
    if scores is None or len(scores) < max(vocab.values()) + 1:
        raise _refused("there are neither merges nor a score for each token", "tokenizer.ggml.merges or scores")
    ranked = []
    values = [float(score) for score in scores]
    for token, token_id in vocab.items():
        for cut in range(1, len(token)):
            left, right = vocab.get(token[:cut]), vocab.get(token[cut:])
            if left is not None and right is not None:
                rank = (token_id, -cut) if by_order else (-values[token_id], token_id, left, right)
                ranked.append((rank, cut, token))
    ranked.sort()
    return [(token[:cut], token[cut:]) for _, cut, token in ranked]


def _add_tokens(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> None:
    """Mark control tokens as special and user-defined ones as whole, so that neither is cut into pieces."""
    types, tokens = metadata.get("tokenizer.ggml.token_type"), metadata["tokenizer.ggml.tokens"]
    special, whole = [], []
    for token, kind in zip(tokens, () if types is None else list(types), strict=False):
        # A token under another spelling in the vocabulary is reached by its merges.
        if kind in (_CONTROL, _USER_DEFINED) and token and tokenizer.token_to_id(token) is not None:
            added = AddedToken(token, normalized=False, special=kind == _CONTROL)
            (special if kind == _CONTROL else whole).append(added)
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(whole)


def _add_bos(tokenizer: Tokenizer, metadata: Mapping[str, Any], tokens: tuple[str, ...]) -> None:
    """Let the tokenizer put BOS and EOS around a text where the file, or else the convention of its kind, says so."""
    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    adds = sentencepiece or metadata.get("tokenizer.ggml.pre") in _LLAMA3_NAMES
    around = {
        "bos": metadata.get("tokenizer.ggml.add_bos_token", adds) is True,
        "eos": metadata.get("tokenizer.ggml.add_eos_token", False) is True,
    }
    names = {key: _special(metadata, key) for key, wanted in around.items() if wanted}
    found = {key: name for key, name in names.items() if name}
    if not found:
        return
    template = [found.get(key, key) for key in ("bos", "$A", "eos") if key in found or key == "$A"]
    special = [(name, tokens.index(name)) for name in found.values()]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)


def _special(metadata: Mapping[str, Any], key: str) -> str | None:
    """The spelling of the token whose id the metadata give as the `key` one (bos, eos, unknown, padding)."""
    token_id, tokens = metadata.get(f"tokenizer.ggml.{key}_token_id"), metadata.get("tokenizer.ggml.tokens", ())
    inside = isinstance(token_id, int) and 0 <= token_id < len(tokens)
    return tokens[token_id] if inside else None


def _refused(found: str, expected: str) -> CheckpointError:
    return CheckpointError(found, expected=expected, where="the tokenizer metadata of the GGUF file")
