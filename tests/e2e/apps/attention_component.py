"""Mounts the attention component on made-up tensors: ?tokens=20&case=causal|window|bidirectional|broken."""

from __future__ import annotations

import numpy as np

from figures.attention import attention_payload, summarise
from figures.tokens import Token

LAYERS, HEADS, KV_HEADS = 4, 6, 2
PIECES = (b" the", b" cat", b"<b>x</b>", b" $x$", b"\n", b" \xe2", b"\x98", b"\x95", b"\t", b" the")


def tokens_of(count: int) -> list[Token]:
    """A prompt with repeated tokens, markup, an emoji in three pieces and a special token at its head."""
    return [Token(0, b"<s>", "<s>")] + [Token(1 + i % 9, PIECES[i % len(PIECES)]) for i in range(count - 1)]


def mask_of(case: str, count: int) -> np.ndarray:
    query, key = np.mgrid[:count, :count]
    if case == "bidirectional":
        return np.ones((count, count), bool)
    return (key <= query) & (key > query - 4) if case == "window" else key <= query


def weights_of(case: str, count: int) -> np.ndarray:
    """(L, H, T, T) float32, each row a softmax; in the case "broken" head (1, 2) holds a NaN and an infinity."""
    allowed = mask_of(case, count)
    rng = np.random.default_rng(count)
    weights = np.empty((LAYERS, HEADS, count, count), np.float32)
    for layer in range(LAYERS):
        scores = rng.normal(size=(HEADS, count, count)) * 2 + 3.0 * (np.arange(count) == 0)
        exponent = np.where(allowed, scores - scores.max(-1, keepdims=True), -np.inf)
        weights[layer] = np.exp(exponent) / np.exp(exponent).sum(-1, keepdims=True)
    if case == "broken":
        weights[1, 2, 7, 3] = np.nan
        weights[1, 2, 9, 0] = np.inf
    return weights


def main() -> None:
    import streamlit as st

    from ui import components

    st.set_page_config(layout="wide")
    st.title("Attention component")
    count = st.number_input("Tokens", min_value=1, value=int(st.query_params.get("tokens", 20)))
    case = st.query_params.get("case", "causal")
    tokens, weights = tokens_of(count), weights_of(case, count)
    summary = summarise(weights, [token.id for token in tokens], mask_of(case, count))
    exact = components.attention_view("maps", layer=summary.start.layer, head=summary.start.head)
    components.attention(attention_payload(weights, summary, tokens, n_kv_heads=KV_HEADS, exact=exact), key="maps")


if __name__ == "__main__":
    main()
