"""The roofline (Williams, Waterman & Patterson 2009): a kernel takes at least its FLOPs at the peak rate, and at least
its bytes at the bandwidth. Counts are ints, rates and times floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from lmcore.bounds import count
from lmcore.config import ModelConfig
from lmcore.errors import InputError
from lmcore.flops import forward_flops
from lmcore.traffic import bytes_moved


@dataclass(frozen=True, slots=True)
class Roof:
    """A machine: FLOP/s at most (None where nobody published it) and bytes/s at most."""

    flops_per_s: float | None
    bytes_per_s: float

    def __post_init__(self) -> None:
        for name in ("flops_per_s", "bytes_per_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise InputError(f"{name} is {value!r}", expected="a positive number", where=f"argument {name}")

    @property
    def ridge(self) -> float | None:
        """FLOPs a byte from which on arithmetic is the limit: peak / bandwidth."""
        return None if self.flops_per_s is None else self.flops_per_s / self.bytes_per_s

    def attainable(self, intensity: float) -> float:
        """FLOP/s at most at this many FLOPs a byte: min(peak, intensity * bandwidth)."""
        slope = intensity * self.bytes_per_s
        return slope if self.flops_per_s is None else min(self.flops_per_s, slope)


@dataclass(frozen=True, slots=True)
class Point:
    """What a forward does: its FLOPs and the bytes it moves."""

    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes if self.bytes else inf

    def seconds(self, roof: Roof) -> float:
        """The least time: max(FLOPs / peak, bytes / bandwidth)."""
        arithmetic = 0.0 if roof.flops_per_s is None else self.flops / roof.flops_per_s
        return max(arithmetic, self.bytes / roof.bytes_per_s)

    def bound(self, roof: Roof) -> str:
        """What limits it: "memory", "arithmetic", or "not known" where the machine's peak is not."""
        if roof.flops_per_s is None or roof.ridge is None:
            return "not known"
        return "arithmetic" if self.intensity >= roof.ridge else "memory"


def prefill_point(cfg: ModelConfig, *, tokens: int, batch: int = 1, logits: str = "last", **moved: object) -> Point:
    """FLOPs as executed and bytes moved of a prefill. `moved` goes to `bytes_moved`: item sizes, formats, scores."""
    kept = 1 if logits == "last" else None
    flops = forward_flops(cfg, tokens=count("tokens", tokens, 1), batch=batch, logits=kept)
    return Point(sum(flops.values()), _total(bytes_moved(cfg, tokens=tokens, batch=batch, logits=kept, **moved)))  # type: ignore[arg-type]


def decode_point(cfg: ModelConfig, *, position: int, batch: int = 1, latent: str = "as run", **moved: object) -> Point:
    """FLOPs and bytes moved of one decode step: a token after `position` cached ones in each of `batch` sequences."""
    flops = forward_flops(cfg, tokens=1, cached=position, batch=batch, latent=latent)
    moves = bytes_moved(cfg, tokens=1, cached=position, batch=batch, latent=latent, **moved)  # type: ignore[arg-type]
    return Point(sum(flops.values()), _total(moves))


def _total(parts: Mapping[str, int]) -> int:
    return sum(parts.values())
