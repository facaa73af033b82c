"""The section "One head, stage by stage": the matrices of one KV head's query heads, run when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st

from figures.stages import Group, Place, shown_heads, shown_positions, stages_payload
from ui import components, guard, heads, page, runs, vocabulary
from ui.lru import ByteLRU
from ui.models import Opened

KEY = "stages"
_ROWS = (
    *("normed", "q", "k", "v", "rot_q", "rot_k"),
    *("z", "attn_out", "resid_pre", "resid_mid"),
)
_MAPS = ("scores_raw", "scores_scaled", "scores_masked", "pattern")
_PAYLOADS: ByteLRU[bytes] = ByteLRU(max_entries=16, max_bytes=64 * 2**20, size=len)


def section(opened: Opened, prompt: runs.Prompt) -> None:
    """Heading, a sentence and the instrument."""
    page.section(
        "One head, stage by stage",
        "From the normed input to the residual stream: a row is a position in every stage and keeps its place, so "
        "follow the chosen query down the row of buttons. Point at a cell to see what made it.",
    )
    _stages(opened, prompt)


@guard.fragment
def _stages(opened: Opened, prompt: runs.Prompt) -> None:
    components.mount(KEY, payload(opened, prompt.ids, wanted(opened, prompt.ids)), key=KEY, values={"wanted": None})


def wanted(opened: Opened, ids: tuple[int, ...]) -> Place:
    """What the browser asked for or the address says, brought into range; else where the maps begin."""
    start, cfg = heads.of(opened, ids).summary.start, opened.config
    layer, head = components.attention_view(KEY, layer=start.layer, head=start.head)
    asked = components.sent(KEY, "wanted", st.query_params)
    text = str(asked.get("query", "")) if isinstance(asked, Mapping) else ""
    query = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else start.query
    return Place(
        layer=min(layer, cfg.n_layers - 1),
        head=min(head, cfg.n_heads - 1),
        query=min(query, len(ids) - 1),
        key=start.key,
    )


def payload(opened: Opened, ids: tuple[int, ...], place: Place) -> bytes:
    """The component's payload for these tokens; the layer is run when it is first asked for."""
    return _PAYLOADS.get(
        (opened.key, ids, place),
        lambda: stages_payload(group_of(opened, ids, place), vocabulary.tokens(opened, ids), opened.config, place),
    )


def group_of(opened: Opened, ids: tuple[int, ...], place: Place) -> Group:
    """One layer's stages for the query heads of a payload; `writes` in float64, rounded once."""
    from lmcore.effects import output_matrices

    shown, at = shown_heads(opened.config, place.head, len(ids)), shown_positions(len(ids), place.query)
    kv, own = place.head // opened.config.attention.group_size, slice(shown.start, shown.stop)
    stage = _stages_of(opened, ids, place.layer, own)
    matrices = output_matrices(opened.model, place.layer)[own].numpy()  # (G, D, Dv)
    writes = (stage["z"][own][:, at].astype(np.float64) @ matrices.transpose(0, 2, 1)).astype(np.float32)
    return Group(
        **{name: stage[name] for name in ("normed", "attn_out", "resid_pre", "resid_mid")},
        **{name: stage[name][kv] for name in ("k", "v", "rot_k")},
        **{name: stage[name] for name in _MAPS},
        **{name: stage[name][own] for name in ("q", "rot_q", "z")},
        writes=writes,
        allowed=heads.of(opened, ids).allowed(place.layer),
    )


def _stages_of(opened: Opened, ids: tuple[int, ...], layer: int, own: slice) -> dict[str, np.ndarray]:
    """The layer's stages by name, the maps of the heads `own` only: of a long prompt one map after the other is run,
    since all four of all heads would not fit into memory."""
    weights = heads.of(opened, ids).weights
    if not weights.layer_by_layer:
        run = runs.run(opened, ids, *_ROWS, *_MAPS, layers=[layer], logits_to_keep=1)
        return {name: run[name][0][own] if name in _MAPS else run[name][0] for name in (*_ROWS, *_MAPS)}
    found = weights.captured(layer, *_ROWS)
    return found | {name: weights.captured(layer, name)[name][own].copy() for name in _MAPS}
