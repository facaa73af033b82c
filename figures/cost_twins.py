"""Tiles and a roofline for what was counted and timed on the loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from figures.format import group, sig
from figures.roofline import Timed, roofline_payload, seconds_text
from figures.twins import Tile, tile
from lmcore.config import ModelConfig
from lmcore.flops import forward_flops
from lmcore.kv_costs import kv_cache_bytes
from lmcore.roofline import Point, Roof

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
