"""The attention of one step: what its query reads, in every head of every layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from figures.format import fixed, group
from figures.reads import measures, reads_payload, strongest
from ui import components, cursor, decoding, guard, models, page, runs, state, vocabulary
from ui.lru import ByteLRU
from ui.markdown import plain

if TYPE_CHECKING:
    from lmcore.decode import Step

_ROWS: ByteLRU[np.ndarray] = ByteLRU(max_entries=64, max_bytes=64 * 2**20, size=lambda rows: rows.nbytes)
KEY = "decode_reads"


@partial(guard.fragment, key=KEY)
def section(opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan) -> None:
    """One more forward of the step's newest token on a copy of the cache, every head's weights kept."""
    run = decoding.run(opened, prompt.ids)
    step = cursor.looked_at(run, plan, KEY)
    page.section(
        "This step’s attention",
        "The step computes one query. Its row in every head of every layer, over all positions in the cache.",
    )
    ids = run.decoder.tokens[: step.position]
    newest = plain(vocabulary.label(opened, ids[-1]))
    st.markdown(
        f":small[:gray[Step {step.index}: **{newest}** at position {group(len(ids) - 1)} reads, "
        f"to choose **{plain(vocabulary.label(opened, step.token))}**]]"
    )
    with page.awaited(KEY, height=560)():
        weights = rows(opened, run, step)
        payload = reads_payload(
            weights,
            pieces=[token.parts for token in vocabulary.tokens(opened, ids)],
            step=step.index,
            of=len(run.steps),
            url="step",
            text=as_prompt(opened, prompt, ids),
        )
        components.mount("reads", payload, key=KEY, values={"cursor": None})
    page.notice(points(opened, ids, weights))
    with page.tools():
        page.source("lmcore.cache.KVCache.fork", snippet(opened, ids), key="decode_reads_source")


def rows(opened: models.Opened, run: decoding.Decoding, step: Step) -> np.ndarray:
    """(L, H, S) float32: the weights of the query that chose this step's token; NaN where a layer cannot read."""
    ids = run.decoder.tokens[: step.position]
    return _ROWS.get((opened.key, ids), lambda: _rows(opened, run, ids))


def _rows(opened: models.Opened, run: decoding.Decoding, ids: tuple[int, ...]) -> np.ndarray:
    import torch

    from lmcore.masks import Mask
    from lmcore.trace import Capture

    model, cfg, cache = opened.model, opened.config, run.cache_before(len(ids))
    waiting = torch.tensor([ids[cache.length :]], device=model.device)
    with runs.forwarding():
        if waiting.shape[1] > 1:
            # A windowed layer has evicted what this step read: all but the last token run again.
            model.forward(waiting[:, :-1], cache=cache, logits_to_keep=1)
        capture = Capture.of("pattern", max_bytes=runs.RUN_BYTES)
        trace = model.forward(waiting[:, -1:], cache=cache, capture=capture, logits_to_keep=1).trace
    assert trace is not None
    found = np.full((cfg.n_layers, cfg.n_heads, len(ids)), np.nan, np.float32)
    query, keys = torch.tensor([len(ids) - 1]), torch.arange(len(ids))
    for layer, stages in trace.layers.items():
        row = stages["pattern"][0, :, -1].float().cpu().numpy()
        found[layer, :, len(ids) - row.shape[-1] :] = row
        chunk = cfg.chunk if cfg.layer_types[layer] == "chunked" else None
        readable = Mask(window=cfg.window_of(layer), chunk=chunk).allows(query, keys)[0].numpy()
        found[layer][:, ~readable] = np.nan
    found.setflags(write=False)
    return found


def as_prompt(opened: models.Opened, prompt: runs.Prompt, ids: tuple[int, ...]) -> str | None:
    """A prompt that gives exactly these tokens, for a link to the Attention page; None if there is none."""
    if ids == prompt.ids:
        return prompt.text
    made = ids[len(prompt.ids) :]
    if len(ids) > min(runs.MAX_PROMPT_TOKENS, opened.config.max_positions) or prompt.total > len(prompt.ids):
        return None
    if opened.tokenizer is None:
        return " ".join(str(token) for token in ids)
    if runs.has_chat(opened) and state.as_chat():
        return None
    try:
        text = prompt.text + b"".join(vocabulary.generated(opened, token) for token in made).decode()
    except UnicodeDecodeError:
        return None
    fits = len(text) <= state.MAX_PROMPT_CHARS and tuple(opened.tokenizer.encode(text)) == ids
    return text if fits else None


def points(opened: models.Opened, ids: tuple[int, ...], weights: np.ndarray) -> list[str]:
    """What to notice, computed from this row."""
    layer, head, place = strongest(weights)
    read = plain(vocabulary.label(opened, ids[place]))
    sinks = measures(weights)[..., 2]
    heads = group(sinks.size)
    strong = (
        f"Layer {layer}, head {head} reads **{read}** at position {group(place)} most strongly: "
        f"{fixed(float(weights[layer, head, place]), 4)}, position 0 and the query itself left out."
    )
    first = plain(vocabulary.label(opened, ids[0]))
    sink = (
        f"Position 0, **{first}**, takes more than half of the weight in {group(int((sinks > 0.5).sum()))} of {heads} "
        f"heads, {fixed(float(np.median(sinks)), 3)} in the median."
    )
    cells = int(np.isfinite(weights).sum())
    row = f"The row has {group(cells)} weights; without a cache those of every earlier query are computed, too."
    return [strong, sink, row] if len(ids) > 2 else [row]


def snippet(opened: models.Opened, ids: tuple[int, ...]) -> str:
    return f"""
import torch
from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained
from lmcore.trace import Capture

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = torch.tensor([{list(ids)}])
cache = KVCache.empty(model.cfg, tokens.shape[1], dtype=model.dtype)
if tokens.shape[1] > 1:
    model.forward(tokens[:, :-1], cache=cache, logits_to_keep=1)
trace = model.forward(tokens[:, -1:], cache=cache, capture=Capture.of("pattern"), logits_to_keep=1).trace
[layer.pattern[0, :, 0] for layer in trace.layers.values()]  # a row (H, S) for each layer
"""
