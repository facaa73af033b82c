"""What the KV cache of a config takes: a row a model, a curve over the context, what fits beside the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from figures.format import bytes_iec, fixed, group
from figures.lines import Scale, Series, lines_payload
from lmcore.bounds import MAX_COUNT
from lmcore.config import ModelConfig
from lmcore.costs import weight_bytes
from lmcore.formats import FORMATS, Quantised
from lmcore.hardware import Accelerator
from lmcore.kv_costs import Storage, kv_cache_bytes, largest_batch, longest_context
from lmcore.specs import Latent

UNITS = ("GiB", "GB")
SPAN = 32
"""Positions over which bytes a token are averaged: a whole group of every format, so that its scales count once."""
KIVI, RESIDUAL = "KIVI 2 bit", 128
"""The format whose newest positions stay in 16 bits, and how many of them in its paper."""
_SI = ("B", "kB", "MB", "GB", "TB", "PB")
_PLAIN = {"float32": 4, "16 bit": 2}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How much is cached and how: the arguments of `kv_cache_bytes`, the format by its name in `FORMATS`; pages of one
    position are no pages."""

    context: int
    batch: int = 1
    format: str = "16 bit"
    beams: int = 1
    ranks: int = 1
    page: int = 1
    keep: str = "window"

    def how(self, **changes: Any) -> dict[str, Any]:
        """The keyword arguments, some of them changed."""
        itemsize = _PLAIN.get(self.format)
        storage: Storage | None = None if itemsize else FORMATS[self.format]
        given: dict[str, Any] = {
            "batch": self.batch,
            "itemsize": itemsize or 2,
            "beams": self.beams,
            "tensor_parallel": self.ranks,
            "page": None if self.page == 1 else self.page,
            "quantised": storage,
            "keep": self.keep,
        }
        return given | changes


@dataclass(frozen=True)
class Sizes:
    """Bytes on one rank: a token over all layers (a mean, where a group of several shares a scale), one token more at
    this context, one sequence, the batch; and the batch on all ranks."""

    per_token: float
    one_more: int
    sequence: int
    batch: int
    all_ranks: int


@lru_cache(maxsize=4096)
def sizes(cfg: ModelConfig, setting: Setting) -> Sizes:
    """The cache of a config under a setting. Raises InputError, naming the argument."""
    context = setting.context
    one = setting.how(batch=1, beams=1)
    loose = setting.how(batch=1, beams=1, page=None, keep="all")
    batch = sum(kv_cache_bytes(cfg, context=context, **setting.how()))
    span = sum(kv_cache_bytes(cfg, context=SPAN, **loose))
    sequence = sum(kv_cache_bytes(cfg, context=context, **one))
    more = sum(kv_cache_bytes(cfg, context=context + 1, **one)) - sequence
    return Sizes(span / SPAN, more, sequence, batch, batch * setting.ranks)


@lru_cache(maxsize=8192)
def size_text(n: float, unit: str) -> str:
    """Bytes in the largest unit they fill, of 1024 or of 1000, three digits; below that every digit."""
    if unit == "GiB":
        return bytes_iec(int(n)) if n == int(n) else f"{fixed(n, 1)} B"
    power = 0
    while power < len(_SI) - 1 and abs(n) >= 1000 ** (power + 1):
        power += 1
    if not power:
        return f"{group(int(n))} B" if n == int(n) else f"{fixed(n, 1)} B"
    value = n / 1000**power
    return f"{fixed(value, max(0, 3 - len(str(int(abs(value))))))} {_SI[power]}"


def newest_bytes(cfg: ModelConfig, setting: Setting) -> int:
    """Bytes of the batch's newest RESIDUAL positions in 16 bits: the most that they add to the KIVI format, which keeps
    them so (Liu et al. 2024, section 4.1) and whose bytes here are those of a cache quantised throughout."""
    how = setting.how(itemsize=2, quantised=None)
    return sum(kv_cache_bytes(cfg, context=min(setting.context, RESIDUAL), **how))


def kind_of(cfg: ModelConfig) -> str:
    """What shares what, in a few words: "GQA, 64 on 8 heads of 128"; windows are named."""
    a = cfg.attention
    if isinstance(a, Latent):
        said = f"MLA, latent {group(a.kv_rank)} + {group(a.rope_dim)}"
    else:
        kind = "MHA" if a.n_kv_heads == a.n_heads else "MQA" if a.n_kv_heads == 1 else "GQA"
        said = f"{kind}, {group(a.n_heads)} on {group(a.n_kv_heads)} heads of {group(a.head_dim)}"
    local = sum(kind == "sliding" for kind in cfg.layer_types)
    return said + (f", {local} of {cfg.n_layers} layers w {group(cfg.window)}" if local and cfg.window else "")


def model_rows(found: Sequence[tuple[str, ModelConfig, Sizes]], setting: Setting, unit: str) -> list[list[str]]:
    """A row a model: what it shares, bytes a token, of one more, a sequence, the batch, on all ranks if several."""
    rows = []
    for name, cfg, size in found:
        numbers = [size.per_token, size.one_more, size.sequence]
        if setting.batch * setting.beams > 1:
            numbers.append(size.batch)
        if setting.ranks > 1:
            numbers.append(size.all_ranks)
        rows.append([name, kind_of(cfg), *(size_text(n, unit) for n in numbers)])
    return rows


def model_columns(setting: Setting) -> list[str]:
    rank = " on a rank" if setting.ranks > 1 else ""
    columns = ["model", "heads", f"a token{rank}", "one token more", f"one sequence{rank}"]
    if setting.batch * setting.beams > 1:
        columns.append(f"{group(setting.batch * setting.beams)} sequences{rank}")
    return [*columns, f"on {group(setting.ranks)} ranks"] if setting.ranks > 1 else columns


def contexts(longest: int) -> np.ndarray:
    """Where the curve is drawn: from 128 to `longest`, at least 1 048 576, which is where the page's slider ends; two
    points an octave."""
    top = max(longest, 2**20)
    steps = [128 * 2 ** (half / 2) for half in range(80)]
    return np.unique([round(step) for step in steps if step < top] + [top])


def context_payload(
    found: Sequence[tuple[str, ModelConfig]], setting: Setting, *, unit: str, limit: tuple[int, str] | None = None
) -> bytes:
    """The lines component: bytes of the batch on one rank over the context, both logarithmic, for each config; `limit`
    is a memory."""
    divisor = 2**30 if unit == "GiB" else 10**9
    top = max(setting.context, 2**20)
    x, sequences = contexts(top), setting.batch * setting.beams
    one = replace(setting, context=0, batch=1, beams=1)
    series = [Series(name, x, [sequences * n / divisor for n in _curve(cfg, one, top)]) for name, cfg in found]
    rank = " on a rank" if setting.ranks > 1 else ""
    return lines_payload(
        series,
        x=Scale("context, in tokens", log=True, ticks=_octaves(int(x[-1])), word="Context"),
        y=Scale(f"{unit} of KV cache{rank}, calculated, log scale", log=True, unit=unit),
        label=f"{unit} of KV cache over the context",
        file="kv-cache",
        current=setting.context,
        limits=[] if limit is None else [(limit[0] / divisor, limit[1])],
    )


@lru_cache(maxsize=512)
def _curve(cfg: ModelConfig, setting: Setting, top: int) -> tuple[int, ...]:
    """Bytes on one rank at each of `contexts(top)`: of one sequence, the same for each, under the others' setting."""
    return tuple(sum(kv_cache_bytes(cfg, context=int(at), **setting.how())) for at in contexts(top))


def _octaves(top: int) -> list[tuple[float, str]]:
    return [(2**power, context_text(2**power)) for power in range(7, 31) if 2**power <= top]


def context_text(n: int) -> str:
    """A context as people write it: 4k, 128k, 1M where it is a power of two; else every digit."""
    for scale, mark in ((2**20, "M"), (2**10, "k")):
        if n >= scale and n % scale == 0:
            return f"{group(n // scale)}{mark}"
    return group(n)


@dataclass(frozen=True)
class Fit:
    """What one accelerator holds of a model: bytes of weights on a rank, bytes left for the cache, then the longest
    context of the batch and the most sequences of the context; None without end."""

    machine: Accelerator
    weights: int
    free: int
    longest: int | None
    most: int | None


WEIGHTS: dict[str, int | Quantised] = {
    "float32": 4,
    "16 bit": 2,
    "fp8": Quantised(bits=8),
    "q8_0": Quantised(bits=8, group=32, scale_bytes=2),
    "int4, groups of 128": Quantised(bits=4, group=128, scale_bytes=2, zero_bytes=2),
    "q4_0": Quantised(bits=4, group=32, scale_bytes=2),
}


def weights_on_rank(cfg: ModelConfig, stored: str, ranks: int) -> int:
    """Bytes of weights on each of `ranks`, split evenly, rounded up: norms and biases, in truth on every rank, are
    below a thousandth."""
    how = WEIGHTS[stored]
    total = weight_bytes(cfg, 2, quantised=how) if isinstance(how, Quantised) else weight_bytes(cfg, how)
    return -(-total // ranks)


def fits(
    cfg: ModelConfig, setting: Setting, machines: Sequence[Accelerator], *, stored: str, reserve: int
) -> list[Fit]:
    """What fits on each machine (one a rank) beside the weights, `reserve` percent of its memory kept free."""
    weights = weights_on_rank(cfg, stored, setting.ranks)
    free = [machine.memory_bytes * (100 - reserve) // 100 - weights for machine in machines]
    ends = {room: (0, 0) if room <= 0 else _ends(cfg, setting, room) for room in set(free)}
    return [Fit(machine, weights, room, *ends[room]) for machine, room in zip(machines, free, strict=True)]


@lru_cache(maxsize=8192)
def _ends(cfg: ModelConfig, setting: Setting, free: int) -> tuple[int | None, int | None]:
    """The longest context of the setting's batch, and the most sequences of its context; None without end."""
    others = {name: value for name, value in setting.how().items() if name != "batch"}
    most = largest_batch(cfg, free_bytes=free, context=setting.context, **others)
    return _longest(cfg, replace(setting, context=0), free), None if most >= MAX_COUNT else most


@lru_cache(maxsize=8192)
def _longest(cfg: ModelConfig, setting: Setting, free: int) -> int | None:
    """The longest context of the batch, whatever the setting's own is."""
    longest = longest_context(cfg, free_bytes=free, **setting.how())
    return None if longest >= MAX_COUNT else longest


def fit_rows(found: Sequence[Fit], unit: str) -> list[list[str]]:
    """A row a machine; where the weights themselves do not fit it says so."""
    rows = []
    for fit in found:
        memory, weights = (size_text(n, unit) for n in (fit.machine.memory_bytes, fit.weights))
        if fit.free <= 0:
            rows.append([fit.machine.name, memory, weights, "weights do not fit", "–", "–"])
            continue
        left = size_text(fit.free, unit)
        ends = ["without end" if n is None else group(n) for n in (fit.longest, fit.most)]
        rows.append([fit.machine.name, memory, weights, left, *ends])
    return rows
