"""Parameters, weights and trace memory of a config: ints in, ints out, no torch, no model needed.

KV bytes are in `lmcore.kv_costs`, FLOPs in `lmcore.flops`, bytes moved and training memory in `lmcore.traffic`; the two
oldest of them are also named here. Each has a derivation, term by term, in `lmcore.derivations`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from lmcore.bounds import count
from lmcore.config import ModelConfig
from lmcore.flops import forward_flops
from lmcore.formats import Quantised
from lmcore.kv_costs import kv_cache_bytes
from lmcore.layer_kinds import EXPERT, is_buffer, layer_kinds, outer_rows
from lmcore.shapes import BUFFERS, layer_shapes, stage_shapes
from lmcore.specs import MoE

__all__ = [
    "ActiveCounts",
    "ParamCounts",
    "active_counts",
    "block_param_count",
    "component_of",
    "forward_flops",
    "gated_d_ff",
    "kv_cache_bytes",
    "param_counts",
    "trace_bytes",
    "weight_bytes",
]


@dataclass(frozen=True, kw_only=True)
class ParamCounts:
    """Numbers of parameters by component; a tied head counts once, under `embedding`."""

    embedding: int
    attention: int
    ffn: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        return self.embedding + self.attention + self.ffn + self.norms + self.head


@dataclass(frozen=True, kw_only=True)
class ActiveCounts:
    """Parameters that one token meets, in the three conventions in use; all experts but the chosen ones are off.

    - `everything`: embedding table and head included (DeepSeek-V3: 37.55 billion).
    - `without_input`: without the tables that are only looked up, embedding and positions; a tied matrix stays, since
      the head multiplies by it (DeepSeek-V3: 36.63 billion; gpt-oss-20b: 3.608 billion).
    - `without_either`: the blocks and the final norm alone.
    - `unused_experts`: what was left out in all three.
    """

    everything: int
    without_input: int
    without_either: int
    unused_experts: int


def component_of(name: str) -> str:
    """The component (`embedding`, `attention`, `ffn`, `norms`, `head`) that a parameter name belongs to."""
    if "norm" in name:
        return "norms"
    for mark, component in (
        ("self_attn.", "attention"),
        ("relative_bias", "attention"),
        ("mlp.", "ffn"),
        ("embed_", "embedding"),
    ):
        if mark in name:
            return component
    return "head"


@lru_cache(maxsize=256)
def param_counts(cfg: ModelConfig) -> ParamCounts:
    """Parameters by component: the products of the shapes (V D; D H Dh, ...), every expert counted."""
    counts = {"embedding": 0, "attention": 0, "ffn": 0, "norms": 0, "head": 0}
    for row in outer_rows(cfg):
        counts[component_of(row.name)] += row.numbers
    for kind in layer_kinds(cfg):
        for row in kind.rows:
            if not is_buffer(row):
                counts[component_of(row.name)] += kind.count * row.times * row.numbers
    return ParamCounts(**counts)


@lru_cache(maxsize=256)
def active_counts(cfg: ModelConfig) -> ActiveCounts:
    """Parameters that one token meets: `total - sum over mixtures of (E - k) * expert`, in three conventions."""
    counts = param_counts(cfg)
    unused = 0
    for kind in layer_kinds(cfg):
        if isinstance(kind.ffn, MoE):
            expert = sum(row.numbers for row in kind.rows if row.name.startswith(EXPERT))
            unused += kind.count * (kind.ffn.n_experts - kind.ffn.top_k) * expert
    head = cfg.vocab_size * cfg.d_model
    looked_up = counts.embedding - head if cfg.tied else counts.embedding
    active = counts.total - unused
    return ActiveCounts(
        everything=active,
        without_input=active - looked_up,
        without_either=active - counts.embedding - counts.head,
        unused_experts=unused,
    )


def block_param_count(cfg: ModelConfig, layer: int = 0) -> int:
    """Parameters of one block, from the shape table."""
    return sum(prod(shape) for name, shape in layer_shapes(cfg, layer).items() if name not in BUFFERS)


def gated_d_ff(d_model: int, *, multiple_of: int = 256, multiplier: float = 1.0) -> int:
    """LLaMA's width of a gated feed-forward: 2/3 of 4 D, so that three matrices have as many numbers as two 4 D wide
    (Shazeer 2020, section 3; Touvron et al. 2023, section 2.2), times `multiplier`, both cut to a whole number, then
    rounded up to a multiple (256 in LLaMA and LLaMA 2 7B, 13B and 65B; 4096 with multiplier 1.3 in LLaMA 2 70B)."""
    width = int(8 * count("d_model", d_model, 1) / 3)
    multiple = count("multiple_of", multiple_of, 1)
    return -(-int(multiplier * width) // multiple) * multiple


def weight_bytes(cfg: ModelConfig, itemsize: int, *, quantised: Quantised | None = None) -> int:
    """Bytes of all stored tensors at `itemsize` bytes a number, from the shape table.

    With `quantised` the matrices of the layers are stored so, scales counted; embedding, head, norms and biases keep
    `itemsize`, as in GPTQ and AWQ files.
    """
    size = count("itemsize", itemsize, 1, 16)
    total = sum(size * row.numbers for row in outer_rows(cfg))
    for kind in layer_kinds(cfg):
        for row in kind.rows:
            small = quantised is not None and row.is_matrix
            one = quantised.bytes_of(1, row.numbers) if quantised and small else size * row.numbers
            total += kind.count * row.times * one
    return total


def trace_bytes(
    cfg: ModelConfig, names: tuple[str, ...], *, layers: int, batch: int, queries: int, keys: int, itemsize: int
) -> int:
    """Bytes that a trace of these stages holds for `layers` layers of a forward of T queries over S keys."""
    shapes = stage_shapes(cfg, batch, queries, keys)
    return itemsize * layers * sum(prod(shapes[name]) for name in names if name in shapes)
