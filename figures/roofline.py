"""Time by the roofline: a machine's roof with the points of a prefill and a decode step, and a table of machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from figures.cost import Setting, bytes_text, mark, served, sheet_payload, storage_of_cache, storage_of_weights
from figures.format import group, sig
from figures.lines import Scale, Series, lines_payload
from figures.payload import pack
from lmcore.config import ModelConfig
from lmcore.hardware import ACCELERATORS, Accelerator
from lmcore.kv_costs import kv_cache_bytes
from lmcore.roofline import Point, Roof, decode_point, prefill_point

BATCHES = tuple(2**power for power in range(11))
CONTEXTS = tuple(2**power for power in range(7, 21))
HEAD = (
    "machine",
    "first token",
    "each next token",
    "tokens/s",
    "prefill bound by",
    "decode bound by",
    "fits",
)


@dataclass(frozen=True)
class Served:
    """One prefill and one decode step of a config on `ranks` machines: what they do, and the roof over them all."""

    prefill: Point
    decode: Point
    roof: Roof
    dtype: str
    batch: int
    needed_bytes: int
    memory_bytes: int

    @property
    def first_s(self) -> float:
        """Seconds to the first token, at least: the prefill of the whole batch."""
        return self.prefill.seconds(self.roof)

    @property
    def next_s(self) -> float:
        """Seconds of one decode step, at least."""
        return self.decode.seconds(self.roof)

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second, of all sequences of the batch together, at most."""
        return self.batch / self.next_s


def served_on(cfg: ModelConfig, setting: Setting, machine: Accelerator, ranks: int) -> Served:
    """The config on `ranks` machines of one kind: peaks, bandwidths and memories add up, KV heads may repeat."""
    prefill, decode, needed = _work(cfg, setting, ranks)
    dtype = arithmetic(setting.weights, machine)
    one = machine.roof(dtype)
    roof = Roof(None if one.flops_per_s is None else ranks * one.flops_per_s, ranks * one.bytes_per_s)
    return Served(prefill, decode, roof, dtype, setting.batch, needed, ranks * machine.memory_bytes)


@lru_cache(maxsize=256)
def _work(cfg: ModelConfig, setting: Setting, ranks: int) -> tuple[Point, Point, int]:
    """Prefill, decode step and bytes needed: the same on every machine."""
    itemsize, quantised = storage_of_weights(setting.weights)
    cache = storage_of_cache(setting.cache)
    moved: dict[str, Any] = {
        "itemsize": 4 if setting.weights == "float32" else 2,
        "weight_itemsize": itemsize,
        "quantised_weights": quantised,
        "quantised_cache": cache,
        "tensor_parallel": ranks,
        "scores": setting.scores,
    }
    prefill = prefill_point(cfg, tokens=max(1, setting.context), batch=setting.batch, logits=setting.logits, **moved)
    decode = decode_point(cfg, position=setting.context, batch=setting.batch, latent=setting.latent, **moved)
    held = kv_cache_bytes(cfg, context=setting.context, batch=setting.batch, quantised=cache, tensor_parallel=ranks)
    return prefill, decode, served(cfg, setting)["weights"] + ranks * sum(held)


def arithmetic(weights: str, machine: Accelerator) -> str:
    """The dtype of the products: float32 and FP8 weights in kind where the machine has it, else 16 bits."""
    wanted = {"float32": ("float32",), "fp8": ("fp8", "bfloat16", "float16")}.get(weights, ("bfloat16", "float16"))
    return next((dtype for dtype in wanted if dtype in machine.flops_per_s), wanted[-1])


@dataclass(frozen=True)
class Timed:
    """A forward that was timed on this machine: its name, what it does by formula, and the seconds it took."""

    name: str
    point: Point
    seconds: float


def roofline_payload(
    name: str,
    roof: Roof,
    points: Sequence[tuple[str, Point]],
    *,
    timed: Sequence[Timed] = (),
    paths: Sequence[tuple[str, Sequence[Point]]] = (),
    note: str = "",
    drawn_for: str = "",
    measured_roof: bool = False,
) -> bytes:
    """The payload of the roofline component: one roof, rings on it, discs where a forward was timed, paths along it."""
    rings = [{"name": what, "x": p.intensity, "y": roof.attainable(p.intensity), "timed": False} for what, p in points]
    discs = [{"name": t.name, "x": t.point.intensity, "y": t.point.flops / t.seconds, "timed": True} for t in timed]
    shown = rings + discs
    lines = [(what, [(p.intensity, roof.attainable(p.intensity)) for p in path]) for what, path in paths]
    xs = [p["x"] for p in shown] + [x for _, path in lines for x, _ in path] + [roof.ridge or 1.0]
    ys = [p["y"] for p in shown] + [y for _, path in lines for _, y in path]
    peak = roof.flops_per_s
    meta = {
        "roofs": [{"name": name, "peak": peak, "bandwidth": roof.bytes_per_s, "timed": measured_roof}],
        "points": shown,
        "paths": [{"name": what} for what, _ in lines],
        "x": [min(xs) / 3, max(xs) * 3],
        "y": [min(ys) / 3, (peak or max(ys)) * 2.5],
        "label": f"Roofline of {name}: {', '.join(p['name'] for p in shown)}",
        "note": note,
        "file": "roofline",
        "mark": drawn_for,
    }
    assert all(isfinite(value) for value in (*meta["x"], *meta["y"]))
    return pack(
        meta, *(np.array(values, np.float64).reshape(-1) for _, path in lines for values in zip(*path, strict=True))
    )


def machine_roofline(cfg: ModelConfig, setting: Setting, machine: Accelerator, ranks: int) -> bytes:
    """The roof of a machine with the prefill, the decode step, and the step's path over batch sizes."""
    here = served_on(cfg, setting, machine, ranks)
    path = [served_on(cfg, replace(setting, batch=batch), machine, ranks).decode for batch in BATCHES]
    times = "" if ranks == 1 else f"{ranks} × "
    name = f"{times}{machine.name}, {here.dtype}"
    ridge = here.roof.ridge
    note = f"The grey path is the decode step from 1 to {group(BATCHES[-1])} sequences. " + (
        f"Below {sig(ridge, 3)} FLOPs a byte memory is the limit." if ridge else "No peak is published: memory alone."
    )
    points = [("prefill", here.prefill), ("decode", here.decode)]
    return roofline_payload(
        name, here.roof, points, paths=[("decode over batch", path)], note=note, drawn_for=mark(setting)
    )


def machines_payload(cfg: ModelConfig, setting: Setting, chosen: Accelerator, ranks: int) -> bytes:
    """A row a machine, each `ranks` times: times by the roofline, what bounds them, whether it fits."""
    machines = list(ACCELERATORS) if chosen in ACCELERATORS else [chosen, *ACCELERATORS]
    rows: list[list[str]] = []
    exact: list[list[object]] = [[*HEAD[:-1], "bytes needed", "bytes of memory", "dtype", "source"]]
    for machine in machines:
        found = served_on(cfg, setting, machine, ranks)
        bounds = (found.prefill.bound(found.roof), found.decode.bound(found.roof))
        rows.append(
            [
                machine.name,
                seconds_text(found.first_s),
                seconds_text(found.next_s),
                sig(found.tokens_per_s, 3),
                *bounds,
                _fits(found, setting),
            ]
        )
        numbers = (found.first_s, found.next_s, found.tokens_per_s)
        exact.append(
            [machine.name, *numbers, *bounds, found.needed_bytes, found.memory_bytes, found.dtype, machine.source]
        )
    return sheet_payload(HEAD, rows, exact, "machines", mark(setting), marked=machines.index(chosen))


def sweep_payload(cfg: ModelConfig, setting: Setting, machine: Accelerator, ranks: int, over: str) -> bytes:
    """Tokens a second of the whole batch, and of one sequence, over the batch or over the context."""
    values = BATCHES if over == "batch" else CONTEXTS
    found = [served_on(cfg, replace(setting, **{over: value}), machine, ranks) for value in values]
    series = [
        Series("all together", values, [each.tokens_per_s for each in found]),
        Series("each sequence", values, [1 / each.next_s for each in found]),
    ]
    words = {"batch": "sequences at once", "context": "tokens cached"}[over]
    return lines_payload(
        series,
        x=Scale(f"{words}, log scale", log=True, word=words, ticks=[(v, group(v)) for v in values]),
        y=Scale("tokens/s at most, log scale", log=True, unit="tokens/s"),
        label=f"Tokens a second over {words} on {machine.name}",
        file="tokens-per-second",
        current=float(min(max(getattr(setting, over), values[0]), values[-1])),
        height=320,
    )


def seconds_text(seconds: float) -> str:
    """A time in µs, ms or s to three figures; from a day on in days."""
    if seconds >= 86_400:
        return f"{sig(seconds / 86_400, 3)} days"
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms")) if seconds >= s), (1e-6, "µs"))
    return f"{sig(seconds / scale, 3)} {unit}"


def _fits(found: Served, setting: Setting) -> str:
    if found.needed_bytes <= found.memory_bytes:
        return f"yes, {bytes_text(found.memory_bytes - found.needed_bytes, setting)} left"
    return f"no, {bytes_text(found.needed_bytes - found.memory_bytes, setting)} more"
