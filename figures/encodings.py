"""Positions that are no rotation, as payloads: tables added to the embedding, ALiBi's bias, T5's buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from figures.extrapolation import Curve, curves_payload
from figures.format import fixed, group, sig
from figures.payload import pack

MOST_CELLS = 256
"""Rows, and columns, that a field of colour draws; a larger table is pooled."""


@dataclass(frozen=True)
class Axis:
    """A side of a field: its title, the word for one index, the index it begins with, and indices a cell stands for."""

    title: str
    word: str
    first: int = 0
    step: int = 1


def heat_payload(
    values: np.ndarray,
    *,
    file: str,
    title: str,
    rows: Axis,
    columns: Axis,
    kind: str = "signed",
    low: float | None = None,
    high: float | None = None,
    digits: int = 4,
    square: bool = False,
    note: str = "",
) -> bytes:
    """The payload of the heat component for a table (R, C): 4 bytes a cell, NaN where there is none.

    `kind`: "signed", about zero up to `high`; "linear" from `low` to `high`; "root", by the square root from zero. The
    ends are those of the values unless given. `file` is the name under which it is saved.
    """
    largest = float(np.nanmax(np.abs(values))) if kind == "signed" else float(np.nanmax(values))
    meta = {
        "file": file,
        "title": title,
        "row_title": rows.title,
        "row_word": rows.word,
        "row_first": rows.first,
        "row_step": rows.step,
        "column_title": columns.title,
        "column_word": columns.word,
        "column_first": columns.first,
        "column_step": columns.step,
        "kind": kind,
        "low": float(np.nanmin(values)) if low is None else low,
        "high": largest if high is None else high,
        "digits": digits,
        "square": square,
        "note": note,
    }
    return pack(meta, np.asarray(values, np.float32))


def pooled(values: np.ndarray, most: int = MOST_CELLS) -> tuple[np.ndarray, int, int]:
    """The table with at most `most` rows and columns, and how many of each a cell stands for: of those the value
    furthest from zero, so that nothing large is left out."""
    by_row, by_column = (math.ceil(side / most) for side in values.shape)
    if by_row == by_column == 1:
        return values, 1, 1
    rows, columns = (math.ceil(side / by) for side, by in zip(values.shape, (by_row, by_column), strict=True))
    padded = np.zeros((rows * by_row, columns * by_column), values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    cells = padded.reshape(rows, by_row, columns, by_column).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    chosen = np.abs(cells).argmax(-1)
    return np.take_along_axis(cells, chosen[..., None], -1)[..., 0], by_row, by_column


def table_payload(table: np.ndarray, *, file: str, title: str) -> bytes:
    """A table of positions (P, D) as it is added to the embedding, positions down."""
    shown, by_row, by_column = pooled(table)
    note = ""
    if by_row * by_column > 1:
        note = f"Each cell is the value furthest from zero of {by_row} × {by_column}."
    return heat_payload(
        shown,
        file=file,
        title=title,
        rows=Axis("position", "position", step=by_row),
        columns=Axis("dim", "dim", step=by_column),
        note=note,
    )


def cosines(table: np.ndarray) -> np.ndarray:
    """(P, P): the cosine between the rows of a table; 0 for a row of zeros."""
    lengths = np.linalg.norm(table.astype(np.float64), axis=1, keepdims=True)
    unit = np.divide(table, lengths, out=np.zeros(table.shape), where=lengths > 0)
    return unit @ unit.T


def likeness_payload(table: np.ndarray) -> bytes:
    """How alike the rows of two positions are, as cosines (P, P); of a long table every n-th position."""
    step = math.ceil(len(table) / MOST_CELLS)
    return heat_payload(
        cosines(table[::step]),
        file="position-cosines",
        title="Cosine of the rows of two positions",
        rows=Axis("position", "positions", step=step),
        columns=Axis("position", "and", step=step),
        high=1.0,
        square=True,
        note=f"Every {step}th position is shown." if step > 1 else "",
    )


def alibi_payload(slopes: np.ndarray, distances: int) -> bytes:
    """ALiBi's bias `-m_h n` for each head h and distance n (H, n)."""
    return heat_payload(
        -slopes[:, None] * np.arange(distances),
        file="alibi-bias",
        title="Bias on the scaled score",
        rows=Axis("head", "head"),
        columns=Axis("distance i − j", "distance"),
    )


def slopes_payload(slopes: np.ndarray) -> bytes:
    """The slope of each head on a log axis."""
    x = np.arange(len(slopes), dtype=np.float64)
    curve = Curve("", 0, x, slopes, np.full(len(slopes), np.nan))
    return curves_payload(
        [curve],
        file="alibi-slopes",
        label="Slope of each head",
        x_title="head",
        y_title="slope, log scale",
        x_word="head",
        x_ticks=_few(len(slopes)),
        digits=5,
        discs=True,
        joined=False,
        log=True,
    )


def buckets_payload(buckets: np.ndarray) -> bytes:
    """The bucket of each distance 0 .. n - 1."""
    x = np.arange(len(buckets), dtype=np.float64)
    curve = Curve("", 0, x, buckets.astype(np.float64), np.full(len(x), np.nan))
    return curves_payload(
        [curve],
        file="t5-buckets",
        label="T5's bucket of each distance",
        x_title="distance i − j",
        y_title="bucket",
        x_word="distance",
        digits=0,
        from_zero=True,
    )


def bias_payload(bias: np.ndarray, buckets: np.ndarray, *, owner: str) -> bytes:
    """A learned bias of each head at each distance, (H, n), of which `buckets` (n,) says which share a number."""
    last = int((buckets == buckets[-1]).argmax())
    return heat_payload(
        bias,
        file="t5-bias",
        title=f"Bias of each head at each distance, as {owner} has learned it",
        rows=Axis("head", "head"),
        columns=Axis("distance i − j", "distance"),
        note=f"From distance {last} on all share one bucket.",
    )


def distance_payload(curves: list[Curve], *, y_title: str, label: str, note: str) -> bytes:
    """A number at each distance, a line for each model."""
    return curves_payload(
        curves,
        file="score-by-distance",
        label=label,
        x_title="distance i − j",
        y_title=y_title,
        x_word="distance",
        digits=3,
        note=note,
    )


def sinusoids_said(table: np.ndarray) -> list[str]:
    """What the table shows, computed from it."""
    alike = cosines(table)
    spread = max(float(np.ptp(np.diagonal(alike, offset))) for offset in range(len(table)))
    waves = 2 * math.pi * 10_000 ** (np.arange(0, table.shape[1], 2) / table.shape[1])
    whole = int((waves <= len(table)).sum())
    return [
        f"The wavelengths run from {fixed(float(waves[0]), 2)} to {fixed(float(waves[-1]), 0)} positions; "
        f"{group(whole)} of {group(len(waves))} pairs complete one within this table.",
        "How alike two rows are depends on their distance alone: along each diagonal the cosine varies by at most "
        f"{sig(spread, 1)}.",
    ]


def learned_said(table: np.ndarray, alike: np.ndarray, owner: str) -> list[str]:
    """What a learned table shows; `alike` are its cosines, `owner` is safe in Markdown."""
    far = max(1, len(table) // 2)
    near, away = float(np.diagonal(alike, 1).mean()), float(np.diagonal(alike, far).mean())
    spread = float(np.diagonal(alike, 1).std())
    lengths = np.linalg.norm(table.astype(np.float64), axis=1)
    return [
        f"Of {owner}. Rows of neighbouring positions have a cosine of {fixed(near, 3)} in the mean, rows "
        f"{group(far)} apart {fixed(away, 3)}.",
        f"No rule ties one row to the next: the cosine of neighbours varies with a standard deviation of "
        f"{fixed(spread, 3)}.",
        f"Rows are {fixed(float(lengths.min()), 2)} to {fixed(float(lengths.max()), 2)} long; the first is "
        f"{fixed(float(lengths[0]), 2)}.",
    ]


def alibi_said(slopes: np.ndarray) -> list[str]:
    """What the slopes mean for weights: e^(-m n) halves every ln 2 / m positions."""
    steep, flat = int(slopes.argmax()), int(slopes.argmin())
    count, lower = len(slopes), 2 ** math.floor(math.log2(len(slopes)))
    points = [
        f"The bias alone halves a weight every {sig(math.log(2) / slopes[steep], 2)} positions in head {steep}, and "
        f"every {sig(math.log(2) / slopes[flat], 3)} in head {flat}."
    ]
    if count == lower:
        return [*points, f"{group(count)} is a power of two: each slope is {sig(2 ** (-8 / count), 3)} times the last."]
    return [
        *points,
        f"{group(count)} is no power of two: heads 0 to {lower - 1} have the slopes of {group(lower)} heads, heads "
        f"{lower} to {count - 1} those between.",
    ]


def buckets_said(buckets: np.ndarray) -> list[str]:
    """Which distances share a bucket, from the buckets of the distances 0, 1, 2, ..."""
    sizes = np.bincount(buckets)
    alone = int((sizes == 1).argmin()) if not (sizes == 1).all() else len(sizes)
    last = int(np.flatnonzero(buckets == buckets[-1])[0])
    return [
        f"Distances 0 to {group(alone - 1)} have a bucket each; from {group(last)} on all share bucket "
        f"{group(int(buckets[-1]))}: beyond it a model with this bias cannot tell far from farther."
    ]


def _few(count: int) -> list[float]:
    """At most six whole numbers from 0 to count - 1."""
    step = max(1, math.ceil((count - 1) / 5))
    return [float(at) for at in range(0, count, step)]
