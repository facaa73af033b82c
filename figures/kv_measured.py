"""Measurements of the running cache: bytes by step, loss by heads and rank, divergence by format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from figures.format import bytes_iec, fixed, group, sig
from figures.kv import size_text
from figures.lines import Scale, Series, lines_payload

STEP_COLUMNS = ("forward", "positions", "used, calculated", "in the cache", "allocated, calculated", "in the cache ")


def steps_payload(steps: Sequence[Any], formula: Callable[[int], int]) -> bytes:
    """Bytes over the forwards (`lmcore.cache_steps.CacheStep`): the formula as lines, the tensors as discs."""
    at = list(range(len(steps)))
    largest = max(step.allocated_bytes for step in steps)
    power = max(0, (largest.bit_length() - 1) // 10)
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    scale = 1024**power
    series = [
        Series("allocated", at, [formula(step.capacity) / scale for step in steps]),
        Series("used", at, [formula(step.length) / scale for step in steps]),
        Series("", at, [step.allocated_bytes / scale for step in steps], discs=True, said="in the cache"),
        Series("", at, [step.used_bytes / scale for step in steps], discs=True, said="in the cache"),
    ]
    return lines_payload(
        series,
        x=Scale("forward, 0 is the prefill", word="Forward"),
        y=Scale(f"{unit} of KV cache: lines calculated, discs in the cache", unit=unit, zero=True),
        label="bytes of the KV cache after each forward",
        file="kv-steps",
        height=300,
    )


def step_rows(steps: Sequence[Any], formula: Callable[[int], int]) -> list[list[str]]:
    """Every byte of every forward, by formula and as counted."""
    return [
        [
            group(index),
            group(step.length),
            *map(group, (formula(step.length), step.used_bytes, formula(step.capacity), step.allocated_bytes)),
        ]
        for index, step in enumerate(steps)
    ]


SURGERY_COLUMNS = (
    "model",
    "cache of the text",
    "of the original",
    "loss, nats",
    "KL",
    "same first choice",
    "share of S² kept",
)


def surgery_rows(points: Sequence[Any], unit: str = "GiB") -> list[list[str]]:
    """A row a changed model (`ui.surgery.Point`), the original first."""
    own = points[0].cache_bytes
    return [
        [
            point.name,
            size_text(point.cache_bytes, unit),
            f"{fixed(100 * point.cache_bytes / own, 1)} %",
            fixed(point.loss, 4),
            "0" if point.divergence == 0 else sig(point.divergence, 3),
            f"{fixed(100 * point.agreement, 1)} %",
            "–" if point.energy is None else fixed(point.energy, 4),
        ]
        for point in points
    ]


def surgery_payload(points: Sequence[Any]) -> bytes:
    """Loss over the share of the original's cache: KV heads merged, and ranks cut, each from the original down."""
    original = points[0]
    series = []
    for kind, name in (("merged", "KV heads merged"), ("cut", "rank cut")):
        found = [point for point in points if point.kind == kind]
        if found:
            line = sorted((original, *found), key=lambda point: point.cache_bytes)
            # At full rank a latent may be smaller than the cache and lose nothing: then the line begins there.
            shares = [100 * point.cache_bytes / original.cache_bytes for point in line]
            series.append(Series(name, shares, [point.loss for point in line], discs=True, dash=kind == "cut"))
    return lines_payload(
        series,
        x=Scale("% of the original’s cache bytes", word="At", whole=False, pad=True),
        y=Scale("mean loss in nats, measured", unit="nats"),
        label="loss over what is left of the cache",
        file="kv-surgery",
        limits=[(original.loss, "as loaded")],
        height=320,
    )


FORMAT_COLUMNS = (
    "format",
    "cache, calculated",
    "in the cache",
    "of full",
    "KL, nats",
    "same first choice",
    "loss, nats",
)


def format_rows(points: Sequence[Any]) -> list[list[str]]:
    """A row a format (`ui.quantising.Point`), full precision first; bytes to the last."""
    own = points[0].used_bytes
    return [
        [
            point.name,
            group(point.expected_bytes),
            group(point.used_bytes),
            f"{fixed(100 * point.used_bytes / own, 1)} %",
            "0" if point.divergence == 0 else sig(point.divergence, 3),
            f"{fixed(100 * point.agreement, 1)} %",
            fixed(point.loss, 4),
        ]
        for point in points
    ]


def formats_payload(points: Sequence[Any]) -> bytes:
    """KL divergence of each format, those that differ from full precision, on a logarithmic axis."""
    lossy = [point for point in points[1:] if point.divergence > 0]
    at = list(range(1, len(lossy) + 1))
    return lines_payload(
        [Series("", at, [point.divergence for point in lossy], discs=True, said="KL", joined=False)] if lossy else [],
        x=Scale(
            "format",
            ticks=[(k, point.name) for k, point in zip(at, lossy, strict=True)],
            word="Format",
            whole=False,
            pad=True,
        ),
        y=Scale("KL divergence of the next token in nats, measured, log scale", log=True, unit="nats"),
        label="KL divergence by format",
        file="kv-formats",
        height=300,
    )


def saved(own: int, now: int) -> str:
    """How much smaller, in words: 3.2 times smaller (12.3 MiB)."""
    return f"{fixed(own / now, 1)} times smaller ({bytes_iec(own - now)} saved)" if now < own else "no smaller"
