"""The stages of one attention head in order: what each is called, its formula for this model, and what is missing.

In formulas `_Q` is a subscript and `^T` a superscript, of the letters and digits that follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from figures.format import group, sig
from lmcore.config import ModelConfig
from lmcore.specs import Latent


@dataclass(frozen=True, slots=True)
class Stage:
    """`columns`: "model" (D), "head" (Dh), "value" (Dv) or "key" (T). `rows`: "query" or "key". `field`: "signed" or
    "weight". `shared`: one matrix for all heads of the group."""

    key: str
    title: str
    short: str
    formula: str
    columns: str
    rows: str = "query"
    field: str = "signed"
    shared: bool = False


def stages_of(cfg: ModelConfig, layer: int) -> list[Stage]:
    """The stages of any head of a layer; those of the rotation only where the layer rotates."""
    a = cfg.attention
    turns = cfg.rope_of(layer) is not None
    normed = "x̂ = norm(x)" if cfg.wiring.norms_input else "x̂ = x: this model norms after the sublayer"
    norm = getattr(a, "qk_norm", None)
    per_head = norm is not None and norm.over != "unit"

    def projected(name: str, letter: str, *, normed: bool) -> str:
        if isinstance(a, Latent):
            return "q = x̂ W_Q" if letter == "Q" and a.q_rank is None else f"{name} = c W_U{letter}, c the normed latent"
        bias = f" + b_{letter}" if a.qkv_bias else ""
        return f"{name} = norm(x̂ W_{letter}{bias})" if normed else f"{name} = x̂ W_{letter}{bias}"

    rotated = ("q′", "k′") if turns else ("q", "k")
    found = [
        Stage("normed", "Normed input", "norm", normed, "model", shared=True),
        Stage("q", "Queries", "q", projected("q", "Q", normed=per_head), "head"),
        Stage("k", "Keys", "k", projected("k", "K", normed=per_head), "head", "key", shared=True),
        Stage("v", "Values", "v", projected("v", "V", normed=False), "value", "key", shared=True),
    ]
    if turns:
        found += [
            Stage("rot_q", "Queries, rotated", "RoPE q", "q′_i = R(i) q_i", "head"),
            Stage("rot_k", "Keys, rotated", "RoPE k", "k′_j = R(j) k_j", "head", "key", shared=True),
        ]
    return [
        *found,
        Stage("raw", "Scores", "QKᵀ", f"S_ij = {rotated[0]}_i · {rotated[1]}_j", "key"),
        Stage("scaled", "Scaled", "scaled", _scaled(cfg), "key"),
        Stage("masked", "Masked", "masked", _masked(cfg, layer), "key"),
        Stage("softmax", "Weights", "softmax", _softmax(cfg), "key", field="weight"),
        Stage("z", "Mixed values", "A V", "z_i = Σ_j A_ij v_j", "value"),
        Stage("write", "What the head writes", "W_O", "w_i = z_i W_O, by this head’s part of W_O", "model"),
        Stage("attn_out", "What all heads write together", "all heads", _all_heads(cfg), "model", shared=True),
        Stage("resid_mid", "Residual stream after the add", "+ x", _added(cfg), "model", shared=True),
    ]


def _scaled(cfg: ModelConfig) -> str:
    scale, softcap = cfg.attention.scale, getattr(cfg.attention, "softcap", None)
    usual = abs(scale * cfg.head_dim**0.5 - 1) < 1e-6
    text = f"S / √D_h = S / √{cfg.head_dim}" if usual else f"S × {sig(scale, 4)}"
    return f"{softcap:g} tanh(({text}) / {softcap:g})" if softcap else text


def _masked(cfg: ModelConfig, layer: int) -> str:
    window, kind = cfg.window_of(layer), cfg.layer_types[layer]
    read = "j ≤ i"
    if window is not None:
        read = f"i − {group(window)} < j ≤ i"
    elif kind == "chunked" and cfg.chunk:
        read = f"j ≤ i in the same {group(cfg.chunk)}"
    bias = " less the head’s ALiBi slope × (i − j)" if cfg.alibi is not None else ""
    if cfg.relative_bias is not None:
        bias = " plus the head’s learned bias for i − j"
    return f"+ 0 where {read}{bias}, + −∞ elsewhere"


def _softmax(cfg: ModelConfig) -> str:
    sink = " + exp(sink)" if getattr(cfg.attention, "sinks", False) else ""
    return f"A_ij = exp(S_ij) / (Σ_j exp(S_ij){sink})" if sink else "A_ij = exp(S_ij) / Σ_j exp(S_ij)"


def _all_heads(cfg: ModelConfig) -> str:
    bias = getattr(cfg.attention, "out_bias", False) or getattr(cfg.attention, "bias", False)
    return f"a = the sum of w over all {cfg.n_heads} heads" + (" + b_O" if bias else "")


def _added(cfg: ModelConfig) -> str:
    w = cfg.wiring
    if w.order == "post":
        return "x′ = norm(x + a)"
    added = "norm(a)" if w.norms_output else "a"
    return f"x′ = x + {added}" + ("" if w.residual_scale == 1 else f" × {sig(w.residual_scale, 4)}")


def notes_of(cfg: ModelConfig, layer: int) -> list[str]:
    """What this model's head does not have, or has besides, in sentences."""
    notes = []
    a = cfg.attention
    if cfg.rope_of(layer) is None:
        if cfg.learned_positions is not None:
            why = "This model has no RoPE: its positions are a learned table, added to the embedding."
        elif cfg.sinusoidal:
            why = "This model has no RoPE: its positions are a fixed table of sines, added to the embedding."
        elif cfg.relative_bias is not None:
            why = "This model has no RoPE: a learned bias by distance is added to the scores, in the stage “masked”."
        elif cfg.alibi is not None:
            why = "This model has no RoPE: ALiBi adds a bias by distance to the scores, in the stage “masked”."
        elif cfg.rope is not None:
            why = f"Layer {layer} has no RoPE; other layers of this model do."
        else:
            why = "This model has no RoPE."
        notes.append(f"{why} The stages of the rotation are missing: q and k go into the scores as they are.")
    if isinstance(a, Latent):
        notes.append(
            f"Latent attention: k and v are expanded from a latent of {group(a.kv_rank)} numbers a position, which is "
            f"what the cache holds. The latent and its projections are missing here. RoPE turns the last "
            f"{group(a.rope_dim)} dims of q and k only; every head has the same rotated key in them."
        )
    if getattr(a, "tuning", None) is not None:
        notes.append("In layers without RoPE the queries are scaled by the logarithm of their position.")
    norm = getattr(a, "qk_norm", None)
    if norm is not None and norm.over == "unit":
        notes.append("After the rotation q and k are divided by their root mean square.")
    if getattr(a, "sinks", False):
        notes.append("A learned sink takes part in the softmax and is dropped: rows sum to less than 1.")
    clip = getattr(a, "clip", None)
    if clip is not None:
        notes.append(f"q, k and v are clipped to ±{clip:g}.")
    return notes
