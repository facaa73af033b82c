"""Time by the roofline: a machine's roof with the points of a prefill and a decode step, and a table of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor, isfinite, log10
from typing import Any

import numpy as np

from figures.cost import Setting, bytes_text, mark, served, storage_of_cache, storage_of_weights
from figures.format import group, sig
from figures.lines import Scale, Series, lines_payload
from figures.payload import pack
from figures.sheet import sheet_payload
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
EXACT_HEAD = (
    "machine",
    "first token, s",
    "each next token, s",
    *HEAD[3:-1],
    "bytes needed",
    "bytes of memory",
    "dtype",
    "source",
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
    return _on(_work(cfg, setting, ranks), setting, machine, ranks)


def _on(work: tuple[Point, Point, int], setting: Setting, machine: Accelerator, ranks: int) -> Served:
    prefill, decode, needed = work
    dtype = arithmetic(setting.weights, machine)
    return Served(
        prefill, decode, _roof(machine, dtype, ranks), dtype, setting.batch, needed, ranks * machine.memory_bytes
    )


def _roof(machine: Accelerator, dtype: str, ranks: int) -> Roof:
    one = machine.roof(dtype)
    return Roof(None if one.flops_per_s is None else ranks * one.flops_per_s, ranks * one.bytes_per_s)


@lru_cache(maxsize=256)
def _work(cfg: ModelConfig, setting: Setting, ranks: int) -> tuple[Point, Point, int]:
    """Prefill, decode step and bytes needed: the same on every machine."""
    tokens, cache = max(1, setting.context), storage_of_cache(setting.cache)
    prefill = prefill_point(cfg, tokens=tokens, batch=setting.batch, logits=setting.logits, **_moved(setting, ranks))
    held = kv_cache_bytes(cfg, context=setting.context, batch=setting.batch, quantised=cache, tensor_parallel=ranks)
    return prefill, _step(cfg, setting, ranks), served(cfg, setting)["weights"] + ranks * sum(held)


@lru_cache(maxsize=2048)
def _step(cfg: ModelConfig, setting: Setting, ranks: int) -> Point:
    """One decode step."""
    how = _moved(setting, ranks)
    return decode_point(cfg, position=setting.context, batch=setting.batch, latent=setting.latent, **how)


def _moved(setting: Setting, ranks: int) -> dict[str, Any]:
    itemsize, quantised = storage_of_weights(setting.weights)
    return {
        "itemsize": 4 if setting.weights == "float32" else 2,
        "weight_itemsize": itemsize,
        "quantised_weights": quantised,
        "quantised_cache": storage_of_cache(setting.cache),
        "tensor_parallel": ranks,
        "scores": setting.scores,
    }


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
        "x": _outward(min(xs), max(xs)),
        "y": _outward(min(ys), peak or max(ys)),
        "label": f"Roofline of {name}: {'; '.join(map(_said, shown))}",
        "note": note,
        "file": "roofline",
        "mark": drawn_for,
    }
    assert all(isfinite(value) for value in (*meta["x"], *meta["y"]))
    return pack(
        meta, *(np.array(values, np.float64).reshape(-1) for _, path in lines for values in zip(*path, strict=True))
    )


def _outward(low: float, high: float) -> list[float]:
    """Ends of a logarithmic axis, with room, at whole and half powers of ten: they stay while a point moves little."""
    return [10 ** (floor(2 * log10(low / 1.5)) / 2), 10 ** (ceil(2 * log10(high * 1.5)) / 2)]


def _said(point: Mapping[str, Any]) -> str:
    return f"{point['name']} at {sig(point['x'])} FLOPs a byte, {sig(point['y'] / 1e12)} TFLOP/s"


@lru_cache(maxsize=256)
def machine_roofline(cfg: ModelConfig, setting: Setting, machine: Accelerator, ranks: int) -> bytes:
    """The roof of a machine with the prefill, the decode step, and the step's path over batch sizes."""
    here = served_on(cfg, setting, machine, ranks)
    path = [_step(cfg, replace(setting, batch=batch), ranks) for batch in BATCHES]
    times = "" if ranks == 1 else f"{ranks} × "
    name = f"{times}{machine.name}, {here.dtype}"
    ridge = here.roof.ridge
    note = f"The grey path is the decode step from 1 to {group(BATCHES[-1])} sequences. " + (
        f"Below {sig(ridge, 3)} FLOPs a byte memory is the limit." if ridge else "No peak is published: memory alone."
    )
    points = [("prefill", here.prefill), ("decode", here.decode)]
    return roofline_payload(
        name, here.roof, points, paths=[("decode over batch", path)], note=note, drawn_for=f"{mark(setting)}/{ranks}"
    )


@lru_cache(maxsize=256)
def machines_payload(
    cfg: ModelConfig, setting: Setting, chosen: Accelerator, ranks: int, *, to_copy: bool = True
) -> bytes:
    """A row a machine, each `ranks` times: times by the roofline, what bounds them, whether it fits. The numbers
    as they are copied take more room than the table; without them (`to_copy`) it can only be looked at."""
    machines = list(ACCELERATORS) if chosen in ACCELERATORS else [chosen, *ACCELERATORS]
    rows: list[list[str]] = []
    exact: list[list[object]] = []
    work = _work(cfg, setting, ranks)
    for machine in machines:
        found = _on(work, setting, machine, ranks)
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
        numbers = [f"{number:.6g}" for number in (found.first_s, found.next_s, found.tokens_per_s)]
        told = (found.needed_bytes, found.memory_bytes, found.dtype, machine.source)
        exact.append([None, *numbers, None, None, *told])
    return sheet_payload(
        HEAD,
        rows,
        label="Times at least, a row a machine",
        file="machines",
        mark=f"{mark(setting)}/{ranks}",
        exact_head=EXACT_HEAD,
        exact=exact if to_copy else None,
        marked=machines.index(chosen),
    )


@lru_cache(maxsize=256)
def sweep_payload(cfg: ModelConfig, setting: Setting, machine: Accelerator, ranks: int, over: str) -> bytes:
    """Tokens a second of the whole batch, and of one sequence, over the batch or over the context."""
    values = BATCHES if over == "batch" else CONTEXTS
    roof = _roof(machine, arithmetic(setting.weights, machine), ranks)
    settings = [replace(setting, **{over: value}) for value in values]
    steps = [_step(cfg, each, ranks).seconds(roof) for each in settings]
    series = [
        Series("all together", values, [each.batch / step for each, step in zip(settings, steps, strict=True)]),
        Series("each sequence", values, [1 / step for step in steps]),
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
