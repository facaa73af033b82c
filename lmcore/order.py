"""What attention knows of order: scores against distance under any position encoding, and what is left without one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64

from lmcore.masks import Mask
from lmcore.model import Transformer
from lmcore.trace import Capture, Edits


def scores_by_distance(model: Transformer, texts: Int64[np.ndarray, "W T"]) -> Float64[np.ndarray, "heads T"]:
    """Mean score of each head of each layer, (layers x heads, distances), each row's own mean taken out.

    The score is scaled, with whatever bias the encoding adds, before the softmax, over the keys that may be read; the
    softmax doesn't see a row's mean. NaN at a distance that no query may read.
    """
    length = texts.shape[1]
    far = np.subtract.outer(np.arange(length), np.arange(length))
    sums = np.zeros((model.cfg.n_layers * model.cfg.n_heads, length))
    seen = np.zeros_like(sums)
    for text in texts:
        tokens = torch.from_numpy(text)[None].to(model.device)
        out = model.forward(tokens, capture=Capture.of("scores_masked"), logits_to_keep=1)
        assert out.trace is not None
        layers = [out.trace.layers[at]["scores_masked"][0].double().cpu().numpy() for at in sorted(out.trace.layers)]
        for row, scores in enumerate(np.concatenate(layers)):
            read = np.isfinite(scores)
            means = np.where(read, scores, 0).sum(1, keepdims=True) / read.sum(1, keepdims=True)
            at = far[read]
            sums[row] += np.bincount(at, (scores - means)[read], minlength=length)
            seen[row] += np.bincount(at, minlength=length)
    return np.divide(sums, seen, out=np.full_like(sums, np.nan), where=seen > 0)


class Shuffled(NamedTuple):
    """By how much the logits of the last position move, at most, when the tokens before it are put in reverse order:
    as the model is, and with the causal mask taken away."""

    masked: float
    unmasked: float


def reversed_before(model: Transformer, text: Int64[np.ndarray, " T"]) -> Shuffled:
    """Without positions and without a mask a key is read for what it is, wherever it stands: nothing moves but rounding
    (Haviv et al. 2022; Kazemnejad et al. 2023)."""
    tokens = torch.from_numpy(np.stack([text, np.append(text[-2::-1], text[-1])])).to(model.device)
    found = []
    for edits in (Edits(), Edits(mask=Mask(causal=False))):
        logits = model.forward(tokens, edits=edits, logits_to_keep=1).logits[:, -1].double()
        found.append(float((logits[0] - logits[1]).abs().max()))
    return Shuffled(*found)
