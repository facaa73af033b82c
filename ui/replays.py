"""Steps of a run computed once more: without the cache, under the FLOP counter, or with the residual stream kept."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ui import runs
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.decode import Step
    from lmcore.effects import Lens
    from ui.decoding import Decoding

MOST = 16
TOKENS = 4096
"""Tokens of all full forwards of one comparison; a long text is compared at fewer of its steps."""
COUNTED = 256
"""The longest text that is run under the FLOP counter, which needs every attention weight written out."""


@dataclass(frozen=True, eq=False)
class Full:
    """One forward of a whole text, no cache: the logits (V,) after its last token, and its time."""

    logits: np.ndarray
    time_s: float


_FULL: ByteLRU[Full] = ByteLRU(max_entries=256, max_bytes=64 * 2**20, size=lambda full: full.logits.nbytes)
_FLOPS: ByteLRU[int] = ByteLRU(max_entries=256, max_bytes=2**20, size=lambda _: 64)


def compared(run: Decoding) -> list[Step]:
    """The steps to compare, the newest among them: at most `MOST`, evenly spread, `TOKENS` tokens in all."""
    steps = [step for step in run.steps[1:] if step.logits.size]
    if not steps:
        return []
    most = max(1, min(MOST, len(steps), TOKENS // steps[-1].position))
    places = np.unique(np.linspace(len(steps) - 1, 0, most).round().astype(int)) if most > 1 else [len(steps) - 1]
    return [steps[place] for place in places]


def known(opened: Opened, run: Decoding, step: Step) -> Full | None:
    """The full forward of the text before this step, if it has run."""
    return _FULL.peek((opened.key, run.decoder.tokens[: step.position]))


def run_all(opened: Opened, run: Decoding, steps: Sequence[Step]) -> Iterator[int]:
    """Runs what is missing, one forward at a time; yields how many are done."""
    for done, step in enumerate(steps, 1):
        ids = run.decoder.tokens[: step.position]
        _FULL.get((opened.key, ids), lambda ids=ids: _full(opened, ids))
        yield done


def _full(opened: Opened, ids: tuple[int, ...]) -> Full:
    import torch

    with runs.forwarding():
        begun = time.perf_counter()
        tokens = torch.tensor([ids], device=opened.model.device)
        logits = opened.model.forward(tokens, logits_to_keep=1).logits[0, -1].float().cpu().numpy()
        return Full(logits, time.perf_counter() - begun)


def counted(opened: Opened, run: Decoding, step: Step, *, cached: bool) -> int | None:
    """FLOPs of the forward of this step as PyTorch counts them, with the cache or without; None for a long text."""
    ids = run.decoder.tokens[: step.position]
    if len(ids) > COUNTED:
        return None
    return _FLOPS.get((opened.key, ids, cached), lambda: _count(opened, run, ids, cached))


def peek_counted(opened: Opened, run: Decoding, step: Step, *, cached: bool) -> int | None:
    """What `counted` gave, if it has run."""
    return _FLOPS.peek((opened.key, run.decoder.tokens[: step.position], cached))


def _count(opened: Opened, run: Decoding, ids: tuple[int, ...], cached: bool) -> int:
    import torch

    from lmcore.measure import FlopCount
    from lmcore.trace import Capture

    cache = run.cache_before(len(ids)) if cached else None
    waiting = ids[cache.length :] if cache is not None else ids
    with runs.forwarding(), FlopCount(opened.model) as counter:
        tokens = torch.tensor([waiting], device=opened.model.device)
        opened.model.forward(tokens, cache=cache, capture=Capture.of("pattern"), logits_to_keep=1)
    return sum(counter.flops.values())


@dataclass(frozen=True, eq=False)
class Through:
    """The residual stream (L, D) after every layer, at the position whose logits choose the step's token."""

    stream: np.ndarray
    tokens_run: int


_STREAMS: ByteLRU[Through] = ByteLRU(max_entries=64, max_bytes=32 * 2**20, size=lambda found: found.stream.nbytes)


def through(opened: Opened, run: Decoding, step: Step) -> Through:
    """One more forward of the step's newest token on a copy of the cache, the stream kept."""
    ids = run.decoder.tokens[: step.position]
    return _STREAMS.get((opened.key, ids), lambda: _through(opened, run, ids))


def _through(opened: Opened, run: Decoding, ids: tuple[int, ...]) -> Through:
    import torch

    from lmcore.trace import Capture

    cache = run.cache_before(len(ids))
    waiting = ids[cache.length :]
    with runs.forwarding():
        tokens = torch.tensor([waiting], device=opened.model.device)
        capture = Capture.of("resid_post", max_bytes=runs.RUN_BYTES)
        trace = opened.model.forward(tokens, cache=cache, capture=capture, logits_to_keep=1).trace
    assert trace is not None
    stream = np.stack([trace.layers[at]["resid_post"][0, -1].float().cpu().numpy() for at in sorted(trace.layers)])
    return Through(stream, len(waiting))


_LENSES: ByteLRU[Lens] = ByteLRU(max_entries=64, max_bytes=2**22, size=lambda lens: 4 * lens.top_ids.nbytes)


def lens(opened: Opened, run: Decoding, step: Step, *, top: int) -> Lens:
    """The head on the stream after every layer, with the step's token: kept, since a sampler leaves it as it is."""
    from lmcore.effects import logit_lens

    def make() -> Lens:
        stream = through(opened, run, step).stream
        with runs.forwarding():
            return logit_lens(opened.model, stream, step.token, top=top)

    return _LENSES.get((opened.key, run.decoder.tokens[: step.position], step.token, top), make)
