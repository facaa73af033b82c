"""KV heads merged, or keys and values cut to a rank, on the loaded model's own weights: loss, bytes, a head's map."""

from __future__ import annotations

from typing import Any

import streamlit as st

from figures.format import fixed, group
from figures.grid import grid_payload
from figures.kv_measured import SURGERY_COLUMNS, saved, surgery_payload, surgery_rows
from figures.masks import Field, fields_payload, masked
from lmcore.errors import NotInModel
from lmcore.specs import Latent
from ui import components, guard, heads, page, surgery, vocabulary
from ui.models import Opened

AS_LOADED = "as loaded"
JOINT, APART = "from one latent", "from a latent each"
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@guard.fragment
def section(opened: Opened, ids: tuple[int, ...]) -> None:
    """A button, the curve, and one head of a chosen point beside the original."""
    page.section(
        "Surgery on the loaded weights",
        "Two ways to a smaller cache without training: the mean over neighbouring KV heads (Ainslie et al. 2023, "
        "section 2.1), or the best approximation of $W_K$ and $W_V$ of rank $r$. The papers train on from here; what "
        "is measured is where that training would begin. The loaded model itself is not changed.",
    )
    if not _possible(opened):
        return
    if len(ids) < 2:
        st.markdown("The text has no token to predict: choose a longer one above.")
        return
    way = st.segmented_control("Keys and values", (JOINT, APART), default=JOINT, key="kv_joint", required=True, **_LINK)
    joint = way == JOINT
    key = (opened.key, ids, joint)
    points = surgery.CURVES.button(
        "Measure the curve", key, lambda tell: surgery.measure(opened, ids, joint, tell), widget="kv_surgery"
    )
    if points is not None:
        components.mount("lines", surgery_payload(points), key="kv_surgery_chart")
        _chosen(opened, ids, points, joint)
        page.notice(said(opened, points))
    page.formula(
        r"\bar W_j = \tfrac{1}{K/K'} \sum_{k \in \text{group } j} W_k, \qquad"
        r" \begin{bmatrix} W_K \\ W_V \end{bmatrix} \approx U_r S_r V_r, \quad c = V_r x"
    )
    page.prose(
        "A cache of the latent $c$ holds $r$ numbers a position and layer. RoPE turns a key after it is expanded, so "
        "$U_r$ cannot be moved into the query as in MLA: all keys are expanded and turned again at every step, "
        "$4 S r K D_h$ FLOPs a layer. MLA trains a rotary key beside the latent to be rid of that."
    )
    with page.tools():
        page.source("lmcore.surgery.merge_kv_heads", snippet(opened, ids), key="kv_surgery_source")


def _possible(opened: Opened) -> bool:
    a = opened.config.attention
    if isinstance(a, Latent):
        guard.show(
            NotInModel(
                "Nothing is left to merge or to cut in this model",
                where="its multi-head latent attention",
                todo=f"Its cache already holds one latent of {a.kv_rank} numbers and a rotary key of {a.rope_dim}.",
            )
        )
        return False
    if a.n_kv_heads == 1:
        page.prose(
            f"This model is multi-query: its {a.n_heads} query heads read one KV head, so there are none to merge. Its "
            "keys and values can still be cut to a lower rank."
        )
    return True


def _chosen(opened: Opened, ids: tuple[int, ...], points: tuple[surgery.Point, ...], joint: bool) -> None:
    """The table, and the map of a head before and after for the point that is chosen."""
    names = {point.name: point for point in points[1:]}

    def undo() -> None:
        st.session_state["kv_cut"] = AS_LOADED

    cfg = opened.config
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        name = st.selectbox("Put in its place", (AS_LOADED, *names), key="kv_cut", width=210, filter_mode=None, **_LINK)
        layer = st.number_input("Layer", 0, cfg.n_layers - 1, 0, key="kv_layer", width=120, **_LINK)
        head = st.number_input("Head", 0, cfg.n_heads - 1, 0, key="kv_head", width=120, **_LINK)
        st.button("Undo", on_click=undo, disabled=name == AS_LOADED, key="kv_undo")
    marked = [at for at, point in enumerate(points) if point.name == name or (name == AS_LOADED and at == 0)]
    payload = grid_payload(SURGERY_COLUMNS, surgery_rows(points), label="changed models", marks=" ccmmmc", bold=marked)
    components.mount("grid", payload, key="kv_surgery_table")
    shown = ids[: surgery.MAP_TOKENS]
    at = {"joint": joint, "layer": int(layer), "head": int(head)}
    allowed = heads.readable(cfg, len(shown))
    allowed = allowed if allowed.ndim == 2 else allowed[int(layer)]
    maps = [surgery.pattern(opened, ids, "loaded", 0, **at)]
    where = f"layer {int(layer)}, head {int(head)}"
    fields = [Field(f"Weights, {where}, as loaded", top=1.0)]
    if name in names:
        point = names[name]
        maps.append(surgery.pattern(opened, ids, point.kind, point.value, **at))
        fields.append(Field(f"The same head, {name}", top=1.0))
    arrays = [masked(weights, allowed) for weights in maps]
    components.mount("fields", fields_payload(vocabulary.tokens(opened, shown), fields, arrays), key="kv_surgery_maps")


def said(opened: Opened, points: tuple[surgery.Point, ...]) -> list[str]:
    """What the curve shows, computed from it."""
    own, found = points[0], []
    if opened.random_weights:
        return ["The weights are random: their loss means nothing, only how far the distributions move (KL)."]
    least = [point for point in points if point.kind == "merged"]
    if least:
        last = least[-1]
        found.append(
            f"With {last.name} the cache is {saved(own.cache_bytes, last.cache_bytes)} and the mean loss goes from "
            f"{fixed(own.loss, 3)} to {fixed(last.loss, 3)} nats: the heads were not trained to be one."
        )
    close = [point for point in points[1:] if point.loss - own.loss < 0.05]
    if close:
        best = min(close, key=lambda point: point.cache_bytes)
        found.append(
            f"The smallest cache within 0.05 nats of the original: {best.name}, "
            f"{saved(own.cache_bytes, best.cache_bytes)}."
        )
    else:
        found.append("None of them stays within 0.05 nats of the original: without training there is no free cut here.")
    return found


def snippet(opened: Opened, ids: tuple[int, ...]) -> str:
    return f"""
import torch
from lmcore.checkpoint import load_pretrained
from lmcore.fidelity import compare
from lmcore.surgery import cut, factorise, merge_kv_heads

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
ids = {list(ids[:64])}
tokens = torch.tensor([ids])
original = model(tokens).logits[0].float().numpy()
smaller = cut(model, factorise(model), {group(surgery.ranks(opened, True)[-1])})  # or merge_kv_heads(model, 1)
compare(original, smaller(tokens).logits[0].float().numpy(), ids)
"""
