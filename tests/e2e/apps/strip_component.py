"""Mounts the token strip on made-up numbers: ?tokens=20&tell=1; with `tell` the page says what Python heard."""

from __future__ import annotations

import numpy as np

from figures.strip import strip_payload
from figures.tokens import Token

PIECES = (b" the", b" cat", b"<b>x</b>", b" $x$", b"\n", b" \xe2", b"\x98", b"\x95", b"\t")
VOCABULARY = [Token(i, piece) for i, piece in enumerate(PIECES)]
KEPT = 4


def tokens_of(count: int) -> list[Token]:
    return [VOCABULARY[i % len(PIECES)] for i in range(count)]


def numbers_of(count: int) -> dict[str, np.ndarray]:
    """Losses, ranks and the most probable tokens, of a distribution drawn for each position."""
    logits = np.random.default_rng(count).normal(size=(count, len(PIECES))) * 2
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    order = np.argsort(-probs, -1)
    ids = np.array([token.id for token in tokens_of(count)])
    loss, rank = np.full(count, np.nan), np.zeros(count, int)
    for position in range(1, count):
        loss[position] = -np.log(probs[position - 1, ids[position]])
        rank[position] = 1 + int(np.flatnonzero(order[position - 1] == ids[position])[0])
    top = order[:, :KEPT]
    return {"loss": loss, "rank": rank, "top_ids": top, "top_probs": np.take_along_axis(probs, top, -1)}


def main() -> None:
    import streamlit as st

    from ui import components

    st.set_page_config(layout="wide")
    st.title("Strip component")
    count = int(st.query_params.get("tokens", 20))
    numbers = numbers_of(count)
    blob = strip_payload(
        tokens_of(count),
        loss=numbers["loss"],
        rank=numbers["rank"],
        top_ids=numbers["top_ids"],
        top_probs=numbers["top_probs"],
        token_of=VOCABULARY.__getitem__,
        vocab_size=len(PIECES),
        tell="tell" in st.query_params,
    )
    st.text(f"Python heard {components.strip(blob, key='strip')}")


if __name__ == "__main__":
    main()
