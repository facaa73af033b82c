"""Which files of a hub's listing a model needs, and what is wrong with a listing that has not got them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lmcore.checkpoint.files import CONFIG, INDEX, SINGLE
from lmcore.checkpoint.sources import PICKLE_TODO, HubId
from lmcore.errors import CheckpointError

_CONFIGS = (CONFIG, "generation_config.json")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_OLD_TOKENIZER = ("tokenizer.model", "vocab.json", "merges.txt")
_PICKLES = (".bin", ".pt", ".pth")
_SPLIT = "-of-"


def _top(sizes: Iterable[str], endings: tuple[str, ...]) -> list[str]:
    return sorted(name for name in sizes if name.endswith(endings) and "/" not in name)


def only_gguf(hub: HubId, sizes: Mapping[str, int]) -> str | None:
    """The GGUF file of a model that has nothing else; None when there are safetensors or a config alone."""
    files = sorted(name for name in sizes if name.endswith(".gguf"))
    if not files or _top(sizes, (".safetensors",)):
        return None
    if len(files) == 1:
        return files[0]
    raise CheckpointError(
        f"{hub} has {len(files)} GGUF files",
        expected="the name of one",
        todo="Name it: " + ", ".join(f"hub:{hub._replace(file=name)}" for name in files[:6]) + ".",
    )


def refuse_absent(hub: HubId, file: str, sizes: Mapping[str, int]) -> None:
    if file not in sizes:
        others = sorted(name for name in sizes if name.endswith(".gguf"))
        raise CheckpointError(
            f"{hub.repo} has no file {file}", expected="one of " + ", ".join(others[:8]) if others else "a GGUF file"
        )
    if _SPLIT in file:
        raise CheckpointError(
            f"{file} is one part of a GGUF file that was split", expected="a file in one piece", where=str(hub)
        )


def not_here(hub: HubId, file: str) -> CheckpointError:
    return CheckpointError(
        f"{file} of {hub.repo} is not on this machine, and a GGUF file has its config inside",
        expected="a config.json on the hub, or a file that was downloaded",
        todo="Open the model on any page that runs one, which downloads it, or name the model that it was made from.",
    )


def refuse_without_config(hub: HubId, sizes: Mapping[str, int]) -> None:
    if CONFIG not in sizes:
        adapter = "adapter_config.json" in sizes
        raise CheckpointError(
            f"{hub} is an adapter, not a whole model" if adapter else f"{hub} has no config.json",
            expected="config.json and safetensors, or a GGUF file",
            todo="Name the model it was made for." if adapter else "Choose another model.",
        )


def needed(hub: HubId, sizes: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """The small files (configs, tokenizer, index) and the weight files of a model. Raises CheckpointError for none."""
    weights = _top(sizes, (".safetensors",))
    if not weights:
        pickles = _top(sizes, _PICKLES)
        raise CheckpointError(
            f"the weights of {hub} are only there as a pickle ({pickles[0]})" if pickles else f"{hub} has no weights",
            expected="safetensors or GGUF",
            todo=PICKLE_TODO if pickles else "Choose another model.",
        )
    tokenizer = _TOKENIZER if _TOKENIZER[0] in sizes else (*_TOKENIZER, *_OLD_TOKENIZER)
    small = [name for name in (*_CONFIGS, *tokenizer, "chat_template.jinja") if name in sizes]
    if SINGLE in sizes:
        return small, [SINGLE]
    if INDEX in sizes:
        return [*small, INDEX], weights
    return small, weights
