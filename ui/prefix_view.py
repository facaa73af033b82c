"""A second prompt that begins like the sidebar's: read from the cache of the run, and afresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from figures.facts import Fact, facts_payload
from figures.format import group, sig
from figures.prefix import Seam, seam
from figures.texts import Version, texts_payload
from figures.twins import Tile, tile, tiles_payload
from lmcore.costs import forward_flops
from ui import components, decoding, guard, models, page, prefilling, runs, state, vocabulary
from ui.markdown import plain

if TYPE_CHECKING:
    from ui.prefilling import Resumed

LOGITS = "Largest difference of a logit"
REUSED, AFRESH = "FLOPs from the cache on", "FLOPs afresh"


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """The second prompt, what its tokens have in common with the first, and the two ways to read it."""
    page.section(
        "Prefix reuse across prompts",
        "Another prompt that begins like this one needs its own rest only: keys and values of a position depend on the "
        "tokens up to it and on nothing after. The cache of the run above is copied, cut to the common tokens, and "
        "read on from there.",
    )
    given = example(opened, prompt)
    typed = st.text_input(
        "Another prompt",
        key="decode_other",
        placeholder=given,
        max_chars=state.MAX_PROMPT_CHARS,
        bind="query-params",
        persist_state="session",
    )
    ids = tuple(runs.encode(opened, typed or given)[: runs.longest(opened)])
    if not ids:
        st.markdown("Type a second prompt.")
        return
    run = decoding.run(opened, prompt.ids)
    common = parted(opened, prompt.ids, ids)
    held = waiting(run, ids)
    versions = [
        Version("The sidebar’s prompt", prompt.ids, f"{group(len(prompt.ids))} tokens"),
        Version("Another prompt", ids, f"{group(held)} reused, {group(len(ids) - held)} to compute"),
    ]
    payload = texts_payload(versions, piece=lambda token: vocabulary.generated(opened, token))
    components.mount("texts", payload, key="decode_prefix")
    if components.sent("decode_prefix_tiles", "run") == LOGITS:
        told = st.empty()
        for done in prefilling.resume(opened, run.decoder.cache, run.decoder.tokens, ids):
            told.markdown(f":small[:gray[{done} of {prefilling.ROUNDS} rounds of both]]")
        told.empty()
    found = prefilling.known_resumed(opened, ids, held)
    components.twins(tiles_payload(tiles(opened, ids, held, found)), key="decode_prefix_tiles")
    if found is not None:
        st.space("small")
        components.mount("facts", facts_payload(facts(ids, found)), key="decode_prefix_facts")
    page.notice(points(opened, run, ids, common, held, found))
    page.formula(r"c = \max\{n : a_{1 \dots n} = b_{1 \dots n}\}, \qquad \text{computed} = |b| - \min(c,\, |b| - 1)")
    page.prose(
        "$a$ and $b$ are the two prompts in tokens. At least one token is run, for its logits. A cache that was filled "
        "past the common part is cut there; servers keep such caches for many prompts at once, in blocks or in a tree "
        "(Zheng et al. 2023, SGLang, section 3)."
    )
    with page.tools():
        page.source("lmcore.prefill.reusable", snippet(opened, prompt, ids), key="decode_prefix_source")


def example(opened: models.Opened, prompt: runs.Prompt) -> str:
    """The sidebar's prompt with another end."""
    if opened.tokenizer is None:
        return " ".join(str(token) for token in (*prompt.ids[:-1], *prompt.ids[:2]))
    start, _, _ = prompt.text.rstrip().rpartition(" ")
    return f"{start or prompt.text} nobody"


def parted(opened: models.Opened, first: tuple[int, ...], second: tuple[int, ...]) -> Seam:
    pieces = [[token.piece for token in vocabulary.tokens(opened, ids)] for ids in (first, second)]
    return seam(first, second, pieces)


def waiting(run: decoding.Decoding, ids: tuple[int, ...]) -> int:
    """How many tokens of `ids` the cache of the run has and may be cut to."""
    from lmcore.prefill import common_prefix

    cache = run.decoder.cache
    kept = min(common_prefix(run.decoder.tokens[: cache.length], ids), len(ids) - 1)
    return kept if cache.can_truncate(kept) else 0


def tiles(opened: models.Opened, ids: tuple[int, ...], held: int, found: Resumed | None) -> list[Tile]:
    from lmcore.proof import TOLERANCE

    cfg = opened.config
    explained = found is not None and found.logits <= TOLERANCE[opened.dtype] * max(1.0, found.largest_logit)
    counted = found.flops if found is not None else None
    too_long = len(ids) > prefilling.COUNTED
    missing = f"text over {group(prefilling.COUNTED)} tokens" if too_long else "not run"
    rest = sum(forward_flops(cfg, tokens=len(ids) - held, cached=held, logits=1).values())
    whole = sum(forward_flops(cfg, tokens=len(ids), logits=1).values())
    return [
        tile(
            LOGITS,
            0.0,
            found.logits if found else None,
            how="measured",
            reason=f"{opened.dtype} rounding" if explained else "",
            note="After the last token, from the cache against afresh." if found else "",
            run="Read it both ways",
        ),
        tile(REUSED, rest, counted[0] if counted else None, unit="FLOP", missing=missing),
        tile(AFRESH, whole, counted[1] if counted else None, unit="FLOP", missing=missing),
    ]


def facts(ids: tuple[int, ...], found: Resumed) -> list[Fact]:
    again, fresh, copied = (sig(seconds * 1e3, 3) for seconds in (found.resumed_s, found.fresh_s, found.copy_s))
    saved = (found.fresh_s - found.resumed_s - found.copy_s) * 1e3
    return [
        Fact("From the cache", f"{again} ms", f"{group(len(ids) - found.reused)} tokens; copying it {copied} ms"),
        Fact("Afresh", f"{fresh} ms", f"{group(len(ids))} tokens"),
        Fact("Saved", f"{sig(saved, 3)} ms", f"medians of {prefilling.ROUNDS}, in turn"),
        Fact("Likeliest next token", "the same" if found.same_choice else "another one", "both ways"),
    ]


def points(
    opened: models.Opened,
    run: decoding.Decoding,
    ids: tuple[int, ...],
    common: Seam,
    held: int,
    found: Resumed | None,
) -> list[str]:
    """What to notice, computed from the two prompts."""
    said = [_where(opened, run.ids, ids, common)]
    least = min(common.tokens, len(ids) - 1, run.decoder.cache.length)
    if held < least:
        said.append(
            f"**{group(least)} tokens are common and none can be reused**: a windowed layer has evicted the positions "
            "that the next token would read, so that the whole prompt is run again."
        )
    elif held > common.tokens:
        said.append("It goes on as the run above has gone on: its generated tokens are reused, too.")
    elif common.tokens == len(ids):
        said.append(
            "All of it is in the cache. The last token is run again all the same, since its logits are asked for."
        )
    if found is not None:
        cost, whole = found.resumed_s + found.copy_s, found.fresh_s
        said.append(
            f"From the cache it took {sig(100 * cost / whole, 3)} % of the time afresh, copy included, for "
            f"{sig(100 * (len(ids) - held) / len(ids), 3)} % of the tokens."
        )
    return said


def _where(opened: models.Opened, first: tuple[int, ...], ids: tuple[int, ...], common: Seam) -> str:
    """The prefix goes by tokens: where the texts have more in common than the tokens, the two at the seam are named."""
    start = f"The prompts share {group(common.tokens)} token{'' if common.tokens == 1 else 's'}"
    at = common.tokens
    if not common.merged or at >= min(len(first), len(ids)):
        return f"{start}, {group(common.token_bytes)} bytes of text."
    names = [plain(vocabulary.label(opened, side[at])) for side in (first, ids)]
    return (
        f"{start}, but {group(common.merged)} byte{'s' if common.merged > 1 else ''} more of text: they stand inside "
        f"**{names[0]}** here and **{names[1]}** there, and a token is reused whole or not at all."
    )


def snippet(opened: models.Opened, prompt: runs.Prompt, ids: tuple[int, ...]) -> str:
    return f"""
from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.prefill import prefill, reusable

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
first, second = {list(prompt.ids)}, {list(ids)}
seen, fresh = (KVCache.empty(model.cfg, max(len(first), len(second)), dtype=model.dtype) for _ in range(2))
prefill(model, first, cache=seen)
cache = reusable(seen, first, second)
rest = second[cache.length:]
(prefill(model, rest, cache=cache) - prefill(model, second, cache=fresh)).abs().max()
"""
