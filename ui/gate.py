"""The gate to torch: imported once, by one thread at a time, and out of the garbage collector's sight afterwards."""

from __future__ import annotations

import gc
import os
from threading import Lock

_IMPORTS = Lock()
_imported = False


def ready() -> bool:
    """Whether torch and the model code are imported."""
    return _imported


def import_torch() -> None:
    """The first import of torch and the model code; every later call returns at once."""
    global _imported
    with _IMPORTS:
        if _imported:
            return
        import torch

        import lmcore.checkpoint.load
        import lmcore.decode  # noqa: F401

        cores = os.cpu_count() or 1
        torch.set_num_threads(min(torch.get_num_threads(), max(2, cores // 2)))
        _imported = True
    settle()


def settle() -> None:
    """Free what is no longer used, then take all that stays out of the sight of the collector's every later pass."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
