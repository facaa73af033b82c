"""Where a model runs and in which number format: CUDA, then MPS, then CPU. Imports torch only when asked a question."""

from __future__ import annotations

from pathlib import Path

from lmcore.errors import InputError

# Bytes of one number of each dtype a model can run in.
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
_CGROUP = Path("/sys/fs/cgroup")


def devices() -> list[str]:
    """The devices of this machine, best first; the CPU is always the last."""
    import torch

    found = ["cuda"] if torch.cuda.is_available() else []
    found += ["mps"] if torch.backends.mps.is_available() else []
    return [*found, "cpu"]


def pick_device(wanted: str | None = None) -> str:
    """The best device, or the wanted one. Raises InputError when this machine does not have it."""
    found = devices()
    if wanted is None:
        return found[0]
    if wanted.partition(":")[0] not in found:
        raise InputError(
            f"device {wanted!r} is not here", expected="one of " + ", ".join(found), where="the device setting"
        )
    return wanted


def default_dtype(device: str) -> str:
    """bfloat16 on CUDA, where it is the fast format; float32 elsewhere, where it costs least and rounds least."""
    return "bfloat16" if device.partition(":")[0] == "cuda" else "float32"


def pick_dtype(wanted: str | None, device: str) -> str:
    """The default dtype of the device, or the wanted one. Raises InputError for one that no model runs in here."""
    if wanted is None:
        return default_dtype(device)
    if wanted not in DTYPES:
        raise InputError(
            f"dtype {wanted!r} is not known", expected="one of " + ", ".join(DTYPES), where="the dtype setting"
        )
    return wanted


def available_bytes(device: str) -> int:
    """Memory that a new model may take on a device: free CUDA memory, else the available memory of this machine."""
    if device.partition(":")[0] == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    import psutil

    return min(psutil.virtual_memory().available, _cgroup_bytes(_CGROUP))


def _cgroup_bytes(root: Path) -> int:
    """What a container's limit (cgroup v2) leaves. psutil sees the whole machine, the kernel kills at the limit.

    Page cache counts as used but is given back under pressure, so the inactive part of it is taken off.
    """
    try:
        limit = int((root / "memory.max").read_text())
        used = int((root / "memory.current").read_text())
        stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(stat.get("inactive_file", "0")))
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return 2**63 - 1
