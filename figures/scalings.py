"""Rotary frequencies as payloads of the frequencies component, and the scalings that its sliders describe.

The browser computes the curves from the spec (`assets/components/frequencies/frequencies.js`), so that a slider needs
no message. What is applied to the model is built here, from the same settings by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from figures.payload import pack
from lmcore.frequencies import mscale
from lmcore.specs import Rope

METHODS = {
    "none": "none",
    "linear": "linear (PI)",
    "ntk": "NTK-aware",
    "dynamic": "dynamic NTK",
    "yarn": "YaRN",
    "llama3": "Llama 3",
    "longrope": "LongRoPE",
}
"""What is drawn side by side, and what each is called."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A slider: which methods read it, its bounds, whether it moves by ratios, and its default."""

    key: str
    name: str
    low: float
    high: float
    default: float
    log: bool = False
    whole: bool = False
    methods: tuple[str, ...] = tuple(METHODS)[1:]


MAX_LENGTH = 2**20


def parameters(rope: Rope, max_positions: int) -> tuple[Parameter, ...]:
    """The sliders, with this model's own context, and a target four times as long, as defaults."""
    original = max(32, min(MAX_LENGTH // 4, rope.original_max_positions or max_positions))
    longest = float(MAX_LENGTH)
    return (
        Parameter("factor", "Factor s", 1, 64, 4, log=True),
        Parameter(
            "original",
            "Original context L",
            8,
            longest,
            original,
            log=True,
            whole=True,
            methods=("dynamic", "yarn", "llama3", "longrope"),
        ),
        Parameter(
            "length",
            "Length now l",
            8,
            longest,
            4 * original,
            log=True,
            whole=True,
            methods=("dynamic", "longrope"),
        ),
        Parameter("beta_fast", "YaRN: beta_fast", 2, 64, 32, methods=("yarn",)),
        Parameter("beta_slow", "YaRN: beta_slow", 0.1, 8, 1, methods=("yarn",)),
        Parameter("mscale", "YaRN: mscale", 0, 2, 1, methods=("yarn",)),
        Parameter("mscale_all_dim", "YaRN: mscale_all_dim", 0, 2, 0, methods=("yarn",)),
        Parameter("low_freq_factor", "Llama 3: low_freq_factor", 0.25, 8, 1, methods=("llama3",)),
        Parameter("high_freq_factor", "Llama 3: high_freq_factor", 0.5, 32, 4, methods=("llama3",)),
        Parameter("short_last", "LongRoPE: short, last pair", 1, 64, 1, log=True, methods=("longrope",)),
        Parameter("long_last", "LongRoPE: long, last pair", 1, 64, 4, log=True, methods=("longrope",)),
        Parameter("long_power", "LongRoPE: power p of both", 0.25, 8, 2, methods=("longrope",)),
    )


def settings_of(given: Mapping[str, Any], rope: Rope, max_positions: int) -> dict[str, float]:
    """A number for each slider: the one given where it is one within the bounds, else the default."""
    settings = {}
    for parameter in parameters(rope, max_positions):
        try:
            value = float(given.get(parameter.key, parameter.default))
        except (TypeError, ValueError):
            value = math.nan
        within = parameter.low <= value <= parameter.high
        settings[parameter.key] = value if within else float(parameter.default)
    return settings


def scaled(method: str, settings: Mapping[str, float], rope: Rope) -> Rope:
    """The spec that a method makes of a model's rotary dims and base under these settings.

    LongRoPE's searched factors are drawn as a curve, `1 + (last - 1) (i / (d/2 - 1))^p` over the pairs i. YaRN's
    factor on cos and sin is `mscale(s, m) / mscale(s, m_all)`, which is its own `0.1 ln s + 1` at m = 1, m_all = 0.
    """
    plain = Rope(rotary_dim=rope.rotary_dim, base=rope.base)
    factor, original = settings["factor"], round(settings["original"])
    if method == "none":
        return plain
    if method in ("linear", "ntk"):
        return replace(plain, type=method, factor=factor)
    if method == "dynamic":
        return replace(plain, type=method, factor=factor, max_positions=original)
    scaling = replace(plain, type=method, factor=factor, original_max_positions=original)
    if method == "yarn":
        attention_factor = mscale(factor, settings["mscale"]) / mscale(factor, settings["mscale_all_dim"])
        return replace(
            scaling,
            beta_fast=max(settings["beta_fast"], settings["beta_slow"]),
            beta_slow=settings["beta_slow"],
            attention_factor=attention_factor,
        )
    if method == "llama3":
        low = settings["low_freq_factor"]
        high = max(settings["high_freq_factor"], low * 1.01)
        return replace(scaling, low_freq_factor=low, high_freq_factor=high)
    assert method == "longrope", method
    short, long = (
        _curve(settings[last], settings["long_power"], rope.rotary_dim // 2) for last in ("short_last", "long_last")
    )
    return replace(scaling, short_factor=short, long_factor=long)


def _curve(last: float, power: float, pairs: int) -> tuple[float, ...]:
    return tuple(1 + (last - 1) * (i / max(1, pairs - 1)) ** power for i in range(pairs))


def pairs_payload(rope: Rope, trained: int) -> bytes:
    """The payload of all pairs under another base: a spec, and the context that it was trained at. Under 2 kB."""
    urls = {"base": "positions_base", "position": "positions_m", "pair": "pair"}
    return pack({"view": "pairs", "rope": _fields(rope), "trained": trained, "urls": urls})


def scalings_payload(
    rope: Rope, max_positions: int, *, applied: str, runs: bool, target: str = "the loaded model"
) -> bytes:
    """The payload of the scalings side by side: the model's own spec, the sliders, the method applied to the model now
    ("" for none), whether there is a model to apply one to, and `target`, what of it that is, in words. Some 3 kB, and
    16 bytes for each factor of the spec."""
    sliders = [asdict(parameter) for parameter in parameters(rope, max_positions)]
    names = [p["key"] for p in sliders]
    return pack(
        {
            "view": "scalings",
            "rope": _fields(rope),
            "max_positions": max_positions,
            "methods": [list(pair) for pair in METHODS.items()],
            "parameters": sliders,
            "applied": applied,
            "runs": runs,
            "target": target,
            "urls": {name: f"scale_{name}" for name in ("method", "curve", "position", "applied", *names)}
            | {"pair": "pair"},
        }
    )


def _fields(rope: Rope) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(rope).items()}


def changed_fields(own: Rope, new: Rope) -> list[tuple[str, str, str]]:
    """(field, own, new) for each field that differs, as words; tuples by their first and last entry."""
    rows = []
    for name, value in asdict(new).items():
        before = getattr(own, name)
        if before != value:
            rows.append((name, _word(before), _word(value)))
    return rows


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} factors, {value[0]:.4g} to {value[-1]:.4g}" if value else "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)
