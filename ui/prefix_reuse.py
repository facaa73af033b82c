"""A run that begins with the prompt of the run before starts from a copy of its cache; and how the page says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.format import group

if TYPE_CHECKING:
    from lmcore.decode import Decoder

LEAST = 8
"""Common tokens from which a copy is taken: below, the prefill has hardly less to read."""


def hand_over(earlier: Decoder, new: Decoder) -> None:
    """Copy what the cache of `earlier` holds of the prompt of `new`, which has not run yet, if that is worth it."""
    from lmcore.prefill import common_prefix, hand_over

    if earlier.model is new.model and common_prefix(earlier.tokens, new.prompt) >= LEAST:
        hand_over(earlier.cache, earlier.tokens, new.cache, new.prompt)


def reused(decoder: Decoder) -> int:
    """How many tokens of the prompt its first forward did not run, since they came from an earlier prompt's cache."""
    return decoder.prompt_length - decoder.steps[0].forward_tokens if decoder.steps else 0


def said(decoder: Decoder) -> str:
    """A sentence about it, to follow one on the prefill; empty where all of the prompt was run."""
    count = reused(decoder)
    if not count:
        return ""
    before = "The token" if count == 1 else f"The {group(count)} tokens"
    return f" {before} before came from the cache of the earlier prompt, which begins alike."
