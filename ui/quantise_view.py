"""The running cache in fewer bits: what is saved, scales counted, and what the next-token distributions lose."""

from __future__ import annotations

from typing import Any

import streamlit as st

from figures.format import fixed, group, sig
from figures.grid import grid_payload
from figures.kv_measured import FORMAT_COLUMNS, format_rows, formats_payload
from ui import components, guard, page, quantising
from ui.models import Opened
from ui.quantising import Point, Setting

GROUPS = [8, 16, 32, 64, 128]
RESIDUALS = [0, 8, 16, 32, 64, 128]
CHUNKS = [1, 4, 16]
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@guard.fragment
def section(opened: Opened, ids: tuple[int, ...]) -> None:
    """Three sliders, a button, the chart and the table."""
    page.section(
        "The cache in fewer bits",
        "The text is read through caches that really hold packed codes and scales; attention reads what they decode "
        "to. Keys are quantised per channel, since some of their channels are large at every position, values per "
        "token (KIVI, Liu et al. 2024).",
    )
    if len(ids) < 2:
        st.markdown("The text has no token to predict: choose a longer one above.")
        return
    with st.container(horizontal=True, gap="medium"):
        size = st.select_slider("Numbers a scale", GROUPS, 32, key="kv_group", width=200, **_LINK)
        residual = st.select_slider("Newest positions kept whole", RESIDUALS, 0, key="kv_residual", width=220, **_LINK)
        chunk = st.select_slider("Tokens a forward, 1 decodes", CHUNKS, 4, key="kv_chunk", width=200, **_LINK)
    how = Setting(size, residual, chunk)
    points = quantising.FORMATS.button(
        "Read the text through each format",
        (opened.key, ids, how),
        lambda tell: quantising.measure(opened, ids, how, tell),
        widget="kv_quantise",
    )
    if points is not None:
        components.mount("lines", formats_payload(points), key="kv_formats_chart")
        payload = grid_payload(FORMAT_COLUMNS, format_rows(points), label="formats of the cache", marks=" cmmmmm")
        components.mount("grid", payload, key="kv_formats_table")
        page.notice(said(points, ids, how, 8 * opened.model.dtype.itemsize))
    page.formula(
        r"x \approx q \cdot s + m, \qquad s = \frac{\max - \min}{2^b - 1}, \quad m = \min, \quad |x - \hat x| \le s/2"
    )
    page.prose(
        "Maximum and minimum are of a group: $g$ positions of one channel for keys, $g$ channels of one position for "
        "values; $s$ and $m$ are float16, 4 bytes a group. A group of keys is stored once all its positions are there: "
        "until then, and as long as they are among the newest kept whole, keys stay in the model’s dtype. FP8 (e4m3) "
        "has no scales; numbers beyond 448 become 448. Tokens of one forward read each other in full precision, as "
        "in a prefill in chunks."
    )
    with page.tools():
        page.source("lmcore.quantise.QuantisedLayer", snippet(opened, ids, how), key="kv_quantise_source")


def said(points: tuple[Point, ...], ids: tuple[int, ...], how: Setting, bits: int) -> list[str]:
    """What the table shows, computed from it."""
    own, by_name = points[0], {point.name: point for point in points}
    stored = max(0, len(ids) - how.residual) // how.group * how.group
    if not stored:
        return [
            f"Of {group(len(ids))} positions no group of {how.group} keys is full beyond the newest {how.residual}: "
            "keys are still in full precision. Choose smaller groups, fewer whole positions or a longer text."
        ]
    exact = sum(point.expected_bytes == point.used_bytes for point in points)
    two, four, across = (by_name[name] for name in ("2 bit", "INT4", "INT4, keys per token"))
    found = [
        f"Bytes by formula and in the cache’s tensors agree in {exact} of {len(points)} formats. At 2 bits the cache "
        f"is {fixed(own.used_bytes / two.used_bytes, 1)} times smaller, where the bits alone would make it "
        f"{bits // 2} times: scales count, and {group(len(ids) - stored)} of {group(len(ids))} positions of keys are "
        "still whole.",
        f"KL divergence: {sig(by_name['INT8'].divergence, 2)} nats at 8 bits, {sig(four.divergence, 2)} at 4, "
        f"{sig(two.divergence, 2)} at 2.",
    ]
    if across.divergence > four.divergence > 0:
        found.append(
            "With the groups of keys across channels instead, 4 bits lose "
            f"{fixed(across.divergence / four.divergence, 1)} times as much."
        )
    return found


def snippet(opened: Opened, ids: tuple[int, ...], how: Setting) -> str:
    return f"""
from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.fidelity import compare, read_through
from lmcore.quantise import How, kivi, quantised_cache

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
ids = {list(ids[:64])}
plain = read_through(model, ids, KVCache.empty(model.cfg, len(ids), dtype=model.dtype), chunk={how.chunk})
cache = quantised_cache(model.cfg, len(ids), How(kivi(4, {how.group}), residual={how.residual}), dtype=model.dtype)
compare(plain, read_through(model, ids, cache, chunk={how.chunk}), ids), cache.used_bytes
"""
