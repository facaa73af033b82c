"""What went wrong between here and a hub, in our words: what happened and what to do."""

from __future__ import annotations

import errno

import httpx2
from huggingface_hub import constants, errors

from lmcore.checkpoint.sources import HubId
from lmcore.errors import CheckpointError


def host(endpoint: str) -> str:
    """The name of a hub, as in "huggingface.co"."""
    return endpoint.split("://")[-1]


def explained(error: BaseException, hub: HubId, endpoint: str) -> CheckpointError:
    """The CheckpointError for what `huggingface_hub` raised when it was asked for a model."""
    name, page = host(endpoint), f"{endpoint}/{hub.repo}"
    sign_in = "run `hf auth login`, or start with HF_TOKEN set"
    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # "neither on the hub nor in the cache": the reason why not on the hub
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else 0
    if isinstance(error, errors.GatedRepoError):
        return CheckpointError(
            f"{hub.repo} is gated: its owner wants terms accepted first",
            expected="access to it",
            where=page,
            todo=f"Accept them there, then {sign_in}.",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return CheckpointError(
            f"{hub.repo} has no revision {hub.revision!r}", expected="a branch, tag or commit", where=page
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status == 404:
        return CheckpointError(
            f"{hub.repo} is neither a folder here nor a public model on {name}",
            expected="a path, or owner/name as on the model's page",
            todo=f"Check the spelling. If it is private, {sign_in}.",
        )
    if status in (401, 403):
        return CheckpointError(
            f"{name} refuses access to {hub.repo} ({status})",
            expected="a valid token",
            where=page,
            todo=f"The token may be out of date: {sign_in}.",
        )
    if status == 429:
        assert isinstance(error, errors.HfHubHTTPError)
        wait = error.response.headers.get("Retry-After", "")
        return CheckpointError(
            f"{name} answers no more requests from here for now (429)",
            expected="fewer requests",
            todo=f"Try again in {wait} seconds." if wait.isdecimal() else "Try again in some minutes.",
        )
    if status:
        return CheckpointError(f"{name} answered with an error ({status})", todo="Try again later.")
    if isinstance(error, errors.OfflineModeIsEnabled):
        return CheckpointError(
            f"HF_HUB_OFFLINE is set and {hub} was not downloaded before", todo="Start without HF_HUB_OFFLINE."
        )
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
        slow = isinstance(error, httpx2.TimeoutException)
        return CheckpointError(
            f"{name} {'does not answer' if slow else 'cannot be reached'}, and {hub} was not downloaded before",
            expected="a connection to the hub",
            todo="Check the network, a proxy and HF_ENDPOINT; or load a folder or a file from this machine.",
        )
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
        return CheckpointError(
            f"the download cannot be written ({error.strerror})",
            where=constants.HF_HUB_CACHE,
            todo="Free some space, or set HF_HOME to another folder.",
        )
    return CheckpointError(
        f"the download of {hub} failed ({' '.join(str(error).split())[:160]})", where=name, todo="Try again."
    )
