"""Models of a hub, downloaded from one that the test serves itself: what is asked for, what is said, what is left."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save

from lmcore import load_pretrained
from lmcore.checkpoint import load, sources
from lmcore.checkpoint.config_of import config_of
from lmcore.checkpoint.sources import HubId, hub_id
from lmcore.errors import CapacityError, CheckpointError, ConfigError
from tests.lmcore.fake_hub import COMMIT, FakeHub, files_of
from tests.lmcore.folders import refusal
from tests.lmcore.gguf_files import write_gguf
from tests.lmcore.tiny import hf_llama, ours, tiny_tokens

REPO = "someone/tiny-llama"


@pytest.fixture
def hub_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the library's, no token, and no network but the test's own server."""
    path = tmp_path_factory.mktemp("hub")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(path))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def hub(folder: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one model: a tiny LLaMA in one file, and beside it what must not be fetched."""
    files = files_of(folder) | dict.fromkeys(
        ("README.md", "pytorch_model.bin", "modeling_custom.py", "training_args.pt", "onnx/model.onnx"), b"not for us"
    )
    server = FakeHub(REPO, files)
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    huggingface_hub.close_session()
    yield server
    server.close()


def logits(source: str) -> torch.Tensor:
    return load_pretrained(source).model(tiny_tokens()).logits


def snapshot(cache: Path) -> Path:
    return cache / "models--someone--tiny-llama" / "snapshots" / COMMIT


def unfinished(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if "incomplete" in path.name and path.is_file()]


@pytest.mark.parametrize("source", [REPO, f"hub:{REPO}", f"{REPO}@main", f"{REPO}@{COMMIT}"])
def test_a_hub_id_is_the_model_and_only_what_it_needs_is_fetched(hub: FakeHub, hub_cache: Path, source: str) -> None:
    loaded = load_pretrained(source)
    assert torch.equal(loaded.model(tiny_tokens()).logits, ours(hf_llama("gqa"))(tiny_tokens()).logits)
    assert hub.downloaded() == ["config.json", "generation_config.json", "model.safetensors"]
    assert {path.name for path in snapshot(hub_cache).iterdir()} == set(hub.downloaded())
    assert loaded.report.source == source
    assert COMMIT in loaded.report.path


def test_the_second_time_nothing_is_downloaded_and_without_a_network_the_copy_is_opened(hub: FakeHub) -> None:
    first = logits(REPO)
    fetched = len(hub.downloaded())
    assert torch.equal(logits(REPO), first)
    assert len(hub.downloaded()) == fetched
    hub.close()
    huggingface_hub.close_session()
    loaded = load_pretrained(REPO)
    assert torch.equal(loaded.model(tiny_tokens()).logits, first)
    assert any("was not reached" in note and COMMIT[:12] in note for note in loaded.report.assumptions)


def test_shards_are_those_of_the_index(hub: FakeHub, tmp_path: Path) -> None:
    hf_llama("gqa").save_pretrained(tmp_path / "sharded", max_shard_size="100KB")
    stray = {"consolidated.safetensors": b"not for us", "model-00001-of-00009.safetensors": b"nor this"}
    hub.files = files_of(tmp_path / "sharded") | stray
    assert len([name for name in hub.files if "-of-" in name]) > 2
    assert torch.equal(logits(REPO), ours(hf_llama("gqa"))(tiny_tokens()).logits)
    assert not set(stray) & set(hub.downloaded())


def test_an_index_that_names_files_elsewhere_fetches_nothing_there(hub: FakeHub) -> None:
    del hub.files["model.safetensors"]
    hub.files["model-00001-of-00001.safetensors"] = b"x"
    hub.files["model.safetensors.index.json"] = (
        b'{"weight_map": {"a": "../../../etc/passwd", "b": "modeling_custom.py"}}'
    )
    assert "not a plain file name" in refusal(REPO)
    assert "modeling_custom.py" not in hub.downloaded()


def test_a_gguf_file_by_name_or_the_only_one(hub: FakeHub, cache: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", hf_llama("gqa"))
    data = (tmp_path / "x.gguf").read_bytes()
    expected = logits(str(tmp_path / "x.gguf"))
    hub.files["model-f32.gguf"] = data
    assert torch.equal(logits(f"hub:{REPO}/model-f32.gguf"), expected)
    assert hub.downloaded() == ["model-f32.gguf"]
    hub.files = {"model-f32.gguf": data, "README.md": b""}
    assert torch.equal(logits(REPO), expected)
    hub.files["model-q8.gguf"] = data
    assert f"hub:{REPO}/model-q8.gguf" in refusal(REPO)
    assert "no file other.gguf" in refusal(f"hub:{REPO}/other.gguf")
    hub.close()
    huggingface_hub.close_session()
    assert torch.equal(logits(f"hub:{REPO}/model-f32.gguf"), expected)


def test_progress_counts_the_bytes(hub: FakeHub) -> None:
    seen: list[tuple[int, int, str]] = []
    hub.files["model.safetensors"] = padded(3 * 2**20)
    hub.pause_s = 0.01
    load_pretrained(REPO, progress=lambda *report: seen.append(report))
    weights = [(done, total) for done, total, text in seen if "Downloading model.safetensors" in text]
    assert {total for _, total in weights} == {len(hub.files["model.safetensors"])}
    done = [done for done, _ in weights]
    assert done == sorted(done)
    assert len(set(done)) > 2
    assert "127.0.0.1" in seen[0][2]


def padded(size: int) -> bytes:
    """The model's weights with a tensor that nothing uses."""
    tensors = {name: tensor.contiguous() for name, tensor in hf_llama("gqa").state_dict().items()}
    tensors["padding.weight"] = torch.zeros(size // 4)
    return save(tensors, {"format": "pt"})


class Stop(Exception):
    pass


@pytest.mark.parametrize("stage", ["Asking", "Downloading model"])
def test_cancelling_takes_effect_at_once_and_leaves_whole_files_only(hub: FakeHub, hub_cache: Path, stage: str) -> None:
    """Also while the server says nothing: it is slow to answer, or slow to send."""
    hub.files["model.safetensors"] = padded(8 * 2**20)
    if stage == "Asking":
        hub.delay_s = 4
    else:
        hub.pause_s = 0.1
    asked = 0.0

    def progress(done: int, total: int, text: str) -> None:
        nonlocal asked
        if text.startswith(stage):
            asked = time.monotonic()
            raise Stop

    with pytest.raises(Stop):
        load_pretrained(REPO, progress=progress)
    assert time.monotonic() - asked < 1.5
    weights = snapshot(hub_cache) / "model.safetensors"
    assert not weights.exists()
    hub.delay_s = hub.pause_s = 0
    for _ in range(100):
        if not unfinished(hub_cache) and not any(t.name.startswith("fetch ") for t in threading.enumerate()):
            break
        time.sleep(0.1)
    assert unfinished(hub_cache) == []
    assert torch.equal(logits(REPO), ours(hf_llama("gqa"))(tiny_tokens()).logits)
    assert weights.stat().st_size == len(hub.files["model.safetensors"])


def test_a_download_that_was_cut_short_is_not_opened_without_a_network(hub: FakeHub, hub_cache: Path) -> None:
    def progress(done: int, total: int, text: str) -> None:
        if text.startswith("Downloading model"):
            raise Stop

    hub.files["model.safetensors"], hub.pause_s = padded(2**21), 0.05
    with pytest.raises(Stop):
        load_pretrained(REPO, progress=progress)
    assert (snapshot(hub_cache) / "config.json").exists()
    hub.close()
    huggingface_hub.close_session()
    assert "was not downloaded before" in refusal(REPO)


def fails(hub: FakeHub, status: int, **headers: str) -> None:
    hub.status, hub.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (403, {"X_Error_Code": "GatedRepo"}, ["gated", "terms", "hf auth login", f"/{REPO}"]),
        (401, {"X_Error_Code": "GatedRepo"}, ["gated", "HF_TOKEN"]),
        (401, {"X_Error_Code": "RepoNotFound"}, ["neither a folder here nor a public model", "Check the spelling"]),
        (404, {}, ["neither a folder here nor a public model"]),
        (401, {"X_Error_Message": "Invalid credentials in Authorization header"}, ["refuses access", "token"]),
        (403, {}, ["refuses access"]),
        (429, {"Retry_After": "17"}, ["no more requests", "17 seconds"]),
        (429, {}, ["some minutes"]),
        (503, {}, ["503", "Try again later"]),
    ],
)
def test_what_a_hub_refuses_is_said_quickly(hub: FakeHub, status: int, headers: dict, words: list[str]) -> None:
    fails(hub, status, **headers)
    started = time.monotonic()
    message = refusal(REPO)
    assert time.monotonic() - started < 2
    for word in words:
        assert word in message


def test_a_revision_that_is_not_there(hub: FakeHub) -> None:
    assert "no revision 'v9'" in refusal(f"{REPO}@v9")


def test_no_network_is_said_quickly(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        started = time.monotonic()
        message = refusal(REPO)
    assert time.monotonic() - started < 2
    assert "cannot be reached" in message
    assert "HF_ENDPOINT" in message


def test_offline_mode_asks_nothing(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    huggingface_hub.close_session()
    assert "HF_HUB_OFFLINE" in refusal(REPO)
    assert hub.asked == []


@pytest.mark.parametrize("endpoint", ["", "not an address", "ftp://127.0.0.1", "http://"])
def test_an_endpoint_that_is_none(hub_cache: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert refusal(REPO)


@pytest.mark.parametrize("listing", [b"<html>hello</html>", b"[]", b'{"id": "a/b"}', b"{}"])
def test_a_server_that_is_no_hub(hub: FakeHub, listing: bytes) -> None:
    hub.listing = listing
    assert "failed" in refusal(REPO)


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "pickle"),
        ({"config.json": b"{}"}, "no weights"),
        ({"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}, "adapter"),
        ({"README.md": b"x"}, "no config.json"),
        ({"big-00001-of-00002.gguf": b"x"}, "split"),
        ({}, "no config.json"),
    ],
)
def test_models_without_what_is_needed_are_refused_before_a_download(
    hub: FakeHub, files: dict[str, bytes], word: str
) -> None:
    hub.files = files
    assert word in refusal(REPO)
    assert hub.downloaded() == []


def test_a_model_that_does_not_fit_is_refused_before_its_weights(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "available_bytes", lambda device: 1000)
    assert "1,000 are free" in refusal(REPO, CapacityError)
    assert "model.safetensors" not in hub.downloaded()


def test_an_unknown_architecture_is_refused_before_its_weights(hub: FakeHub) -> None:
    hub.files["config.json"] = b'{"model_type": "zorblax"}'
    assert "zorblax" in refusal(REPO, ConfigError)
    assert "model.safetensors" not in hub.downloaded()


def test_a_full_disk_is_refused_before_the_download(hub: FakeHub) -> None:
    hub.sizes["config.json"] = 10**18
    assert "are free" in refusal(REPO, CapacityError)
    assert hub.downloaded() == []


def test_a_hub_that_sends_more_or_less_than_it_announced(hub: FakeHub, hub_cache: Path) -> None:
    hub.sizes["model.safetensors"] = 1000
    assert "sends more" in refusal(REPO)
    assert not (snapshot(hub_cache) / "model.safetensors").exists()
    assert unfinished(hub_cache) == []


def test_a_config_is_read_without_the_weights(hub: FakeHub, hub_cache: Path) -> None:
    """config.json alone is asked for; then also when nobody answers; a load afterwards fetches what is missing."""
    found = config_of(REPO)
    assert hub.downloaded() == ["config.json"]
    hub.close()
    assert config_of(f"hub:{REPO}") == found


def test_a_config_that_no_hub_has_is_refused(hub: FakeHub, folder: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a folder here nor a public model"):
        config_of("someone/else")
    hub.files.pop("config.json")
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        config_of(REPO)


def test_a_gguf_file_of_a_hub_gives_its_config_once_it_is_here(hub: FakeHub, tmp_path: Path, cache: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", hf_llama("gqa"))
    hub.files = {"tiny.gguf": (tmp_path / "tiny.gguf").read_bytes()}
    with pytest.raises(CheckpointError, match=r"tiny\.gguf of someone/tiny-llama is not on this machine"):
        config_of(REPO)
    assert hub.downloaded() == []
    loaded = load_pretrained(REPO)
    assert config_of(REPO) == loaded.model.cfg


def test_which_texts_are_hub_ids() -> None:
    assert hub_id("a/b.c-d_e") == HubId("a/b.c-d_e")
    assert hub_id("a/b@refs/pr/2/sub/x.gguf") == HubId("a/b", "refs/pr/2", "sub/x.gguf")
    assert hub_id("https://huggingface.co/a/b/blob/main/x.gguf?download=true") == HubId("a/b", "main", "x.gguf")
    for text in ("a", "a/b/c", "./a/b", "/a/b", "~/a", "a/..", "a/b@../x", "a/b/../x.gguf", "a\\b/c", "a/b\n", "é/b"):
        assert hub_id(text) is None


def test_a_folder_of_that_name_is_the_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert sources.resolve(f"../{folder.parent.name}/{folder.name}").kind == "folder"
    (folder / "sub").mkdir()
    assert sources.resolve(f"{folder.name}/sub").kind == "folder"
    assert sources.resolve(f"hub:{folder.name}/sub").kind == "hub"
    with pytest.raises(CheckpointError, match="names no model"):
        sources.resolve("hub:sub")
