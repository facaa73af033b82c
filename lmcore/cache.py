"""The KV cache: what decoding remembers. An argument of `forward`, never part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lmcore.config import ModelConfig
from lmcore.errors import CapacityError, InputError
from lmcore.shapes import cache_shapes


@runtime_checkable
class Layer(Protocol):
    """What one layer remembers, however it is stored: positions [start, end)."""

    start: int
    end: int

    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def allocated_bytes(self) -> int: ...
    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]: ...
    def keys(self) -> Tensor: ...
    def values(self) -> Tensor: ...
    def grow(self, capacity: int) -> None: ...
    def fork(self) -> Layer: ...
    def can_truncate(self, length: int) -> bool: ...
    def truncate(self, length: int) -> None: ...


class LayerCache:
    """Keys and values of one layer, stored (B, K, capacity, Dh) and appended on the time axis.

    A windowed layer keeps its last `window` positions only: position p lies at p - `start`.
    """

    __slots__ = ("end", "k", "start", "v", "window")

    def __init__(self, k: Tensor, v: Tensor, window: int | None) -> None:
        self.k, self.v, self.window = k, v, window
        self.start = self.end = 0

    @property
    def kept(self) -> int:
        return self.end - self.start

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store T new positions; return the keys and values that their queries may read, old and new.

        InputError for tensors that agree with those stored in anything but the time axis, the third.
        """
        for name, fresh, old in (("keys", k, self.k), ("values", v, self.v)):
            if fresh.ndim != 4 or fresh.shape[2] != k.shape[2] or _without_time(fresh) != _without_time(old):
                batch, heads, _, dim = old.shape
                raise InputError(
                    f"the new {name} have shape {tuple(fresh.shape)}",
                    expected=f"({batch}, {heads}, T, {dim}): they grow along the time axis, the third",
                    where="the KV cache",
                    todo="Swap the axes of heads and time.",
                )
        new, kept, capacity = k.shape[2], self.kept, self.k.shape[2]
        self.end += new
        if kept + new <= capacity:
            self.k[:, :, kept : kept + new] = k
            self.v[:, :, kept : kept + new] = v
            return self.k[:, :, : kept + new], self.v[:, :, : kept + new]
        assert self.window is not None
        keys, values = (torch.cat((old[:, :, :kept], fresh), dim=2) for old, fresh in ((self.k, k), (self.v, v)))
        self.start = self.end - capacity
        self.k.copy_(keys[:, :, -capacity:])
        self.v.copy_(values[:, :, -capacity:])
        return keys, values

    @property
    def dtype(self) -> torch.dtype:
        return self.k.dtype

    @property
    def used_bytes(self) -> int:
        return sum(t[:, :, : self.kept].numel() * t.element_size() for t in (self.k, self.v))

    @property
    def allocated_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.k, self.v))

    def keys(self) -> Tensor:
        return self.k[:, :, : self.kept]

    def values(self) -> Tensor:
        return self.v[:, :, : self.kept]

    def grow(self, capacity: int) -> None:
        """Room for `capacity` positions of the text, or for the window, where that is shorter."""
        slots = capacity if self.window is None else min(capacity, self.window)
        if slots > self.k.shape[2]:
            self.k, self.v = (_grown(t, slots, self.kept) for t in (self.k, self.v))

    def fork(self) -> LayerCache:
        """An independent copy."""
        copy = LayerCache(self.k.clone(), self.v.clone(), self.window)
        copy.start, copy.end = self.start, self.end
        return copy

    def can_truncate(self, length: int) -> bool:
        """Whether what a query at position `length` reads is still held."""
        return self.start == 0 or self.start <= max(0, length - (self.window or 0) + 1)

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on, which `can_truncate` allows."""
        self.end = min(self.end, length)
        self.start = min(self.start, self.end)


class Extent(NamedTuple):
    """Positions [start, end) that a layer holds."""

    start: int
    end: int


class Turned(NamedTuple):
    """What was run into a cache whose keys were rotated by frequencies that follow the length, and that length.

    When the frequencies move, keys and everything above the first layer are others: the tokens have to be run again.
    """

    tokens: Tensor
    positions: Tensor
    length: int


class KVCache:
    """Keys (rotated) and values of every layer for B sequences of equal length.

    `used_bytes` counts stored positions and equals `costs.kv_cache_bytes` at the length; `allocated_bytes` counts the
    tensors and equals it at the capacity.
    """

    def __init__(self, layers: Sequence[Layer], capacity: int, growable: bool) -> None:
        self.layers, self.capacity, self.growable = layers, capacity, growable
        self.turned: Turned | None = None

    @classmethod
    def empty(
        cls,
        cfg: ModelConfig,
        capacity: int,
        *,
        batch: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        growable: bool = False,
    ) -> KVCache:
        """A cache for `capacity` positions; a growable one doubles instead of refusing the position after the last."""
        layers = []
        for layer in range(cfg.n_layers):
            window = cfg.window_of(layer)
            slots = capacity if window is None else min(capacity, window)
            k, v = (
                torch.empty(batch, heads, slots, dim, dtype=dtype, device=device)
                for heads, dim in cache_shapes(cfg, layer).values()
            )
            layers.append(LayerCache(k, v, window))
        return cls(layers, capacity, growable)

    @property
    def length(self) -> int:
        """Positions seen so far, which is the position of the next token."""
        return self.layers[0].end

    @property
    def dtype(self) -> torch.dtype:
        return self.layers[0].dtype

    @property
    def used_bytes(self) -> int:
        return sum(layer.used_bytes for layer in self.layers)

    @property
    def allocated_bytes(self) -> int:
        return sum(layer.allocated_bytes for layer in self.layers)

    def reserve(self, new: int) -> None:
        """Make room for `new` more positions, before anything is written; CapacityError when the cache may not grow."""
        need = self.length + new
        if need <= self.capacity:
            return
        if not self.growable:
            raise CapacityError(
                f"{need} positions do not fit into a cache of {self.capacity}",
                expected=f"at most {self.capacity - self.length} more tokens",
                where="the KV cache",
                todo="Ask for a larger capacity or a shorter text.",
            )
        self.capacity = max(need, 2 * self.capacity)
        for layer in self.layers:
            layer.grow(self.capacity)

    def append(
        self, layer: int, k: Float[Tensor, "B K T Dh"], v: Float[Tensor, "B K T Dv"]
    ) -> tuple[Float[Tensor, "B K S Dh"], Float[Tensor, "B K S Dv"]]:
        """Store one layer's new keys and values (MLA: latents and rotary keys); returns all that its queries read."""
        return self.layers[layer].append(k, v)

    def keys(self, layer: int) -> Float[Tensor, "B K S Dh"]:
        """The stored keys of one layer: all positions, or the last `window` of a windowed layer."""
        return self.layers[layer].keys()

    def values(self, layer: int) -> Float[Tensor, "B K S Dv"]:
        """The stored values of one layer."""
        return self.layers[layer].values()

    def extent(self, layer: int) -> Extent:
        return Extent(self.layers[layer].start, self.layers[layer].end)

    def fork(self) -> KVCache:
        """An independent copy: what is appended to one is not seen by the other."""
        fork = KVCache([layer.fork() for layer in self.layers], self.capacity, self.growable)
        fork.turned = self.turned
        return fork

    def can_truncate(self, length: int) -> bool:
        """Whether every layer still holds what a query at position `length` reads; always so for 0."""
        return length == 0 or all(layer.can_truncate(length) for layer in self.layers)

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on. CapacityError when a windowed layer has evicted what they would need."""
        assert 0 <= length <= self.length
        if not self.can_truncate(length):
            raise CapacityError(
                f"position {length} cannot be restored: a layer has let go of what its queries read",
                where="the KV cache",
                todo="Run the first tokens again.",
            )
        for layer in self.layers:
            layer.truncate(length)
        if self.turned is not None:
            tokens, positions, turned = self.turned
            self.turned = Turned(tokens[:, :length], positions[:length], turned)


def _without_time(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:2], x.shape[3])


def _grown(old: Tensor, slots: int, kept: int) -> Tensor:
    new = old.new_empty(*old.shape[:2], slots, old.shape[3])
    new[:, :, :kept] = old[:, :, :kept]
    return new
