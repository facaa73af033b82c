"""The config of a source without its weights: of a folder, of a GGUF file's header, of a hub. No torch."""

from __future__ import annotations

from pathlib import Path

from lmcore.checkpoint import builtin_config
from lmcore.checkpoint.files import CONFIG, raw_config
from lmcore.checkpoint.gguf import GGUFFile, rope_factors
from lmcore.checkpoint.sources import BUILTIN, Place, resolve
from lmcore.config import ModelConfig
from lmcore.errors import NotInModel
from lmcore.families import config_from_hf
from lmcore.gguf_config import WHERE, hf_from_gguf
from lmcore.presets import described


def config_of(source: str | Path) -> ModelConfig:
    """What `load_pretrained` would build for a source, as far as its config says it: no tensor is read.

    Of a hub config.json alone is downloaded. Weights that could not be loaded (quantised ones, pickles, none at all)
    are no obstacle. A head that the config calls tied and the file has apart is only found when weights are read.
    Raises CheckpointError or ConfigError as loading does, NotInModel for a file that has to be put together first.
    """
    if isinstance(source, str) and (found := described(source)) is not None:
        return found.config
    place = resolve(source)
    if place.kind == BUILTIN:
        return builtin_config.config()
    if place.kind == "hub":
        from lmcore.checkpoint import hub  # only here: it imports an HTTP client

        place = hub.fetch_config(place).place
    if place.path is None:
        raise NotInModel(
            f"{source} comes in parts: its config is not known before it is opened",
            todo="Open it on any page that runs a model, or choose a preset here.",
        )
    return _of_gguf(place) if place.kind == "gguf" else _of_folder(place, place.path)


def _of_gguf(place: Place) -> ModelConfig:
    assert place.path is not None
    with GGUFFile(place.path) as file:
        return config_from_hf(hf_from_gguf(file.metadata, file.shapes, rope_factors(file)), WHERE)[0]


def _of_folder(place: Place, path: Path) -> ModelConfig:
    folder = path.parent if place.kind == "safetensors" else path
    return config_from_hf(raw_config(folder), str(folder / CONFIG))[0]
