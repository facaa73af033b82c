"""A cache with two limits, entries and bytes, shared by all sessions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteLRU(Generic[V]):
    """Keeps the values used last, at most `max_entries` of them and at most `max_bytes` by `size`.

    The newest value is always kept, however large it is: whoever made it is about to use it. `dropped` is called with
    each value that leaves, outside the lock.
    """

    def __init__(
        self,
        *,
        max_entries: int,
        max_bytes: int,
        size: Callable[[V], int],
        dropped: Callable[[V], None] | None = None,
    ) -> None:
        assert max_entries >= 1
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._size, self._dropped = size, dropped
        self._lock = Lock()
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._making: dict[Hashable, Lock] = {}

    def __len__(self) -> int:
        return len(self._values)

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return sum(size for _, size in self._values.values())

    def peek(self, key: Hashable) -> V | None:
        """The value under `key`, which counts as used now, or None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: V) -> None:
        """Keep `value`, and drop those used longest ago until both limits hold."""
        gone: list[V] = []
        with self._lock:
            if key in self._values:
                gone.append(self._values.pop(key)[0])
            self._values[key] = (value, self._size(value))
            total = sum(size for _, size in self._values.values())
            while len(self._values) > 1 and (len(self._values) > self._max_entries or total > self._max_bytes):
                _, (old, size) = self._values.popitem(last=False)
                total -= size
                gone.append(old)
        if self._dropped is not None:
            for old in gone:
                self._dropped(old)

    def drop(self, which: Callable[[Hashable], bool]) -> None:
        """Let go of the values under the keys that `which` names."""
        with self._lock:
            gone = [self._values.pop(key)[0] for key in list(self._values) if which(key)]
        if self._dropped is not None:
            for old in gone:
                self._dropped(old)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value under `key`, made once even when several threads ask for it at the same time."""
        value = self.peek(key)
        if value is not None:
            return value
        with self._lock:
            making = self._making.setdefault(key, Lock())
        with making:
            value = self.peek(key)
            if value is None:
                try:
                    value = make()
                    self.put(key, value)
                finally:
                    with self._lock:
                        self._making.pop(key, None)
            return value
