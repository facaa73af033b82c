"""A trained model's KV cache made smaller on its own weights: KV heads merged, or keys and values cut to a low rank.

Both return a new model that shares every other tensor with the original, which stays as it was. Neither trains: the
papers' conversions go on training afterwards, so what is measured here is where that training would begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lmcore.checkpoint.load import assemble
from lmcore.config import ModelConfig
from lmcore.errors import InputError, NotInModel
from lmcore.model import Transformer
from lmcore.specs import GroupedQuery, Latent

# What the cache holds comes from these, in every layer.
KEY, VALUE = "self_attn.k_proj", "self_attn.v_proj"


def mergeable(cfg: ModelConfig) -> tuple[int, ...]:
    """The numbers of KV heads that a model can be merged to, falling: the divisors of K below K.

    Raises NotInModel where nothing is left to merge: MQA has one KV head already, MLA keeps none.
    """
    a = cfg.attention
    if isinstance(a, Latent):
        raise NotInModel(
            "This model keeps no KV heads to merge",
            where="its multi-head latent attention",
            todo=f"Its cache already holds one latent of {a.kv_rank} numbers that all {a.n_heads} heads share, and a "
            f"rotary key of {a.rope_dim}.",
        )
    if a.n_kv_heads == 1:
        raise NotInModel(
            "This model has one KV head: nothing is left to merge",
            where="its multi-query attention",
            todo=f"All {a.n_heads} query heads read it already. Its keys and values can still be cut to a lower rank.",
        )
    return tuple(n for n in range(a.n_kv_heads - 1, 0, -1) if a.n_kv_heads % n == 0)


def merge_kv_heads(model: Transformer, n_kv_heads: int) -> Transformer:
    """The model with its KV heads mean-pooled to `n_kv_heads` groups of neighbours (Ainslie et al. 2023, section 2.1).

    Key and value rows (K, Dh, D) become the mean over K / n_kv_heads heads: (n_kv_heads, Dh, D). Query head h then
    reads KV head h // (H / n_kv_heads), the one its own was merged into. RoPE is linear and the same for all heads,
    so the mean of keys is the mean of rotated keys. Weights of a norm over keys are pooled, too; such a norm is not
    linear, so there the pooled key is no mean. Raises InputError for a number that doesn't divide K, NotInModel as
    `mergeable` does.
    """
    allowed, a = mergeable(model.cfg), model.cfg.attention
    assert isinstance(a, GroupedQuery)
    if n_kv_heads not in allowed:
        raise InputError(
            f"{a.n_kv_heads} KV heads cannot be merged to {n_kv_heads}",
            expected=f"one of {', '.join(map(str, allowed))}: groups of equal size",
            where="argument n_kv_heads",
        )
    names = [KEY, VALUE]
    if a.qk_norm is not None and a.qk_norm.over in ("each", "width"):
        names.append("self_attn.k_norm")
    cfg = model.cfg.changed(attention=replace(a, n_kv_heads=n_kv_heads))
    merged = {name: _pooled(t, a.n_kv_heads, n_kv_heads) for name, t in _of_layers(model, *names)}
    return assemble(cfg, dict(model.state_dict()) | merged)


def _of_layers(model: Transformer, *modules: str) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of every weight and bias of these modules, in all layers."""
    for name, tensor in model.state_dict().items():
        if any(f".{module}." in name for module in modules):
            yield name, tensor


def _pooled(tensor: Tensor, heads: int, groups: int) -> Tensor:
    """The mean over neighbours of what the first axis holds head by head, worked out in float64."""
    rest = (-1, *tensor.shape[1:]) if tensor.shape[0] != heads else tensor.shape[1:]
    apart = tensor.double().reshape(groups, heads // groups, *rest)
    return apart.mean(1).reshape(-1, *tensor.shape[1:]).to(tensor.dtype)


@dataclass(frozen=True, eq=False)
class Factors:
    """The singular value decomposition of what makes keys and values from x, a layer an entry: W = U diag(S) V.

    `joint`: one W = [W_K; W_V] (2 K Dh, D) a layer, so that keys and values come from one latent, as in MLA; else W_K
    and W_V apart, each with a latent of its own. U (rows, R), S (R,), V (R, D), float64, R the smaller of rows and D.
    """

    joint: bool
    parts: tuple[tuple[tuple[Tensor, Tensor, Tensor], ...], ...]

    @property
    def full_rank(self) -> int:
        """From here on nothing is cut away."""
        return len(self.parts[0][0][1])

    @property
    def bytes_held(self) -> int:
        return sum(t.numel() * t.element_size() for layer in self.parts for part in layer for t in part)

    def numbers(self, rank: int) -> int:
        """What a latent cache of this rank holds for one position of one layer."""
        return rank if self.joint else 2 * rank

    def kept_energy(self, rank: int) -> float:
        """The share of sum S^2 within the rank, mean over layers: 1 - the squared relative error of the product."""
        shares = [float(s[:rank].square().sum() / s.square().sum()) for layer in self.parts for _, s, _ in layer]
        return sum(shares) / len(shares)


def factorise(model: Transformer, *, joint: bool = True, progress: Callable[[int, int], None] | None = None) -> Factors:
    """The decompositions from which `cut` takes any rank; raising inside `progress` (layers done, of all) cancels.

    Raises NotInModel for MLA, whose keys and values come from a latent already.
    """
    a = model.cfg.attention
    if isinstance(a, Latent):
        raise NotInModel(
            "This model's keys and values have a low rank already",
            where="its multi-head latent attention",
            todo=f"They are re-expanded from a latent of {a.kv_rank} numbers, which is what its cache holds.",
        )
    layers = []
    for done, block in enumerate(model.model.layers):
        if progress is not None:
            progress(done, model.cfg.n_layers)
        both = [getattr(block.self_attn, name).weight.detach().double() for name in ("k_proj", "v_proj")]
        split = [torch.cat(both)] if joint else both
        layers.append(tuple(tuple(torch.linalg.svd(w, full_matrices=False)) for w in split))
    return Factors(joint, tuple(layers))


def cut(model: Transformer, factors: Factors, rank: int) -> Transformer:
    """The model with U_r diag(S_r) V_r in the place of its key and value weights: the best of that rank in the sum of
    squares (Eckart and Young 1936). Biases stay.

    A cache could then hold c = V_r x, r numbers a position (2 r when not joint), and expand k = U_K S c at each step.
    RoPE turns k by its position *after* that product, so U_K cannot be absorbed into the query as in MLA, which keeps a
    rotary key beside the latent for that reason: here all keys are expanded and turned again at every step. This model
    runs the product itself and caches ordinary keys and values; what it loses is what such a cache would lose.
    Raises InputError for a rank that is not from 1 to the full one.
    """
    if not 1 <= rank <= factors.full_rank:
        raise InputError(
            f"rank {rank}", expected=f"a whole number from 1 to {factors.full_rank}", where="argument rank"
        )
    changed = {}
    for layer, parts in enumerate(factors.parts):
        products = [(u[:, :rank] * s[:rank]) @ v[:rank] for u, s, v in parts]
        if factors.joint:
            products = list(products[0].chunk(2))
        for module, product in zip((KEY, VALUE), products, strict=True):
            changed[f"model.layers.{layer}.{module}.weight"] = product.to(model.dtype)
    return assemble(model.cfg, dict(model.state_dict()) | changed)


def latent_cache_bytes(cfg: ModelConfig, numbers: int, *, context: int, batch: int = 1, itemsize: int = 2) -> int:
    """Bytes of a cache of `numbers` numbers a position and layer: B * min(S, w) * numbers * itemsize, all layers."""
    windows = (cfg.window_of(layer) for layer in range(cfg.n_layers))
    kept = sum(context if w is None else min(context, w) for w in windows)
    return batch * kept * numbers * itemsize
