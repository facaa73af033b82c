"""All pairs of a head at once: wavelengths against the trained context, and what another base does to each."""

from __future__ import annotations

from figures.scalings import pairs_payload
from lmcore.specs import Rope
from ui import components, guard, models, page, rotary


@guard.fragment
def section(opened: models.Opened) -> None:
    """The wavelengths, ratios and angles of all pairs, under a slider for the base and one for the position."""
    page.section(
        "All pairs, and another base",
        "Pair 0 turns by a whole radian with each token, the last by almost nothing. A pair whose wavelength exceeds "
        "the trained context never completes a turn there: past it, its angles are new to the model. Another base is "
        "not a slower clock for all of them: the first pair keeps its speed, the last takes nearly all of the change.",
    )
    rope = rotary.choose(opened.config, "positions_layers").rope
    components.mount("frequencies", pairs_payload(rope, rotary.trained(opened.config, rope)), key="positions_pairs")
    page.formula(
        r"\theta_i = b^{-2i/d}",
        r"\lambda_i = \frac{2\pi}{\theta_i}",
        r"\frac{\theta'_i}{\theta_i} = \left(\frac{b}{b'}\right)^{2i/d}",
    )
    scaled = "" if rope.type == "default" else f" This model also scales them (*{rope.type}*), which is left out here."
    page.prose(
        f"i counts pairs from 0 to d/2 − 1, d = {rope.rotary_dim} is the number of rotary dims of a head, b the base; "
        f"angles are in radians.{scaled}"
    )
    with page.tools():
        page.source("lmcore.frequencies.powers", snippet(rope), key="positions_pairs_source")


def snippet(rope: Rope) -> str:
    return f"""
import numpy as np
from lmcore.frequencies import powers

own, other = powers({rope.base!r}, {rope.rotary_dim}), powers({10 * rope.base!r}, {rope.rotary_dim})
2 * np.pi / own  # wavelengths in tokens
other / own  # from 1 down to nearly 1/10
"""
