"""The loaded model on a text longer than it was trained on: an estimate, the measurement in a thread, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from lmcore import teaching
from lmcore.config import ModelConfig
from lmcore.errors import Cancelled, LmcoreError
from lmcore.scalings import SCALINGS, scaled
from lmcore.specs import Rope
from ui import rotary, runs
from ui.job import Job, Jobs
from ui.lru import ByteLRU
from ui.models import Opened, when_one_leaves

OWN = "as it is"
SHARES = (0.25, 0.5, 1, 2, 4)
"""Lengths to choose from, as multiples of the trained length."""
SAMPLE = 128
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Asked:
    """What is measured of a model: its losses at `length` positions in `windows` windows under a scaling, or OWN.

    `layers` names the kind of rotary layers that is scaled (`ui.rotary`), and says nothing where it is OWN.
    """

    length: int
    windows: int
    kind: str = OWN
    layers: str = rotary.ALL


def trained(cfg: ModelConfig) -> int:
    """`lmcore.extrapolate.trained_length`, which needs torch to be imported."""
    from lmcore.extrapolate import trained_length

    return trained_length(cfg)


def lengths(cfg: ModelConfig) -> list[int]:
    """The lengths that can be chosen: none past a table of learned positions."""
    from lmcore.extrapolate import longest

    end, start = longest(cfg), trained(cfg)
    made = {max(2, round(start * share)) for share in SHARES}
    return sorted(length for length in made if end is None or length <= end)


def kinds(cfg: ModelConfig) -> tuple[str, ...]:
    """The scalings that can be tried: where a layer turns, all of them."""
    return (OWN, *SCALINGS) if rotary.kinds(cfg) else (OWN,)


def spec(cfg: ModelConfig, asked: Asked) -> Rope | None:
    """The rotary spec of a measurement, scaled by as much as the length exceeds the trained one; None is the own."""
    if asked.kind == OWN or not rotary.kinds(cfg):
        return None
    start = trained(cfg)
    return scaled(
        rotary.named(cfg, asked.layers).rope, asked.kind, factor=max(1.0, asked.length / start), trained=start
    )


def scaled_layers(cfg: ModelConfig, asked: Asked) -> frozenset[int] | None:
    """The layers that get that spec; None is all that have one."""
    return None if asked.kind == OWN else rotary.named(cfg, asked.layers).only


@cache
def source_text() -> str:
    """This app's own computation as a text: some hundred thousand characters that are always here."""
    files = sorted((Path(__file__).parent.parent / "lmcore").rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def text_of(opened: Opened, tokens: int) -> tuple[str, tuple[int, ...]]:
    """Which text serves for so many tokens, in words, and its ids: the held-out play, or the longer source text."""
    for name, text in (("a play", teaching.heldout_text), ("the source of lmcore", source_text)):
        ids = _IDS.get((opened.key, name), lambda text=text: _encoded(opened, text()))
        if len(ids) >= tokens:
            break
    return name, ids


def _encoded(opened: Opened, text: str) -> tuple[int, ...]:
    assert opened.tokenizer is not None
    return tuple(opened.tokenizer.encode(text))


_IDS: ByteLRU[tuple[int, ...]] = ByteLRU(max_entries=4, max_bytes=32 * 2**20, size=lambda ids: 36 * len(ids))
_LOSSES: ByteLRU[np.ndarray] = ByteLRU(max_entries=64, max_bytes=16 * 2**20, size=lambda losses: losses.nbytes)
_RATES: ByteLRU[float] = ByteLRU(max_entries=8, max_bytes=2**20, size=lambda rate: 64)
_JOBS: Jobs[None] = Jobs("own length", abandoned_after_s=PATIENCE_S)


def losses(opened: Opened, asked: Asked) -> np.ndarray | None:
    """(W, T) in nats, if they have been measured."""
    return _LOSSES.peek(_kept_as(opened, asked))


def _kept_as(opened: Opened, asked: Asked) -> Hashable:
    return opened.key, replace(asked, layers=rotary.ALL) if asked.kind == OWN else asked


def estimated(opened: Opened, asked: Asked) -> float | None:
    """Seconds that a measurement takes, once `estimate` has timed a forward of this model."""
    rate = _RATES.peek(opened.key)
    return None if rate is None else rate * asked.windows * _flops(opened.config, asked.length)


def estimate(opened: Opened) -> None:
    """Time one short forward: seconds a FLOP."""
    from lmcore.extrapolate import estimated_seconds

    with runs.forwarding():
        took = estimated_seconds(opened.model, SAMPLE, 1, sample=SAMPLE)
    _RATES.put(opened.key, took / _flops(opened.config, SAMPLE))


def _flops(cfg: ModelConfig, length: int) -> int:
    from lmcore.costs import forward_flops

    return sum(forward_flops(cfg, tokens=length).values())


def start(opened: Opened, asked: Asked) -> None:
    """Measure in a thread; nothing if one of this model is under way."""

    def work(say: Callable[[str], bool]) -> None:
        measure(opened, asked, say)

    _JOBS.start(opened.key, work)


def measure(opened: Opened, asked: Asked, say: Callable[[str], bool]) -> None:
    """Measure and keep. CapacityError for a length that does not fit, InputError where the text is too short."""
    from lmcore.device import DTYPES, available_bytes
    from lmcore.extrapolate import refuse_too_long, token_losses, windows

    refuse_too_long(opened.config, asked.length, DTYPES[opened.dtype], available_bytes(opened.device) // 2)
    _, ids = text_of(opened, asked.length * asked.windows)
    texts = windows(ids, asked.length, asked.windows)
    if opened.tokenizer is not None and ids[0] == opened.tokenizer.bos_id:
        texts[:, 0] = ids[0]

    def tell(done: int, total: int) -> None:
        if not say(
            f"{round(100 * done / total)} % of {asked.windows} × {asked.length:,} tokens".replace(",", "\u2006")
        ):
            raise Cancelled("the measurement was cancelled")

    tell(0, 1)
    with runs.forwarding():
        found = token_losses(
            opened.model,
            texts,
            spec(opened.config, asked),
            layers=scaled_layers(opened.config, asked),
            piece=512,
            progress=tell,
        )
    _LOSSES.put(_kept_as(opened, asked), found)


def running(opened: Opened) -> Job[None] | None:
    return _JOBS.running(opened.key)


def failure(opened: Opened) -> LmcoreError | None:
    """Why the last measurement gave nothing; any other error than lmcore's is raised."""
    return _JOBS.failure(opened.key)


def cancel(opened: Opened) -> None:
    _JOBS.cancel(opened.key)


def _forget(opened: Opened) -> None:
    """A finished measurement holds on to its model through its job."""
    _JOBS.forget(lambda key: key == opened.key)


when_one_leaves(_forget)
