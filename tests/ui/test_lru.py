from __future__ import annotations

from threading import Barrier, Thread

import pytest

from ui.lru import ByteLRU


def shelf(entries: int = 10, size: int = 100, dropped: list[bytes] | None = None) -> ByteLRU[bytes]:
    return ByteLRU(max_entries=entries, max_bytes=size, size=len, dropped=None if dropped is None else dropped.append)


def test_bytes_stay_within_the_budget_and_the_oldest_goes_first():
    gone: list[bytes] = []
    kept = shelf(size=100, dropped=gone)
    for name in "abcd":
        kept.put(name, name.encode() * 40)
        assert kept.used_bytes <= 100
    assert gone == [b"a" * 40, b"b" * 40]
    assert kept.peek("a") is None
    assert kept.peek("d") == b"d" * 40


def test_entries_stay_within_their_limit():
    kept = shelf(entries=2)
    for name in "abc":
        kept.put(name, b"x")
    assert len(kept) == 2
    assert kept.peek("a") is None


def test_reading_counts_as_use():
    kept = shelf(entries=2)
    kept.put("a", b"1")
    kept.put("b", b"2")
    kept.peek("a")
    kept.put("c", b"3")
    assert kept.peek("a") == b"1"
    assert kept.peek("b") is None


def test_value_larger_than_the_budget_is_kept_alone():
    kept = shelf(size=10)
    kept.put("small", b"x")
    kept.put("large", b"y" * 50)
    assert kept.peek("large") is not None
    assert len(kept) == 1


def test_value_put_twice_counts_once():
    kept = shelf()
    kept.put("a", b"x" * 60)
    kept.put("a", b"x" * 60)
    assert kept.used_bytes == 60


def test_value_is_made_once_for_threads_that_ask_together():
    kept, made, start, got = shelf(), [], Barrier(8), []

    def make() -> bytes:
        made.append(1)
        return b"value"

    def ask() -> None:
        start.wait()
        got.append(kept.get("key", make))

    threads = [Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert got == [b"value"] * 8


def test_failure_is_raised_and_not_kept():
    kept = shelf()
    with pytest.raises(ZeroDivisionError):
        kept.get("key", lambda: bytes(1 // 0))
    assert kept.get("key", lambda: b"later") == b"later"


def test_what_is_dropped_by_its_key_is_gone_and_told():
    gone: list[bytes] = []
    kept = shelf(dropped=gone)
    for name in "abc":
        kept.put(name, name.encode())
    kept.drop(lambda key: key in {"a", "c"})
    assert gone == [b"a", b"c"]
    assert [kept.peek(name) for name in "abc"] == [None, b"b", None]
    assert kept.used_bytes == 1
