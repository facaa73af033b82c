"""A derivation as it is printed: formula, numbers, value, terms."""

from __future__ import annotations

import re

from figures.derived import derivation_markdown, filled
from figures.format import THOUSANDS
from lmcore import flop_derivations, presets
from lmcore.derivations import Derivation, Product, Term, kv_bytes, parameters

CFG = presets.shipped("gemma-3-27b-text").config


def numbers(text: str) -> list[int]:
    return [int(found.replace(r"\,", "")) for found in re.findall(r"\d+(?:\\,\d{3})*", text)]


def test_the_printed_numbers_multiply_to_the_printed_values() -> None:
    """What stands on the page is taken apart again: products of the filled lines, and their sum."""
    for found in (parameters(CFG), kv_bytes(CFG, context=131_072), *flop_derivations.forward(CFG, tokens=9).values()):
        total = 0
        for line in derivation_markdown(found).splitlines():
            if not line.startswith("- "):
                continue
            _, shown, value = line.rsplit(" = ", 2)
            product = 1
            for factor in numbers(shown.rstrip("$")):
                product *= factor
            assert product == int(value.strip("*").replace(THOUSANDS, ""))
            total += product
        assert total == found.value


def test_terms_are_named_once_and_bare_numbers_are_not() -> None:
    text = derivation_markdown(kv_bytes(CFG, context=131_072))
    assert text.count("KV heads") == 1
    assert "$D_h$ = 128, head dim; " in text
    assert "$2$ =" not in text


def test_lines_of_nothing_are_left_out() -> None:
    nothing = Product("nothing", (Term("n", 0, "none"),))
    one = Product("one", (Term("n", 1_234_567, "some"),))
    assert "nothing" not in derivation_markdown(Derivation("x", "B", "here", (nothing, one)))
    assert derivation_markdown(Derivation("x", "B", "here", (nothing,))).startswith("**0 B**")
    assert filled(one) == r"1\,234\,567"
