"""The FLOPs of a forward or a training step, each component derived term by term (see `lmcore.derivations`)."""

from __future__ import annotations

from lmcore.config import ModelConfig
from lmcore.derivations import (
    Derivation,
    Product,
    Term,
    all_layers,
    attention_matrices,
    ffn_matrices,
    layers_by,
    number,
)
from lmcore.flops import forward_flops, keys_read
from lmcore.layer_kinds import LayerKind
from lmcore.specs import Latent

_TWO = number(2, "a multiply and an add")


def forward(
    cfg: ModelConfig,
    *,
    tokens: int,
    cached: int = 0,
    batch: int = 1,
    logits: int | None = None,
    attention: str = "executed",
    latent: str = "as run",
) -> dict[str, Derivation]:
    """A derivation for each component of `flops.forward_flops` with the same arguments."""
    forward_flops(cfg, tokens=tokens, cached=cached, batch=batch, logits=logits, attention=attention, latent=latent)
    a = cfg.attention
    absorbed = isinstance(a, Latent) and (latent == "absorbed" or (latent == "as run" and cached > 0))
    outer = (_TWO, Term("B", batch, "sequences"))
    new = Term("T", tokens, "new tokens")
    heads, (query, value) = Term("H", a.n_heads, "query heads"), _widths(cfg, absorbed)
    again = _positions(tokens, cached) if not absorbed else new
    projections = [
        Product(what, (*outer, again if what == "k and v up" else new, all_layers(cfg), *factors))
        for what, factors in attention_matrices(cfg)
    ]
    scores, mix, ffn = [], [], []
    for layers, kind in layers_by(cfg, "reach"):
        pairs = _pairs(kind, tokens, cached, attention)
        scores.append(Product(f"q kᵀ, {kind.type} attention", (*outer, *pairs, layers, heads, query)))
        mix.append(Product(f"weights times v, {kind.type} attention", (*outer, *pairs, layers, heads, value)))
    for layers, kind in layers_by(cfg, "ffn"):
        lines = ffn_matrices(cfg, kind, active=True)
        ffn += [Product(what, (*outer, new, layers, *factors)) for what, factors in lines]
    kept = tokens if logits is None else min(tokens, logits)
    head = (*outer, Term("n", kept, "positions with logits"), Term("D", cfg.d_model, "d_model"))
    last = [Product("logits", (*head, Term("V", cfg.vocab_size, "vocabulary")))]
    convention = "2 FLOPs a multiply-add, matrix products only"
    rectangle = "as executed" if attention == "executed" else "the pairs that the mask lets through"
    parts = {
        "projections": (projections, convention),
        "scores": (scores, f"{convention}; {rectangle}"),
        "mix": (mix, f"{convention}; {rectangle}"),
        "ffn": (ffn, convention),
        "logits": (last, f"{convention}; the lookup of embeddings is none"),
    }
    return {name: Derivation(name, "FLOP", source, tuple(rows)) for name, (rows, source) in parts.items()}


def training(
    cfg: ModelConfig,
    *,
    tokens: int,
    batch: int = 1,
    recompute: str = "none",
    attention: str = "executed",
    latent: str = "as run",
) -> dict[str, Derivation]:
    """A derivation for each component of `flops.training_flops`: 3 times the forward's, 4 where it is run again."""
    again = {"none": (), "attention": ("scores", "mix"), "all": ("projections", "scores", "mix", "ffn")}[recompute]
    parts = forward(cfg, tokens=tokens, batch=batch, attention=attention, latent=latent)
    three, four = number(3, "forward, and two products backward"), number(4, "forward twice, and two products backward")
    return {name: part.times(four if name in again else three, name) for name, part in parts.items()}


def _positions(tokens: int, cached: int) -> Term:
    return (
        Term("S", cached + tokens, "positions whose latents are expanded")
        if cached
        else Term("T", tokens, "new tokens")
    )


def _pairs(kind: LayerKind, tokens: int, cached: int, attention: str) -> tuple[Term, ...]:
    """Queries times keys: T S where the whole rectangle counts."""
    pairs = keys_read(kind, tokens=tokens, cached=cached, attention=attention)
    if attention == "executed" and tokens and pairs % tokens == 0:
        keys, new = pairs // tokens, Term("T", tokens, "new tokens")
        if keys == cached + tokens:
            return (new, Term("S", keys, "keys read, cached and new"))
        return (new, Term(r"\min(S, w + T)", keys, f"keys read, the window being {kind.window:,}"))
    if kind.reach is None and not cached:
        return (Term(r"\tfrac{T(T+1)}{2}", pairs, "pairs of a query and a key not after it"),)
    if kind.type == "chunked":
        return (Term(r"\sum_i (i \bmod c + 1)", pairs, f"pairs within a chunk of {kind.reach:,}"),)
    reach = "i + 1" if kind.reach is None else r"\min(i + 1, w)"
    limit = "" if kind.reach is None else f", the window being {kind.reach:,}"
    return (
        Term(rf"\sum_i {reach}" if kind.reach else rf"\sum_i ({reach})", pairs, f"keys that query i may read{limit}"),
    )


def _widths(cfg: ModelConfig, absorbed: bool) -> tuple[Term, Term]:
    """Dims of a head's score and of its mix."""
    a = cfg.attention
    if not isinstance(a, Latent):
        dim = Term("D_h", a.head_dim, "head dim")
        return dim, dim
    if absorbed:
        both = Term("(r + d_R)", a.kv_rank + a.rope_dim, "latent and rotary key, which absorbed queries read")
        return both, Term("r", a.kv_rank, "rank of the latent")
    query = Term("(d_N + d_R)", a.head_dim, "dims of a head's q: without and with RoPE")
    return query, Term("d_V", a.value_dim, "dims of a head's value")
