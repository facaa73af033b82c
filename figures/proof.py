"""The comparison with transformers as rows of layers, as tiles and in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from figures.format import group, scientific, sig
from figures.payload import pack
from figures.twins import Tile, tile

if TYPE_CHECKING:
    from lmcore.proof import Proof


def layers_payload(proof: Proof) -> bytes:
    """The payload of the layers component: the first bad layer first, then the others in order."""
    first = proof.first_bad
    ordered = sorted(proof.layers, key=lambda layer: (layer.layer != first, layer.layer))
    rows = [
        {
            "name": str(layer.layer),
            "values": [_drawable(layer.residual), _drawable(layer.pattern)],
            "texts": [
                _difference(layer.residual),
                "not given" if layer.pattern is None else _difference(layer.pattern),
            ],
            "bad": proof.is_bad(layer),
            "first": layer.layer == first,
        }
        for layer in ordered
    ]
    shown = [value for row in rows for value in row["values"] if value is not None]
    low = min([proof.tolerance / 10, *shown])
    return pack(
        {
            "rows": rows,
            "names": ["residual", "attention weights"],
            "low": 10.0 ** math.floor(math.log10(low)),
            "high": 10.0 ** math.ceil(math.log10(max([proof.tolerance * 10, *shown]))),
            "limit": proof.tolerance,
        }
    )


def _drawable(value: float | None) -> float | None:
    """A place on a logarithmic axis; equal numbers stand at its low end, what is no number at its high end."""
    if value is None:
        return None
    return min(max(value, 1e-9), 10.0) if math.isfinite(value) else 10.0


def _difference(value: float) -> str:
    return "equal" if value == 0 else sig(value, 2)


def proof_tiles(proof: Proof) -> list[Tile]:
    """Three numbers beside what they should be: a logit, the likeliest tokens, the layers."""
    beside = f"Logits reach {sig(proof.largest_logit, 3)}."
    if proof.noise is not None:
        beside += f" transformers in float32 is {sig(proof.noise, 2)} off its own float64."
    return [
        tile(
            "Largest difference of a logit",
            0.0,
            proof.logits,
            how="measured",
            reason=f"{proof.dtype} rounding" if proof.equal else "",
            note=beside,
        ),
        tile(
            "Positions with the same likeliest token",
            proof.tokens,
            proof.same_choices,
            unit=f"of {group(proof.tokens)}",
            how="counted",
        ),
        tile(
            "Layers that are equal",
            len(proof.layers),
            sum(1 for layer in proof.layers if not proof.is_bad(layer)),
            unit=f"of {group(len(proof.layers))}",
            how="counted",
        ),
    ]


def badge(proof: Proof, clock: str) -> str:
    """One sentence: equal or not, against which version, how far, and when it was measured."""
    against = f"transformers {proof.transformers}"
    if proof.equal:
        lower = "" if proof.dtype == "float32" else f" in {proof.dtype}"
        return f"Equal to {against} to {scientific(proof.logits)}{lower}, measured {clock}."
    where = "in its logits" if proof.first_bad is None else f"from layer {proof.first_bad} on"
    return f"Differs from {against} {where}, by up to {scientific(proof.logits)}, measured {clock}."


def proof_rows(proof: Proof) -> Sequence[Sequence[object]]:
    """The table behind the figure."""
    return [[layer.layer, layer.residual, layer.pattern, proof.is_bad(layer)] for layer in proof.layers]
