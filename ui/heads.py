"""Every head's weights on the prompt: one forward where they fit into memory, else layer by layer, each let go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from figures.attention import ALL_HEADS_TOKENS, Summary, attention_payload, summarise
from figures.attention_check import Check, check_layer, worst
from lmcore.config import ModelConfig
from lmcore.errors import Cancelled, CapacityError
from lmcore.positions import t5_buckets
from lmcore.specs import GroupedQuery
from ui import runs, vocabulary
from ui.job import ABANDONED_AFTER_S, Jobs
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from torch import Tensor

    from lmcore.model import Transformer

FORWARD_BYTES = 320 * 2**20
"""Weights of one forward; a prompt that has more is run layer by layer. SmolLM2 at 512 tokens: 283 MB."""
LAYER_BYTES = 384 * 2**20
"""Weights of one layer, which are in memory three times while it runs. SmolLM2 at 2,048 tokens: 151 MB."""
_STAGES = ("pattern", "rot_k", "rot_q")
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Weights:
    """The weights by layer, (H, T, T) float32 each, run when they are first asked for and let go by themselves.

    CapacityError where one layer's are more than LAYER_BYTES.
    """

    def __init__(self, opened: Opened, ids: tuple[int, ...]) -> None:
        self.opened, self.ids = opened, ids
        heads, layer_bytes = opened.config.n_heads, 4 * opened.config.n_heads * len(ids) ** 2
        if layer_bytes > LAYER_BYTES:
            fits = int((LAYER_BYTES / (4 * heads)) ** 0.5)
            raise CapacityError(
                f"the attention weights of one layer would take {layer_bytes:,} bytes, {heads} heads of {len(ids)} "
                f"× {len(ids)}",
                expected=f"at most {LAYER_BYTES:,}",
                where="the attention maps",
                todo=f"Shorten the prompt to {fits} tokens.",
            )
        self.layer_by_layer = layer_bytes * opened.config.n_layers > FORWARD_BYTES

    def __len__(self) -> int:
        return self.opened.config.n_layers

    def __getitem__(self, layer: int) -> np.ndarray:
        return self.stages(layer)["pattern"]

    def stages(self, layer: int) -> dict[str, np.ndarray]:
        """The layer's weights, and its queries and keys after RoPE: pattern, rot_q, rot_k."""
        if self.layer_by_layer:
            return _LAYERS.get((self.opened.key, self.ids, layer), lambda: self.captured(layer, *_STAGES))
        run = runs.run(self.opened, self.ids, *_STAGES, logits_to_keep=1)
        return {name: run[name][layer] for name in _STAGES}

    def captured(self, layer: int, *names: str) -> dict[str, np.ndarray]:
        """Any stages of one layer, run for this call: from the residual stream before it where an earlier call came by,
        else from the nearest layer below that has one."""
        nominal = len(self) * len(self.ids) * self.opened.config.d_model * 4
        streams = _STREAMS.get((self.opened.key, self.ids), lambda: Streams(nominal, {0: None}))
        found: dict[str, np.ndarray] = {}
        for at in range(max(at for at in streams.before if at <= layer), layer + 1):
            wanted = names if at == layer else ()
            found, after = runs.one_layer(self.opened, self.ids, at, *wanted, stream=streams.before[at])
            streams.before[at + 1] = after
        return found


@dataclass(frozen=True, eq=False)
class Streams:
    """The residual stream (1, T, D) before each layer that was come by, None before the first; `nominal` bytes."""

    nominal: int
    before: dict[int, Tensor | None]


class _Passing:
    """Weights that are read once, layer after layer, and not kept; says how far it is."""

    def __init__(self, weights: Weights, say: Callable[[str], object]) -> None:
        self._weights, self._say, self._begun, self.seconds = weights, say, time.monotonic(), 0.0

    def __len__(self) -> int:
        return len(self._weights)

    def __getitem__(self, layer: int) -> np.ndarray:
        left = ""
        if layer:
            seconds = (time.monotonic() - self._begun) / layer * (len(self) - layer)
            left = f", about {max(1, round(seconds))} s left"
        self._say(f"Layer {layer + 1} of {len(self)}{left}")
        begun = time.monotonic()
        found = self._weights.captured(layer, "pattern")["pattern"]
        self.seconds += time.monotonic() - begun
        return found


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

    def check(self, layer: int, head: int) -> Check | None:
        """These layers a second time, in numpy and in float64; of a prompt that is run layer by layer this head alone.

        None where numpy does not have the same formula (attention sinks).
        """
        if isinstance(self.cfg.attention, GroupedQuery) and self.cfg.attention.sinks:
            return None
        some = slice(head, head + 1) if self.weights.layer_by_layer else slice(0, self.cfg.n_heads)
        layers = self.checked_layers(layer)
        key = (self.weights.opened.key, self.weights.ids, layers, some.start)
        return _CHECKS.get(key, lambda: worst([self._check(n, some) for n in layers]))

    def _check(self, layer: int, some: slice) -> Check:
        stages = self.weights.stages(layer)
        spec, slopes = self.cfg.attention, self.weights.opened.model.slopes
        bias = distance_bias(self.weights.opened.model, len(self.weights.ids))
        keys = stages["rot_k"]
        if some.stop - some.start == 1:  # one head, and the keys that it shares
            keys = keys[some.start * len(keys) // self.cfg.n_heads, None]
        check = check_layer(
            layer,
            stages["pattern"][some],
            stages["rot_q"][some],
            keys,
            self.allowed(layer),
            eps=EPS[self.weights.opened.dtype],
            scale=spec.scale,
            softcap=spec.softcap if isinstance(spec, GroupedQuery) else None,
            slopes=None if slopes is None else slopes.cpu().numpy()[some],
            bias=None if bias is None else bias[some],
        )
        _, head, query, key = check.place
        return replace(check, place=(layer, some.start + head, query, key))


# What is kept names no model, so that one that leaves the memory can leave it.
_SUMMARIES: ByteLRU[Summary] = ByteLRU(max_entries=16, max_bytes=96 * 2**20, size=lambda summary: _bytes(summary))
_PAYLOADS: ByteLRU[bytes] = ByteLRU(max_entries=16, max_bytes=96 * 2**20, size=len)
_LAYERS: ByteLRU[dict[str, np.ndarray]] = ByteLRU(
    max_entries=64, max_bytes=LAYER_BYTES, size=lambda stages: sum(array.nbytes for array in stages.values())
)
_STREAMS: ByteLRU[Streams] = ByteLRU(max_entries=4, max_bytes=192 * 2**20, size=lambda streams: streams.nominal)
_SECONDS: ByteLRU[float] = ByteLRU(max_entries=256, max_bytes=2**20, size=lambda seconds: 64)
_JOBS: Jobs[None] = Jobs("attention", abandoned_after_s=ABANDONED_AFTER_S)
_CHECKS: ByteLRU[Check] = ByteLRU(max_entries=256, max_bytes=2**20, size=lambda check: 200)


def of(opened: Opened, ids: tuple[int, ...], say: Callable[[str], object] = lambda line: None) -> Heads:
    """The attention of these tokens; all weights are read once; `say` hears how far a long prompt is."""
    weights = Weights(opened, ids)

    def make() -> Summary:
        passing = _Passing(weights, say) if weights.layer_by_layer else None
        found = summarise(passing or weights, ids, readable(opened.config, len(ids)))
        forward = passing or runs.run(opened, ids, *_STAGES, logits_to_keep=1)
        _SECONDS.put((opened.key, ids), forward.seconds)
        return found

    return Heads(weights=weights, summary=_SUMMARIES.get((opened.key, ids), make))


def awaited(opened: Opened, ids: tuple[int, ...], show: Callable[[str], object]) -> Heads:
    """`of`; a long prompt is worked on in a thread that others join and that ends a while after its reader has left."""
    if known(opened, ids) or not Weights(opened, ids).layer_by_layer:
        return of(opened, ids)

    def work(say: Callable[[str], bool]) -> None:
        def tell(line: str) -> None:
            if not say(line):
                raise Cancelled("the attention of this prompt was left")

        try:
            of(opened, ids, tell)
        finally:
            _JOBS.forget(lambda key: key == (opened.key, ids))  # a job holds on to its model

    _JOBS.start((opened.key, ids), work)
    if (job := _JOBS.running((opened.key, ids))) is not None:
        job.wait(show)
    return of(opened, ids)


def seconds(opened: Opened, ids: tuple[int, ...]) -> float | None:
    """What the forward took in which `of` ran these tokens, all weights written out; None where it has not."""
    return _SECONDS.peek((opened.key, ids))


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
