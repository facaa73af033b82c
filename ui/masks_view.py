"""Masks tried on the running model: what may be read, what is read, and what the model then expects next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from figures.format import fixed, group
from figures.masks import Field, beside_payload, beside_tile, fields_payload, masked
from ui import components, experiments, guard, heads, models, page, runs, vocabulary
from ui.experiments import PLAIN, Change, Outcome

if TYPE_CHECKING:
    from lmcore.masks import Mask

OWN = "the model’s own"
HEADS = ("moved most", "selected above")
KINDS = (OWN, "causal", "sliding window", "sinks + window", "prefix-LM", "bidirectional", "packed documents")
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@dataclass(frozen=True, eq=False)
class Seen:
    """A run under one mask: what it measured, and its weights (L, H, T, T)."""

    outcome: Outcome
    weights: np.ndarray


def seen(opened: models.Opened, ids: tuple[int, ...], change: Change = PLAIN) -> Seen:
    weights = experiments.weights(opened, ids, change)
    return Seen(experiments.measure(opened, ids, change), weights)


@guard.fragment
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """Choice of a mask, the mask drawn, and the run under it beside the plain one."""
    cut = experiments.cut(opened, prompt.ids)
    ids = cut.ids
    page.section(
        "Another mask on the same weights",
        "The mask decides which keys a query may read. Here it is exchanged in every layer of the loaded model, which "
        "then runs again; the weights stay as they were trained.",
    )
    kind, mask, of_address = _controls(len(ids))
    change = Change(mask=mask)
    with page.awaited("attention_masks", height=420)():
        plain, changed = seen(opened, ids), seen(opened, ids, change)
        layer, head = selected(opened, prompt.ids) if of_address else most_changed(plain, changed)
        _maps(opened, ids, kind, (layer, head), plain, changed, change)
        st.space("small")
        _beside(opened, kind, (layer, head), plain, changed)
    page.notice(said(opened, ids, kind, change, plain, changed))
    if cut.said:
        st.markdown(f":small[:gray[{cut.said}]]")
    with page.tools():
        page.source("lmcore.masks.Mask", snippet(opened, ids, mask), key="attention_mask_source")


def selected(opened: models.Opened, ids: tuple[int, ...]) -> tuple[int, int]:
    """The layer and head that are selected in the maps above, as the address has them."""
    cfg, start = opened.config, heads.of(opened, ids).summary.start
    layer, head = components.attention_view("attention_selected", layer=start.layer, head=start.head)
    return min(layer, cfg.n_layers - 1), min(head, cfg.n_heads - 1)


def _controls(tokens: int) -> tuple[str, Mask | None, bool]:
    """The kind of mask chosen, the mask (None is the model's own), and whether the head is the one selected above."""
    kind = st.segmented_control("Mask", KINDS, default=OWN, key="attention_mask", required=True, **_LINK)
    window, sinks, prefix, parts = 4, 1, 8, 2
    with st.container(horizontal=True, gap="medium"):
        if kind in ("sliding window", "sinks + window"):
            window = st.select_slider("Window w, in keys", STEPS, 4, key="attention_window", width=280, **_LINK)
        if kind == "sinks + window":
            sinks = st.slider("Sinks, first positions kept", 1, 8, 1, key="attention_sinks", width=280, **_LINK)
        if kind == "prefix-LM":
            prefix = st.select_slider("Prefix p, in tokens", STEPS, 8, key="attention_prefix", width=280, **_LINK)
        if kind == "packed documents":
            parts = st.slider("Documents of equal length", 2, 8, 2, key="attention_documents", width=280, **_LINK)
        head = st.segmented_control("Head", HEADS, default=HEADS[0], key="attention_mask_head", required=True, **_LINK)
    return kind, _mask(kind, tokens, window=window, sinks=sinks, prefix=prefix, parts=parts), head == HEADS[1]


def _mask(kind: str, tokens: int, *, window: int, sinks: int, prefix: int, parts: int) -> Mask | None:
    from lmcore.masks import Mask

    starts = sorted({tokens * part // parts for part in range(1, parts)} - {0})
    masks = {
        "causal": Mask(),
        "sliding window": Mask(window=window),
        "sinks + window": Mask(window=window, sinks=sinks),
        "prefix-LM": Mask(prefix=prefix),
        "bidirectional": Mask(causal=False),
        "packed documents": Mask(documents=tuple(starts)),
    }
    return masks.get(kind)


def most_changed(plain: Seen, changed: Seen) -> tuple[int, int]:
    """The layer and head whose weights moved most in one cell; (0, 0) where none did."""
    most = moved(plain, changed)
    layer, head = np.unravel_index(int(np.nanargmax(most)), most.shape)
    return int(layer), int(head)


def moved(plain: Seen, changed: Seen) -> np.ndarray:
    """(L, H): the largest change of a weight in each head."""
    pairs = zip(plain.weights, changed.weights, strict=True)
    return np.stack([np.abs(after - before).max((1, 2)) for before, after in pairs])


def _maps(
    opened: models.Opened,
    ids: tuple[int, ...],
    kind: str,
    at: tuple[int, int],
    plain: Seen,
    changed: Seen,
    change: Change,
) -> None:
    layer, head = at
    own, allowed = (_of_layer(experiments.readable(opened, len(ids), c), layer) for c in (PLAIN, change))
    name = f"layer {layer}, head {head}"
    fields = [Field(f"Mask: {kind}", "mask"), Field(f"Weights, {name}, plain run", top=1.0)]
    arrays = [masked(np.zeros_like(allowed, np.float32), allowed), masked(plain.weights[layer, head], own)]
    if change.mask is not None:
        fields.append(Field("Weights of the same head under this mask", top=1.0))
        arrays.append(masked(changed.weights[layer, head], allowed))
    payload = fields_payload(vocabulary.tokens(opened, ids), fields, arrays, file="attention-masks")
    components.mount("fields", payload, key="attention_mask_fields")


def _of_layer(allowed: np.ndarray, layer: int) -> np.ndarray:
    return allowed if allowed.ndim == 2 else allowed[layer]


def _beside(opened: models.Opened, kind: str, at: tuple[int, int], plain: Seen, changed: Seen) -> None:
    changes = moved(plain, changed)
    here, most = float(changes[at]), float(np.nanmax(changes))
    where = f"In layer {at[0]}, head {at[1]}; the most in any head is {fixed(most, 4)}."
    tiles = [
        beside_tile(
            "Mean loss",
            plain.outcome.mean_loss,
            changed.outcome.mean_loss,
            unit="nats",
            note="Of all tokens but the first.",
        ),
        beside_tile("Largest change of a weight", 0.0, here, note=where if most else "No weight moved."),
    ]
    payload = beside_payload(
        tiles,
        plain.outcome.probabilities(),
        changed.outcome.probabilities(),
        token_of=lambda token: vocabulary.token(opened, token),
        name="this mask",
    )
    components.mount("beside", payload, key="attention_mask_beside")


def said(
    opened: models.Opened, ids: tuple[int, ...], kind: str, change: Change, plain: Seen, changed: Seen
) -> list[str]:
    """What this run shows, computed from it."""
    if len(ids) < 2:
        return ["One token reads only itself under every mask; no token has a loss."]
    if change.mask is None:
        return ["This is the mask of the model itself. Choose another one above."]
    allowed = experiments.readable(opened, len(ids), change)
    cells, own = int(allowed.sum()), int(_of_layer(experiments.readable(opened, len(ids)), 0).sum())
    points = [f"{group(cells)} of {group(len(ids) ** 2)} cells may be read; in the model’s own mask {group(own)}."]
    rose = changed.outcome.mean_loss - plain.outcome.mean_loss
    went = f"from {fixed(plain.outcome.mean_loss, 3)} to {fixed(changed.outcome.mean_loss, 3)} nats"
    if np.triu(allowed, 1).any():
        return [*points, *_leaks(opened, ids, change, changed, rose, went)]
    if np.array_equal(changed.weights, plain.weights):
        return [*points, "Nothing changes: on this prompt it is the model’s own mask."]
    if abs(rose) < 5e-4:
        return [*points, f"The mean loss stays at {fixed(changed.outcome.mean_loss, 3)} nats."]
    verb = "rises" if rose > 0 else "falls"
    why = (
        "the weights are random and know no mask"
        if opened.random_weights
        else "the weights were trained under its own mask"
    )
    points.append(f"The mean loss {verb} {went}: {why}.")
    first = heads.readable(opened.config, len(ids))
    blocked = _of_layer(first, 0)[:, 0] & ~allowed[:, 0]
    if blocked.any():
        mass = float(plain.weights[:, :, blocked, 0].mean())
        points.append(
            f"{group(int(blocked.sum()))} queries lose position 0, to which they gave {fixed(mass, 3)} of their weight "
            "in the mean over all heads; the softmax spreads that over what is left."
        )
    return points


def _leaks(
    opened: models.Opened, ids: tuple[int, ...], change: Change, changed: Seen, rose: float, went: str
) -> list[str]:
    at = np.arange(len(ids) - 1)
    readable = experiments.readable(opened, len(ids), change)[at, at + 1]
    answer = float(changed.weights[:, :, at[readable], at[readable] + 1].mean()) if readable.any() else 0.0
    reads = (
        f"**The future leaks.** {group(int(readable.sum()))} of {group(len(at))} queries may read the very token they "
        f"are to predict, and give it {fixed(answer, 3)} of their weight in the mean over all heads."
    )
    if opened.random_weights:
        why = "may go either way, since the weights are random."
    elif rose < 0:
        why = "falls for the wrong reason: the answer is on the page. When it generates, the model has no such token."
    else:
        why = (
            "rises although answers may be read: the weights were trained under a causal mask and never met such keys."
        )
    return [reads, f"The mean loss goes {went}: it {why}"]


def snippet(opened: models.Opened, ids: tuple[int, ...], mask: Mask | None) -> str:
    return f"""
import torch
from lmcore.checkpoint import load_pretrained
from lmcore.masks import Mask
from lmcore.trace import Capture, Edits

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = torch.tensor([{list(ids)}])
out = model.forward(tokens, capture=Capture.of("pattern"), edits=Edits(mask={mask!r}))
torch.nn.functional.cross_entropy(out.logits[0, :-1].float(), tokens[0, 1:])  # the mean loss
"""
