"""One session's decoding: a plan, which is small and stands in the address, and the run that follows it.

Every step follows from prompt, sampler, seed and the tokens chosen by hand, so a plan can be run again: from a copied
link, or after the run was let go to keep memory in bounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import streamlit as st

from figures.cache import Fill
from figures.decode import StepView, step_view
from lmcore.costs import kv_cache_bytes
from lmcore.sampling import Distribution, Sampler
from ui import branches, models, prefix_reuse, runs, state
from ui.branches import Branch
from ui.cursor import Cursor
from ui.lru import ByteLRU
from ui.models import Opened

if TYPE_CHECKING:
    from lmcore.cache import KVCache
    from lmcore.decode import Step

MAX_STEPS = 128
LOGIT_BYTES = 48 * 2**20
"""Logits kept for one run, of its first steps: 128 of them with SmolLM2's vocabulary, 48 with Gemma's."""
MAX_RUNS = 12
RUN_BYTES = 640 * 2**20


@dataclass
class Plan:
    """How many steps to make, and which tokens were chosen by hand at which of them."""

    steps: int = 1
    forced: dict[int, int] = field(default_factory=dict)
    playing: bool = False
    ahead: bool = False
    """On the way to `steps` at the model's own speed, up to the end of the text."""
    linked: bool = False
    """On the way to what a link asked for."""
    stepped_at: float = 0.0
    branches: list[Branch] = field(default_factory=list)
    """What was left when steps were taken back or chosen again."""
    unscored: list[tuple[int, ...]] = field(default_factory=list)
    """Branches of a link, which have yet to be run for their log-probabilities."""
    cursor: Cursor = field(default_factory=Cursor)

    def to(self, steps: int) -> None:
        """Make or take back steps until there are so many; what was chosen by hand after them is forgotten."""
        self.steps = steps
        self.forced = {index: token for index, token in self.forced.items() if index < steps}

    def choose(self, index: int, token: int) -> None:
        """Step `index` with this token, and none after it."""
        self.to(index + 1)
        self.forced[index] = token

    def back_to(self, branch: Branch, sampler: Sampler, seed: int) -> None:
        """Make the steps of a branch that was left."""
        self.stop()
        self.steps, self.forced = len(branch.tokens), branch.plan(sampler, seed)

    def stop(self) -> None:
        self.playing = self.ahead = self.linked = False

    @property
    def active(self) -> bool:
        """Whether steps are made without a press of a button for each."""
        return self.playing or self.ahead or self.linked

    @property
    def address(self) -> dict[str, str | int | None]:
        """The plan as it stands in the address; what is as at the start is left out."""
        pairs = ",".join(f"{index}:{token}" for index, token in sorted(self.forced.items()))
        left = [*self.unscored, *(branch.tokens for branch in self.branches)]
        return {
            "decode_steps": self.steps if self.steps > 1 else None,
            "decode_forced": pairs or None,
            "decode_branches": branches.to_link(left[-branches.MOST :]),
        }


class Decoding:
    """The run of one plan: a decoder on a cache of its own, and what the figures show of its steps."""

    def __init__(self, opened: Opened, ids: tuple[int, ...]) -> None:
        from lmcore.decode import Decoder

        cfg = opened.config
        self.ids = ids
        self.capacity = capacity_for(opened, ids)
        self.room = min(MAX_STEPS, self.capacity - len(ids) + 1)
        self.itemsize = opened.model.dtype.itemsize
        kept = max(1, min(self.room, LOGIT_BYTES // (4 * cfg.vocab_size)))
        self.decoder = Decoder(opened.model, ids, Sampler(), capacity=self.capacity, keep_logits=kept, watch=self._see)
        self._lock = Lock()
        self._views: dict[int, StepView] = {}
        self._lengths = np.full((cfg.n_layers, cfg.n_kv_heads, self.capacity), np.nan, np.float32)
        self._known = 0

    def begin_from(self, earlier: Decoding) -> None:
        """Fill the cache, still empty, with what an earlier run on this model holds of this prompt's beginning."""
        with earlier._lock:
            prefix_reuse.hand_over(earlier.decoder, self.decoder)

    def bytes_held(self) -> int:
        logits = 4 * self.decoder.model.cfg.vocab_size * (self.decoder.keep_logits or 0)
        return 2 * self.decoder.cache.allocated_bytes + logits + self._lengths.nbytes

    @property
    def steps(self) -> list[Step]:
        return self.decoder.steps

    @property
    def views(self) -> list[StepView]:
        return [self._views[step.index] for step in self.steps]

    def follow(self, plan: Plan, sampler: Sampler, seed: int, *, for_s: float, ends: Collection[int]) -> None:
        """Bring the run to the plan, for at most about `for_s` seconds: look at `steps` for how far it is.

        Another sampler or seed chooses again from the logits that are there. What that takes back is taken off the
        plan, and so are the steps after one of the tokens `ends` where the plan runs ahead.
        """
        with self._lock:
            before = self.branch()
            self._resample(plan, sampler, seed)
            if len(self.steps) > plan.steps:
                self.decoder.rewind(plan.steps)
            self._choose(plan)
            if not branches.starts([step.token for step in self.steps], before.tokens):
                plan.branches = branches.kept(plan.branches, before)
            self._known = min(self._known, self.steps[-1].cache_length if self.steps else 0)
            begun = time.perf_counter()
            while len(self.steps) < min(plan.steps, self.room):
                with runs.forwarding():
                    step = self.decoder.step(force=plan.forced.get(len(self.steps)))
                self._measure()
                if plan.ahead and step.token in ends:
                    plan.to(len(self.steps))
                if time.perf_counter() - begun > for_s:
                    break

    def ahead(self, plan: Plan) -> StepView | None:
        """What a press of Step would make, run while nobody waits: beside the run and no part of it (`Decoder.ahead`).

        None while steps are made anyway, where there is no room for one, and while others run a forward.
        """
        with self._lock:
            if plan.active or not 0 < len(self.steps) == plan.steps < self.room:
                return None
            with runs.forwarding_if_idle() as idle:
                if not idle:
                    return None
                step, found = self.decoder.ahead()
        assert found is not None
        return _view(step, found)

    def branch(self) -> Branch:
        """The steps as they are, to return to."""
        given = [float(view.raw[list(view.ids).index(view.token)]) for view in self.views]
        return Branch(
            tokens=tuple(step.token for step in self.steps),
            log_probs=tuple(math.log(p) if p > 0 else -math.inf for p in given),
            forced={step.index: step.token for step in self.steps if step.forced},
            sampler=self.decoder.sampler,
            seed=self.decoder.seed,
        )

    def score(self, plan: Plan) -> None:
        """Run the branches that a link named, each in one forward, and keep them with the log-probabilities found."""
        for tokens in plan.unscored:
            found = Branch(tokens, self.log_probs(tokens), dict(enumerate(tokens)), sampler=None, seed=0)
            plan.branches = branches.kept(plan.branches, found)
        plan.unscored = []

    def log_probs(self, tokens: tuple[int, ...]) -> tuple[float, ...]:
        """What the model gives each of these tokens after the prompt, all of them run at once (teacher forcing)."""
        import torch

        from lmcore.sampling import softmax

        model, cache = self.decoder.model, self.cache_before(len(self.ids))
        waiting = (*self.ids, *tokens)[cache.length : -1]
        with runs.forwarding():
            ids = torch.tensor([waiting], device=model.device)
            logits = model.forward(ids, cache=cache, logits_to_keep=len(tokens)).logits[0].float().cpu().numpy()
        given = [float(softmax(row)[token]) for row, token in zip(logits, tokens, strict=True)]
        return tuple(math.log(p) if p > 0 else -math.inf for p in given)

    def _resample(self, plan: Plan, sampler: Sampler, seed: int) -> None:
        if (sampler, seed) == (self.decoder.sampler, self.decoder.seed):
            return
        had = len(self.steps)
        self.decoder.resample(sampler, seed)
        if len(self.steps) < had:
            plan.to(max(1, len(self.steps)))
            plan.stop()

    def _choose(self, plan: Plan) -> None:
        """The tokens chosen by hand, where the run has others; without a forward if the step's logits are there."""
        for index, step in enumerate(tuple(self.steps)):
            token = plan.forced.get(index)
            if step.forced != (token is not None) or (token is not None and token != step.token):
                if step.logits.size:
                    self.decoder.choose(index, token)
                else:
                    self.decoder.rewind(index)
                return

    def _measure(self) -> None:
        """The lengths of the keys that are new in the cache."""
        cache = self.decoder.cache
        for layer in range(len(self._lengths)):
            start, end = cache.extent(layer)
            fresh = max(self._known, start)
            if fresh < end:
                keys = cache.keys(layer)[0, :, fresh - start :].float()
                self._lengths[layer, :, fresh:end] = keys.norm(dim=-1).cpu().numpy()
        self._known = max(self._known, cache.length)

    def _see(self, step: Step, found: Distribution) -> None:
        """Keep what the page shows of a step whose token was just chosen; its distribution is let go."""
        self._views[step.index] = _view(step, found)

    def lengths(self) -> np.ndarray:
        """(L, K, S) float32, the length of each key that the cache has held."""
        return self._lengths[:, :, : self.steps[-1].cache_length if self.steps else 0]

    def cache_before(self, position: int) -> KVCache:
        """A copy of the cache that waits for the token before `position`, or for the whole text where a windowed layer
        has evicted what that token reads."""
        with self._lock:
            cache = self.decoder.cache.fork()
        cache.truncate(position - 1 if cache.can_truncate(position - 1) else 0)
        return cache

    def fills(self) -> list[Fill]:
        """The cache after each forward: positions, and bytes by formula and in the cache."""
        return [Fill(step.cache_length, self.formula_bytes(step.cache_length), step.used_bytes) for step in self.steps]

    def formula_bytes(self, context: int) -> int:
        return sum(kv_cache_bytes(self.decoder.model.cfg, context=context, itemsize=self.itemsize))


def _view(step: Step, found: Distribution) -> StepView:
    return step_view(
        found.raw,
        found.probs,
        token=step.token,
        position=step.position,
        time_s=step.time_s,
        forward_tokens=step.forward_tokens,
        stages=found.stages,
        forced=step.forced,
    )


_RUNS: ByteLRU[Decoding] = ByteLRU(max_entries=MAX_RUNS, max_bytes=RUN_BYTES, size=Decoding.bytes_held)
# A run holds on to its model; when that leaves, the run goes too, and its plan stays with the session.
models.when_one_leaves(lambda opened: _RUNS.drop(lambda key: key[1] == opened.key))  # type: ignore[index]


def capacity_for(opened: Opened, ids: tuple[int, ...]) -> int:
    """Positions that a run of this prompt allocates: for `MAX_STEPS`, or as many as the model was trained for."""
    return min(len(ids) + MAX_STEPS, max(opened.config.max_positions, len(ids)))


def plan(opened: Opened, ids: tuple[int, ...]) -> Plan:
    """The session's plan for this model and prompt: the link's at first, and a new one for another prompt or model.

    The address is read on every run of the page, so that a bad part of a link stays named until it is gone from there.
    """
    steps = state.integer("decode_steps", 1, 1, MAX_STEPS)
    forced = state.numbered("decode_forced", steps, opened.config.vocab_size)
    left = state.parsed(
        "decode_branches",
        lambda text: branches.from_link(
            text,
            vocab_size=opened.config.vocab_size,
            most_tokens=min(MAX_STEPS, capacity_for(opened, ids) - len(ids) + 1),
        ),
        [],
        f"a list of at most {branches.MOST} branches, as this page writes it",
    )
    looked_at = state.integer("step", steps - 1, 0, MAX_STEPS - 1)
    key, held = (opened.key, ids), st.session_state.get("_decode_plan")
    if held is None:
        linked = steps > 1 or bool(forced)
        first = Plan(steps=steps, forced=forced, linked=linked, unscored=left, cursor=Cursor(looked_at, steps))
        held = st.session_state["_decode_plan"] = (key, first)
    elif held[0] != key:
        held = st.session_state["_decode_plan"] = (key, Plan())
    return held[1]


def run(opened: Opened, ids: tuple[int, ...]) -> Decoding:
    """The session's run on this model, made anew when the prompt is another or the run was let go."""
    session = st.session_state.setdefault("_decode_session", uuid4().hex)
    key = (session, opened.key)
    found = _RUNS.peek(key)
    if found is None or found.ids != ids:
        earlier, found = found, Decoding(opened, ids)
        if earlier is not None:
            found.begin_from(earlier)
        _RUNS.put(key, found)
    return found
