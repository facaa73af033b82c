"""The whole numbers that a calculator takes: no bool, no float, nothing senseless, a stated upper bound."""

from __future__ import annotations

from lmcore.errors import InputError

MAX_COUNT = 10**9
MAX_TRAINED_TOKENS = 10**15


def count(name: str, value: object, least: int = 0, most: int = MAX_COUNT) -> int:
    """`value` if it is an int from `least` to `most`. Raises InputError, naming the argument, for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(
            f"{name} is {str(value)[:40]!r}" if isinstance(value, str) else f"{name} is {value!r}",
            expected=f"an integer from {least:,} to {most:,}",
            where=f"argument {name}",
        )
    return value


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """`value` if it is one of the words. Raises InputError, naming the argument, otherwise."""
    if value not in known:
        raise InputError(f"{name} is {value!r}", expected=f"one of {', '.join(known)}", where=f"argument {name}")
    return value
