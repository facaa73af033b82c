"""One text decoded twice, with drafts and plainly: run on demand, kept, and shared by all sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmcore.sampling import Sampler
from ui import runs
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.speculative import Draft, Round

LOOKUP, LAYERS = "prompt lookup", "first layers of the model"
MOST_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is compared; `depth` counts for the draft by layers only."""

    kind: str
    depth: int
    most: int
    tokens: int
    sampler: Sampler
    seed: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """The passes, their totals, and plain decoding of as many tokens. Times are of everything, prefill included."""

    rounds: tuple[Round, ...]
    tokens: tuple[int, ...]
    plain_tokens: tuple[int, ...]
    time_s: float
    plain_s: float
    acceptance: float
    tokens_per_pass: float

    @property
    def equal(self) -> int:
        return sum(a == b for a, b in zip(self.tokens, self.plain_tokens, strict=True))

    @property
    def expected_per_pass(self) -> float:
        """By formula, from the share of drafts kept and the number proposed in each pass."""
        from lmcore.speculative import expected_tokens

        share = self.acceptance if self.acceptance == self.acceptance else 0.0
        return sum(expected_tokens(share, len(done.proposed)) for done in self.rounds) / len(self.rounds)


_OUTCOMES: ByteLRU[Outcome] = ByteLRU(max_entries=64, max_bytes=2**22, size=lambda found: 256 * len(found.tokens))


def room(opened: Opened, prompt: tuple[int, ...], most: int) -> int:
    """How many tokens can be decoded: a pass reads its drafts at positions of their own."""
    return min(MOST_TOKENS, opened.config.max_positions - len(prompt) - most)


def known(opened: Opened, prompt: tuple[int, ...], setting: Setting) -> Outcome | None:
    return _OUTCOMES.peek((opened.key, prompt, setting))


def run(opened: Opened, prompt: tuple[int, ...], setting: Setting) -> Iterator[str]:
    """Decode both ways; yields a line in words after every pass."""
    from lmcore.decode import Decoder
    from lmcore.speculative import SpeculativeDecoder

    decoder = SpeculativeDecoder(
        opened.model, prompt, setting.sampler, _draft(opened, setting), setting.seed, most=setting.most
    )
    time_s = plain_s = 0.0
    while len(decoder.tokens) - len(prompt) < setting.tokens:
        with runs.forwarding():
            begun = time.perf_counter()
            decoder.round()
            time_s += time.perf_counter() - begun
        yield f"{len(decoder.tokens) - len(prompt)} of {setting.tokens} tokens with drafts"
    made = tuple(decoder.tokens[len(prompt) :])
    plain = Decoder(opened.model, prompt, setting.sampler, setting.seed, keep_logits=0)
    while len(plain.steps) < len(made):
        with runs.forwarding():
            begun = time.perf_counter()
            plain.step()
            plain_s += time.perf_counter() - begun
        yield f"{len(plain.steps)} of {len(made)} tokens plainly"
    found = Outcome(
        rounds=tuple(decoder.rounds),
        tokens=made,
        plain_tokens=tuple(step.token for step in plain.steps),
        time_s=time_s,
        plain_s=plain_s,
        acceptance=decoder.acceptance,
        tokens_per_pass=decoder.tokens_per_pass,
    )
    _OUTCOMES.put((opened.key, prompt, setting), found)


def _draft(opened: Opened, setting: Setting) -> Draft:
    from lmcore.speculative import ModelDraft, PromptLookup

    if setting.kind == LOOKUP:
        return PromptLookup(opened.config.vocab_size)
    return ModelDraft(opened.model, setting.sampler, setting.seed, depth=setting.depth)
