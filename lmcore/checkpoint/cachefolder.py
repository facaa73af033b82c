"""The user's cache folder, and how a folder gets into it whole: built beside its place, flushed, renamed there."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lmcore.errors import CheckpointError

# Whoever builds a folder writes all the time. A temporary folder this long untouched was left by a killed process.
STALE_S = 600


def cache_root() -> Path:
    """The cache folder: GLASSBOX_CACHE, else `glassbox` in XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("GLASSBOX_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "glassbox"


def publish(work: Path, target: Path, whole: Callable[[Path], bool]) -> None:
    """Rename the finished folder to its place. When another process was first with a whole one, that one stays."""
    for _ in range(3):
        try:
            os.rename(work, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if whole(target):
                return
            discard(target)  # damaged after it was written: a file deleted or cut by hand
        else:
            sync(target.parent)
            return
    raise CheckpointError("the cache folder changes while it is written to", where=str(target))


def discard(folder: Path) -> None:
    """Take a folder out of its place in one step, then delete it."""
    with contextlib.suppress(OSError):
        aside = tempfile.mkdtemp(prefix=".old-", dir=folder.parent)
        try:
            os.rename(folder, Path(aside) / folder.name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Delete what killed processes left behind."""
    for folder in parent.glob(".*"):
        with contextlib.suppress(OSError):
            newest = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
            if time.time() - newest > STALE_S:
                shutil.rmtree(folder, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk (Windows cannot do the latter)."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
