"""What a config costs at one setting: groups of bars, the same as a table, and the sentences that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

from figures.format import bytes_iec, group, sig, unbroken
from figures.payload import pack
from figures.sheet import sheet_payload
from lmcore.config import ModelConfig
from lmcore.costs import active_counts, param_counts, weight_bytes
from lmcore.flops import COMPONENTS, crossover, decode_flops, prefill_flops, training_flops
from lmcore.formats import FORMATS, Quantised
from lmcore.kv_costs import Storage, kv_cache_bytes
from lmcore.traffic import activation_bytes, score_bytes, training_state_bytes

ACTIVE = {
    "all": "everything",
    "no input table": "without_input",
    "blocks only": "without_either",
}
COUNTED = {
    "all": "with embedding and head",
    "no input table": "without the looked-up embedding",
    "blocks only": "without embedding and head",
}
WEIGHTS = ("float32", "16 bit", "fp8", "q8_0", "q4_0", "int4, groups of 128")
PARTS = {
    "projections": "q, k, v, o projections",
    "scores": "scores q kᵀ",
    "mix": "mix of values",
    "ffn": "feed-forward",
    "logits": "logits",
}
START = {"context": 4096, "batch": 1}
"""The lengths that the page starts with."""
_FLOPS = tuple((10**power, prefix) for power, prefix in zip(range(24, 0, -3), "YZEPTGMk", strict=True))
_SI = ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_COUNTS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is asked: lengths, storage, and the conventions that the numbers are counted by."""

    context: int
    batch: int
    weights: str = "16 bit"
    cache: str = "16 bit"
    macs: bool = False
    decimal: bool = False
    attention: str = "executed"
    logits: str = "last"
    active: str = "all"
    recompute: str = "none"
    scores: str = "fused"
    latent: str = "as run"

    @property
    def item(self) -> str:
        return "MAC" if self.macs else "FLOP"


def storage_of_weights(name: str) -> tuple[int, Quantised | None]:
    """Bytes a number, and how the layers' matrices are stored where that is less; the rest then keeps 16 bits."""
    stored = FORMATS[name]
    assert isinstance(stored, Quantised)
    return (stored.bits // 8, None) if stored.group is None else (2, stored)


def storage_of_cache(name: str) -> Storage:
    return FORMATS[name]


def flops(cfg: ModelConfig, setting: Setting) -> dict[str, dict[str, int]]:
    """FLOPs by phase and component: a training step, a prefill, one decode step after `context` cached positions."""
    how: dict[str, Any] = {"batch": setting.batch, "attention": setting.attention}
    return {
        "training": training_flops(cfg, tokens=setting.context, recompute=setting.recompute, **how),
        "prefill": prefill_flops(cfg, tokens=setting.context, logits=setting.logits, **how),
        "decode": decode_flops(cfg, position=setting.context, latent=setting.latent, **how),
    }


def served(cfg: ModelConfig, setting: Setting) -> dict[str, int]:
    """Bytes that serving holds: weights, and the cache of `batch` sequences of `context` positions."""
    itemsize, quantised = storage_of_weights(setting.weights)
    cache = kv_cache_bytes(cfg, context=setting.context, batch=setting.batch, quantised=storage_of_cache(setting.cache))
    return {"weights": weight_bytes(cfg, itemsize, quantised=quantised), "KV cache": sum(cache)}


def trained(cfg: ModelConfig, setting: Setting) -> dict[str, int]:
    """Bytes that a training step holds in mixed precision with AdamW."""
    state = training_state_bytes(cfg)
    kept = activation_bytes(
        cfg, tokens=setting.context, batch=setting.batch, scores=setting.scores, recompute=setting.recompute
    )
    moments = state.pop("first moment") + state.pop("second moment")
    logits, scores = kept.pop("logits"), kept.pop("scores")
    held = state | {"AdamW's moments": moments, "activations": sum(kept.values())}
    return held | {"T × T weights" if setting.scores == "written" else "softmax normalisers": scores, "logits": logits}


class Group(NamedTuple):
    """A group of bars: numbers by what they are of, how one is written, a note; `scale` divides what is copied."""

    title: str
    parts: Mapping[str, int]
    write: Callable[[int], tuple[str, str]]
    note: str = ""
    scale: int = 1


@lru_cache(maxsize=256)
def costs_payload(cfg: ModelConfig, setting: Setting, *, to_copy: bool = True) -> bytes:
    """Six groups of bars, FLOPs of three phases, parameters, bytes to serve and to train; then what is noticed. Every
    digit goes along for a CSV, unless it is only looked at (not `to_copy`)."""
    groups = [*_phases(cfg, setting), _parameters(cfg, setting), *_memory(cfg, setting)]
    exact = [["of", "part", "number"]]
    for each in groups:
        numbers = {**each.parts, "all": sum(each.parts.values())}
        exact += [[each.title, name, str(n // each.scale)] for name, n in numbers.items()]
    meta = {
        "groups": [_drawn(each) for each in groups],
        "noticed": [unbroken(sentence) for sentence in noticed(cfg, setting)],
        "csv": exact if to_copy else None,
        "address": address(setting),
        "mark": mark(setting),
    }
    return pack(meta)


def _phases(cfg: ModelConfig, setting: Setting) -> list[Group]:
    counted = flops(cfg, setting)
    sequences = f"{group(setting.batch)} × {group(setting.context)} tokens"
    step = f"of position {group(setting.context)}, {_plural(setting.batch, 'sequence')}"
    rule = _six(cfg, setting.context * setting.batch, sum(counted["training"].values()))

    def phase(name: str, title: str, note: str = "") -> Group:
        parts = {PARTS[part]: n for part, n in counted[name].items()}
        return Group(title, parts, partial(flops_text, setting=setting), note, 2 if setting.macs else 1)

    return [
        phase("training", f"Training step, {sequences}", rule),
        phase("prefill", f"Prefill, {sequences}"),
        phase("decode", f"Decode step, {step}"),
    ]


def _parameters(cfg: ModelConfig, setting: Setting) -> Group:
    parts = {name: n for name, n in vars(param_counts(cfg)).items() if n}
    if cfg.tied:
        parts = {"embedding, also the head" if name == "embedding" else name: n for name, n in parts.items()}
    return Group("Parameters", parts, count_text, _active(cfg, setting))


def _memory(cfg: ModelConfig, setting: Setting) -> list[Group]:
    def write(n: int) -> tuple[str, str]:
        value, _, unit = bytes_text(n, setting).rpartition(" ")
        return value, unit

    written = score_bytes(cfg, queries=setting.context, keys=setting.context, batch=setting.batch)
    note = f"T × T weights of one layer, were they written out in 16 bits: {bytes_text(written, setting)}."
    kept = "Weights and gradients in 16 bits, master weights and moments in float32."
    return [
        Group("Memory to serve", served(cfg, setting), write, note),
        Group("Memory to train", trained(cfg, setting), write, kept),
    ]


def address(setting: Setting) -> dict[str, int | None]:
    """What the page's address says of the lengths: the number, nothing where it is what the page starts with."""
    return {f"cost_{name}": None if (n := getattr(setting, name)) == START[name] else n for name in START}


@lru_cache(maxsize=256)
def table_payload(cfg: ModelConfig, setting: Setting) -> bytes:
    """FLOPs by component and phase, every digit, with totals."""
    counted, divide = flops(cfg, setting), 2 if setting.macs else 1
    head = [f"{setting.item}s", "training step", "prefill", "decode step"]
    phases = ("training", "prefill", "decode")
    rows = [[PARTS[name], *(group(counted[phase][name] // divide) for phase in phases)] for name in COMPONENTS]
    rows.append(["all", *(group(sum(counted[phase].values()) // divide) for phase in phases)])
    label = f"{setting.item}s by component and phase"
    return sheet_payload(head, rows, label=label, file="flops", mark=mark(setting))


def mark(setting: Setting) -> str:
    """What a figure was drawn for, for whoever waits for it."""
    return f"{setting.context}/{setting.batch}/{setting.item}/{setting.decimal:d}"


def noticed(cfg: ModelConfig, setting: Setting) -> list[str]:
    """What follows from the numbers, in up to three sentences."""
    points = []
    prefill, decode = _crossovers(cfg, setting.attention)
    where = "as executed" if setting.attention == "executed" else "counting what the mask lets through"
    if prefill is None and decode is None:
        points.append(
            f"Windows keep attention's scores and mix below projections and feed-forward at any context ({where})."
        )
    else:
        first = f"from {group(prefill)} tokens in a prefill" if prefill else "never in a prefill"
        then = f"from a context of {group(decode)} in a decode step" if decode else "never in a decode step"
        points.append(f"Attention's scores and mix overtake projections and feed-forward {first}, {then} ({where}).")
    held = served(cfg, setting)
    one = sum(kv_cache_bytes(cfg, context=setting.context, quantised=storage_of_cache(setting.cache)))
    if one:
        alike = held["weights"] / one
        points.append(
            f"At this context one sequence's cache takes {bytes_text(one, setting)}; "
            + (f"the weights take {sig(alike)} times as much." if alike > 1 else "that is no less than the weights.")
        )
    beyond = " This context is longer, and counted all the same." if setting.context > cfg.max_positions else ""
    points.append(f"The config is made for {_plural(cfg.max_positions, 'position')}.{beyond}")
    return points


@lru_cache(maxsize=64)
def _crossovers(cfg: ModelConfig, attention: str) -> tuple[int | None, int | None]:
    """The context from which on attention takes more than the rest, in a prefill and in a decode step."""
    return crossover(cfg, phase="prefill", attention=attention), crossover(cfg, phase="decode", attention=attention)


def flops_text(n: int, setting: Setting) -> tuple[str, str]:
    """A number of FLOPs (or multiply-adds, half as many) in four figures, and its unit."""
    value = n // 2 if setting.macs else n
    scale, prefix = next(((scale, prefix) for scale, prefix in _FLOPS if value >= scale), (1, ""))
    return (group(value) if scale == 1 else sig(value / scale, 4)), f"{prefix}{setting.item}"


def count_text(n: int) -> tuple[str, str]:
    scale, word = next(((scale, word) for scale, word in _COUNTS if n >= scale), (1, ""))
    return (group(n) if scale == 1 else sig(n / scale, 4)), word


def bytes_text(n: int, setting: Setting) -> str:
    """Bytes in binary units (1 GiB = 2^30) or decimal ones (1 GB = 10^9)."""
    if not setting.decimal:
        return bytes_iec(n)
    scale, unit = next(((scale, unit) for scale, unit in _SI if n >= scale), (1, "B"))
    return f"{group(n) if scale == 1 else sig(n / scale, 3)} {unit}"


def _drawn(of: Group) -> dict[str, Any]:
    largest = max(of.parts.values(), default=0) or 1
    value, unit = of.write(sum(of.parts.values()))
    rows = [
        {"name": name, "text": " ".join(of.write(n)).strip(), "share": round(n / largest, 4)}
        for name, n in of.parts.items()
    ]
    return {"title": of.title, "value": value, "unit": unit, "note": of.note, "parts": rows}


def _active(cfg: ModelConfig, setting: Setting) -> str:
    counts = active_counts(cfg)
    n = getattr(counts, ACTIVE[setting.active])
    words = " ".join(count_text(n)).strip()
    if not counts.unused_experts:
        return f"All of them are active. Counted {COUNTED[setting.active]}: {words}, {group(n)}."
    return f"Active for one token, counted {COUNTED[setting.active]}: {words}, {group(n)}."


def _six(cfg: ModelConfig, tokens: int, exact: int) -> str:
    rule = 6 * active_counts(cfg).without_input * tokens
    share = sig(rule / exact, 3) if exact else "0"
    return f"6 N D, with N the active parameters without the input embedding, gives {share} of it."


def _plural(n: int, word: str) -> str:
    return f"{group(n)} {word}" if n == 1 else f"{group(n)} {word}s"
