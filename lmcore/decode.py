"""Decoding as a plain object: step, look, rewind, step again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmcore.cache import KVCache
from lmcore.errors import InputError
from lmcore.model import Transformer
from lmcore.sampling import Sampler


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: a forward of `forward_tokens` tokens, its logits (V,) in float32, and the token then chosen.

    `position` is the index that the token takes; `cache_length` and the bytes are the cache after the forward, which
    holds every token but the newest; `time_s` is the forward alone. `forced` marks a token chosen by the user.
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
    ) -> None:
        """`capacity` positions are allocated, and no more; without it the cache grows from twice the prompt.

        `chunk` bounds the tokens of one forward of the prefill. Raises InputError for an empty prompt.
        """
        if not tokens:
            raise InputError(
                "there are no tokens to start from", expected="at least one", where="the prompt", todo="Type some text."
            )
        self.model, self.sampler, self.seed, self.chunk = model, sampler, seed, chunk
        self.prompt = tuple(int(token) for token in tokens)
        self.steps: list[Step] = []
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
        if force is not None and not 0 <= force < self.model.cfg.vocab_size:
            raise InputError(f"token id {force} is outside the vocabulary", where="the forced token")
        before = self.cache.length
        waiting = self.tokens[before:]
        start = time.perf_counter()
        try:
            last = self._run(waiting)
            logits = last.float().cpu().numpy()
        except BaseException:
            self._back_to(before)
            raise
        elapsed = time.perf_counter() - start
        position = before + len(waiting)
        token = self.sampler.choose(logits, seed=self.seed, position=position) if force is None else force
        step = Step(
            index=len(self.steps),
            position=position,
            token=token,
            forced=force is not None,
            logits=logits,
            forward_tokens=len(waiting),
            time_s=elapsed,
            cache_length=self.cache.length,
            used_bytes=self.cache.used_bytes,
            allocated_bytes=self.cache.allocated_bytes,
        )
        self.steps.append(step)
        return step

    def _run(self, tokens: Sequence[int]) -> Tensor:
        """Logits (V,) after the last of these tokens; those before it only fill the cache."""
        size = self.chunk or len(tokens)
        logits = None
        for first in range(0, len(tokens), size):
            part = torch.tensor([tokens[first : first + size]], device=self.model.device)
            logits = self.model(part, cache=self.cache, logits_to_keep=1).logits
        assert logits is not None
        return logits[0, -1]

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
        self._back_to(length)

    def _back_to(self, length: int) -> None:
        self.cache.truncate(length if self.cache.can_truncate(length) else 0)
