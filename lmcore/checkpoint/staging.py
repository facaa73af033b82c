"""What comes into the user's cache from elsewhere than a download: uploaded files, and a GGUF file carried in parts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lmcore.checkpoint.cachefolder import cache_root, discard, publish, sweep, sync
from lmcore.checkpoint.sources import PICKLE_TODO, Fetched, Place, identity
from lmcore.errors import CapacityError, CheckpointError, InputError

MAX_UPLOAD_BYTES = 64 * 2**20
MAX_UPLOAD_FILES = 32
# An upload that nobody asked for again in this time is deleted when the next one comes.
KEEP_S = 7 * 24 * 3600
NAMES = frozenset(
    """config.json generation_config.json chat_template.jinja tokenizer.json tokenizer_config.json tokenizer.model
    special_tokens_map.json added_tokens.json vocab.json merges.txt model.safetensors.index.json""".split()
)
ENDINGS = (".safetensors", ".gguf")
_PLAIN = re.compile(r"[\w+-][\w+. -]{0,199}", re.ASCII)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".xz", ".zst")
_BLOCK = 2**20


@runtime_checkable
class Readable(Protocol):
    """An open file, as far as it is needed."""

    def read(self, size: int, /) -> bytes: ...


def stage_upload(files: Iterable[tuple[str, bytes | bytearray | memoryview | Readable]]) -> Path:
    """The folder, or the one GGUF or lone safetensors file, in the cache that holds uploaded (name, content) pairs.

    The same files come to the same place. Raises InputError for names that are not allowed, CapacityError for more
    than 64 MiB, and CheckpointError for a pickle, an archive, or a cache that cannot be written.
    """
    given = list(files)
    names = [name for name, _ in given]
    _refuse_names(names)
    parent = cache_root() / "uploads"
    with _writing(parent) as work:
        room, digests = MAX_UPLOAD_BYTES, {}
        for name, content in given:
            digests[name], size = _write(work / name, content, room)
            room -= size
        key = hashlib.sha256("".join(f"{name}\0{digests[name]}\n" for name in sorted(digests)).encode())
        target = parent / key.hexdigest()[:24]
        if _holds(target, digests):
            os.utime(target)
        else:
            discard(target)
            _settle(work, target, lambda folder: _holds(folder, digests))
    _sweep_old(parent, target)
    weights = [name for name in names if name.lower().endswith(ENDINGS)]
    alone = len(weights) == 1 and weights[0] != "model.safetensors" and "model.safetensors.index.json" not in names
    return target / weights[0] if alone else target


def joined(place: Place, progress: Callable[[int, int, str], None]) -> Fetched:
    """The GGUF file whose parts packages carry, joined in the cache once and checked against its SHA-256.

    Raises CheckpointError, and whatever `progress` raises.
    """
    assert place.package is not None
    package, total = place.package, sum(path.stat().st_size for path in place.parts)
    name = re.sub(r"\.part\d+$", "", place.parts[0].name)
    target = cache_root() / "joined" / package.sha256[:24]
    notes = (f"{package.terms}",) if package.terms else ()

    def whole(folder: Path) -> bool:
        # Checked in full when it was written; a file cut by hand afterwards has another size.
        return (folder / name).is_file() and (folder / name).stat().st_size == total

    if not whole(target):
        free = shutil.disk_usage(_existing(target)).free
        if total + 64 * 2**20 > free:
            raise CapacityError(
                f"the joined file needs {total:,} bytes on the disk and {free:,} are free",
                where=str(target.parent),
                todo="Free some space, or set GLASSBOX_CACHE to a folder on another disk.",
            )
        with _writing(target.parent) as work:
            digest = _join(place.parts, work / name, total, progress)
            if digest != package.sha256:
                raise CheckpointError(
                    f"the parts of {name} are damaged (SHA-256 {digest[:12]}...)",
                    expected=f"{package.sha256[:12]}...",
                    where=str(place.parts[0].parent),
                    todo="Install the packages again with --force-reinstall.",
                )
            discard(target)
            _settle(work, target, whole)
    path = target / name
    return Fetched(Place("gguf", path, identity(path)), notes)


def _join(parts: Iterable[Path], target: Path, total: int, progress: Callable[[int, int, str], None]) -> str:
    """Write the parts behind each other and return the SHA-256 of all."""
    digest, done = hashlib.sha256(), 0
    with target.open("wb") as out:
        for part in parts:
            with part.open("rb") as file:
                while block := file.read(4 * _BLOCK):
                    progress(done, total, "Joining the parts of the file")
                    out.write(block)
                    digest.update(block)
                    done += len(block)
    return digest.hexdigest()


@contextlib.contextmanager
def _writing(parent: Path) -> Iterator[Path]:
    """A temporary folder in `parent`; it is gone afterwards, and an OSError becomes a CheckpointError."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
        work = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(
            f"the cache folder cannot be written ({error.strerror or error})",
            where=str(parent),
            todo="Free some space, or set GLASSBOX_CACHE to another folder.",
        ) from error


def _settle(work: Path, target: Path, whole: Callable[[Path], bool]) -> None:
    for file in work.iterdir():
        sync(file)
    sync(work)
    publish(work, target, whole)


def _refuse_names(names: list[str]) -> None:
    if not names:
        raise InputError("nothing was uploaded", expected="config.json with safetensors, or one GGUF file")
    if len(names) > MAX_UPLOAD_FILES:
        raise InputError(f"{len(names)} files were uploaded", expected=f"at most {MAX_UPLOAD_FILES}")
    for name in names:
        ending = Path(name).suffix.lower()
        if ending in _PICKLES:
            raise CheckpointError(f"{name[:80]} is a pickle", expected="safetensors or GGUF", todo=PICKLE_TODO)
        if ending in _ARCHIVES:
            raise CheckpointError(
                f"{name[:80]} is an archive",
                expected="the files themselves",
                todo="Unpack it and upload what is in it.",
            )
        if not _PLAIN.fullmatch(name):
            raise InputError(f"{name[:80]!r} is no plain file name", expected="letters, digits, dots, dashes")
        if name not in NAMES and not name.lower().endswith(ENDINGS):
            raise InputError(
                f"{name[:80]} is not read",
                expected="*.safetensors, *.gguf, " + ", ".join(sorted(NAMES)),
                todo="Leave it out.",
            )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{twice[0]} was uploaded twice", expected="each file once")
    if any(name.lower().endswith(".gguf") for name in names) and len(names) > 1:
        raise InputError(
            f"a GGUF file came with {len(names) - 1} others", expected="one GGUF file alone", todo="Upload it alone."
        )


def _write(path: Path, content: Any, room: int) -> tuple[str, int]:
    """Write a content of at most `room` bytes; returns its SHA-256 and size."""
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        for block in _blocks(content):
            size += len(block)
            if size > room:
                raise CapacityError(
                    f"the upload has more than {MAX_UPLOAD_BYTES // 2**20} MiB",
                    expected="a small model",
                    todo="Give the path of the folder or file instead: nothing is copied then.",
                )
            file.write(block)
            digest.update(block)
    return digest.hexdigest(), size


def _blocks(content: Any) -> Iterator[bytes | memoryview]:
    if not hasattr(content, "read"):
        yield memoryview(content).cast("B")
        return
    if hasattr(content, "seekable") and content.seekable():
        content.seek(0)
    while block := content.read(_BLOCK):
        yield block


def _holds(folder: Path, digests: dict[str, str]) -> bool:
    """Whether a folder has these very files and no others."""
    try:
        if {path.name for path in folder.iterdir()} != set(digests):
            return False
        for name, digest in digests.items():
            with (folder / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return False
    except OSError:
        return False
    return True


def _sweep_old(parent: Path, keep: Path) -> None:
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):
            if folder != keep and folder.name[0] != "." and time.time() - folder.stat().st_mtime > KEEP_S:
                discard(folder)


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
