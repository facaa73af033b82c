"""Decoding as a plain object: step, look, rewind, step again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lmcore.cache import KVCache
from lmcore.errors import InputError
from lmcore.model import Transformer
from lmcore.prefill import prefill
from lmcore.sampling import Distribution, Sampler, draw

_LET_GO = np.empty(0, np.float32)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: a forward of `forward_tokens` tokens, its logits (V,) in float32, and the token then chosen.

    `position` is the index that the token takes; `cache_length` and the bytes are the cache after the forward, which
    holds every token but the newest; `time_s` is the forward alone. `forced` marks a token chosen by the user. `logits`
    is empty in a step that the decoder keeps without them.
    """

    index: int
    position: int
    token: int
    forced: bool
    logits: np.ndarray
    forward_tokens: int
    time_s: float
    cache_length: int
    used_bytes: int
    allocated_bytes: int


@dataclass(frozen=True, eq=False)
class _Forward:
    """What one forward gave: the cache with the tokens `read`, the logits of the last, and the forward's own time."""

    read: tuple[int, ...]
    cache: KVCache
    logits: np.ndarray
    tokens: int
    time_s: float


class Decoder:
    """Prefill, then one token a step, on a cache of its own; two decoders on one model never meet.

    Step 0 runs the prompt and chooses the first token; step n runs the token before it. The choice is seeded by
    (seed, position), so that rewinding and stepping gives the same tokens again.
    """

    def __init__(
        self,
        model: Transformer,
        tokens: Sequence[int],
        sampler: Sampler,
        seed: int = 0,
        *,
        capacity: int | None = None,
        chunk: int | None = None,
        keep_logits: int | None = None,
        watch: Callable[[Step, Distribution], None] | None = None,
    ) -> None:
        """`capacity` positions are allocated, and no more; without it the cache grows from twice the prompt.

        `chunk` bounds the tokens of one forward of the prefill. The first `keep_logits` steps keep their logits (all
        when None): to choose again at a step without running the model takes 4 V bytes. `watch` is called with each
        step and the distribution its token was drawn from (or taken in spite of) whenever a token is chosen there, so
        that nobody has to compute it again. Raises InputError for an empty prompt.
        """
        if not tokens:
            raise InputError(
                "there are no tokens to start from", expected="at least one", where="the prompt", todo="Type some text."
            )
        self.model, self.sampler, self.seed, self.chunk = model, sampler, seed, chunk
        self.keep_logits, self.watch = keep_logits, watch
        self.prompt = tuple(int(token) for token in tokens)
        self.steps: list[Step] = []
        self._ahead: _Forward | None = None
        self.cache = KVCache.empty(
            model.cfg,
            capacity or max(32, 2 * len(self.prompt)),
            dtype=model.dtype,
            device=model.device,
            growable=capacity is None,
        )

    @property
    def prompt_length(self) -> int:
        return len(self.prompt)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The prompt and every token chosen so far."""
        return self.prompt + tuple(step.token for step in self.steps)

    def step(self, force: int | None = None) -> Step:
        """Run what the cache has not seen, choose the next token (or take `force`), and return both.

        A forward that fails leaves cache and steps as they were.
        """
        if force is not None:
            self._check_forced(force)
        ran = self._ahead if self._is_ahead() else self._forward(self.cache)
        assert ran is not None
        self.cache, self._ahead = ran.cache, None
        step, found = self._made(ran, force)
        kept = self.keep_logits is None or step.index < self.keep_logits
        self.steps.append(step if kept else replace(step, logits=_LET_GO))
        self._tell(step, found)
        return step

    def ahead(self) -> tuple[Step, Distribution | None]:
        """The step that `step()` would make now, and what its token was drawn from, without making it.

        The forward runs on a copy of the cache. It is kept, so that `step()`, which then runs none, gives just this
        step with the time that the forward took; another token before it makes it void.
        """
        if not self._is_ahead():
            self._ahead = None
            self._ahead = self._forward(self.cache.fork())
        assert self._ahead is not None
        return self._made(self._ahead, None)

    def _is_ahead(self) -> bool:
        return self._ahead is not None and self._ahead.read == self.tokens

    def _forward(self, cache: KVCache) -> _Forward:
        """Run what the cache has not seen; a forward that fails leaves it as it was."""
        before = cache.length
        waiting = self.tokens[before:]
        start = time.perf_counter()
        try:
            last = prefill(self.model, waiting, cache=cache, chunk=self.chunk)
            logits = last.float().cpu().numpy()
        except BaseException:
            _cut(cache, before)
            raise
        elapsed = time.perf_counter() - start
        return _Forward(read=self.tokens, cache=cache, logits=logits, tokens=len(waiting), time_s=elapsed)

    def _made(self, ran: _Forward, force: int | None) -> tuple[Step, Distribution | None]:
        position = ran.cache.length
        token, found = self._draw(ran.logits, position, force)
        step = Step(
            index=len(self.steps),
            position=position,
            token=token,
            forced=force is not None,
            logits=ran.logits,
            forward_tokens=ran.tokens,
            time_s=ran.time_s,
            cache_length=ran.cache.length,
            used_bytes=ran.cache.used_bytes,
            allocated_bytes=ran.cache.allocated_bytes,
        )
        return step, found

    def choose(self, index: int, token: int | None = None) -> Step:
        """Choose again at a step that has run: `token`, or what the sampler now draws from the logits it had.

        No forward runs; the steps after it are taken back. InputError for a token outside the vocabulary, a step that
        has not run, and for a draw from logits that were let go.
        """
        if not 0 <= index < len(self.steps):
            raise InputError(f"step {index} has not run", expected=f"one of {len(self.steps)}", where="the decoder")
        step, forced = self.steps[index], token is not None
        if token is not None:
            self._check_forced(token)
        elif not step.logits.size:
            raise InputError(f"step {index} has let its logits go", where="the decoder", todo="Rewind and step.")
        chosen, found = self._draw(step.logits, step.position, token)
        self.rewind(index + 1)
        self.steps[index] = replace(step, token=chosen, forced=forced)
        self._tell(self.steps[index], found)
        return self.steps[index]

    def resample(self, sampler: Sampler, seed: int) -> None:
        """Go on with this sampler and seed as if they had been there from the start; no forward runs.

        Every step chooses again from its logits, but those whose token was forced. The first that comes out differently
        takes back the steps after it, and the first without logits is taken back with them.
        """
        self.sampler, self.seed = sampler, seed
        for step in tuple(self.steps):
            if not step.logits.size:
                return self.rewind(step.index)
            token, found = self._draw(step.logits, step.position, step.token if step.forced else None)
            if token != step.token:
                self.rewind(step.index + 1)
                self.steps[step.index] = replace(step, token=token)
            self._tell(self.steps[step.index], found)
            if token != step.token:
                return None
        return None

    def _draw(self, logits: np.ndarray, position: int, force: int | None) -> tuple[int, Distribution | None]:
        """The token, and the distribution over the vocabulary if somebody watches and the logits are there."""
        history = self.tokens[:position]
        if self.watch is None or not logits.size:
            drawn = force is None
            chosen = self.sampler.choose(logits, seed=self.seed, position=position, history=history) if drawn else force
            assert chosen is not None
            return chosen, None
        found = self.sampler.distribution(logits, history)
        return draw(found.probs, seed=self.seed, position=position) if force is None else force, found

    def _tell(self, step: Step, found: Distribution | None) -> None:
        if self.watch is not None and found is not None:
            self.watch(step, found)

    def _check_forced(self, token: int) -> None:
        if not 0 <= token < self.model.cfg.vocab_size:
            raise InputError(f"token id {token} is outside the vocabulary", where="the forced token")

    def rewind(self, n: int) -> None:
        """Keep the first n steps. Where a windowed layer has evicted what they read, all of it runs again."""
        if not 0 <= n <= len(self.steps):
            raise InputError(
                f"there is no step {n} to go back to", expected=f"0 to {len(self.steps)}", where="the decoder"
            )
        if n == len(self.steps):
            return
        length = self.steps[n - 1].cache_length if n else 0
        del self.steps[n:]
        self._ahead = None
        _cut(self.cache, length)


def _cut(cache: KVCache, length: int) -> None:
    """Forget positions from `length` on, or all of them where a windowed layer has evicted what they read."""
    cache.truncate(length if cache.can_truncate(length) else 0)
