"""What heads do rather than where they look: contributions, the parts of a logit, and the planted test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from figures.effects import logit_panel, ranked_payload, score_panel, shared_top
from figures.format import bytes_iec, fixed, group
from figures.masks import Field, fields_payload, masked
from ui import components, experiments, guard, heads, last_position, models, page, runs, vocabulary
from ui.lru import ByteLRU
from ui.markdown import plain

if TYPE_CHECKING:
    from lmcore.effects import Attribution, Planted

MAP_BYTES = 15 * 2**19
"""Of both maps of all heads, which are in the browser together, so that another head needs no answer from here."""
CHOICES = 20
PLANTED_LENGTH = 64

_LENGTHS: ByteLRU[np.ndarray] = ByteLRU(max_entries=16, max_bytes=64 * 2**20, size=lambda array: array.nbytes)
_PLANTED: ByteLRU[Planted] = ByteLRU(max_entries=8, max_bytes=2**22, size=lambda p: 3 * p.induction.nbytes)


def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """The contribution map, the parts of a chosen token's logit, and the planted test."""
    page.section(
        "A weight is not an effect",
        "A weight says how much of a value is read. What it adds to the residual stream also depends on how long the "
        "value is after $W_O$: a key may be read much and add little.",
    )
    page.formula(r"c_{ij} = \lVert A_{ij}\, v_j W_O \rVert")
    _contributions(opened, prompt.ids)
    cut = experiments.cut(opened, prompt.ids, keeps_weights=False)
    page.section(
        "The parts of a logit",
        "The residual stream is a sum, so with the scale of the final norm held the logit of a token is one, too: "
        "embedding, heads, FFNs and biases. " + cut.said,
    )
    _logit(opened, prompt.ids, cut.ids)
    page.section(
        "Heads found by a planted test",
        "On ordinary text position 0 hides what a head does. Here the model reads "
        f"{PLANTED_LENGTH} random tokens twice: "
        "only a head that matches and copies finds the first copy from the second.",
    )
    _planted(opened, prompt)


def map_tokens(opened: models.Opened, tokens: int) -> int:
    """How many tokens have maps of all heads within MAP_BYTES, twice 4 bytes a cell."""
    cells = MAP_BYTES // (8 * opened.config.n_layers * opened.config.n_heads)
    return max(1, min(tokens, int(cells**0.5)))


def contributions(opened: models.Opened, ids: tuple[int, ...]) -> np.ndarray:
    """(L, H, T, T) float32: the length of what each key adds to each query, in every head."""
    from lmcore.effects import contribution_map

    run = runs.run(opened, ids, "pattern", "v", logits_to_keep=1)

    def make() -> np.ndarray:
        maps = (
            contribution_map(opened.model, layer, run["pattern"][layer], run["v"][layer])
            for layer in range(opened.config.n_layers)
        )
        return np.stack([layer.astype(np.float32) for layer in maps])

    return _LENGTHS.get((opened.key, ids), make)


@guard.fragment
def _contributions(opened: models.Opened, prompt: tuple[int, ...]) -> None:
    count = map_tokens(opened, len(prompt))
    ids = prompt[:count]
    with page.awaited("attention_contributions", height=470)():
        lengths = contributions(opened, ids)
        weights = runs.run(opened, ids, "pattern", "v", logits_to_keep=1)["pattern"]
        allowed = heads.readable(opened.config, count)
        allowed = allowed if allowed.ndim == 2 else allowed[:, None]
        fields = [Field("Weight", top=1.0), Field("Contribution", top=None, unit="length")]
        cfg, start = opened.config, heads.of(opened, prompt).summary.start
        payload = fields_payload(
            vocabulary.tokens(opened, ids),
            fields,
            [masked(weights, allowed), masked(lengths, allowed)],
            start=(start.layer, start.head),
            by_head=(cfg.n_layers, cfg.n_heads),
            file="attention-contributions",
        )
        components.mount("fields", payload, key="attention_contribution_fields")
    said = "Layer and head are those selected above; each map has the scale of its own bar."
    if count < len(prompt):
        said += (
            f" The maps hold the first {group(count)} of {group(len(prompt))} tokens: with those of all "
            f"{group(cfg.n_layers * cfg.n_heads)} heads they take {bytes_iec(weights.nbytes + lengths.nbytes)}."
        )
    if cfg.wiring.norms_output:
        said += " The norm on the sublayer’s output comes after what is shown."
    st.markdown(f":small[:gray[{said}]]")
    page.notice(moved(opened, ids, weights, lengths))
    with page.tools():
        page.source("lmcore.effects.contribution_map", _map_snippet(opened, ids), key="attention_contribution_source")


def moved(opened: models.Opened, ids: tuple[int, ...], weights: np.ndarray, lengths: np.ndarray) -> list[str]:
    """How much of the weight and of the contribution falls on position 0, in this run."""
    if weights.shape[-1] < 2:
        return ["One token reads only itself: there is nothing to compare."]
    weight = float(weights[:, :, 1:, 0].mean())
    sums = np.maximum(lengths[:, :, 1:].sum(-1), 1e-30)
    share = float((lengths[:, :, 1:, 0] / sums).mean())
    first = plain(vocabulary.label(opened, ids[0]))
    return [
        f"Position 0, **{first}**, takes {fixed(100 * weight, 1)} % of the weight and {fixed(100 * share, 1)} % of the "
        "length that is added, in the mean over all heads and later queries.",
        f"In {_highest_differ(weights, lengths)} rows after the first the key with the largest weight is not the one "
        "that adds most.",
    ]


def _highest_differ(weights: np.ndarray, lengths: np.ndarray) -> str:
    differ = weights[:, :, 1:].argmax(-1) != lengths[:, :, 1:].argmax(-1)
    return f"{group(int(differ.sum()))} of {group(differ.size)}"


@guard.fragment
def _logit(opened: models.Opened, prompt: tuple[int, ...], ids: tuple[int, ...]) -> None:
    if opened.config.wiring.order == "post":
        st.info(
            "This model normalises after each sublayer: its residual stream is no sum, and its logits have no parts."
        )
        return
    last = last_position.of(opened, ids)
    likeliest = [int(token) for token in np.argsort(-last.logits, kind="stable")[:CHOICES]]
    token = st.selectbox(
        "Next token",
        likeliest,
        format_func=lambda t: f"{likeliest.index(t) + 1}. {vocabulary.label(opened, t)}" if t in likeliest else str(t),
        key="attention_logit_token",
        width=280,
        filter_mode=None,
    )
    parts = attribution(opened, ids, token)
    panel = logit_panel(
        f"The logit of {vocabulary.label(opened, token)} after position {group(len(ids) - 1)}",
        embedding=parts.embedding,
        heads=parts.heads,
        ffn=parts.ffn,
        biases=parts.biases,
        total=parts.total,
        logit=parts.logit,
    )
    start = heads.of(opened, prompt).summary.start
    components.mount("ranked", ranked_payload([panel], start=(start.layer, start.head)), key="attention_logit_parts")
    if opened.config.logit_softcap is not None:
        st.markdown(":small[:gray[The logit is taken before this model’s soft-cap.]]")
    with page.tools():
        page.source("lmcore.effects.attribute_logit", _logit_snippet(opened, ids, token), key="attention_logit_source")


def attribution(opened: models.Opened, ids: tuple[int, ...], token: int) -> Attribution:
    """The parts of this token's logit at the last position."""
    from lmcore.effects import attribute_logit

    last = last_position.of(opened, ids)
    return attribute_logit(
        opened.model,
        embedding=last.embedding,
        z=last.z,
        attn_out=last.attn_out,
        ffn_out=last.ffn_out,
        resid=last.resid,
        token=token,
    )


@guard.fragment
def _planted(opened: models.Opened, prompt: runs.Prompt) -> None:
    found, place = _PLANTED.peek(opened.key), st.empty()
    if found is None and st.session_state.get("_planted") == opened.key:
        place.markdown(f":small[:gray[One forward of {group(2 * PLANTED_LENGTH)} tokens, all weights kept]]")
        found = planted(opened)
        place.empty()
    if found is None:

        def ask() -> None:
            st.session_state["_planted"] = opened.key

        place.button("Run the planted test", on_click=ask, key="attention_planted")
        return
    metrics = heads.of(opened, prompt.ids).summary.metrics  # by METRICS
    shown = (
        ("Induction", "Mean weight, in the second copy, on the token after the first copy of the query’s own.", 2),
        ("Previous token", "Mean weight on the token just before, over the whole sequence.", 1),
        ("Same token", "Mean weight, in the second copy, on the first copy of the query’s own token.", 5),
    )
    panels, points = [], []
    for (title, definition, column), scores in zip(shown, (found.induction, found.previous, found.same), strict=True):
        panels.append(score_panel(title, definition, scores, metrics[..., column]))
        points.append(_agreement(title, scores, metrics[..., column]))
    start = heads.of(opened, prompt.ids).summary.start
    components.mount("ranked", ranked_payload(panels, start=(start.layer, start.head)), key="attention_planted_scores")
    page.notice(points)
    with page.tools():
        page.source("lmcore.effects.planted_scores", _planted_snippet(opened), key="attention_planted_source")


def planted(opened: models.Opened) -> Planted:
    """The planted test of this model, run once; after the BOS where the model has one."""
    from lmcore.effects import planted_scores

    def make() -> Planted:
        with runs.forwarding():
            return planted_scores(opened.model, length=PLANTED_LENGTH, seed=0, first=_first(opened))

    return _PLANTED.get(opened.key, make)


def _first(opened: models.Opened) -> int | None:
    return None if opened.tokenizer is None else opened.tokenizer.bos_id


def _agreement(title: str, scores: np.ndarray, on_prompt: np.ndarray) -> str:
    shared, best = shared_top(scores, on_prompt), np.unravel_index(int(scores.argmax()), scores.shape)
    most = f"*{title}*: the planted test finds layer {best[0]}, head {best[1]} at {fixed(float(scores.max()), 3)}"
    if shared is None:
        return f"{most}; on the prompt the score is undefined, since no token comes twice."
    verb = "is" if shared == 1 else "are"
    return f"{most}; of its ten best heads {shared} {verb} among the ten best on the prompt."


def _head_snippet(opened: models.Opened, ids: tuple[int, ...], *stages: str) -> str:
    return f"""
import torch
from lmcore.checkpoint import load_pretrained
from lmcore.trace import Capture

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
tokens = torch.tensor([{list(ids)}])
out = model.forward(tokens, capture=Capture.of({", ".join(map(repr, stages))}))
t = out.trace.layers
"""


def _map_snippet(opened: models.Opened, ids: tuple[int, ...]) -> str:
    return f"""{_head_snippet(opened, ids, "pattern", "v")}
from lmcore.effects import contribution_map

contribution_map(model, 0, t[0].pattern[0].numpy(), t[0].v[0].numpy())  # (H, T, T) of layer 0
"""


def _logit_snippet(opened: models.Opened, ids: tuple[int, ...], token: int) -> str:
    return f"""{_head_snippet(opened, ids, "z", "attn_out", "ffn_out", "resid_post")}
import numpy as np
from lmcore.effects import attribute_logit

def last(name):
    return np.stack([t[layer][name][0, ..., -1, :].float().numpy() for layer in sorted(t)])

parts = attribute_logit(
    model, embedding=out.trace.embedding[0, -1].float().numpy(), z=last("z"), attn_out=last("attn_out"),
    ffn_out=last("ffn_out"), resid=last("resid_post")[-1], token={token},
)
parts.heads, parts.ffn, parts.total, parts.logit
"""


def _planted_snippet(opened: models.Opened) -> str:
    return f"""
from lmcore.checkpoint import load_pretrained
from lmcore.effects import planted_scores

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
planted_scores(model, length={PLANTED_LENGTH}, seed=0, first={_first(opened)})  # induction (L, H) and others
"""
