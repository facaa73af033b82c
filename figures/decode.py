"""Decoding step by step: the tokens so far, and for each step the distribution before and after the sampler."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from figures.payload import pack
from figures.tokens import Parts

TOP = 12
"""Tokens listed for a step; the chosen one is listed in any case."""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}

MAX_LOGIT_BYTES = 2**21
"""Logits that a browser is given: a vocabulary of 524,288."""


@dataclass(frozen=True)
class Chosen:
    """What chose the tokens of a run: the sampler's settings and the seed, and the label of each one's control."""

    settings: Mapping[str, float]
    labels: Mapping[str, str]


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
    keys: Sequence[str] = (),
    chosen_by: Chosen | None = None,
    url: str | None = None,
    address: Mapping[str, str | int | None] | None = None,
    keep: bool = False,
    first: int = 0,
    name: str | None = None,
) -> bytes:
    """The payload of the decode component: all steps so far, so that moving through them sends nothing.

    `prompt`: the parts of the prompt's tokens. `piece` and `parts`: the bytes and the parts of a token id.
    `keys`: for each step, and for the one that would come next, what stands before it (`text_keys`); `chosen_by`: what
    chose the tokens. With both the component can choose again in the browser, where it holds a step's logits
    (`logits_payload`), and show the next step before the page has run, where it holds that (`next_payload`).
    `url`: the name in the address under which the chosen step stands, shared with the cache component.
    `address`: what else the component writes into the address, None to take a name out of it; so that a link to this
    run makes it again. `keep`: the step that is looked at stays, though there are more steps than before. `first`: the
    steps before this one are left out. `name`: under which the browser holds the payload.
    About 60 bytes a prompt token; a step takes 12 x (TOP + 1) bytes and at most some 1.2 kB of text.
    """
    texts = streamed([piece(step.token) for step in steps])[first:]
    steps, keys = steps[first:], keys[first:]
    width = max((step.ids.size for step in steps), default=0)
    ids = np.full((len(steps), width), -1, np.int32)
    raw, probs = np.zeros(ids.shape, np.float32), np.zeros(ids.shape, np.float32)
    for row, step in enumerate(steps):
        ids[row, : step.ids.size] = step.ids
        raw[row, : step.ids.size], probs[row, : step.ids.size] = step.raw, step.probs
    meta = {
        "name": name,
        "url": url,
        "address": dict(address or {}),
        "keep": keep,
        "keys": list(keys),
        "settings": dict(chosen_by.settings) if chosen_by else None,
        "controls": dict(chosen_by.labels) if chosen_by else None,
        "prompt": list(prompt),
        "steps": [_step(step, text, waiting) for step, (text, waiting) in zip(steps, texts, strict=True)],
        "vocabulary": {str(token): parts(token) for token in np.unique(ids[ids >= 0]).tolist()},
    }
    return pack(meta, ids, raw, probs)


def next_payload(steps: Sequence[StepView], **given: Any) -> bytes:
    """The last of these steps, as `decode_payload` has it, for the browser to hold until somebody asks for it."""
    return decode_payload([], steps, first=len(steps) - 1, name="next", **given)


def logits_payload(
    logits: np.ndarray,
    *,
    key: str,
    point: float,
    history: Sequence[int],
    texts: Mapping[int, tuple[str, int]],
) -> bytes | None:
    """The logits (V,) float32 of a step, with all that the sampler goes by, for the browser to hold under its `key`.

    `point`: the number in [0, 1) that decides its draw. `history`: the tokens before it. `texts`: what `streamed` makes
    of tokens that may be drawn instead. 4 V bytes; None above MAX_LOGIT_BYTES, and where there are none.
    """
    if not 0 < logits.nbytes <= MAX_LOGIT_BYTES:
        return None
    meta = {
        "name": f"logits {key}",
        "point": point,
        "texts": {str(token): list(text) for token, text in texts.items()},
    }
    return pack(meta, logits.astype(np.float32, copy=False), np.unique(np.asarray(history, np.int32)))


def text_keys(model: object, prompt: Iterable[int], made: Iterable[int]) -> list[str]:
    """A name for the text before each token of `made`, and one for all of it: alike for the same text and model."""
    found = hashlib.blake2b(repr(model).encode(), digest_size=8)
    found.update(np.fromiter(prompt, np.int32).tobytes())
    keys = [found.hexdigest()]
    for token in made:
        found.update(np.int32(token).tobytes())
        keys.append(found.hexdigest())
    return keys


def streamed(pieces: Sequence[bytes]) -> list[tuple[str, int]]:
    """For each token the text that is complete with it, and how many bytes still wait for the rest of their character.

    A character spread over tokens appears whole, with the token that ends it; bytes that can never be text are written
    as \\xe2, and so are control characters, which fonts draw as an empty box. Joined, the texts are what a reader may
    be shown at any step without a broken character.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return [(decoder.decode(piece).translate(_CONTROLS), len(decoder.getstate()[0])) for piece in pieces]


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
        "top": min(TOP, step.vocab_size),
        "rank": step.rank,
        "kept": step.kept,
        "vocabulary": step.vocab_size,
        "rest": step.rest,
        "stages": [list(stage) for stage in step.stages],
        "text": text,
        "waiting": waiting,
    }
