"""Charts of q . k: at one offset while both positions slide, and against the distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from figures.extrapolation import Curve, curves_payload

NAMES = {
    "bf16 positions": "bf16 positions",
    "bf16 cos and sin": "bf16 cos, sin",
    "float32 angles": "float32 angles",
    "float32": "float32",
}


def slide_payload(positions: np.ndarray, products: Mapping[str, np.ndarray], *, offset: int) -> bytes:
    """q . k at one offset by the key's position (M,), a curve for each arithmetic of `lmcore.relative`."""
    none = np.full(len(positions), np.nan)
    order = list(NAMES)
    curves = [Curve(NAMES[name], order.index(name), positions, products[name], none) for name in order]
    return curves_payload(
        curves,
        file="rope-slide",
        label="q times k at one offset against the position, by arithmetic; arrow keys read it",
        x_title="position of the key →",
        y_title=f"q · k, the query {offset} after the key",
        digits=5,
        note="Point at the chart to read it.",
    )


@dataclass(frozen=True, eq=False)
class Spread:
    """Scores against distance: mean and standard deviation over pairs, (D,) each."""

    mean: np.ndarray
    deviation: np.ndarray


def spread_of(scores: np.ndarray) -> Spread:
    """Of scores (pairs, D)."""
    return Spread(scores.mean(0), scores.std(0))


def distance_payload(distances: np.ndarray, spreads: Mapping[str, Spread]) -> bytes:
    """Mean score against distance (D,), and a band of one standard deviation to either side, by name."""
    curves = [Curve(name, index, distances, s.mean, s.deviation) for index, (name, s) in enumerate(spreads.items())]
    return curves_payload(
        curves,
        file="rope-distance",
        label="mean score against distance, with one standard deviation to either side; arrow keys read it",
        x_title="distance, tokens →",
        y_title="score q · k × scale, before the softmax",
        x_word="distance",
        digits=3,
        bands=True,
        spread="standard deviation",
        note="Shaded: one standard deviation over the pairs to either side of the mean.",
    )
