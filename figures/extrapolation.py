"""Loss, entropy and first-key weight over positions as payloads of the curves component, and what the losses say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from figures.format import fixed, group
from figures.payload import pack
from figures.sheet import sheet_payload

LAST_COLOUR = 8
"""The theme has so many colours for series; a chart has no more lines."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One line: its name, the number of its colour, and (n,) positions, values and errors (NaN for none)."""

    name: str
    colour: int
    x: np.ndarray
    y: np.ndarray
    error: np.ndarray


def curves_payload(
    curves: Sequence[Curve],
    *,
    file: str,
    label: str,
    x_title: str,
    y_title: str,
    unit: str = "",
    digits: int = 2,
    width: int = 1,
    first: int = 0,
    x_word: str = "position",
    x_ticks: Sequence[float] = (),
    x_range: tuple[float, float] | None = None,
    verticals: Sequence[tuple[float, str]] = (),
    limits: Sequence[tuple[float, str]] = (),
    discs: bool = False,
    joined: bool = True,
    from_zero: bool = False,
    bands: bool = False,
    log: bool = False,
    spread: str = "standard error",
    note: str = "",
) -> bytes:
    """The payload of the curves component: 24 bytes a point.

    Every curve has the positions of the longest one, or the first of them. `width`: positions that a point stands for;
    the reading then names them from `first` on. `verticals` and `limits` are (value, label) of dotted lines; `discs`
    marks the points, which are no line unless `joined`; with `bands` the axis holds the errors, too. The chart is saved
    under the name `file`, and `spread` says there what the errors are.
    Raises ValueError for curves over different positions.
    """
    longest = max(curves, key=lambda curve: len(curve.x))
    for curve in curves:
        if not np.array_equal(curve.x, longest.x[: len(curve.x)]):
            raise ValueError(f"the curve {curve.name!r} is over other positions than {longest.name!r}")
    meta = {
        "lines": [{"name": curve.name, "colour": curve.colour % LAST_COLOUR} for curve in curves],
        "file": file,
        "label": label,
        "x_title": x_title,
        "y_title": y_title,
        "x_word": x_word,
        "x_ticks": [float(tick) for tick in x_ticks],
        "x_range": None if x_range is None else [float(end) for end in x_range],
        "verticals": [[float(at), text] for at, text in verticals],
        "limits": [[float(at), text] for at, text in limits],
        "discs": discs,
        "joined": joined,
        "unit": unit,
        "digits": digits,
        "width": width,
        "first": first,
        "from_zero": from_zero,
        "bands": bands,
        "log": log,
        "spread": spread,
        "note": note,
    }
    arrays = [np.asarray(part, np.float64) for curve in curves for part in (curve.x, curve.y, curve.error)]
    return pack(meta, *arrays)


def doublings(trained: int, length: int) -> list[float]:
    """The trained length and its doublings up to a length: where a chart of positions has its ticks."""
    ticks = [trained]
    while ticks[-1] * 2 <= length:
        ticks.append(ticks[-1] * 2)
    return [float(tick) for tick in ticks]


@dataclass(frozen=True)
class Merit:
    """A run as a row of the table: its mean loss within the trained length and beyond it.

    `pieces`: of the tokens beyond, read in pieces of the trained length by the unscaled model; `rise_error` is the
    standard error of the mean over windows of `beyond - pieces`. NaN where there is nothing: a model that stops has no
    loss beyond.
    """

    name: str
    within: float
    beyond: float
    pieces: float
    rise_error: float

    @property
    def rise(self) -> float:
        """What the length costs: the loss beyond over that of the same tokens in pieces."""
        return self.beyond - self.pieces


def by_merit(rows: Sequence[Merit]) -> list[Merit]:
    """The lowest loss beyond first; those that stop, last."""
    return sorted(rows, key=lambda row: (not np.isfinite(row.beyond), row.beyond))


def merit_payload(rows: Sequence[Merit], *, label: str, file: str) -> bytes:
    """The rows as a table in nats per token, narrow enough for a phone; it is copied and saved with every digit."""
    ordered = by_merit(rows)
    return sheet_payload(
        ["nats per token", "within", "beyond", "in pieces", "rise"],
        [_cells(row) for row in ordered],
        label=label,
        file=file,
        mark="",
        exact=[_exact(row) for row in ordered],
    )


def _cells(row: Merit) -> list[str]:
    runs = np.isfinite(row.beyond)
    beyond, rise = (fixed(row.beyond, 2), _signed(row.rise)) if runs else ("stops", "")
    return [row.name, fixed(row.within, 2), beyond, fixed(row.pieces, 2), rise]


def _exact(row: Merit) -> list[float | None]:
    """None where the cell says all: the name, and that a model stops."""
    beyond, rise = (row.beyond, row.rise) if np.isfinite(row.beyond) else (None, None)
    return [None, row.within, beyond, row.pieces, rise]


def encodings_said(rows: Sequence[Merit], *, times: int) -> list[str]:
    """What the losses of the encodings say, from the numbers alone."""
    running = [row for row in by_merit(rows) if np.isfinite(row.beyond)]
    stopped = [row for row in rows if not np.isfinite(row.beyond)]
    worst = max(running, key=lambda row: row.rise)
    holds = [row for row in running if row.rise < 2 * row.rise_error]
    points = [
        f"**{worst.name}** suffers most: {fixed(worst.beyond, 2)} nats beyond the trained length, up to {group(times)} "
        f"times as far, and {fixed(worst.pieces, 2)} for the same tokens in pieces of the trained length."
        if worst.rise > 2 * worst.rise_error
        else "No encoding loses anything beyond the trained length."
    ]
    if holds:
        names = ", ".join(f"**{row.name}** ({_signed(row.rise)})" for row in holds)
        points.append(f"As one text no worse than in pieces, within two standard errors: {names}.")
    if stopped:
        names = ", ".join(f"**{row.name}**" for row in stopped)
        points.append(f"{names} ends at the trained length: the table has no row for the next position.")
    return points


def scalings_said(rows: Sequence[Merit], *, plain: str, factor: int, length: int) -> list[str]:
    """What the losses of the scalings say, from the numbers alone; `plain` is the unscaled run."""
    ordered = by_merit(rows)
    unscaled = next(row for row in rows if row.name == plain)
    best = ordered[0]
    chain = " < ".join(f"{row.name} {fixed(row.beyond, 2)}" for row in ordered)
    points = [f"Loss beyond, best first, at factor {group(factor)} up to position {group(length - 1)}: {chain}."]
    if best.name != plain and unscaled.rise > 2 * unscaled.rise_error:
        points.append(
            f"**{best.name}** takes {fixed(unscaled.beyond - best.beyond, 2)} of the {fixed(unscaled.rise, 2)} nats "
            "by which unscaled RoPE is worse than in pieces, without a step of training."
        )
    costly = max(rows, key=lambda row: row.within)
    if costly.within - unscaled.within > 0.01:
        points.append(
            f"Within the trained length **{costly.name}** costs most: {_signed(costly.within - unscaled.within)} nats; "
            "the angles of every distance are new to the model."
        )
    return points


def blame_said(
    *, unscaled: float, slow: float, fast: float, both: float, n_slow: int, n_pairs: int, factor: int
) -> list[str]:
    """What the ablation says, from mean losses beyond the trained length: unscaled, slow or fast pairs alone, all."""
    mended, other = unscaled - slow, unscaled - fast
    slow_word = f"Slowing the {group(n_slow)} slow pairs of {group(n_pairs)} by {group(factor)} takes the loss beyond "
    points = [
        slow_word + f"from {fixed(unscaled, 2)} to {fixed(slow, 2)} nats; slowing the {group(n_pairs - n_slow)} fast "
        f"ones, to {fixed(fast, 2)}; all, to {fixed(both, 2)}."
    ]
    if mended > 0 and mended > other:
        points.append(
            "The slow pairs are to blame: they alone, kept to angles they have met, mend "
            f"{fixed(mended, 2)} nats. The fast ones had wrapped round many times; slowed, they only blur near "
            "distances."
            if other <= 0
            else f"The slow pairs carry more of it: {fixed(mended, 2)} against {fixed(other, 2)} nats."
        )
    else:
        points.append("In this model the slow pairs are not what the loss comes from.")
    return points


def _signed(x: float) -> str:
    text = fixed(x, 2)
    return f"+{text}" if x > 0 and float(text) else text


def attention_said(entropy: Sequence[Curve], first: Sequence[Curve], *, trained: int) -> list[str]:
    """What attention does beyond the trained length: where its entropy, and the first token's weight, moved most."""
    changes = [(curve.name, *_ends(curve, trained)) for curve in entropy]
    name, before, after = max(changes, key=lambda change: change[2] - change[1])
    points = [
        f"Attention spreads most in **{name}**: its entropy goes from {fixed(before, 2)} nats at the end of the "
        f"trained length to {fixed(after, 2)} at the end of the text."
    ]
    sinks = [(curve.name, *_ends(curve, trained)) for curve in first]
    name, before, after = max(sinks, key=lambda change: change[1])
    how = "still" if after > before / 2 else "only"
    points.append(
        f"**{name}** gives the first token most within the trained length, {fixed(before, 3)} of the weight; at "
        f"the end of the text it is {how} {fixed(after, 3)}."
    )
    return points


def _ends(curve: Curve, trained: int) -> tuple[float, float]:
    """The value at the end of the trained length, and at the end."""
    return float(curve.y[np.searchsorted(curve.x, trained) - 1]), float(curve.y[-1])


def own_said(name: str, losses: np.ndarray, trained: int) -> str:
    """What the losses (W, T) of one run say of the trained length; its second half is compared with what follows."""
    length = losses.shape[1]
    if length <= trained:
        return f"**{name}**: {fixed(float(np.nanmean(losses)), 3)} nats a token over {group(length)} positions."
    inside = float(np.nanmean(losses[:, trained // 2 : trained]))
    outside = float(losses[:, trained:].mean())
    return (
        f"**{name}**: {fixed(inside, 3)} nats a token from position {group(trained // 2)} to {group(trained - 1)}, "
        f"{fixed(outside, 3)} beyond ({_signed(outside - inside)})."
    )
