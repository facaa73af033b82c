"""A derivation in Markdown: each line as a formula, the same with the numbers filled in, its value; then the terms."""

from __future__ import annotations

from figures.format import group
from lmcore.derivations import Derivation, Product, Term


def derivation_markdown(found: Derivation) -> str:
    """All of a derivation. Lines of zero are left out; a sum of several lines ends with its total."""
    lines = [product for product in found.products if product.value]
    rows = [
        f"- {product.what}: ${product.formula} = {filled(product)}$ = **{group(product.value)}**" for product in lines
    ]
    total = f"Together **{group(found.value)} {found.unit}**." if len(lines) > 1 else f"In {found.unit}."
    if not lines:
        total = f"**0 {found.unit}**: there is nothing to count."
    where = "; ".join(f"${term.symbol}$ = {group(term.value)}, {term.meaning}" for term in _used(lines))
    parts = ["\n".join(rows), total, f"Where {where}." if where else "", f":small[:gray[{found.source}.]]"]
    return "\n\n".join(part for part in parts if part)


def filled(product: Product) -> str:
    """The factors of a line as numbers, in LaTeX."""
    return r" \cdot ".join(f"{term.value:,}".replace(",", r"\,") for term in product.factors)


def _used(lines: list[Product]) -> list[Term]:
    terms = {}
    for product in lines:
        for term in product.factors:
            if not term.symbol.isdigit():
                terms.setdefault((term.symbol, term.value), term)
    return list(terms.values())
