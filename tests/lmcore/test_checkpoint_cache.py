"""The cache of converted GGUF files: whole or not there, whatever kills, cancels, damages or doubles a conversion."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from lmcore.checkpoint import cachefolder, convert, load_pretrained
from lmcore.checkpoint.sources import resolve
from lmcore.errors import CapacityError, CheckpointError
from tests.lmcore.folders import refusal
from tests.lmcore.gguf_files import write_gguf
from tests.lmcore.tiny import hf_llama

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(path, hf_llama("gqa"))
    return path


@pytest.fixture
def file(source: Path, tmp_path: Path, cache: Path) -> Path:
    return Path(shutil.copy(source, tmp_path / "model.gguf"))


def good(file: Path) -> bool:
    """Whether the file opens to the numbers it was written from."""
    state, theirs = load_pretrained(file).model.state_dict(), hf_llama("gqa").state_dict()
    return all(torch.equal(state[name], theirs[name]) for name in state)


def kept(cache: Path) -> list[Path]:
    """Folders that a later start would look into."""
    return [path for path in (cache / "converted").iterdir() if not path.name.startswith(".")]


def left(cache: Path) -> list[Path]:
    """Folders of conversions that did not end."""
    return [path for path in (cache / "converted").iterdir() if path.name.startswith(".")]


def script(file: Path, when: int) -> str:
    """A process that converts, and sends itself SIGKILL at the n-th report of progress (never, for -1)."""
    return f"""
import os, signal
from lmcore.checkpoint import load_pretrained
calls = 0
def progress(done, total, text):
    global calls
    if calls == {when}:
        os.kill(os.getpid(), signal.SIGKILL)
    calls += 1
load_pretrained({str(file)!r}, progress=progress)
"""


@pytest.mark.parametrize("when", [0, 7, 30])
def test_a_killed_conversion_leaves_nothing_to_trust(file: Path, cache: Path, when: int) -> None:
    """30 is the last report, when all tensors are written but not yet flushed, and there is no marker."""
    done = subprocess.run([sys.executable, "-c", script(file, when)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert kept(cache) == []
    assert len(left(cache)) == 1
    assert good(file)
    assert len(kept(cache)) == 1


@pytest.mark.parametrize("step", ["_sync", "_write", "_publish", "_save_tokenizer", "write_float32"])
def test_a_crash_at_any_step_leaves_nothing_to_trust(
    file: Path, cache: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is done and then the process fails, once for each time the step is taken; nothing is cleaned up."""
    real, calls = getattr(convert, step), 0
    monkeypatch.setattr(convert.shutil, "rmtree", lambda *args, **options: None)

    class Crash(BaseException):
        pass

    for fatal in range(20):
        calls = 0

        def crashing(*args, fatal: int = fatal) -> object:
            nonlocal calls
            result = real(*args)
            calls += 1
            if calls > fatal:
                raise Crash
            return result

        monkeypatch.setattr(convert, step, crashing)
        try:
            load_pretrained(file)
        except Crash:
            monkeypatch.setattr(convert, step, real)
            # Either nothing stands in the place of the conversion, or all of it does.
            assert all(convert.record(folder) for folder in kept(cache))
            assert good(file)
            real_rmtree(cache / "converted")
        else:
            assert fatal
            return
    pytest.fail("the step has no end")


real_rmtree = shutil.rmtree


@pytest.mark.parametrize("at", [0, 5, 30])
def test_cancelling_cleans_up(file: Path, cache: Path, at: int) -> None:
    class Stop(BaseException):
        pass

    seen = []

    def progress(done: int, total: int, text: str) -> None:
        seen.append((done, total))
        if len(seen) > at:
            raise Stop

    with pytest.raises(Stop):
        load_pretrained(file, progress=progress)
    assert kept(cache) == left(cache) == []
    assert seen == sorted(seen)
    assert good(file)


def test_converted_once(file: Path, cache: Path) -> None:
    assert good(file)
    calls = []
    load_pretrained(file, progress=lambda *step: calls.append(step))
    assert calls == []


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "conversion.json"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_damaged_conversion_is_made_again(file: Path, cache: Path, name: str, how: str) -> None:
    assert good(file)
    damaged = kept(cache)[0] / name
    if how == "cut":
        os.truncate(damaged, 10)
    else:
        damaged.unlink()
    assert good(file)
    assert len(kept(cache)) == 1
    assert left(cache) == []


def test_a_changed_file_is_converted_again_and_the_old_conversion_dropped(file: Path, cache: Path) -> None:
    load_pretrained(file)
    (old,) = kept(cache)
    write_gguf(file, hf_llama("mqa"))
    assert load_pretrained(file).model.cfg.n_kv_heads == 1
    (new,) = kept(cache)
    assert new != old


def test_another_converter_version_is_another_conversion(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = convert.folder_of(resolve(file))
    monkeypatch.setattr(convert, "CONVERTER_VERSION", convert.CONVERTER_VERSION + 1)
    assert convert.folder_of(resolve(file)) != before


def test_two_processes_at_once(file: Path, cache: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", script(file, -1)], cwd=ROOT) for _ in range(2)]
    assert [process.wait(120) for process in running] == [0, 0]
    assert len(kept(cache)) == 1
    assert left(cache) == []
    assert good(file)


def test_threads_that_finish_in_the_same_moment(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have built their conversion before the first one is put in its place."""
    barrier, real, failures = threading.Barrier(4), convert._publish, []

    def together(work: Path, target: Path) -> None:
        barrier.wait(60)
        real(work, target)

    monkeypatch.setattr(convert, "_publish", together)

    def opened() -> None:
        if not good(file):
            failures.append(1)

    threads = [threading.Thread(target=opened) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(kept(cache)) == 1
    assert left(cache) == []


def test_what_killed_conversions_left_is_swept_when_old(file: Path, cache: Path) -> None:
    old, young = cache / "converted" / ".dead-1", cache / "converted" / ".alive-2"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x")
    long_ago = time.time() - 2 * cachefolder.STALE_S
    for path in (old / "model.safetensors", old):
        os.utime(path, (long_ago, long_ago))
    load_pretrained(file)
    assert not old.exists()
    assert young.exists()


def test_a_full_disk_is_refused_before_anything_is_written(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(cache)._replace(free=1000)
    monkeypatch.setattr(convert.shutil, "disk_usage", lambda path: usage)
    assert "1,000 are free" in refusal(file, CapacityError)
    assert kept(cache) == left(cache) == []


def test_a_cache_that_cannot_be_written_says_so(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("GLASSBOX_CACHE", str(cache / "file"))
    assert "GLASSBOX_CACHE" in refusal(file, CheckpointError)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GLASSBOX_CACHE", str(tmp_path / "own"))
    assert cachefolder.cache_root() == tmp_path / "own"
    monkeypatch.delenv("GLASSBOX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cachefolder.cache_root() == tmp_path / "glassbox"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cachefolder.cache_root() == Path.home() / ".cache" / "glassbox"


def test_memory_is_checked_before_conversion(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmcore.checkpoint import load

    monkeypatch.setattr(load, "available_bytes", lambda device: 1234)
    message = refusal(file, CapacityError)
    assert "1,234" in message
    assert kept(cache) == left(cache) == []
