"""The prompt read in chunks on the running model: the same logits and cache, other costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from figures.format import bytes_iec, group, sig
from figures.table import csv_text
from figures.twins import Tile, tile, tiles_payload
from ui import components, guard, models, page, prefilling, runs

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ui.prefilling import Chunked

LOGITS, CACHE = "Largest difference of a logit", "Largest difference in the cache"
FLOPS, SCORES = "FLOPs of all chunks", "Scores of a layer at the peak"
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """A size, a button, and what the prefill in chunks of that size showed; the curve over sizes on another button."""
    page.section(
        "Prefill in chunks",
        "The prompt need not be read in one forward: each chunk reads the cache of those before it. The scores in "
        "flight are fewer, and a server can run other people’s steps in between; every chunk reads all weights again.",
    )
    tokens = len(prompt.ids)
    if tokens < 2:
        st.markdown("The prompt has a single token: there is nothing to divide.")
        return
    size = st.slider("Tokens in a chunk", 1, tokens, max(1, tokens // 4), key="decode_chunk", width=420, **_LINK)
    parts = prefilling.parts(tokens, size)
    if components.sent("decode_prefill", "run") == LOGITS:
        _run(opened, prompt, size, len(parts))
    found = prefilling.known(opened, prompt.ids, size)
    components.twins(tiles_payload(tiles(opened, prompt, size, parts, found)), key="decode_prefill")
    if found is not None:
        _charts(opened, prompt, size, parts, found)
    _curve(opened, prompt, size)
    if found is not None:
        page.notice(points(opened, parts, found))
    page.formula(
        r"F(T, S) = 2 N T + 4 L H D_h\, T S",
        r"\text{scores} = b\, H\, T\, S",
        r"\textstyle\sum_\text{chunks} T S \;\approx\; \tfrac12 P^2",
    )
    page.prose(
        "$T$ new positions in a chunk over $S$ (cached and new), $P$ in the prompt, $N$ weights in matrices, $L$ "
        "layers, $H$ heads of $D_h$ dims, $b$ bytes a number. The sum is that of small chunks; one forward computes "
        "the masked half as well, $P^2$. The bytes are those of scores written out; the fused kernel, which the times "
        "are of, never holds them."
    )
    with page.tools():
        page.source("lmcore.prefill.chunks", snippet(opened, prompt, size), key="decode_prefill_source")
        if found is not None:
            _csv(opened, prompt, size, parts, found)


def _run(opened: models.Opened, prompt: runs.Prompt, size: int, count: int) -> None:
    told = st.empty()
    for done in prefilling.run(opened, prompt.ids, size):
        told.markdown(f":small[:gray[{group(done)} of {group(count)} chunks]]")
    for done in prefilling.count(opened, prompt.ids, size):
        told.markdown(f":small[:gray[FLOPs counted in {group(done)} of {group(count)} chunks]]")
    told.empty()


def tiles(
    opened: models.Opened,
    prompt: runs.Prompt,
    size: int,
    parts: list[tuple[int, int]],
    found: Chunked | None,
) -> list[Tile]:
    from figures.prefill import chunk_flops
    from lmcore.proof import TOLERANCE

    tolerance, rounding = TOLERANCE[opened.dtype], f"{opened.dtype} rounding"
    counted = prefilling.known_count(opened, prompt.ids, size)
    plural = "s" if len(parts) > 1 else ""
    label = f"Prefill in {group(len(parts))} chunk{plural}"
    missing = f"text over {group(prefilling.COUNTED)} tokens" if len(prompt.ids) > prefilling.COUNTED else "not run"

    def equal(name: str, difference: float | None, largest: float, note: str, run: str = "") -> Tile:
        explained = difference is not None and difference <= tolerance * max(1.0, largest)
        return tile(
            name,
            0.0,
            difference,
            how="measured",
            reason=rounding if explained else "",
            note=note if found else "",
            run=run,
        )

    return [
        equal(
            LOGITS,
            found and found.logits,
            found.largest_logit if found else 0,
            "After the last token, over all of the vocabulary, against one forward.",
            label,
        ),
        equal(CACHE, found and found.cache, found.largest_in_cache if found else 0, "Of all stored keys and values."),
        tile(
            FLOPS,
            sum(chunk_flops(opened.config, parts)),
            sum(counted.flops) if counted else None,
            unit="FLOP",
            missing=missing,
        ),
        tile(
            SCORES,
            peak(opened, parts),
            counted.peak_bytes if counted else None,
            unit="B",
            how="in memory",
            missing=missing,
            note=f"At once: {bytes_iec(peak(opened, [(0, len(prompt.ids))]))}.",
        ),
    ]


def held(opened: models.Opened, parts: list[tuple[int, int]]) -> list[int]:
    """Bytes of the scores of each chunk in one layer."""
    from lmcore.prefill import score_bytes

    itemsize = opened.model.dtype.itemsize
    return [score_bytes(opened.config, tokens=count, cached=first, itemsize=itemsize) for first, count in parts]


def peak(opened: models.Opened, parts: list[tuple[int, int]]) -> int:
    return max(held(opened, parts))


def _charts(
    opened: models.Opened, prompt: runs.Prompt, size: int, parts: list[tuple[int, int]], found: Chunked
) -> None:
    from figures.prefill import chunk_flops, flops_chart, times_chart

    theme = st.context.theme.type or "light"
    counted = prefilling.known_count(opened, prompt.ids, size)
    calculated = chunk_flops(opened.config, parts)
    _beside(
        ("flops", flops_chart(parts, calculated, counted.flops if counted else None, theme=theme)),
        ("times", times_chart(parts, found.times_s, theme=theme)),
    )


def _curve(opened: models.Opened, prompt: runs.Prompt, size: int) -> None:
    """The peak over sizes at once, the time when it is asked for."""
    from figures.prefill import score_chart, total_chart

    tokens, theme = len(prompt.ids), st.context.theme.type or "light"
    sizes = prefilling.sizes(tokens)
    if st.session_state.pop("_decode_prefill_curve", False):
        told = st.empty()
        for each in sizes:
            count = len(prefilling.parts(tokens, each))
            for done in prefilling.run(opened, prompt.ids, each):
                told.markdown(f":small[:gray[Chunks of {group(each)} tokens: {group(done)} of {group(count)}]]")
        told.empty()
    found = [prefilling.known(opened, prompt.ids, each) for each in sizes]
    measured = [chunked for chunked in found if chunked is not None]
    if len(measured) < len(sizes):
        named = ", ".join(group(each) for each in sizes[:-1])
        st.button(
            f"Measure chunks of {named} and {group(tokens)} tokens" if named else f"Measure {group(tokens)} tokens",
            on_click=_ask,
            key="decode_prefill_curve",
        )
        return
    peaks = [peak(opened, prefilling.parts(tokens, each)) for each in sizes]
    whole = sorted(chunked.whole_s for chunked in measured)[len(measured) // 2]
    _beside(
        ("totals", total_chart(sizes, [chunked.time_s for chunked in measured], whole, theme=theme)),
        ("scores", score_chart(sizes, peaks, current=size, theme=theme)),
    )


def _ask() -> None:
    st.session_state["_decode_prefill_curve"] = True


def _beside(*figures: tuple[str, go.Figure]) -> None:
    for column, (name, figure) in zip(st.columns(2, gap="medium"), figures, strict=True):
        key = f"decode_prefill_{name}_chart"
        column.plotly_chart(figure, theme=None, config={"displayModeBar": False}, key=key)


def points(opened: models.Opened, parts: list[tuple[int, int]], found: Chunked) -> list[str]:
    """What to notice, computed from this run."""
    from figures.prefill import chunk_flops

    count, tokens = len(parts), sum(size for _, size in parts)
    ratio = found.time_s / found.whole_s
    said = (
        f"{group(count)} chunk{'s' if count > 1 else ''} took {sig(found.time_s * 1e3, 3)} ms, one forward "
        f"{sig(found.whole_s * 1e3, 3)} ms: {sig(ratio, 3)} times as long."
    )
    whole, divided = sum(chunk_flops(opened.config, [(0, tokens)])), sum(chunk_flops(opened.config, parts))
    change = 100 * (divided - whole) / whole
    work = (
        f"By formula the chunks do {sig(abs(change), 2)} % {'less' if change < 0 else 'more'} work than one forward"
        if divided != whole
        else "By formula the chunks do the work of one forward"
    )
    why = "masked scores are left out, and each chunk has a row of logits of its own" if count > 1 else "it is one"
    held_bytes, at_once = peak(opened, parts), peak(opened, [(0, tokens)])
    scores = f"The scores of a layer take {bytes_iec(held_bytes)} at the peak instead of {bytes_iec(at_once)}."
    return [said, f"{work}: {why}.", scores]


def _csv(opened: models.Opened, prompt: runs.Prompt, size: int, parts: list[tuple[int, int]], found: Chunked) -> None:
    from figures.prefill import HEADER, chunk_flops, chunk_rows

    counted = prefilling.known_count(opened, prompt.ids, size)
    rows = chunk_rows(
        parts,
        chunk_flops(opened.config, parts),
        counted.flops if counted else None,
        held(opened, parts),
        found.times_s,
    )
    page.csv(csv_text(HEADER, rows), "prefill.csv", key="decode_prefill_csv")


def snippet(opened: models.Opened, prompt: runs.Prompt, size: int) -> str:
    return f"""
from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.prefill import prefill

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = {list(prompt.ids)}
whole, parts = (KVCache.empty(model.cfg, len(tokens), dtype=model.dtype) for _ in range(2))
at_once = prefill(model, tokens, cache=whole)
(at_once - prefill(model, tokens, cache=parts, chunk={size})).abs().max()
"""
