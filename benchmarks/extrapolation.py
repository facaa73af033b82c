"""The extrapolation chart of the teaching family: eight times the trained length under seven scalings, from nothing."""

from __future__ import annotations

from figures.format import group
from ui import extrapolating
from ui.extrapolation_charts import loss_curves
from ui.gate import import_torch

REACH_S, REACH_AGAIN_S = 20, 0.1
FACTOR = extrapolating.TIMES


def main() -> None:
    import_torch()
    from benchmarks.side_by_side import seconds

    wanted = extrapolating.scalings(FACTOR)
    lines: list[str] = []

    def say(line: str) -> bool:
        lines.append(line)
        return True

    first = seconds(lambda: extrapolating.measure(extrapolating.missing(wanted), say))
    what = f"{len(wanted)} scalings, {extrapolating.WINDOWS} windows of {group(extrapolating.LENGTH)} tokens"
    print(f"{what:46} {first:8.2f} s   reach <= {REACH_S}   told {len(lines)} times")

    def again() -> None:
        kept = [(one, extrapolating.losses(one)) for one in wanted]
        loss_curves([(one, losses) for one, losses in kept if losses is not None], list(range(len(kept))))

    print(f"{'the same again':46} {seconds(again):8.3f} s   reach <= {REACH_AGAIN_S}")
    rest = extrapolating.missing(extrapolating.everything(FACTOR))
    others = seconds(lambda: extrapolating.measure(rest, say))
    print(f"{f'{len(rest)} more: encodings, pairs, attention':46} {others:8.2f} s")


if __name__ == "__main__":
    main()
