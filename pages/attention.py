"""Attention: every head of every layer as a map of who reads whom."""

import numpy as np
import streamlit as st

from figures.attention_check import Check
from figures.format import fixed, group
from figures.tokens import flat
from figures.twins import tile, tiles_payload
from lmcore.config import ModelConfig
from ui import (
    broken_view,
    components,
    effects_view,
    guard,
    heads,
    masks_view,
    models,
    page,
    runs,
    shell,
    stages_view,
    vocabulary,
)
from ui.markdown import plain

MAP_PX, PHONE_PX = 760, 1500
SINK = 0.3


@guard.fragment
def maps(opened: models.Opened, prompt: runs.Prompt) -> None:
    """The figure and its numbers; runs again by itself when the browser wants weights that it does not hold."""
    seen = heads.of(opened, prompt.ids)
    start = seen.summary.start
    layer, head = components.attention_view("attention", layer=start.layer, head=start.head)
    layer = min(layer, opened.config.n_layers - 1)
    head = min(head, opened.config.n_heads - 1)
    with page.at_least(MAP_PX, phone=PHONE_PX):
        components.attention(seen.payload((layer, head)), key="attention")
    check = seen.check(layer, head)
    if check is not None:
        st.space("small")
        where = f"layer {layer}, head {head}" if seen.weights.layer_by_layer else f"layer {layer}"
        if len(seen.checked_layers(layer)) > 1:
            where = f"all {group(opened.config.n_layers)} layers"
        components.twins(tiles_payload(_tiles(check, where, opened)), key="attention_tiles")


def _tiles(check: Check, where: str, opened: models.Opened) -> list[dict]:
    at, head, query, key = check.place
    return [
        tile(
            f"Sum of a row, {where}",
            1,
            check.row_sum,
            how="model",
            rounding=check.bound * 4,
            reason=f"{opened.dtype} rounding",
            note=f"Of {group(check.rows)} rows the one furthest from 1.",
        ),
        tile(
            f"A weight derived twice, {where}",
            check.again,
            check.model,
            how="model",
            rounding=check.bound,
            reason=f"{opened.dtype} rounding",
            note="Calculated in numpy, float64, from the queries and keys of the run. "
            f"The largest difference: layer {at}, head {head}, position {query} reads {key}.",
        ),
        tile(
            f"Masked cells, {where}",
            check.masked,
            check.zeros,
            how="of weight exactly 0",
            note="Calculated from the mask alone.",
        ),
    ]


def points(seen: heads.Heads, opened: models.Opened, ids: tuple[int, ...]) -> list[str]:
    """What to notice, computed from this run."""
    start, count = seen.summary.start, group(seen.summary.metrics[..., 0].size)
    labels = [plain(flat(token.parts)) for token in vocabulary.tokens(opened, ids)]
    found = []
    if start.key > 0:
        weight = float(seen.weights[start.layer][start.head, start.query, start.key])
        found.append(
            f"The last token, **{labels[-1]}**, reads **{labels[start.key]}** at position {start.key} most strongly in "
            f"layer {start.layer}, head {start.head}: {fixed(weight, 4)} (position 0 and itself left out). "
            f"Choose *this cell* to see what all {count} heads give this pair."
        )
    first = seen.summary.metrics[..., 0]
    if np.isfinite(first).any():
        median, most = float(np.nanmedian(first)), int((first > 0.5).sum())
        sink = ": an *attention sink*" if median > SINK else ""
        found.append(
            f"Position 0, **{labels[0]}**, takes {fixed(median, 3)} of a head’s weight in the median over {count} "
            f"heads and more than half of it in {group(most)} of them{sink}."
        )
    masked, cells = int((~seen.allowed(0)).sum()), len(ids) ** 2
    found.append(
        f"{group(masked)} of the {group(cells)} cells are hatched: those keys come after their query. "
        "The mask adds −∞ to their scores before the softmax, so they are a state and not a small weight."
        if masked
        else "One token reads only itself: its weight is 1 in every head."
    )
    return found


def formulas(cfg: ModelConfig) -> None:
    page.formula(
        r"A = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{D_h}} + M\right)",
        r"M_{ij} = \begin{cases} 0 & j \le i" + (r",\ i - w < j" if cfg.window else "") + r" \\ -\infty & \text{else}"
        r"\end{cases}",
    )
    window = f" Windowed layers read the last w = {group(cfg.window)} keys." if cfg.window else ""
    scale = cfg.attention.scale
    usual = abs(scale * cfg.head_dim**0.5 - 1) < 1e-6
    other = "" if usual else f" This model multiplies by {fixed(scale, 4)} instead of $1/\\sqrt{{D_h}}$."
    shared = cfg.n_heads // cfg.n_kv_heads
    page.prose(
        "Row i is the query that reads, column j the key that is read; the softmax runs along a row. Q and K are taken "
        f"after RoPE, $D_h$ = {cfg.head_dim}; {shared} query head{'s' if shared > 1 else ''} read each KV head."
        + window
        + other
    )


def snippet(opened: models.Opened, prompt: runs.Prompt, layer: int, head: int) -> str:
    return f"""
import torch
from lmcore.checkpoint import load_pretrained
from lmcore.trace import Capture

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = torch.tensor([{list(prompt.ids)}])
trace = model.forward(tokens, capture=Capture.of("pattern", layers=[{layer}])).trace
trace.layers[{layer}].pattern[0, {head}]  # (T, T): a row for each query, a column for each key
"""


shell.ensure()
page.head(
    "Chapter 3",
    "Attention",
    "Each token asks a question of every token before it. The answer is a row of weights that sums to one.",
)
opened = models.current(height=MAP_PX)
prompt = runs.prompt(opened)
if prompt.ids:
    line, place = st.empty(), page.awaited("attention", height=MAP_PX, phone=PHONE_PX)
    seen = heads.awaited(opened, prompt.ids, lambda said: line.markdown(f":small[:gray[{said}]]"))
    line.empty()
    with place():
        maps(opened, prompt)
    page.section("What to notice")
    page.notice(points(seen, opened, prompt.ids))
    page.section("Formula")
    formulas(opened.config)
    with page.tools():
        start = seen.summary.start
        page.source("lmcore.attention.attend", snippet(opened, prompt, start.layer, start.head), key="attention_source")
    stages_view.section(opened, prompt)
    masks_view.section(opened, prompt)
    broken_view.section(opened, prompt)
    effects_view.section(opened, prompt)
else:
    page.empty_prompt()
