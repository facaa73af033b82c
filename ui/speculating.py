"""One text decoded twice, with drafts and plainly: run on demand, kept, and shared by all sessions."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmcore import teaching
from lmcore.errors import InputError
from lmcore.sampling import Sampler
from ui import models, runs, state
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.checkpoint import Loaded
    from lmcore.speculative import Draft, Round

LOOKUP, LAYERS, MODEL = "prompt lookup", "first layers of the model", "a smaller model"
MOST_TOKENS = 64
DRAFT_BYTES = 2 * 2**30


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is compared; `depth` counts for the draft by layers only, `source` (as `load_pretrained` takes it) and its
    state on disk for the draft by a model."""

    kind: str
    depth: int
    most: int
    tokens: int
    sampler: Sampler
    seed: int
    source: str = ""
    on_disk: Hashable = None


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
    draft_parameters: int = 0
    """Of a draft by another model."""

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
_DRAFTS: ByteLRU[Loaded] = ByteLRU(
    max_entries=2, max_bytes=DRAFT_BYTES, size=lambda loaded: sum(p.nbytes for p in loaded.model.parameters())
)


def room(opened: Opened, prompt: tuple[int, ...], most: int) -> int:
    """How many tokens can be decoded: a pass reads its drafts at positions of their own."""
    return min(MOST_TOKENS, opened.config.max_positions - len(prompt) - most)


def known(opened: Opened, prompt: tuple[int, ...], setting: Setting) -> Outcome | None:
    return _OUTCOMES.peek((opened.key, prompt, setting))


def partners(opened: Opened) -> dict[str, str]:
    """Smaller models that come with Glassbox and share this one's tokenizer: label and source.

    Their tokenizers are the teaching family's, which is all that can be known without opening a model.
    """
    family = {source: label for label, source in state.TEACHING.items()}
    if opened.choice.source not in family:
        return {}
    size = opened.report.parameter_count
    found = {}
    for model in teaching.shipped():
        source = f"teaching:{model.name}"
        if model.on_text and source in family and source != opened.choice.source and _parameters(model) < size:
            found[family[source]] = source
    return dict(sorted(found.items(), key=lambda item: _parameters(teaching.by_name(item[1].partition(":")[2]))))


def pairs() -> list[str]:
    """What of Glassbox's own models has a smaller partner, in words."""
    there = {model.name for model in teaching.shipped()}
    if "draft" not in there or len(there) < 2:
        return []
    title = teaching.by_name("draft").title
    return [f"any other teaching model with the teaching model {title}"]


def run(opened: Opened, prompt: tuple[int, ...], setting: Setting) -> Iterator[str]:
    """Decode both ways; yields a line in words after every pass. InputError for a draft model of other tokens."""
    from lmcore.decode import Decoder
    from lmcore.speculative import SpeculativeDecoder

    if setting.kind == MODEL:
        yield "Opening the draft model"
    draft = _draft(opened, prompt, setting)
    decoder = SpeculativeDecoder(opened.model, prompt, setting.sampler, draft, setting.seed, most=setting.most)
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
        draft_parameters=_loaded(opened, setting).report.parameter_count if setting.kind == MODEL else 0,
    )
    _OUTCOMES.put((opened.key, prompt, setting), found)


def _draft(opened: Opened, prompt: tuple[int, ...], setting: Setting) -> Draft:
    from lmcore.speculative import ModelDraft, PromptLookup, require_same_tokens

    if setting.kind == LOOKUP:
        return PromptLookup(opened.config.vocab_size)
    if setting.kind == LAYERS:
        return ModelDraft(opened.model, setting.sampler, setting.seed, depth=setting.depth)
    loaded = _loaded(opened, setting)
    require_same_tokens(opened.tokenizer, loaded.tokenizer)
    need, limit = len(prompt) + setting.tokens + setting.most, loaded.model.cfg.max_positions
    if need > limit:
        raise InputError(
            f"the draft model has {limit} positions",
            expected=f"at least {need}: the prompt, the tokens and a pass of drafts",
            where="speculative decoding",
            todo="Shorten the prompt or ask for fewer tokens.",
        )
    return ModelDraft(loaded.model, setting.sampler, setting.seed)


def _loaded(opened: Opened, setting: Setting) -> Loaded:
    from lmcore.checkpoint import load_pretrained

    def load() -> Loaded:
        teaches = setting.source.startswith("teaching:")
        source = setting.source if teaches else Path(setting.source).expanduser()
        return load_pretrained(source, dtype=opened.dtype, device=opened.device)

    return _DRAFTS.get((setting.source, setting.on_disk, opened.dtype, opened.device), load)


def on_disk(source: str) -> Hashable:
    return None if source.startswith("teaching:") else models.on_disk(source)


def _parameters(model: teaching.Teaching) -> int:
    from lmcore.costs import param_counts
    from lmcore.families import config_from_hf

    return param_counts(config_from_hf(model.config)[0]).total
