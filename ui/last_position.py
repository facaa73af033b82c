"""What every part of the model wrote at the last position of a text, of which the parts of its logits are made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ui import runs
from ui.lru import ByteLRU
from ui.models import Opened

STAGES = ("z", "attn_out", "ffn_out")


@dataclass(frozen=True, eq=False)
class LastPosition:
    """embedding (D,), z (L, H, Dv), attn_out and ffn_out (L, D), resid (D,) after the last layer, logits (V,)."""

    embedding: np.ndarray
    z: np.ndarray
    attn_out: np.ndarray
    ffn_out: np.ndarray
    resid: np.ndarray
    logits: np.ndarray

    def bytes_held(self) -> int:
        return sum(array.nbytes for array in vars(self).values())


_LAST: ByteLRU[LastPosition] = ByteLRU(max_entries=32, max_bytes=64 * 2**20, size=LastPosition.bytes_held)


def of(opened: Opened, ids: tuple[int, ...]) -> LastPosition:
    """One forward, layer by layer, of which only the last position is kept."""
    return _LAST.get((opened.key, ids), lambda: _run(opened, ids))


def _run(opened: Opened, ids: tuple[int, ...]) -> LastPosition:
    import torch

    rows, stream = {name: [] for name in STAGES}, None
    for layer in range(opened.config.n_layers):
        found, stream = runs.one_layer(opened, ids, layer, *STAGES, stream=stream)
        for name in STAGES:
            rows[name].append(found[name][..., -1, :].copy())
    assert stream is not None
    model = opened.model
    with runs.forwarding(), torch.inference_mode():
        tokens = torch.tensor([ids], device=model.device)
        embedding = model.embed(tokens, torch.arange(len(ids), device=model.device))[0, -1]
        logits = model.unembed(stream[:, -1:])[0, -1]
    one = (part.float().cpu().numpy().copy() for part in (embedding, stream[0, -1], logits))
    return LastPosition(next(one), *(np.stack(rows[name]) for name in STAGES), *one)
