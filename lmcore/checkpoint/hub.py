"""Models of a hub, through `huggingface_hub` and its own cache: only the files that are needed, never code or a pickle.

The library does the asking, resuming and storing, in a thread of its own: whoever waits can cancel at any moment, even
while the network stands still. What it leaves in its cache is whole files only.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx2
from huggingface_hub import HfApi, constants, errors, hf_hub_download, try_to_load_from_cache
from huggingface_hub.utils import tqdm

from lmcore.checkpoint.files import CONFIG, INDEX, read_json
from lmcore.checkpoint.hub_errors import explained, host
from lmcore.checkpoint.hub_files import needed, not_here, only_gguf, refuse_absent, refuse_without_config
from lmcore.checkpoint.sources import Fetched, HubId, Place, identity
from lmcore.errors import CapacityError, CheckpointError

Progress = Callable[[int, int, str], None]

# A server that is there answers the first packet at once; what it then looks up may take it a while.
TIMEOUT_S = httpx2.Timeout(10, connect=3)
CHUNK_BYTES = 2**20
_POLL_S = 0.1
# Enough for a download that is under way to delete its unfinished file; one that stands still is not waited for.
_CLEANUP_S = 0.5


def fetch(place: Place, check: Callable[[Path], None], progress: Progress) -> Fetched:
    """The folder or the GGUF file of a model in the cache of `huggingface_hub`, downloaded now unless it is there.

    `check` is given the folder when its configs are there and may refuse it before the weights are downloaded. Raises
    CheckpointError or CapacityError, and within a moment whatever `progress` raises.
    """
    return _fetched(place, check, progress)


def fetch_config(place: Place, progress: Progress = lambda done, total, text: None) -> Fetched:
    """The folder in that cache that has the model's config.json, which alone is downloaded; a GGUF file if it is there
    already. Raises CheckpointError, also for a GGUF file that would have to be downloaded whole to read its header."""
    return _fetched(place, None, progress)


def _fetched(place: Place, check: Callable[[Path], None] | None, progress: Progress) -> Fetched:
    assert place.hub is not None
    # The Rust downloader of hf_xet, where it is installed, can be neither watched nor cancelled.
    constants.HF_HUB_DISABLE_XET = True
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    job = _Job(place.hub, endpoint, only_config=check is None)
    meter = job.meter
    thread = threading.Thread(target=job.run, name=f"fetch {place.hub}", daemon=True)
    thread.start()
    try:
        progress(0, 0, meter.text)
        while not job.finished.wait(_POLL_S):
            progress(meter.done, meter.total, meter.text)
            if check is not None and (asked := job.asked) is not None:
                # In this thread, because what it raises is for the caller.
                check(asked)
                job.asked = None
                job.answered.set()
    except BaseException:
        meter.stopped = True
        job.answered.set()
        thread.join(_CLEANUP_S)
        raise
    if isinstance(job.failure, CheckpointError | CapacityError):
        raise job.failure
    if job.failure is not None:
        raise explained(job.failure, place.hub, endpoint) from job.failure
    assert job.result is not None
    return job.result


class _Stopped(Exception):
    """Ends the thread that downloads when nobody waits for it any more."""


class _Meter:
    """How far a download is; written by its thread, read by the one that waits."""

    def __init__(self, text: str) -> None:
        self.done = self.total = 0
        self.text = text
        self.stopped = False

    def add(self, count: int) -> None:
        if self.stopped:
            raise _Stopped
        self.done += count
        if self.done > self.total:
            raise CheckpointError(
                f"the hub sends more than the {self.total:,} bytes that it announced", todo="Try another hub."
            )


class _Listing(NamedTuple):
    """The files of one commit, by name, with their sizes."""

    commit: str
    sizes: Mapping[str, int]


class _Job:
    """One download, in its thread."""

    def __init__(self, hub: HubId, endpoint: str, *, only_config: bool) -> None:
        self._hub, self._endpoint, self._only_config = hub, endpoint, only_config
        self.meter = _Meter(f"Asking {host(endpoint)}")
        self.finished, self.answered = threading.Event(), threading.Event()
        self.asked: Path | None = None
        self.result: Fetched | None = None
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._fetched()
        except BaseException as error:
            self.failure = error
        finally:
            self.finished.set()

    def _fetched(self) -> Fetched:
        try:
            listing = self._listing()
        except (errors.OfflineModeIsEnabled, httpx2.TransportError) as error:
            return self._kept(error)
        file = self._hub.file or only_gguf(self._hub, listing.sizes)
        if file is not None:
            refuse_absent(self._hub, file, listing.sizes)
            if self._only_config and self._cached(file, listing.commit) is None:
                raise not_here(self._hub, file)
            path = self._download([file], listing)
            return Fetched(Place("gguf", path, identity(path)), ())
        refuse_without_config(self._hub, listing.sizes)
        if self._only_config:
            return Fetched(Place("folder", self._download([CONFIG], listing).parent, ""), ())
        small, weights = needed(self._hub, listing.sizes)
        folder = self._download(small, listing).parent
        self._ask(folder)
        if INDEX in small:
            named = read_json(folder / INDEX).get("weight_map")
            # What an index names besides weights is left where it is; that it does is said when the folder is opened.
            wanted = set(map(str, named.values())) if isinstance(named, dict) else set()
            weights = [name for name in weights if name in wanted]
        self._download(weights, listing)
        return Fetched(Place("folder", folder, ""), ())

    def _listing(self) -> _Listing:
        info = HfApi(endpoint=self._endpoint).model_info(
            self._hub.repo, revision=self._hub.revision, files_metadata=True, timeout=cast(float, TIMEOUT_S)
        )
        sizes = {each.rfilename: each.size for each in info.siblings or () if each.size is not None}
        if not info.sha or (info.siblings and not sizes):
            raise ValueError("it names neither a commit nor sizes of files")
        return _Listing(info.sha, {name: size for name, size in sizes.items() if ".." not in name})

    def _download(self, names: list[str], listing: _Listing) -> Path:
        """The last of the files, all of which are in the cache now; the current folder for none."""
        missing = [name for name in names if self._cached(name, listing.commit) is None]
        self.meter.done, self.meter.total = 0, sum(listing.sizes[name] for name in missing)
        _refuse_full_disk(self.meter.total)
        path = ""
        for name in names:
            if self.meter.stopped:
                raise _Stopped
            self.meter.text = f"Downloading {name} ({listing.sizes[name] / 1e6:,.1f} MB)"
            # The first file is asked for by the name of the revision: the library then remembers which commit that is.
            first = name in (self._hub.file, CONFIG)
            revision = self._hub.revision if first else listing.commit
            path = hf_hub_download(
                self._hub.repo,
                name,
                revision=revision,
                endpoint=self._endpoint,
                etag_timeout=cast(float, TIMEOUT_S),
                tqdm_class=_bar(self.meter),
            )
        return Path(path)

    def _ask(self, folder: Path) -> None:
        """Wait for the caller's thread to say whether the weights are worth the download."""
        self.asked = folder
        self.answered.wait()
        if self.meter.stopped:
            raise _Stopped

    def _cached(self, name: str, revision: str | None) -> str | None:
        path = try_to_load_from_cache(self._hub.repo, name, revision=revision)
        return path if isinstance(path, str) else None

    def _kept(self, error: Exception) -> Fetched:
        """What an earlier download left in the cache, if it is whole; raises `error` otherwise."""
        path = self._cached(self._hub.file or CONFIG, self._hub.revision)
        if path is None:
            raise error
        folder = Path(path).parent
        note = f"{host(self._endpoint)} was not reached: the copy downloaded earlier, {folder.name[:12]}, was opened"
        if self._hub.file is not None:
            return Fetched(Place("gguf", Path(path), identity(Path(path))), (note,))
        if self._only_config:
            return Fetched(Place("folder", folder, ""), (note,))
        from lmcore.checkpoint.hf import open_weights  # only here: it imports torch

        try:
            with ExitStack() as stack:
                open_weights(folder, None, stack)
        except CheckpointError:
            raise error from None
        return Fetched(Place("folder", folder, ""), (note,))


def _bar(meter: _Meter) -> type[tqdm]:
    """A progress bar that shows nothing and tells the meter."""

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **(options | {"disable": True}))

        def update(self, n: float | None = 1) -> None:
            meter.add(int(n or 0))

    return Bar


def _refuse_full_disk(needed: int) -> None:
    folder = Path(constants.HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed + 64 * 2**20 > free:
        raise CapacityError(
            f"the download needs {needed:,} bytes on the disk and {free:,} are free",
            expected="room for the files",
            where=constants.HF_HUB_CACHE,
            todo="Free some space, or set HF_HOME to a folder on another disk.",
        )
