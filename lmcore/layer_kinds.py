"""The layers of a config that cost the same, each kind once: a calculator works per kind, not per layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from lmcore.config import ModelConfig
from lmcore.shapes import BUFFERS, layer_shapes, param_shapes
from lmcore.specs import Dense, MoE

EXPERT = "mlp.experts.0."


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the shape table: a tensor's name inside the layer, how many numbers it has, and how often it stands.

    `sides` is, for a matrix, its width into plus its width out: what a product with one vector reads and writes.
    `times` is 1, or the number of experts for a tensor that every expert has.
    """

    name: str
    numbers: int
    sides: int
    times: int = 1

    @property
    def is_matrix(self) -> bool:
        """Whether it takes part in a matrix product: a weight of a projection, of the feed-forward or of the router."""
        return self.name.endswith(".weight") and ("proj" in self.name or "gate" in self.name)


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers with the same reach and the same feed-forward: their indices, and the shape table of one of them.

    `reach` is how many keys a query may read at most, its own included: the window, the chunk, or None for all.
    """

    type: str
    layers: tuple[int, ...]
    reach: int | None
    ffn: Dense | MoE
    rows: tuple[Row, ...]

    @property
    def count(self) -> int:
        return len(self.layers)

    @property
    def window(self) -> int | None:
        """The sliding window, None in any other layer."""
        return self.reach if self.type == "sliding" else None


@lru_cache(maxsize=256)
def layer_kinds(cfg: ModelConfig) -> tuple[LayerKind, ...]:
    """The kinds of layers of a config, in the order of their first layer."""
    groups: dict[tuple[str, bool], list[int]] = {}
    for layer, kind in enumerate(cfg.layer_types):
        groups.setdefault((kind, isinstance(cfg.ffn_of(layer), MoE)), []).append(layer)
    reach = {"full": None, "sliding": cfg.window, "chunked": cfg.chunk}
    rows: dict[bool, tuple[Row, ...]] = {}
    kinds = []
    for (kind, sparse), layers in groups.items():
        if sparse not in rows:
            rows[sparse] = _rows(cfg, layers[0])
        kinds.append(LayerKind(kind, tuple(layers), reach[kind], cfg.ffn_of(layers[0]), rows[sparse]))
    return tuple(kinds)


@lru_cache(maxsize=256)
def outer_rows(cfg: ModelConfig) -> tuple[Row, ...]:
    """The tensors outside the layers: embedding, positions, final norm, an untied head."""
    shapes = param_shapes(cfg.changed(n_layers=1, layer_types=cfg.layer_types[:1], moe=None, moe_layers=()))
    return tuple(
        Row(name, prod(shape), sum(shape)) for name, shape in shapes.items() if not name.startswith("model.layers.")
    )


def _rows(cfg: ModelConfig, layer: int) -> tuple[Row, ...]:
    """Every expert has the first one's tensors, so that only that one is listed."""
    ffn = cfg.ffn_of(layer)
    experts = ffn.n_experts if isinstance(ffn, MoE) else 1
    return tuple(
        Row(name, prod(shape), sum(shape), experts if name.startswith(EXPERT) else 1)
        for name, shape in layer_shapes(cfg, layer).items()
        if not name.startswith("mlp.experts.") or name.startswith(EXPERT)
    )


def is_buffer(row: Row) -> bool:
    """Whether the tensor is stored with the weights without being a parameter."""
    return row.name in BUFFERS
