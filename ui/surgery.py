"""Surgery on the loaded model's weights, measured on a text: one curve over KV heads and ranks, made on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lmcore.errors import NotInModel
from lmcore.kv_costs import kv_cache_bytes
from ui import runs
from ui.asked import Asked, Tell
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.model import Transformer
    from lmcore.surgery import Factors

SHARES = (0.75, 0.5, 0.375, 0.25, 0.125, 0.0625)
"""The ranks that are tried, of all key and value rows."""
MAP_TOKENS = 128


@dataclass(frozen=True)
class Point:
    """One model: as loaded, with `value` KV heads ("merged"), or its keys and values of rank `value` ("cut").

    `cache_bytes` of the text; `loss`, `divergence` and `agreement` as in `lmcore.fidelity`; `energy` is the share of
    the squared singular values that the rank keeps.
    """

    kind: str
    value: int
    name: str
    cache_bytes: int
    loss: float
    divergence: float
    agreement: float
    energy: float | None = None


CURVES: Asked[tuple[Point, ...]] = Asked("surgery", size=lambda points: 256 * len(points))
_FACTORS: ByteLRU[Factors] = ByteLRU(max_entries=2, max_bytes=2**29, size=lambda factors: factors.bytes_held)
_MAPS: ByteLRU[np.ndarray] = ByteLRU(max_entries=64, max_bytes=2**25, size=lambda array: array.nbytes)


def ranks(opened: Opened, joint: bool) -> tuple[int, ...]:
    """The ranks that are tried, falling: the full one where it makes the cache smaller, then shares of the rows."""
    a, d = opened.config.attention, opened.config.d_model
    rows = a.n_kv_heads * a.head_dim * (2 if joint else 1)
    full = min(rows, d)
    tried = {full} | {max(1, round(share * rows)) for share in SHARES}
    return tuple(sorted((rank for rank in tried if rank < rows and rank <= full), reverse=True))


def factors(opened: Opened, joint: bool, tell: Tell | None = None) -> Factors:
    """The decompositions of the loaded weights, made once."""
    from lmcore.surgery import factorise

    def progress(done: int, of: int) -> None:
        if tell is not None:
            tell(f"SVD of layer {done} of {of}")

    return _FACTORS.get((opened.key, joint), lambda: factorise(opened.model, joint=joint, progress=progress))


def changed(opened: Opened, kind: str, value: int, *, joint: bool) -> Transformer:
    """The loaded model itself ("loaded"), or a changed one that shares its other tensors."""
    from lmcore import surgery

    if kind == "merged":
        return surgery.merge_kv_heads(opened.model, value)
    return surgery.cut(opened.model, factors(opened, joint), value) if kind == "cut" else opened.model


def measure(opened: Opened, ids: tuple[int, ...], joint: bool, tell: Tell) -> tuple[Point, ...]:
    """The original, then every divisor of K and every rank, each a forward of the whole text."""
    from lmcore.fidelity import compare
    from lmcore.surgery import latent_cache_bytes, mergeable

    cfg, size = opened.config, opened.model.dtype.itemsize
    try:
        merges = mergeable(cfg)
    except NotInModel:
        merges = ()
    parts = factors(opened, joint, tell)
    plans = [("loaded", 0), *(("merged", n) for n in merges), *(("cut", r) for r in ranks(opened, joint))]
    original, points = None, []
    for done, (kind, value) in enumerate(plans):
        tell(f"{done} of {len(plans)} models run")
        logits = _logits(changed(opened, kind, value, joint=joint), ids)
        original = logits if original is None else original
        found = compare(original, logits, ids)
        if kind == "cut":
            numbers, energy = parts.numbers(value), parts.kept_energy(value)
            held = latent_cache_bytes(cfg, numbers, context=len(ids), itemsize=size)
        else:
            heads = cfg if kind == "loaded" else changed(opened, kind, value, joint=joint).cfg
            held, energy = sum(kv_cache_bytes(heads, context=len(ids), itemsize=size)), None
        points.append(Point(kind, value, name_of(opened, kind, value), held, *found, energy))
    return tuple(points)


def name_of(opened: Opened, kind: str, value: int) -> str:
    if kind == "loaded":
        heads = opened.config.n_kv_heads
        return f"as loaded, {heads} KV head{'s' if heads > 1 else ''}"
    return f"rank {value}" if kind == "cut" else f"{value} KV head{'s' if value > 1 else ''}"


def pattern(
    opened: Opened, ids: tuple[int, ...], kind: str, value: int, *, joint: bool, layer: int, head: int
) -> np.ndarray:
    """(T, T) weights of one head of a changed model on the first MAP_TOKENS tokens, from a forward as deep as it is."""
    ids = ids[:MAP_TOKENS]

    def make() -> np.ndarray:
        import torch

        from lmcore.trace import Capture

        model = changed(opened, kind, value, joint=joint)
        with runs.forwarding():
            tokens = torch.tensor([ids], device=model.device)
            capture = Capture.of("pattern", layers=[layer])
            trace = model.forward(tokens, capture=capture, depth=layer + 1, logits_to_keep=1).trace
        assert trace is not None
        return trace.layers[layer]["pattern"][0].float().cpu().numpy()

    return _MAPS.get((opened.key, ids, kind, value, joint, layer), make)[head]


def _logits(model: Transformer, ids: tuple[int, ...]) -> np.ndarray:
    import torch

    with runs.forwarding():
        return model.forward(torch.tensor([ids], device=model.device)).logits[0].float().cpu().numpy()
