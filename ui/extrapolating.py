"""Losses beyond the trained length: measured in a thread, kept by all they depend on, shared by all sessions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from lmcore import teaching
from lmcore.errors import Cancelled, LmcoreError
from lmcore.scalings import SCALINGS, divided, scaled, slow_pairs
from lmcore.specs import Rope
from ui import runs
from ui.job import Job, Jobs
from ui.lru import ByteLRU

if TYPE_CHECKING:
    from lmcore.extrapolate import Reading
    from lmcore.model import Transformer

TIMES = 8
LENGTH = TIMES * teaching.CONTEXT
WINDOWS, READ_WINDOWS = 6, 2
FACTORS = (2, 4, 8, 16)
ROPE = "rope-gqa"
ENCODINGS = (ROPE, "alibi", "t5", "nope", "sinusoidal", "learned")
NAMES = {
    "none": "unscaled",
    "linear": "linear",
    "ntk": "NTK-aware",
    "dynamic": "dynamic NTK",
    "yarn": "YaRN",
    "llama3": "Llama 3",
    "longrope": "LongRoPE",
}
SLOW, FAST = "slow pairs slowed", "fast pairs slowed"
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Wanted:
    """One measurement of a teaching model: under which name, on which model, with which rotary spec, up to where.

    `grows`: each position in a text that ends near it, as the spec follows the length. `pieces`: in pieces of the
    trained length. `reads`: attention is read instead of the loss.
    """

    name: str
    model: str
    rope: Rope | None = None
    length: int = LENGTH
    grows: bool = False
    pieces: bool = False
    reads: bool = False

    @property
    def tokens(self) -> int:
        """Tokens that go through the model, as a measure of the work."""
        if self.reads:
            return 3 * READ_WINDOWS * self.length
        stretches = self.length // teaching.CONTEXT
        times = (stretches + 1) / 2 if self.grows else 2 if self.pieces else 1
        return round(WINDOWS * self.length * times)


def title(name: str) -> str:
    return teaching.by_name(name).title


def encodings() -> list[Wanted]:
    """Each position encoding that is shipped, as far as it goes."""
    there = {model.name for model in teaching.shipped()}
    ends = {"learned": teaching.CONTEXT}
    return [Wanted(title(name), name, length=ends.get(name, LENGTH)) for name in ENCODINGS if name in there]


def in_pieces(one: Wanted) -> Wanted:
    """The same model on the same tokens, none of them further than the trained length from the start of its piece."""
    return Wanted(f"{title(one.model)} in pieces of {teaching.CONTEXT}", one.model, pieces=True)


@cache
def rope() -> Rope:
    """The unscaled rotary spec of the teaching models."""
    cfg = teaching.by_name(ROPE).config
    return Rope(rotary_dim=cfg["head_dim"], base=cfg["rope_parameters"]["rope_theta"])


def scaled_rope(kind: str, factor: int) -> Rope:
    return scaled(rope(), kind, factor=factor, trained=teaching.CONTEXT)


def scalings(factor: int) -> list[Wanted]:
    """The rotary model unscaled and under each scaling."""
    made = [Wanted(NAMES[kind], ROPE, scaled_rope(kind, factor)) for kind in SCALINGS[1:]]
    grown = [Wanted(**{**vars(one), "grows": one.rope is not None and one.rope.follows_length}) for one in made]
    return [Wanted(NAMES["none"], ROPE), *grown]


def ablations(factor: int) -> list[Wanted]:
    """Only the slow pairs slowed by the factor, only the fast ones."""
    slow = slow_pairs(rope(), teaching.CONTEXT)
    return [Wanted(name, ROPE, divided(rope(), chosen, factor)) for name, chosen in ((SLOW, slow), (FAST, ~slow))]


def readings(factor: int) -> list[Wanted]:
    """Attention of the encodings that go on, and of the rotary model under YaRN."""
    plain = [Wanted(one.name, one.model, reads=True) for one in encodings() if one.length == LENGTH]
    return [*plain, Wanted("RoPE, YaRN", ROPE, scaled_rope("yarn", factor), reads=True)]


def everything(factor: int) -> list[Wanted]:
    """In the order in which the charts ask for it."""
    ordered = [*encodings(), *map(in_pieces, encodings()), *scalings(factor), *ablations(factor), *readings(factor)]
    return list({_key(one): one for one in ordered}.values())


_LOSSES: ByteLRU[np.ndarray] = ByteLRU(max_entries=128, max_bytes=16 * 2**20, size=lambda losses: losses.nbytes)
_READINGS: ByteLRU[Reading] = ByteLRU(
    max_entries=32, max_bytes=8 * 2**20, size=lambda found: found.entropy.nbytes + found.first.nbytes
)
_JOBS: Jobs[None] = Jobs("extrapolate", abandoned_after_s=PATIENCE_S)


def _key(one: Wanted) -> Hashable:
    return (one.model, one.rope, one.length, one.grows, one.pieces, one.reads)


def losses(one: Wanted) -> np.ndarray | None:
    """(W, T) in nats, NaN at position 0, if it has been measured."""
    return _LOSSES.peek(_key(one))


def reading(one: Wanted) -> Reading | None:
    """Entropy and first-key weight (L, T), mean over windows, if they have been measured."""
    return _READINGS.peek(_key(one))


def missing(wanted: list[Wanted]) -> list[Wanted]:
    """Those that have not been measured."""
    return [one for one in wanted if (reading(one) if one.reads else losses(one)) is None]


def start(factor: int) -> None:
    """Measure in a thread whatever is missing for this factor; nothing if that is under way."""

    def work(say: Callable[[str], bool]) -> None:
        measure(missing(everything(factor)), say)

    _JOBS.start(factor, work)


def running(factor: int) -> Job[None] | None:
    return _JOBS.running(factor)


def failure(factor: int) -> LmcoreError | None:
    """Why the last measurement stopped; any other error than lmcore's is raised."""
    return _JOBS.failure(factor)


def cancel(factor: int) -> None:
    _JOBS.cancel(factor)


def measure(wanted: list[Wanted], say: Callable[[str], bool]) -> None:
    """Measure these in turn and keep each; `say` is told how far it is and stops the work by returning False."""
    total, done = sum(one.tokens for one in wanted), 0
    opened: dict[str, Transformer] = {}
    for one in wanted:

        def tell(part: int, whole: int, one: Wanted = one, done: int = done) -> None:
            share = (done + one.tokens * part / whole) / total
            if not say(f"{one.name}: {round(100 * share)} % of all"):
                raise Cancelled("the measurement was cancelled", todo="What was measured before is kept.")

        tell(0, 1)
        if one.model not in opened:
            opened.clear()
            opened[one.model] = open_model(one.model)
        with runs.forwarding():
            _measure(one, opened[one.model], tell)
        done += one.tokens


def _measure(one: Wanted, model: Transformer, tell: Callable[[int, int], None]) -> None:
    from lmcore import extrapolate

    if one.reads:
        found = []
        for index, text in enumerate(extrapolate.windows(text_ids(), one.length, READ_WINDOWS)):
            told = lambda part, whole, index=index: tell(index * whole + part, READ_WINDOWS * whole)  # noqa: E731
            found.append(extrapolate.attention_by_position(model, text, one.rope, progress=told))
        mean = extrapolate.Reading(*(np.mean(parts, axis=0) for parts in zip(*found, strict=True)))
        _READINGS.put(_key(one), mean)
        return
    texts = extrapolate.windows(text_ids(), LENGTH, WINDOWS)[:, : one.length]
    if one.pieces:
        found = extrapolate.losses_in_pieces(model, texts, teaching.CONTEXT, progress=tell)
    elif one.grows and one.rope is not None:
        found = extrapolate.losses_as_it_grows(model, texts, one.rope, step=teaching.CONTEXT, progress=tell)
    else:
        found = extrapolate.token_losses(model, texts, one.rope, progress=tell)
    _LOSSES.put(_key(one), found)


def open_model(name: str) -> Transformer:
    """A teaching model in float32; read anew each time, in a few hundredths of a second."""
    from lmcore.checkpoint import load_pretrained

    return load_pretrained(f"teaching:{name}", dtype="float32", device="cpu").model


@cache
def text_ids() -> tuple[int, ...]:
    """The held-out text in the tokens of the teaching family."""
    from lmcore.checkpoint import load_pretrained

    tokenizer = load_pretrained(f"teaching:{ROPE}", device="cpu").tokenizer
    assert tokenizer is not None
    return tuple(tokenizer.encode(teaching.heldout_text()))
