"""q and k of one layer before and after RoPE, as the loaded model has them on the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmcore.config import ModelConfig
from lmcore.specs import GroupedQuery, Latent, Rope
from ui import runs
from ui.models import Opened

MAX_TOKENS = 128
"""The first tokens of a longer prompt: two positions are compared, and all pairs of them."""
FORWARD_BYTES = 128 * 2**20


@dataclass(frozen=True, eq=False)
class Turned:
    """Of one layer: q and rot_q (H, T, Dh), k and rot_k (K, T, Dh), float32, the dims that turn first."""

    layer: int
    rope: Rope
    q: np.ndarray
    k: np.ndarray
    rot_q: np.ndarray
    rot_k: np.ndarray
    normed_after: bool

    def key_head(self, head: int) -> int:
        """The KV head that a query head reads."""
        return head * len(self.k) // len(self.q)


def layers(cfg: ModelConfig) -> list[int]:
    """The layers whose q and k turn."""
    return [layer for layer in range(cfg.n_layers) if cfg.rope_of(layer) is not None]


def of(opened: Opened, ids: tuple[int, ...], layer: int) -> Turned:
    """One forward of the first tokens; it keeps all layers where they fit, so that another one is only looked up."""
    cfg, rope = opened.config, opened.config.rope_of(layer)
    assert rope is not None
    ids = ids[:MAX_TOKENS]
    layer_bytes = 2 * 4 * (cfg.n_heads + cfg.n_kv_heads) * cfg.head_dim * len(ids)
    kept = range(cfg.n_layers) if layer_bytes * cfg.n_layers <= FORWARD_BYTES else range(layer, layer + 1)
    run = runs.run(opened, ids, "k", "q", "rot_k", "rot_q", layers=kept, logits_to_keep=1)
    spec = cfg.attention
    still = spec.nope_dim if isinstance(spec, Latent) else 0
    q, k, rot_q, rot_k = (
        np.roll(run[name][layer - kept.start], -still, axis=-1) for name in ("q", "k", "rot_q", "rot_k")
    )
    unit = isinstance(spec, GroupedQuery) and spec.qk_norm is not None and spec.qk_norm.over == "unit"
    return Turned(layer=layer, rope=rope, q=q, k=k, rot_q=rot_q, rot_k=rot_k, normed_after=unit)
