"""A KV cache whose numbers are stored in few bits, as a running model reads it: FP8, or integers with scales.

Keys are quantised per channel, a group being one channel over neighbouring positions, since some channels of keys are
large at every position; values per position, a group being neighbouring channels (KIVI, Liu et al. 2024, section 3). A
group of keys can only be stored once all its positions are there: until then they stay in full precision, as do the
newest `residual` positions of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm, prod

import torch
from torch import Tensor

from lmcore.cache import KVCache
from lmcore.config import ModelConfig
from lmcore.errors import InputError
from lmcore.formats import Quantised
from lmcore.lowbit import encode, pack, unpack
from lmcore.shapes import Shape, cache_shapes

Storage = tuple[Quantised, Quantised]
BITS = (8, 4, 2)
FP8 = Quantised(bits=8)
"""Float8 e4m3: 4 bits of exponent, 3 of mantissa, at most 448 (Micikevicius et al. 2022); no scales."""


def kivi(bits: int, group: int = 32) -> Storage:
    """Integers of so many bits, keys per channel and values per position, a float16 scale and least value a group."""
    spec = {"bits": bits, "group": group, "scale_bytes": 2, "zero_bytes": 2}
    return Quantised(**spec, along="position"), Quantised(**spec, along="channel")


def formats(group: int = 32) -> dict[str, Storage]:
    """The formats that are compared, most bits first, keys' and values' each."""
    return {
        "FP8 e4m3": (FP8, FP8),
        "INT8": kivi(8, group),
        "INT4": kivi(4, group),
        "2 bit": kivi(2, group),
    }


def _unit(spec: Quantised) -> int:
    """Positions that can only be stored together."""
    return spec.group if spec.group is not None and spec.along == "position" else 1


class _Store:
    """Rows of `values` numbers, one a position: the older ones in few bits, the newest as they came."""

    def __init__(self, like: Tensor, values: int, slots: int, spec: Quantised, residual: int) -> None:
        self.spec, self.values, self.residual = spec, values, residual
        self.unit = _unit(spec)
        batch = like.shape[0]
        self.tail = like.new_empty(batch, residual + self.unit - 1, values)
        self.waiting = self.stored = 0
        if spec.group is None:
            self.kept = [like.new_empty(batch, slots, values, dtype=torch.float8_e4m3fn)]
            return
        scales = (slots // self.unit, values) if self.unit > 1 else (slots, -(-values // spec.group))
        self.kept = [
            like.new_empty(batch, slots, -(-values * spec.bits // 8), dtype=torch.uint8),
            *(like.new_empty(batch, *scales, dtype=torch.float16) for _ in range(2)),
        ]

    @property
    def used_bytes(self) -> int:
        return self.tail[:, : self.waiting].nbytes + sum(
            t[:, : self._rows(at, self.stored)].nbytes for at, t in enumerate(self.kept)
        )

    @property
    def allocated_bytes(self) -> int:
        return self.tail.nbytes + sum(t.nbytes for t in self.kept)

    def append(self, rows: Tensor, drop: int) -> Tensor:
        """Every row held and the new ones, as attention reads them; then the first `drop` rows are let go of."""
        read = torch.cat((self.read(), rows), dim=1)
        waiting = torch.cat((self.tail[:, : self.waiting], rows), dim=1)
        gone = min(drop, self.stored)
        if gone:
            for at, t in enumerate(self.kept):
                begin, end = self._rows(at, gone), self._rows(at, self.stored)
                t[:, : end - begin] = t[:, begin:end].clone()
            self.stored -= gone
        waiting = waiting[:, drop - gone :]
        total = self.stored + waiting.shape[1]
        fold = max(0, total - self.residual) // self.unit * self.unit - self.stored
        if fold > 0:
            self._store(waiting[:, :fold])
            waiting = waiting[:, fold:]
        self.waiting = waiting.shape[1]
        self.tail[:, : self.waiting] = waiting
        return read

    def read(self) -> Tensor:
        """(B, positions, values): what was stored, decoded, then what still waits."""
        tail, n = self.tail[:, : self.waiting], self.stored
        if not n:
            return tail
        if self.spec.group is None:
            return torch.cat((self.kept[0][:, :n].to(tail.dtype), tail), dim=1)
        codes = unpack(self.kept[0][:, :n], self.spec.bits, self.values).float()
        scale, least = (self._spread(t[:, : self._rows(1, n)].float()) for t in self.kept[1:])
        return torch.cat(((codes * scale + least).to(tail.dtype), tail), dim=1)

    def grow(self, slots: int) -> None:
        if slots > self.kept[0].shape[1]:
            for at, old in enumerate(self.kept):
                new = old.new_empty(old.shape[0], self._rows(at, slots), old.shape[2])
                new[:, : old.shape[1]] = old
                self.kept[at] = new

    def fork(self) -> _Store:
        copy = object.__new__(_Store)
        copy.__dict__.update(self.__dict__)
        copy.tail, copy.kept = self.tail.clone(), [t.clone() for t in self.kept]
        return copy

    def _rows(self, at: int, positions: int) -> int:
        """Rows of the kept tensor `at` that so many positions take: scales of keys have one for each group."""
        return positions // self.unit if at else positions

    def _spread(self, scales: Tensor) -> Tensor:
        """Scales repeated to the shape of the codes."""
        if self.unit > 1:
            return scales.repeat_interleave(self.unit, dim=1)
        return scales.repeat_interleave(self.spec.group or 1, dim=2)[..., : self.values]

    def _store(self, rows: Tensor) -> None:
        begin, end = self.stored, self.stored + rows.shape[1]
        self.stored = end
        if self.spec.group is None:
            self.kept[0][:, begin:end] = rows.float().clamp(-448, 448).to(torch.float8_e4m3fn)
            return
        if self.unit > 1:
            codes, scale, least = encode(rows.unflatten(1, (-1, self.unit)).transpose(2, 3), self.spec.bits)
            codes = codes.transpose(2, 3).flatten(1, 2)
        else:
            room = -self.values % self.spec.group
            # The last group of a row is filled up with its own last number, which changes neither end of it.
            full = torch.cat((rows, rows[..., -1:].expand(*rows.shape[:2], room)), dim=-1)
            codes, scale, least = encode(full.unflatten(2, (-1, self.spec.group)), self.spec.bits)
            codes = codes.flatten(2)[..., : self.values]
        for at, t in enumerate((pack(codes, self.spec.bits), scale, least)):
            self.kept[at][:, self._rows(at, begin) : self._rows(at, end)] = t


class QuantisedLayer:
    """One layer of a quantised cache, in the place of `lmcore.cache.LayerCache`.

    A windowed layer lets go of whole groups of positions, once none of them can be read any more.
    """

    def __init__(self, like: Tensor, shapes: Sequence[Shape], capacity: int, window: int | None, how: How):
        self.window, self.start, self.end, self.shapes = window, 0, 0, tuple(shapes)
        self.step = lcm(*(_unit(spec) for spec in how.storage))
        slots = self._slots(capacity)
        self.stores = [
            _Store(like, heads * dim, slots, spec, how.residual)
            for (heads, dim), spec in zip(shapes, how.storage, strict=True)
        ]

    @property
    def dtype(self) -> torch.dtype:
        return self.stores[0].tail.dtype

    @property
    def used_bytes(self) -> int:
        return sum(store.used_bytes for store in self.stores)

    @property
    def allocated_bytes(self) -> int:
        return sum(store.allocated_bytes for store in self.stores)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store T new positions; return all keys and values that their queries read: old ones decoded, new ones as
        they are."""
        self.end += k.shape[2]
        start = self.start
        if self.window is not None:
            self.start = max(start, (self.end - self.window) // self.step * self.step)
        read = (
            self._heads(store.append(x.transpose(1, 2).flatten(2), self.start - start), at)
            for at, (store, x) in enumerate(zip(self.stores, (k, v), strict=True))
        )
        keys, values = read
        return keys, values

    def keys(self) -> Tensor:
        return self._heads(self.stores[0].read(), 0)

    def values(self) -> Tensor:
        return self._heads(self.stores[1].read(), 1)

    def grow(self, capacity: int) -> None:
        """Room for `capacity` positions of the text, or for the window, where that is shorter."""
        for store in self.stores:
            store.grow(self._slots(capacity))

    def fork(self) -> QuantisedLayer:
        """An independent copy."""
        copy = object.__new__(QuantisedLayer)
        copy.__dict__.update(self.__dict__)
        copy.stores = [store.fork() for store in self.stores]
        return copy

    def can_truncate(self, length: int) -> bool:
        """Whether the cache of `length` positions would be this one without its newest: what is stored in few bits is
        not what came, and cannot be given back."""
        if length >= self.end:
            return True
        kept = length - self.start
        return (self.window is None or self.start == max(0, (length - self.window) // self.step * self.step)) and all(
            max(0, kept - store.residual) // store.unit * store.unit == store.stored for store in self.stores
        )

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on; 0 empties the layer."""
        if length == 0:
            self.start = self.end = 0
            for store in self.stores:
                store.stored = store.waiting = 0
            return
        gone, self.end = max(0, self.end - length), min(self.end, length)
        for store in self.stores:
            store.waiting -= gone

    def _heads(self, rows: Tensor, at: int) -> Tensor:
        return rows.unflatten(2, self.shapes[at]).transpose(1, 2)

    def _slots(self, capacity: int) -> int:
        most = capacity if self.window is None else min(capacity, self.window + self.step - 1)
        return -(-most // self.step) * self.step


@dataclass(frozen=True)
class How:
    """How a cache stores what it holds: the format of keys and of values (MLA: of latents and of rotary keys), and how
    many of the newest positions stay in the model's dtype."""

    storage: Storage
    residual: int = 0

    def __post_init__(self) -> None:
        for spec in self.storage:
            scaled = spec.scale_bytes == spec.zero_bytes == 2 and spec.bits in BITS
            if not (spec == FP8 or (spec.group is not None and scaled)):
                raise InputError(
                    f"{spec}",
                    expected="FP8 without scales, or 8, 4 or 2 bits with a float16 scale and least value a group",
                    where="the format of the KV cache",
                )
        if isinstance(self.residual, bool) or self.residual < 0:
            raise InputError(f"residual is {self.residual!r}", expected="0 or more positions", where="field residual")


def quantised_cache(
    cfg: ModelConfig,
    capacity: int,
    how: How,
    *,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    growable: bool = False,
) -> KVCache:
    """An empty cache for `forward` that holds packed codes and scales; `dtype` is what attention reads."""
    like = torch.empty(batch, dtype=dtype, device=device)
    shapes = [list(cache_shapes(cfg, layer).values()) for layer in range(cfg.n_layers)]
    layers = [QuantisedLayer(like, shapes[at], capacity, cfg.window_of(at), how) for at in range(cfg.n_layers)]
    return KVCache(layers, capacity, growable)


def quantised_cache_bytes(
    cfg: ModelConfig, how: How, *, context: int, batch: int = 1, itemsize: int = 4
) -> tuple[int, ...]:
    """Bytes of such a cache after `context` positions, one int per layer, from the config alone.

    Of the S positions kept (window w: less the whole groups that lie before the last w) the first
    floor((S - residual) / g) g are stored in few bits, g the group of what is quantised along positions, else 1; the
    rest takes `itemsize` bytes a number.
    """
    step = lcm(*(_unit(spec) for spec in how.storage))
    sizes = []
    for layer in range(cfg.n_layers):
        window = cfg.window_of(layer)
        kept = context if window is None else context - max(0, (context - window) // step * step)
        size = 0
        for shape, spec in zip(cache_shapes(cfg, layer).values(), how.storage, strict=True):
            stored = max(0, kept - how.residual) // _unit(spec) * _unit(spec)
            size += spec.bytes_of(stored, prod(shape)) + (kept - stored) * prod(shape) * itemsize
        sizes.append(batch * size)
    return tuple(sizes)
