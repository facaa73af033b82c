"""Made-up distributions and key lengths, known to the app that shows them and to the test that looks."""

import numpy as np

from lmcore.sampling import Sampler

V, LAYERS, HEADS = 500, 6, 2
PIECES = {1: b" \xe2\x98", 2: b"\x95", 3: b" <b>x</b>", 4: b"\n", 5: b" $x$"}
SAMPLER = Sampler(temperature=0.8, top_k=8, top_p=0.9)


def logits(step: int) -> np.ndarray:
    scores = np.random.default_rng(step).normal(size=V).astype(np.float32)
    scores[1 + step % 5] += 5 if step != 3 else -5
    return scores


def key_lengths(positions: int) -> np.ndarray:
    """What the tests compute again: every layer, head and position differs."""
    layer, head, position = np.mgrid[:LAYERS, :HEADS, :positions]
    return (1 + layer + 10 * head + 0.01 * ((position * 37) % 101)).astype(np.float32)


def piece(token: int) -> bytes:
    return PIECES.get(token, b" w%d" % token)
