"""FLOPs of a forward, a prefill, one decode step and a training step, by component, from the config alone.

Conventions: a multiply-add counts as 2 FLOPs; only matrix products are counted (norms, softmax, rotation and
activations are not, as in PyTorch's `FlopCounterMode`). Attention counts what ordinary kernels execute, the full T x S
rectangle, or with `attention="useful"` only the pairs that the mask lets through: of T x T the half `T (T + 1) / 2`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from lmcore.bounds import MAX_COUNT, count, one_of
from lmcore.config import ModelConfig
from lmcore.layer_kinds import LayerKind, layer_kinds
from lmcore.specs import Latent, MoE

COMPONENTS = ("projections", "scores", "mix", "ffn", "logits")
ATTENTION = ("executed", "useful")
LATENT = ("as run", "absorbed", "expanded")
RECOMPUTE = ("none", "attention", "all")


class Work(NamedTuple):
    """What one token meets in all layers: matrix weights of the projections and of the feed-forward (chosen experts).

    `expansion`: weights that re-expand one latent into keys and values of all heads (MLA), in all layers; else 0.
    """

    projections: int
    ffn: int
    expansion: int


@lru_cache(maxsize=256)
def work_per_token(cfg: ModelConfig) -> Work:
    """Matrix weights that one token is multiplied by, outside the head."""
    projections = ffn = expansion = 0
    for kind in layer_kinds(cfg):
        mine = {row.name: row.numbers for row in kind.rows if row.is_matrix}
        projections += kind.count * sum(n for name, n in mine.items() if name.startswith("self_attn."))
        ffn += kind.count * ffn_weights_met(cfg, kind)
        expansion += kind.count * mine.get("self_attn.kv_b_proj.weight", 0)
    return Work(projections, ffn, expansion)


def ffn_weights_met(cfg: ModelConfig, kind: LayerKind) -> int:
    """Matrix weights of one feed-forward sublayer that one token meets: of a mixture the router, the `top_k` chosen
    experts and the shared one."""
    total = 0
    for row in kind.rows:
        if row.is_matrix and row.name.startswith("mlp."):
            times = kind.ffn.top_k if isinstance(kind.ffn, MoE) and row.times > 1 else 1
            total += times * row.numbers
    return total


def keys_read(kind: LayerKind, *, tokens: int, cached: int = 0, attention: str = "executed") -> int:
    """Pairs of query and key in one layer, summed over `tokens` queries that come after `cached` ones.

    Executed: T (S = T, the masked cells of a window, too), after cached tokens T min(S, w + T), since w of them are
    still there. Useful: the sum of min(i + 1, w) over the queries' positions i, or of i mod c + 1 in chunks of c.
    """
    t, s = tokens, cached + tokens
    if attention == "executed":
        return t * (s if kind.window is None or not cached else min(s, kind.window + t))
    if kind.type == "chunked" and kind.reach is not None:
        return _chunked_up_to(s, kind.reach) - _chunked_up_to(cached, kind.reach)
    return _windowed_up_to(s, kind.reach) - _windowed_up_to(cached, kind.reach)


def _windowed_up_to(n: int, window: int | None) -> int:
    """The sum of min(i + 1, w) for i < n."""
    ramp = n if window is None else min(n, window)
    return ramp * (ramp + 1) // 2 + (n - ramp) * (window or 0)


def _chunked_up_to(n: int, chunk: int) -> int:
    whole, rest = divmod(n, chunk)
    return whole * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2


def forward_flops(
    cfg: ModelConfig,
    *,
    tokens: int,
    cached: int = 0,
    batch: int = 1,
    logits: int | None = None,
    attention: str = "executed",
    latent: str = "as run",
) -> dict[str, int]:
    """FLOPs of one forward of `tokens` new tokens after `cached` ones, by component, all layers together.

    projections 2 T per weight of q, k, v and o; scores 2 (T S) H Dh and mix 2 (T S) H Dv a layer, with T S the pairs
    of `keys_read`. FFN 2 T per weight, of the chosen experts only in a mixture; logits 2 D V for each of `logits`
    positions (all T when None). MLA absorbed: a head's q and mix are as wide as the latent (r + d_rope, r); expanded:
    keys and values of all S positions are formed anew, 2 S r H (d_nope + d_v) a layer. "as run" expands without cached
    tokens and absorbs after some, as lmcore does. Raises InputError naming the argument.
    """
    t, b = count("tokens", tokens), count("batch", batch)
    s = count("cached", cached) + t
    kept = t if logits is None else min(t, count("logits", logits))
    one_of("attention", attention, ATTENTION)
    one_of("latent", latent, LATENT)
    a, work = cfg.attention, work_per_token(cfg)
    absorbed = isinstance(a, Latent) and (latent == "absorbed" or (latent == "as run" and s > t))
    query, value = (
        (a.kv_rank + a.rope_dim, a.kv_rank) if absorbed and isinstance(a, Latent) else (a.head_dim, a.value_dim)
    )
    # Absorbed, the up-projection of the latent is applied to q and to the mix of the new positions, expanded to the
    # latents of the positions read: T or S times its weights.
    again = 0 if absorbed else (s - t) * work.expansion
    pairs = sum(kind.count * keys_read(kind, tokens=t, cached=s - t, attention=attention) for kind in layer_kinds(cfg))
    return {
        "projections": b * 2 * (t * work.projections + again),
        "scores": b * 2 * pairs * a.n_heads * query,
        "mix": b * 2 * pairs * a.n_heads * value,
        "ffn": b * 2 * t * work.ffn,
        "logits": b * 2 * kept * cfg.d_model * cfg.vocab_size,
    }


def prefill_flops(
    cfg: ModelConfig,
    *,
    tokens: int,
    batch: int = 1,
    logits: str = "last",
    attention: str = "executed",
    latent: str = "as run",
) -> dict[str, int]:
    """FLOPs of a prefill, logits of the "last" position only (as generation needs: (T - 1) 2 D V less) or of "all"."""
    one_of("logits", logits, ("last", "all"))
    kept = 1 if logits == "last" else None
    return forward_flops(cfg, tokens=tokens, batch=batch, logits=kept, attention=attention, latent=latent)


def decode_flops(
    cfg: ModelConfig, *, position: int, batch: int = 1, attention: str = "executed", latent: str = "as run"
) -> dict[str, int]:
    """FLOPs of one decode step: the token of `position` (from 0) after `position` cached ones, B sequences at once."""
    count("position", position)
    return forward_flops(cfg, tokens=1, cached=position, batch=batch, attention=attention, latent=latent)


def training_flops(
    cfg: ModelConfig,
    *,
    tokens: int,
    batch: int = 1,
    recompute: str = "none",
    attention: str = "executed",
    latent: str = "as run",
) -> dict[str, int]:
    """FLOPs of one training step on `batch` sequences of `tokens`: forward, and backward with two products for each of
    the forward's: 3 times the forward with all its logits (Kaplan et al. 2020, section 2.1: 6 N D, without attention).

    `recompute`: "all" runs the forward of the blocks once more in the backward (full activation checkpointing),
    "attention" only the products that make the T x T weights and their mix (Korthikanti et al. 2022, section 5).
    """
    one_of("recompute", recompute, RECOMPUTE)
    forward = forward_flops(cfg, tokens=tokens, batch=batch, attention=attention, latent=latent)
    again = {"none": (), "attention": ("scores", "mix"), "all": ("projections", "scores", "mix", "ffn")}[recompute]
    return {name: (4 if name in again else 3) * flops for name, flops in forward.items()}


def crossover(cfg: ModelConfig, *, phase: str = "prefill", attention: str = "executed") -> int | None:
    """The smallest context at which attention's scores and mix take more FLOPs than projections and feed-forward.

    `phase` "prefill": of T tokens at once; "decode": of the one token after S - 1 cached ones. The logits are in
    neither side. None when windows keep attention below the rest up to `MAX_COUNT` positions.
    """
    one_of("phase", phase, ("prefill", "decode"))

    def overtakes(context: int) -> bool:
        tokens, cached = (context, 0) if phase == "prefill" else (1, context - 1)
        flops = forward_flops(cfg, tokens=tokens, cached=cached, logits=0, attention=attention)
        return flops["scores"] + flops["mix"] > flops["projections"] + flops["ffn"]

    return _first(overtakes)


def _first(holds: Callable[[int], bool]) -> int | None:
    """The smallest n from 1 to MAX_COUNT that holds, where every n above one that holds does so, too."""
    if not holds(MAX_COUNT):
        return None
    low, high = 0, MAX_COUNT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
