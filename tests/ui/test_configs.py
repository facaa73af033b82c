"""Configs that the calculators read without opening a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmcore import presets
from lmcore.checkpoint import config_of as reading
from lmcore.errors import CheckpointError, InputError
from ui import configs

RAW = json.loads(presets.preset("gpt2").file.read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(RAW))
    return tmp_path


def test_a_typed_folder_is_read_and_read_again_when_it_changes(folder: Path) -> None:
    name, found = configs.named(configs.TYPED, typed=f" {folder} ")
    assert (name, found) == (folder.name, presets.shipped("gpt2").config)
    (folder / "config.json").write_text(json.dumps(RAW | {"n_layer": 3}) + " ")
    assert configs.named(configs.TYPED, typed=str(folder)).config.n_layers == 3


def test_nothing_typed_and_nothing_there_say_what_to_do(folder: Path) -> None:
    with pytest.raises(InputError, match="no model is named") as caught:
        configs.named(configs.TYPED, typed="  ")
    assert "Type one" in caught.value.todo
    found, (error,) = configs.known([configs.TYPED, "GPT-2"], typed=str(folder / "nowhere"))
    assert [one.name for one in found] == ["GPT-2"]
    assert isinstance(error, CheckpointError)
    assert error.todo


def test_a_hub_that_refuses_is_not_asked_at_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(source: str) -> None:
        asked.append(source)
        raise CheckpointError("the hub is away", todo="Try again later.")

    monkeypatch.setattr(reading, "config_of", refuse)
    for _ in range(3):
        with pytest.raises(CheckpointError, match="is away"):
            configs.named(configs.TYPED, typed="someone/away")
    assert asked == ["someone/away"]
    monkeypatch.setattr(configs, "RETRY_S", 0.0)
    with pytest.raises(CheckpointError):
        configs.named(configs.TYPED, typed="someone/away")
    assert len(asked) == 2


def test_two_models_of_one_name_stay_apart(folder: Path) -> None:
    (folder / "GPT-2").mkdir()
    (folder / "GPT-2" / "config.json").write_text(json.dumps(RAW))
    found, errors = configs.known(["GPT-2", configs.TYPED], typed=str(folder / "GPT-2"))
    assert [one.name for one in found] == ["GPT-2", "GPT-2 (2)"]
    assert not errors
