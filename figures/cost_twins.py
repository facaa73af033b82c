"""Tiles and a roofline for what was counted and timed on the loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from figures.format import bytes_iec, group, sig
from figures.roofline import Timed, roofline_payload, seconds_text
from figures.twins import Tile, tile
from lmcore.config import ModelConfig
from lmcore.flops import forward_flops
from lmcore.kept import kept_bytes
from lmcore.kv_costs import kv_cache_bytes
from lmcore.roofline import Point, Roof
from lmcore.traffic import activation_bytes

COUNTED = {
    "projections": ("projections",),
    "attention products": ("scores", "mix"),
    "ffn": ("ffn",),
    "logits": ("logits",),
}
NAMES = {
    "projections": "Projections",
    "attention products": "Scores and mix",
    "ffn": "Feed-forward",
    "logits": "Logits",
}
KEPT = "Kept for a backward"
KEPT_NAMES = {"norms": "norms", "attention": "attention", "ffn": "feed-forward", "logits": "logits"}


def counted_tiles(
    cfg: ModelConfig, tokens: int, itemsize: int, *, counted: Mapping[str, int], cache_bytes: int
) -> list[Tile]:
    """FLOPs of a prefill with all its logits by component, and the cache it leaves: by formula and counted."""
    formula = forward_flops(cfg, tokens=tokens)
    tiles = [
        tile(NAMES[name], sum(formula[part] for part in parts), counted.get(name, 0), unit="FLOP")
        for name, parts in COUNTED.items()
    ]
    size = sum(kv_cache_bytes(cfg, context=tokens, itemsize=itemsize))
    return [*tiles, tile("KV cache", size, cache_bytes, unit="B", how="in the cache")]


def kept_tile(
    cfg: ModelConfig, tokens: int, itemsize: int, *, held: Mapping[str, int] | None, max_bytes: int, fused: bool = True
) -> Tile:
    """What a training forward of the first `tokens` tokens keeps for its backward: by formula and held by autograd.

    `held` None: not even one token's fits in `max_bytes`, and the tile says how much that would be. `fused`: the
    formula knows this device's kernels.
    """
    size = sum(kept_bytes(cfg, tokens=max(1, tokens), itemsize=itemsize).values())
    how: dict[str, Any] = {"unit": "B", "how": "held by autograd"}
    if held is None:
        return tile(KEPT, size, missing=f"over {bytes_iec(max_bytes)}", impossible=True, note="Of one token.", **how)
    reason = "" if fused else "This device's kernels keep other tensors than the CPU's."
    unit = "token" if tokens == 1 else "tokens"
    return tile(
        KEPT, size, sum(held.values()), reason=reason, note=f"Of {group(tokens)} {unit}, their loss included.", **how
    )


def kept_sentence(cfg: ModelConfig, tokens: int, itemsize: int, held: Mapping[str, int]) -> str:
    """Where those bytes are, and what the convention of the bars counts of the same forward."""
    parts = [f"{KEPT_NAMES[part]} {bytes_iec(n)}" for part, n in held.items() if part in KEPT_NAMES]
    fused = sum(activation_bytes(cfg, tokens=tokens, itemsize=itemsize).values())
    total = sum(held.values())
    return (
        f"For a backward PyTorch keeps {', '.join(parts)}: {bytes_iec(total)} as lmcore runs it. With norms and "
        f"activations fused, as the training figures above count, it is {bytes_iec(fused)}: an eager norm keeps its "
        "input and its normalised rows in float32, an activation what goes in and what comes out."
    )


def timed_payload(name: str, roof: Roof, forwards: Sequence[Timed]) -> bytes:
    """This machine's measured roof, the forwards where the formula puts them, and where the clock did."""
    rings = [(f"{each.name}, by formula", each.point) for each in forwards]
    discs = [Timed(f"{each.name}, timed", each.point, each.seconds) for each in forwards]
    note = "The roof is this machine's, measured; a disc lies below its ring by as much as the forward took longer."
    return roofline_payload(name, roof, rings, timed=discs, note=note, measured_roof=True)


def timed_points(roof: Roof, forwards: Sequence[Timed]) -> list[str]:
    """What the clock says of the bound, in a sentence each."""
    return [_against(roof, each.name, each.point, each.seconds) for each in forwards]


def _against(roof: Roof, name: str, point: Point, seconds: float) -> str:
    least = point.seconds(roof)
    return (
        f"*{name}*: {seconds_text(seconds)} by the clock, at least {seconds_text(least)} by the roofline "
        f"({sig(seconds / least, 3)} times), at {sig(point.intensity, 3)} FLOPs a byte bound by {point.bound(roof)}."
    )


def steps_sentence(lengths: Sequence[tuple[int, int, int, int, int]]) -> str:
    """Whether the cache held what the formula says at every length: (length, used, formula, allocated, formula)."""
    wrong = [row for row in lengths if row[1] != row[2] or row[3] != row[4]]
    first, last = lengths[0][0], lengths[-1][0]
    span = f"at each of {group(len(lengths))} lengths, from {group(first)} to {group(last)} positions"
    if not wrong:
        return f"The cache's bytes, used and allocated, equal the formula {span}."
    length, used, formula = wrong[0][:3]
    return f"At {group(length)} positions the cache uses {group(used)} B, by formula {group(formula)} B."
