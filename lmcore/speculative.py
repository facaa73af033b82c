"""Speculative decoding: a cheap draft proposes, one pass of the target checks, and the output is the target's.

Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2. A drafted token x stays with probability
min(1, p(x) / q(x)); the first that does not is replaced by a draw from max(p - q, 0), normalised; when all stay, one
more is drawn from the target. p and q are the distributions after the sampler, so that greedy and filtered decoding
are exact too. Draws are seeded by (seed, position, purpose).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64

from lmcore.cache import KVCache
from lmcore.errors import InputError
from lmcore.model import Transformer
from lmcore.prefill import common_prefix
from lmcore.sampling import Sampler, pick

if TYPE_CHECKING:
    from lmcore.tokenizer import Tokenizer

Probs = Float64[np.ndarray, " V"]
PROPOSE, ACCEPT, REPLACE = 1, 2, 3


class Proposal(NamedTuple):
    """A drafted token and the distribution it was drawn from."""

    token: int
    probs: Probs


class Checked(NamedTuple):
    """One drafted token as the target saw it: probabilities p and q, the uniform number, and whether it stays."""

    token: int
    p: float
    q: float
    uniform: float
    accepted: bool


def expected_tokens(acceptance: float, drafts: int) -> float:
    """`(1 - a^(n+1)) / (1 - a)`: tokens a pass gives in the mean when each of n drafts stays with probability a,
    whatever came before it (Leviathan et al. 2023, eq. 1)."""
    return float(sum(acceptance**i for i in range(drafts + 1)))


class Round(NamedTuple):
    """One pass of the target: the drafts it read, those kept, and the token it chose itself (`replaced` a rejected one,
    or a bonus after all were kept). `tokens` is what the text grew by; `proposed` holds every draft, those after a
    rejection, which nobody looked at, as well.
    """

    drafts: tuple[Checked, ...]
    token: int
    replaced: bool
    draft_s: float
    target_s: float
    proposed: tuple[int, ...] = ()

    @property
    def accepted(self) -> int:
        return sum(check.accepted for check in self.drafts)

    @property
    def tokens(self) -> tuple[int, ...]:
        return (*(check.token for check in self.drafts[: self.accepted]), self.token)


def uniform(seed: int, position: int, purpose: int) -> float:
    """A number in [0, 1) that depends on these three alone."""
    return float(np.random.default_rng((seed, position, purpose)).random())


def residual(p: Probs, q: Probs) -> Probs:
    """`max(p - q, 0)`, normalised: what the target still lacks where the draft's token was rejected."""
    rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    return rest / total if total > 0 else p


def check(proposals: Sequence[Proposal], target: Sequence[Probs], points: Sequence[float]) -> list[Checked]:
    """The acceptance rule, token by token, up to the first rejection. `points` are uniform numbers."""
    done: list[Checked] = []
    for proposal, p, point in zip(proposals, target, points, strict=False):
        chance, drawn = float(p[proposal.token]), float(proposal.probs[proposal.token])
        stays = point * drawn < chance
        done.append(Checked(proposal.token, chance, drawn, point, stays))
        if not stays:
            break
    return done


def settle(checked: Sequence[Checked], proposals: Sequence[Proposal], target: Sequence[Probs], point: float) -> int:
    """The target's own token of the round: from the residual after a rejection, else one more."""
    if checked and not checked[-1].accepted:
        at = len(checked) - 1
        return pick(residual(target[at], proposals[at].probs), point)
    return pick(target[len(checked)], point)


class PromptLookup:
    """Drafts by copying: the tokens that followed the last occurrence of the text's final n-gram (Saxena 2023)."""

    def __init__(self, vocab_size: int, longest: int = 3) -> None:
        self.vocab_size, self.longest = vocab_size, longest

    def propose(self, tokens: Sequence[int], most: int) -> list[Proposal]:
        """Up to `most` tokens, each certain (q = 1)."""
        text = list(tokens)
        for n in range(min(self.longest, len(text) - 1), 0, -1):
            tail = text[-n:]
            for start in range(len(text) - n - 1, -1, -1):
                if text[start : start + n] == tail:
                    return [Proposal(token, self._certain(token)) for token in text[start + n : start + n + most]]
        return []

    def _certain(self, token: int) -> Probs:
        probs = np.zeros(self.vocab_size)
        probs[token] = 1.0
        return probs


class ModelDraft:
    """Drafts by a model of the same vocabulary, or by the first `depth` layers of the target itself (layer skipping).

    Its cache follows the text: what the target rejected is cut off at the next call.
    """

    def __init__(self, model: Transformer, sampler: Sampler, seed: int, *, depth: int | None = None) -> None:
        self.model, self.sampler, self.seed, self.depth = model, sampler, seed, depth
        self.vocab_size = model.cfg.vocab_size
        self.cache = KVCache.empty(model.cfg, 64, dtype=model.dtype, device=model.device, growable=True)
        self.seen: list[int] = []

    def propose(self, tokens: Sequence[int], most: int) -> list[Proposal]:
        """`most` tokens, each drawn from this model's distribution after the sampler."""
        self._follow(tokens)
        text, found = list(tokens), []
        for _ in range(most):
            waiting = text[len(self.seen) :]
            batch = torch.tensor([waiting], device=self.model.device)
            logits = self.model(batch, cache=self.cache, logits_to_keep=1, depth=self.depth).logits[0, -1]
            self.seen = list(text)
            probs = self.sampler.distribution(logits.float().cpu().numpy(), text).probs
            token = pick(probs, uniform(self.seed, len(text), PROPOSE))
            found.append(Proposal(token, probs))
            text.append(token)
        return found

    def _follow(self, tokens: Sequence[int]) -> None:
        """Keep of the cache what the text still begins with, and leave at least one token to run."""
        same = min(common_prefix(self.seen, tokens), len(tokens) - 1)
        same = same if self.cache.can_truncate(same) else 0
        self.cache.truncate(same)
        self.seen = self.seen[:same]


Draft = PromptLookup | ModelDraft


def require_same_tokens(target: Tokenizer | None, draft: Tokenizer | None) -> None:
    """InputError unless an id is the same token in both: p(x) / q(x) of two different pieces of text means nothing."""
    if target is None or draft is None:
        raise InputError(
            "a model without a tokenizer" if target is None else "a draft model without a tokenizer",
            expected="two models with the same one",
            where="speculative decoding",
        )
    if target.vocab_size != draft.vocab_size:
        raise InputError(
            f"the draft’s tokenizer has {draft.vocab_size} tokens",
            expected=f"the {target.vocab_size} of the model’s",
            where="speculative decoding",
            todo="Choose a draft model that shares the tokenizer.",
        )
    for token in range(target.vocab_size):
        if target.name(token) != draft.name(token):
            raise InputError(
                f"token {token} is {draft.name(token)!r} in the draft’s tokenizer",
                expected=f"{target.name(token)!r}, as in the model’s",
                where="speculative decoding",
                todo="Choose a draft model that shares the tokenizer.",
            )


class SpeculativeDecoder:
    """Rounds of draft and check on one text; `tokens` grows by one to `most` + 1 tokens a round."""

    def __init__(
        self,
        model: Transformer,
        tokens: Sequence[int],
        sampler: Sampler,
        draft: Draft,
        seed: int = 0,
        *,
        most: int = 4,
    ) -> None:
        if not tokens:
            raise InputError(
                "there are no tokens to start from", expected="at least one", where="the prompt", todo="Type some text."
            )
        if most < 1:
            raise InputError(f"{most} drafted tokens a round", expected="at least 1", where="speculative decoding")
        if draft.vocab_size != model.cfg.vocab_size:
            raise InputError(
                f"the draft has a vocabulary of {draft.vocab_size}",
                expected=f"the model’s own, of {model.cfg.vocab_size}",
                where="speculative decoding",
                todo="Choose a draft model that shares the tokenizer.",
            )
        self.model, self.sampler, self.draft, self.seed, self.most = model, sampler, draft, seed, most
        self.tokens = [int(token) for token in tokens]
        self.prompt_length = len(self.tokens)
        self.rounds: list[Round] = []
        self.cache = KVCache.empty(
            model.cfg, max(64, 2 * len(self.tokens)), dtype=model.dtype, device=model.device, growable=True
        )

    def round(self) -> Round:
        """Draft, check in one pass of the target, and keep what the acceptance rule keeps."""
        start = time.perf_counter()
        proposals = self.draft.propose(self.tokens, self.most)
        drafted = time.perf_counter()
        target = self._target(proposals)
        length = len(self.tokens)
        points = [uniform(self.seed, length + i, ACCEPT) for i in range(len(proposals))]
        checked = check(proposals, target, points)
        kept = [c.token for c in checked if c.accepted]
        token = settle(checked, proposals, target, uniform(self.seed, length + len(kept), REPLACE))
        self.tokens += [*kept, token]
        back = len(self.tokens) - 1
        self.cache.truncate(back if self.cache.can_truncate(back) else 0)
        proposed, target_s = tuple(proposal.token for proposal in proposals), time.perf_counter() - drafted
        done = Round(tuple(checked), token, len(kept) < len(checked), drafted - start, target_s, proposed)
        self.rounds.append(done)
        return done

    def _target(self, proposals: Sequence[Proposal]) -> list[Probs]:
        """The target's distribution before each proposal and after the last, from one forward."""
        text = self.tokens + [proposal.token for proposal in proposals]
        batch = torch.tensor([text[self.cache.length :]], device=self.model.device)
        count = len(proposals) + 1
        logits = self.model(batch, cache=self.cache, logits_to_keep=count).logits[0].float().cpu().numpy()
        before = len(self.tokens)
        return [self.sampler.distribution(row, text[: before + i]).probs for i, row in enumerate(logits)]

    @property
    def acceptance(self) -> float:
        """The share of the drafts looked at that stayed; NaN where there was none."""
        looked_at = sum(len(done.drafts) for done in self.rounds)
        return sum(done.accepted for done in self.rounds) / looked_at if looked_at else float("nan")

    @property
    def tokens_per_pass(self) -> float:
        """How much the text grew per pass of the target; NaN before the first."""
        return (len(self.tokens) - self.prompt_length) / len(self.rounds) if self.rounds else float("nan")
