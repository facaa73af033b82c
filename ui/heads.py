"""Every head's weights on the prompt: one forward where they fit into memory, else one for a few layers at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from figures.attention import ALL_HEADS_TOKENS, Summary, attention_payload, summarise
from figures.attention_check import Check, check_layer, worst
from lmcore.config import ModelConfig
from lmcore.positions import t5_buckets
from lmcore.specs import GroupedQuery
from ui import runs, vocabulary
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.model import Transformer

FORWARD_BYTES = 320 * 2**20
"""Weights of one forward; a prompt that has more takes more forwards. SmolLM2 at 512 tokens: 283 MB."""
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Weights:
    """The weights by layer, (H, T, T) float32 each, run when they are first asked for and let go by `ui.runs`."""

    def __init__(self, opened: Opened, ids: tuple[int, ...]) -> None:
        self.opened, self.ids = opened, ids
        cfg = opened.config
        layer_bytes = 4 * cfg.n_heads * len(ids) ** 2
        self._at_once = min(cfg.n_layers, max(1, FORWARD_BYTES // layer_bytes))

    def __len__(self) -> int:
        return self.opened.config.n_layers

    def __getitem__(self, layer: int) -> np.ndarray:
        run, index = self.run_of(layer)
        return run["pattern"][index]

    def run_of(self, layer: int) -> tuple[runs.Run, int]:
        """The run that holds this layer's weights, rotated queries and keys, and the layer's place in it."""
        first = layer // self._at_once * self._at_once
        layers = range(first, min(first + self._at_once, len(self)))
        run = runs.run(self.opened, self.ids, "pattern", "rot_k", "rot_q", layers=layers, logits_to_keep=1)
        return run, layer - first


@dataclass(frozen=True, eq=False)
class Heads:
    """The attention of one prompt: all layers in summary, and any layer on demand."""

    weights: Weights
    summary: Summary

    @property
    def cfg(self) -> ModelConfig:
        return self.weights.opened.config

    def allowed(self, layer: int) -> np.ndarray:
        """(T, T) bool, true where a query of this layer may read a key."""
        return self.summary.masks[self.summary.mask_of_layer[layer]]

    def payload(self, exact: tuple[int, int] | None = None) -> bytes:
        """The attention component's payload, with the exact weights of layer and head `exact` where not all fit."""
        opened, ids = self.weights.opened, self.weights.ids
        key = (opened.key, ids, None if self.summary.exact == "all" else exact)
        return _PAYLOADS.get(
            key,
            lambda: attention_payload(
                self.weights,
                self.summary,
                vocabulary.tokens(opened, ids),
                n_kv_heads=self.cfg.n_kv_heads,
                exact=exact,
            ),
        )

    def checked_layers(self, layer: int) -> range:
        """All layers of a short prompt; of a long one the layer that is looked at."""
        everything = len(self.weights.ids) <= ALL_HEADS_TOKENS
        return range(self.cfg.n_layers) if everything else range(layer, layer + 1)

    def check(self, layer: int) -> Check | None:
        """These layers a second time, in numpy; None where numpy does not have the same formula (attention sinks)."""
        if isinstance(self.cfg.attention, GroupedQuery) and self.cfg.attention.sinks:
            return None
        key = (self.weights.opened.key, self.weights.ids, self.checked_layers(layer))
        return _CHECKS.get(key, lambda: worst([self._check(n) for n in self.checked_layers(layer)]))

    def _check(self, layer: int) -> Check:
        run, index = self.weights.run_of(layer)
        spec, slopes = self.cfg.attention, self.weights.opened.model.slopes
        return check_layer(
            layer,
            run["pattern"][index],
            run["rot_q"][index],
            run["rot_k"][index],
            self.allowed(layer),
            eps=EPS[self.weights.opened.dtype],
            scale=spec.scale,
            softcap=spec.softcap if isinstance(spec, GroupedQuery) else None,
            slopes=None if slopes is None else slopes.cpu().numpy(),
            bias=distance_bias(self.weights.opened.model, len(self.weights.ids)),
        )


# What is kept names no model, so that one that leaves the memory can leave it.
_SUMMARIES: ByteLRU[Summary] = ByteLRU(max_entries=16, max_bytes=96 * 2**20, size=lambda summary: _bytes(summary))
_PAYLOADS: ByteLRU[bytes] = ByteLRU(max_entries=16, max_bytes=96 * 2**20, size=len)
_CHECKS: ByteLRU[Check] = ByteLRU(max_entries=256, max_bytes=2**20, size=lambda check: 200)


def of(opened: Opened, ids: tuple[int, ...]) -> Heads:
    """The attention of these tokens; all weights are read once, the first time."""
    weights = Weights(opened, ids)
    summary = _SUMMARIES.get((opened.key, ids), lambda: summarise(weights, ids, readable(opened.config, len(ids))))
    return Heads(weights=weights, summary=summary)


def known(opened: Opened, ids: tuple[int, ...]) -> bool:
    """Whether `of` has its answer at hand."""
    return _SUMMARIES.peek((opened.key, ids)) is not None


def _bytes(summary: Summary) -> int:
    return summary.thumbnails.nbytes + summary.masks.nbytes + summary.metrics.nbytes


def distance_bias(model: Transformer, tokens: int) -> np.ndarray | None:
    """T5's bias (H, T) of each head at the distances 0 .. T - 1; None for a model without one."""
    spec = model.cfg.relative_bias
    if spec is None:
        return None
    table = model.model.relative_bias.weight.float().cpu().numpy()
    return table[t5_buckets(-np.arange(tokens), spec.buckets, spec.max_distance)].T


def readable(cfg: ModelConfig, tokens: int) -> np.ndarray:
    """(T, T) bool, true where a query may read a key; (L, T, T) where the layers differ."""
    import torch

    from lmcore.masks import Mask

    at = torch.arange(tokens)
    kinds = {
        kind: Mask(
            window=cfg.window if kind == "sliding" else None, chunk=cfg.chunk if kind == "chunked" else None
        ).allows(at, at)
        for kind in set(cfg.layer_types)
    }
    if len(kinds) == 1:
        return next(iter(kinds.values())).numpy()
    return np.stack([kinds[kind].numpy() for kind in cfg.layer_types])
