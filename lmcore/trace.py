"""What a forward pass may record, what it may be told to do differently, and the one door through which both happen.

`x = tap("pattern", x)` records x when the capture asks for it, or puts in its place what the edits say. Capture and
edits are arguments of one forward: nothing is hooked, nothing stays on the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from torch import Tensor

from lmcore.errors import ConfigError, InputError
from lmcore.masks import Mask
from lmcore.specs import Rope


@dataclass(slots=True)
class LayerTrace:
    """The named intermediates of one layer; a stage that was not asked for is None.

    resid_* normed attn_out ffn_normed ffn_out (B, T, D); q rot_q z (B, H, T, Dh); k v rot_k (B, K, T, Dh), of the new
    positions; scores_* pattern (B, H, T, S); ffn_gate ffn_up ffn_act (B, T, F). `normed` and `ffn_normed` are what the
    two sublayers read.
    """

    resid_pre: Tensor | None = None
    normed: Tensor | None = None
    q: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None
    rot_q: Tensor | None = None
    rot_k: Tensor | None = None
    scores_raw: Tensor | None = None
    scores_scaled: Tensor | None = None
    scores_masked: Tensor | None = None
    pattern: Tensor | None = None
    z: Tensor | None = None
    attn_out: Tensor | None = None
    resid_mid: Tensor | None = None
    ffn_normed: Tensor | None = None
    ffn_gate: Tensor | None = None
    ffn_up: Tensor | None = None
    ffn_act: Tensor | None = None
    ffn_out: Tensor | None = None
    resid_post: Tensor | None = None

    def __getitem__(self, name: str) -> Tensor:
        """The stage by name, for callers that choose one at run time; an error when it was not captured."""
        value = getattr(self, name)
        if value is None:
            raise InputError(f"{name} was not captured", expected="its name in the capture", where="the trace")
        return value


STAGES = tuple(f.name for f in fields(LayerTrace))
SCORE_STAGES = frozenset({"scores_raw", "scores_scaled", "scores_masked", "pattern"})


@dataclass(slots=True)
class Trace:
    """What one forward recorded: the embedding (B, T, D), chosen layers, and the final normed residual (B, T, D)."""

    embedding: Tensor | None = None
    layers: dict[int, LayerTrace] = field(default_factory=dict)
    final_normed: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """Which stages of which layers to record, as sorted tuples: equal requests are equal cache keys.

    `layers` None means all. `max_bytes` bounds the memory of the trace; a larger one is refused before it is taken.
    """

    names: tuple[str, ...]
    layers: tuple[int, ...] | None = None
    max_bytes: int | None = None

    @classmethod
    def of(cls, *names: str, layers: Iterable[int] | None = None, max_bytes: int | None = None) -> Capture:
        """A capture of these stages, in all layers or in those given; an unknown stage is an error."""
        unknown = sorted(set(names) - set(STAGES))
        if unknown:
            raise ConfigError(
                f"stage {unknown[0]!r} is not known", expected="one of " + ", ".join(STAGES), where="the capture"
            )
        return cls(tuple(sorted(set(names))), None if layers is None else tuple(sorted(set(layers))), max_bytes)

    def wants(self, layer: int) -> bool:
        return self.layers is None or layer in self.layers


PAIRINGS = ("half-split", "interleaved")
SOFTMAXES = ("safe", "unsafe_float16", "mask_after")


@dataclass(frozen=True, kw_only=True, eq=False)
class Edits:
    """What this forward does differently from the model as trained. Every field at its default changes nothing.

    - `mask`, `rope`, `scale` take the place of the model's own in every layer; `rope` where a layer has one, and in
      `rope_layers` only if these are given: of a model with two kinds of rotary layers (Gemma 3), one can be scaled.
    - `pairing` "interleaved" turns dims 2i and 2i + 1 of weights made for half-split pairs: the classic mix-up.
      `rotate_values` turns v as well as q and k.
    - `softmax`: "safe", the row maximum subtracted; "unsafe_float16", exp and sum in float16 without it;
      "mask_after", masked weights set to zero after the softmax, so that rows no longer sum to one.
    - `zero_heads`: (layer, head) pairs whose z is zero before W_O; `zero_attention`, `zero_ffn`: layers whose sublayer
      adds nothing to the residual stream.
    - `replace`: a tensor of the same shape in place of a stage, by (layer, stage name).
    """

    mask: Mask | None = None
    rope: Rope | None = None
    rope_layers: frozenset[int] | None = None
    scale: float | None = None
    pairing: str = "half-split"
    rotate_values: bool = False
    softmax: str = "safe"
    zero_heads: frozenset[tuple[int, int]] = frozenset()
    zero_attention: frozenset[int] = frozenset()
    zero_ffn: frozenset[int] = frozenset()
    replace: Mapping[tuple[int, str], Tensor] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.softmax not in SOFTMAXES:
            raise ConfigError(
                f"softmax variant {self.softmax!r} is not known",
                expected="one of " + ", ".join(SOFTMAXES),
                where="the edits",
            )
        if self.pairing not in PAIRINGS:
            raise ConfigError(
                f"pairing {self.pairing!r} is not known", expected="one of " + ", ".join(PAIRINGS), where="the edits"
            )
        unknown = sorted({name for _, name in self.replace} - set(STAGES))
        if unknown:
            raise ConfigError(
                f"stage {unknown[0]!r} is not known", expected="one of " + ", ".join(STAGES), where="the edits"
            )


NO_EDITS = Edits()


class Tap:
    """The door of one layer in one forward."""

    __slots__ = ("edits", "layer", "names", "record")

    def __init__(self, layer: int, capture: Capture | None, edits: Edits) -> None:
        self.layer, self.edits = layer, edits
        wanted = capture is not None and capture.wants(layer)
        self.names = frozenset(capture.names) if capture is not None and wanted else frozenset()
        self.record = LayerTrace() if wanted else None

    def __call__(self, name: str, value: Tensor) -> Tensor:
        if self.edits.replace and (self.layer, name) in self.edits.replace:
            new = self.edits.replace[self.layer, name]
            if new.shape != value.shape:
                raise InputError(
                    f"the replacement of {name} in layer {self.layer} has shape {tuple(new.shape)}",
                    expected=str(tuple(value.shape)),
                    where="the edits",
                )
            value = new.to(value)
        if name in self.names:
            setattr(self.record, name, value)
        return value

    def takes(self, *names: str) -> bool:
        """Whether one of these stages is to be recorded here."""
        return not self.names.isdisjoint(names)

    def keeps(self, name: str) -> bool:
        """Whether someone else holds the tensor of this stage, so that it must not be overwritten."""
        return name in self.names or (self.layer, name) in self.edits.replace

    @property
    def needs_scores(self) -> bool:
        """Whether attention must be written out: a stage between q k^T and the weights is asked for or changed."""
        edited = self.edits.softmax != "safe" or any(
            layer == self.layer and name in SCORE_STAGES for layer, name in self.edits.replace
        )
        return edited or not self.names.isdisjoint(SCORE_STAGES)
