"""Decoding step by step: the tokens so far, and for each step the distribution before and after the sampler."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from figures.payload import pack
from figures.tokens import Parts

TOP = 12
"""Tokens listed for a step; the chosen one is listed in any case."""


@dataclass(frozen=True)
class StepView:
    """What the page shows of one step, small enough to keep: made once from the full distributions, which are not."""

    token: int
    position: int
    time_s: float
    forward_tokens: int
    forced: bool
    ids: np.ndarray  # (n,) int32, the likeliest tokens in order, the chosen one last if it is not among them
    raw: np.ndarray  # (n,) float32, probabilities of the model
    probs: np.ndarray  # (n,) float32, probabilities after the sampler
    rank: int
    kept: int
    vocab_size: int
    rest: tuple[float, float]  # the mass of all tokens that are not listed, before and after the sampler
    stages: tuple[tuple[str, int, float], ...]


def step_view(
    raw: np.ndarray,
    probs: np.ndarray,
    *,
    token: int,
    position: int,
    time_s: float,
    forward_tokens: int,
    stages: Sequence[tuple[str, int, float]] = (),
    forced: bool = False,
    top: int = TOP,
) -> StepView:
    """One step from the model's distribution `raw` (V,) and the sampler's `probs` (V,), over the whole vocabulary.

    `token` was chosen for `position`; `time_s` and `forward_tokens` are the forward's that led to it. `stages`: (label,
    tokens kept, mass removed) for each filter in the order in which it was applied. `forced`: chosen by hand.
    """
    assert raw.shape == probs.shape, "both distributions are over one vocabulary"
    top = min(top, raw.size)
    likely = np.argpartition(-raw, top - 1)[:top]
    ids = likely[np.lexsort((likely, -raw[likely]))]
    if token not in ids:
        ids = np.append(ids, token)
    others = np.ones(raw.shape, bool)
    others[ids] = False
    return StepView(
        token=token,
        position=position,
        time_s=time_s,
        forward_tokens=forward_tokens,
        forced=forced,
        ids=ids.astype(np.int32),
        raw=raw[ids].astype(np.float32),
        probs=probs[ids].astype(np.float32),
        rank=int((raw > raw[token]).sum()),
        kept=int((probs > 0).sum()),
        vocab_size=raw.size,
        rest=(float(raw[others].sum()), float(probs[others].sum())),
        stages=_stages(stages, raw.size),
    )


def decode_payload(
    prompt: Sequence[Parts],
    steps: Sequence[StepView],
    *,
    piece: Callable[[int], bytes],
    parts: Callable[[int], Parts],
    url: str | None = None,
    address: Mapping[str, str | int | None] | None = None,
    keep: bool = False,
) -> bytes:
    """The payload of the decode component: all steps so far, so that moving through them sends nothing.

    `prompt`: the parts of the prompt's tokens. `piece` and `parts`: the bytes and the parts of a token id.
    `url`: the name in the address under which the chosen step stands, shared with the cache component.
    `address`: what else the component writes into the address, None to take a name out of it; so that a link to this
    run makes it again. `keep`: the step that is looked at stays, though there are more steps than before.
    About 60 bytes a prompt token; a step takes 12 x (TOP + 1) bytes and at most some 1.2 kB of text.
    """
    width = max((step.ids.size for step in steps), default=0)
    ids = np.full((len(steps), width), -1, np.int32)
    raw, probs = np.zeros(ids.shape, np.float32), np.zeros(ids.shape, np.float32)
    for row, step in enumerate(steps):
        ids[row, : step.ids.size] = step.ids
        raw[row, : step.ids.size], probs[row, : step.ids.size] = step.raw, step.probs
    texts = streamed([piece(step.token) for step in steps])
    meta = {
        "url": url,
        "address": dict(address or {}),
        "keep": keep,
        "prompt": list(prompt),
        "steps": [_step(step, text, waiting) for step, (text, waiting) in zip(steps, texts, strict=True)],
        "vocabulary": {str(token): parts(token) for token in np.unique(ids[ids >= 0]).tolist()},
    }
    return pack(meta, ids, raw, probs)


def streamed(pieces: Sequence[bytes]) -> list[tuple[str, int]]:
    """For each token the text that is complete with it, and how many bytes still wait for the rest of their character.

    A character spread over tokens appears whole, with the token that ends it; bytes that can never be text are written
    as \\xe2. Joined, the texts are what a reader may be shown at any step without a broken character.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return [(decoder.decode(piece), len(decoder.getstate()[0])) for piece in pieces]


def _stages(stages: Sequence[tuple[str, int, float]], vocab_size: int) -> tuple[tuple[str, int, float], ...]:
    """The stages, with no mass removed where no token was: what is left there is the rounding of a sum."""
    before = [vocab_size, *(kept for _, kept, _ in stages)]
    return tuple(
        (label, kept, mass if kept < had else 0.0) for (label, kept, mass), had in zip(stages, before, strict=False)
    )


def _step(step: StepView, text: str, waiting: int) -> dict[str, object]:
    return {
        "token": step.token,
        "position": step.position,
        "time": step.time_s,
        "forward": step.forward_tokens,
        "forced": step.forced,
        "listed": step.ids.size,
        "rank": step.rank,
        "kept": step.kept,
        "vocabulary": step.vocab_size,
        "rest": step.rest,
        "stages": [list(stage) for stage in step.stages],
        "text": text,
        "waiting": waiting,
    }
