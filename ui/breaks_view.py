"""Break it: three mistakes with the cache, each made on the loaded model."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from figures.format import group, sig
from figures.masks import beside_payload, beside_tile
from figures.texts import Version, first_difference, texts_payload
from figures.twins import tile, tiles_payload
from lmcore.sampling import softmax
from ui import breaks, components, guard, models, page, runs, vocabulary

FORGET, OVERFLOW, AXIS = "positions from 0 again", "past the capacity", "append on the wrong axis"
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}
_ASKED = "_decode_forget"


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """The choice of a mistake, and what it does."""
    page.section(
        "Break it",
        "Three ways to get a KV cache wrong. The first runs without an error and ruins the text; the other two are "
        "caught.",
    )
    kind = st.segmented_control(
        "Mistake", (FORGET, OVERFLOW, AXIS), default=FORGET, key="decode_break", required=True, **_LINK
    )
    if kind == FORGET:
        _forget(opened, prompt.ids)
        source = "lmcore.model.Transformer.forward"
    elif kind == OVERFLOW:
        _overflow(opened, prompt.ids)
        source = "lmcore.cache.KVCache.reserve"
    else:
        _wrong_axis(opened)
        source = "lmcore.cache.LayerCache.append"
    with page.tools():
        page.source(source, snippet(opened, prompt, str(kind)), key="decode_break_source")


def _ask() -> None:
    st.session_state[_ASKED] = True


def _forget(opened: models.Opened, ids: tuple[int, ...]) -> None:
    page.prose(
        "A step runs one token, and code that numbers positions from the start of what it runs calls it position 0 "
        "every time. Keys of the prompt stay right; every new query and key is turned as if it stood first."
    )
    many, found = breaks.room(opened, ids), breaks.known(opened, ids)
    if many < 2:
        st.markdown("The prompt leaves no room for another token before the trained limit of the model.")
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        label = f"Decode {group(many)} tokens both ways"
        st.button(label, on_click=_ask, key="decode_forget", disabled=found is not None)
        told = st.empty()
    if st.session_state.pop(_ASKED, False) and found is None:
        for words in breaks.forget_positions(opened, ids):
            told.markdown(f":small[:gray[{words}]]")
        told.empty()
        found = breaks.known(opened, ids)
    if found is None:
        return
    right, wrong = (softmax(row) for row in found.logits)
    difference = float(np.abs(found.logits[1] - found.logits[0]).max())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(right > 0, right * (np.log(right) - np.log(wrong)), 0.0)
    tiles = [
        beside_tile("Largest difference of a logit", 0.0, difference, note="First step after the prefill, same text."),
        beside_tile("KL divergence, nats", 0.0, max(0.0, float(ratio.sum())), note="Of the distributions beside."),
    ]
    payload = beside_payload(
        tiles, right, wrong, token_of=lambda token: vocabulary.token(opened, token), name="positions from 0"
    )
    components.mount("beside", payload, key="decode_forget_beside")
    st.space("small")
    versions = [Version("Right positions", found.right), Version("Positions from 0", found.wrong)]
    components.mount(
        "texts",
        texts_payload(versions, piece=lambda token: vocabulary.generated(opened, token)),
        key="decode_forget_texts",
    )
    page.notice([_forgotten(opened, found, difference)])


def _forgotten(opened: models.Opened, found: breaks.Forgotten, difference: float) -> str:
    if difference == 0:
        return "Nothing changes: this model takes nothing from the positions it is given."
    same, many = first_difference([found.right, found.wrong]), len(found.right)
    if same == many:
        return f"All {group(many)} greedy tokens come out the same; the logits differ by up to {sig(difference, 3)}."
    return (
        f"The greedy texts part after {group(same)} of {group(many)} tokens. No error is raised: shapes, bytes and "
        "times are those of the right run."
    )


def _overflow(opened: models.Opened, ids: tuple[int, ...]) -> None:
    found = breaks.overflow(opened, ids)
    page.prose(
        f"A cache for {group(found.before)} positions, full, and one more token. Written past its end, the token would "
        "overwrite memory or be lost; it is refused before anything runs."
    )
    _refused(found)


def _wrong_axis(opened: models.Opened) -> None:
    found, shape, right = breaks.wrong_axis(opened)
    page.prose(
        f"New keys with heads and time swapped: {_shape(shape)} instead of {_shape(right)}. The cache grows along "
        "time, the third axis, and everything else must agree. Shapes cannot tell when as many positions are added as "
        "there are KV heads, which is why one axis order is kept throughout."
    )
    _refused(found)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(str(n) for n in shape)})"


def _refused(found: breaks.Refused) -> None:
    page.prose("Nothing was refused." if found.error is None else f"Refused: {guard.message(found.error)}")
    kept = tile("Positions held, after the refusal", found.before, found.after, how="in the cache")
    components.twins(tiles_payload([kept]), key="decode_refused")


def snippet(opened: models.Opened, prompt: runs.Prompt, kind: str) -> str:
    ids = list(prompt.ids)
    start = f"""
import torch
from lmcore.cache import KVCache
from lmcore.checkpoint import load_pretrained

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
"""
    if kind == FORGET:
        return (
            start
            + f"""
cache = KVCache.empty(model.cfg, {len(ids) + 1}, dtype=model.dtype)
token = model(torch.tensor([{ids}]), cache=cache).logits[0, -1].argmax()
model(token.view(1, 1), positions=torch.tensor([0]), cache=cache).logits  # leave positions out for the right ones
"""
        )
    if kind == OVERFLOW:
        return (
            start
            + f"""
cache = KVCache.empty(model.cfg, {len(ids[-8:])}, dtype=model.dtype)
model(torch.tensor([{ids[-8:]}]), cache=cache)
model(torch.tensor([{ids[-1:]}]), cache=cache)  # CapacityError
"""
        )
    return (
        start
        + """
cache = KVCache.empty(model.cfg, 16, dtype=model.dtype)
keys = torch.zeros(1, model.cfg.n_kv_heads + 1, model.cfg.n_kv_heads, model.cfg.head_dim)
cache.append(0, keys, keys)  # InputError
"""
    )
