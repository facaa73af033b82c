"""One forward pass in words and numbers: formulas of this model, twins of its prefill, what to notice in a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.format import MINUS, fixed, group, sig
from figures.twins import Tile, tile
from lmcore.config import ModelConfig
from lmcore.costs import forward_flops, kv_cache_bytes
from lmcore.specs import GroupedQuery

if TYPE_CHECKING:
    from lmcore.likelihood import Prediction

ROUNDING = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Twice the largest relative error of rounding a number."""

_SUBLAYER = {
    "pre": r"x + f(\mathrm{norm}(x))",
    "post": r"\mathrm{norm}(x + f(x))",
    "sandwich": r"x + \mathrm{norm}(f(\mathrm{norm}(x)))",
    "output": r"x + \mathrm{norm}(f(x))",
}


def path_formulas(cfg: ModelConfig) -> list[str]:
    """Embedding, a sublayer as this model wires it, and the logits."""
    head = r"W_{\mathrm{emb}}" if cfg.tied else r"W_{\mathrm{head}}"
    last = r"\mathrm{norm}(x)" if cfg.final_norm else "x"
    sublayer = _SUBLAYER[cfg.wiring.order]
    return [
        r"x = W_{\mathrm{emb}}[\mathrm{ids}] \qquad x \leftarrow " + sublayer,
        "z = " + last + r"\," + head + r"^{\top}",
    ]


def cost_formulas(cfg: ModelConfig, *, tokens: int, itemsize: int) -> list[str]:
    """FLOPs of the prefill and bytes of its KV cache, as they are calculated; only what the general formula covers."""
    flops = forward_flops(cfg, tokens=tokens)
    weights = flops["projections"] + flops["ffn"] + flops["logits"]
    formulas = [
        _two_lines(
            r"\mathrm{FLOPs} &= 2\,T\,N_{\mathrm{weights}} + 4\,L\,T^2 H D_h",
            f"&= {_grouped(weights)} + {_grouped(flops['scores'] + flops['mix'])}",
        )
    ]
    if isinstance(cfg.attention, GroupedQuery) and set(cfg.layer_types) == {"full"}:
        total = sum(kv_cache_bytes(cfg, context=tokens, itemsize=itemsize))
        factors = (2, cfg.n_layers, cfg.n_kv_heads, cfg.head_dim, tokens, itemsize)
        product = r" \cdot ".join(str(n) for n in factors)
        formulas.append(_two_lines(r"\mathrm{KV} &= 2\,L\,K\,D_h\,T\,b", f"&= {product} = {_grouped(total)}"))
    return formulas


def prefill_tiles(
    cfg: ModelConfig, tokens: int, *, dtype: str, itemsize: int, found: Any | None, why: str = ""
) -> list[Tile]:
    """FLOPs, KV cache and attention rows of a prefill of at least one token.

    `found` is what was measured (`lmcore.measure.Pass`), None where nothing was, and `why` then says why.
    """
    cache = sum(kv_cache_bytes(cfg, context=tokens, itemsize=itemsize))
    flops = sum(forward_flops(cfg, tokens=tokens).values())
    flops_name = f"FLOPs, prefill of {group(tokens)} {'token' if tokens == 1 else 'tokens'}"
    cache_name = "KV cache after prefill"
    if found is None:
        return [
            tile(flops_name, flops, unit="FLOP", note=why),
            tile(cache_name, cache, unit="B", how="in the cache", note=why),
        ]
    low, high = found.least_row_sum, found.largest_row_sum
    worst = low if 1 - low > high - 1 else high
    spread = f"Least {_near_one(low)}, largest {_near_one(high)}." if worst != 1 else ""
    return [
        tile(flops_name, flops, sum(found.flops.values()), unit="FLOP"),
        tile(cache_name, cache, found.cache_used_bytes, unit="B", how="in the cache"),
        tile(
            "Attention rows sum to",
            1,
            1 if worst == 1 else worst,
            unit=f"in {group(found.rows)} rows",
            how="furthest off",
            rounding=tokens * ROUNDING[dtype],
            reason=f"{dtype} rounding",
            note=spread,
        ),
    ]


def run_points(
    tokens: Sequence[int], said: Prediction, lengths: np.ndarray, *, name: Callable[[int], str]
) -> list[str]:
    """Three sentences about this run: what comes next, what surprised, what the residual stream does.

    `lengths` (L + 1, T) of the residual vectors; `name` writes a token so that it is safe in Markdown.
    """
    last = len(tokens) - 1
    best, chance = int(said.top_ids[last, 0]), float(said.top_probs[last, 0])
    points = [f"The model expects {name(best)} next, with probability {fixed(chance, 3)}."]
    if last:
        worst = int(said.loss[1:].argmax()) + 1
        points.append(
            f"{name(tokens[worst])} at position {worst} surprised it most: loss {fixed(float(said.loss[worst]), 2)} "
            f"nats, rank {group(int(said.rank[worst]))} in the vocabulary."
        )
    block, position = (int(n) for n in divmod(int(lengths.argmax()), lengths.shape[1]))
    where = f"after block {block}" if block else "after the embedding"
    points.append(
        f"The longest residual vector, {sig(float(lengths.max()), 4)}, is that of position {position} {where}; "
        f"position {last} ends at {sig(float(lengths[-1, last]), 4)}."
    )
    return points


def _near_one(x: float) -> str:
    text = "1" if x == 1 else f"1 {'+' if x > 1 else MINUS} {sig(abs(x - 1), 2)}"
    return text.replace(" ", "\u00a0")


def _two_lines(first: str, second: str) -> str:
    return r"\begin{aligned}" + first + r" \\ " + second + r"\end{aligned}"


def _grouped(n: int) -> str:
    return f"{n:,}".replace(",", r"\,")
