"""The payload of one turning pair: q and k of one layer, before RoPE, and its frequencies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from figures.payload import pack
from figures.tokens import Token

URLS = {
    "head": "turn_head",
    "query": "turn_query",
    "key": "turn_key",
    "m": "turn_m",
    "n": "turn_n",
    "pairing": "turn_pairing",
    "move": "turn_move",
    "speed": "turn_speed",
    "pair": "pair",
}
"""Under which names the browser keeps what is looked at in the address."""
MAX_BYTES = 4 * 2**20


def tokens_shown(q: np.ndarray, k: np.ndarray) -> int:
    """How many of the tokens have their vectors within MAX_BYTES."""
    per_token = 4 * (q.shape[0] + k.shape[0]) * q.shape[-1]
    return max(1, min(q.shape[1], MAX_BYTES // per_token))


def turning_payload(
    tokens: Sequence[Token],
    q: np.ndarray,
    k: np.ndarray,
    theta: np.ndarray,
    factor: float,
    *,
    layer: int,
    trained: int,
) -> bytes:
    """q (H, T, Dh) and k (K, T, Dh) float32, not yet turned; theta (d/2,) in radians a token and the factor on cos and
    sin; `trained`: the context whose positions the sliders run over. At most MAX_BYTES, and what one token takes."""
    count = tokens_shown(q, k)
    meta = {
        "tokens": [token.parts for token in tokens[:count]],
        "layer": layer,
        "factor": factor,
        "trained": trained,
        "urls": URLS,
    }
    arrays = (np.asarray(part[:, :count], np.float32) for part in (q, k))
    return pack(meta, *arrays, theta.astype(np.float64))
