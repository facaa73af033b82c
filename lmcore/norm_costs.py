"""What norms cost: parameters and operations, which `lmcore.flops` leaves out, since they are no matrix products.

An operation is an addition, subtraction or multiplication on one number of the vector; what comes once a vector (mean,
root, inverse, eps) is left out. Fused, a norm is one pass over memory whatever its operations: they don't explain
its speed. No torch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lmcore.bounds import count
from lmcore.config import ModelConfig
from lmcore.specs import Dense, GroupedQuery, Latent, Norm


def norm_operations(width: int, norm: Norm, *, weighted: bool = True) -> int:
    """Operations on one vector of d numbers.

    LayerNorm (Ba et al. 2016, eq. 4) sums, subtracts the mean, squares, sums, scales: 5 d, and d each for gain and
    bias: 7 d. RMSNorm (Zhang & Sennrich 2019, eq. 4) squares, sums, scales: 3 d, with its gain 4 d.
    """
    plain = 5 if norm.kind == "layer" else 3
    return width * (plain + (1 + norm.bias if weighted else 0))


def norm_parameters(width: int, norm: Norm) -> int:
    """Gain, and bias where there is one: 2 d in LayerNorm as it was published, d in RMSNorm."""
    return width * (1 + norm.bias)


class Place(NamedTuple):
    """Norms of one place in the model: how many vectors a token, of what width, and how many numbers are learned."""

    vectors: int
    width: int
    norm: Norm
    parameters: int

    @property
    def operations(self) -> int:
        """Operations a token."""
        return self.vectors * norm_operations(self.width, self.norm, weighted=self.parameters > 0)


@lru_cache(maxsize=256)
def places(cfg: ModelConfig) -> tuple[Place, ...]:
    """Every norm of the model but the last, which only the positions with logits pass."""
    found = [_over(cfg.d_model, cfg.norm)] if cfg.embedding_norm else []
    for layer in range(cfg.n_layers):
        ffn = cfg.ffn_of(layer)
        both = not (isinstance(ffn, Dense) and not ffn.d_ff)
        entering = cfg.wiring.norms_input * (1 + (both and not cfg.wiring.shared_norm))
        leaving = cfg.wiring.norms_output * (1 + both)
        found += [_over(cfg.d_model, cfg.norm)] * (entering + leaving)
        if isinstance(cfg.attention, Latent):
            found += _of_latents(cfg.attention)
        else:
            found += _of_heads(cfg.attention, turned=cfg.rope_of(layer) is not None)
    return tuple(found)


def forward_norm_operations(cfg: ModelConfig, *, tokens: int, batch: int = 1, logits: int | None = None) -> int:
    """Operations of all norms in a forward of T tokens in each of B sequences; the last norm on `logits` positions only
    (all when None). Raises InputError naming the argument."""
    t, b = count("tokens", tokens), count("batch", batch)
    kept = t if logits is None else min(t, count("logits", logits))
    last = norm_operations(cfg.d_model, cfg.norm) if cfg.final_norm else 0
    return b * (t * _a_token(cfg) + kept * last)


@lru_cache(maxsize=256)
def _a_token(cfg: ModelConfig) -> int:
    return sum(place.operations for place in places(cfg))


def _over(width: int, norm: Norm) -> Place:
    return Place(1, width, norm, norm_parameters(width, norm))


def _of_latents(a: Latent) -> list[Place]:
    """MLA norms its latents, of keys and values and of a low-rank query."""
    widths = [a.kv_rank] if a.q_rank is None else [a.q_rank, a.kv_rank]
    return [_over(width, Norm(eps=a.eps)) for width in widths]


def _of_heads(a: GroupedQuery, *, turned: bool) -> list[Place]:
    """Norms of q and of k, head by head or over all heads at once; without weights only after RoPE."""
    if a.qk_norm is None:
        return []
    over, norm, dim = a.qk_norm.over, a.qk_norm.norm, a.head_dim
    if over == "unit":
        return [Place(heads, dim, Norm(), 0) for heads in (a.n_heads, a.n_kv_heads) if turned]
    found = []
    for heads in (a.n_heads, a.n_kv_heads):
        vectors, width = (1, heads * dim) if over == "width" else (heads, dim)
        learned = dim if over == "head" else heads * dim
        found.append(Place(vectors, width, norm, norm_parameters(learned, norm)))
    return found
