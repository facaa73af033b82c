"""What norms would add to a count of matrix products, said in a sentence."""

from __future__ import annotations

from figures.format import sig
from lmcore.config import ModelConfig
from lmcore.norm_costs import forward_norm_operations, norm_operations

KINDS = {"rms": "an RMSNorm", "layer": "a LayerNorm"}
_SCALES = ((10**15, "quadrillion"), (10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


def norms_sentence(cfg: ModelConfig, *, tokens: int, batch: int, flops: int) -> str:
    """The operations of all norms of a prefill with its last logits, beside the FLOPs of its products."""
    found = forward_norm_operations(cfg, tokens=tokens, batch=batch, logits=1)
    scale, word = next(((scale, word) for scale, word in _SCALES if found >= scale), (1, ""))
    amount = f"{sig(found / scale, 3)} {word}".rstrip()
    each = norm_operations(1, cfg.norm)
    learned = "gain and bias" if cfg.norm.bias else "its gain"
    share = f", {sig(100 * found / flops, 2)} % beside the products" if flops else ""
    return (
        f"Norms are not counted: {each} operations a number in {KINDS[cfg.norm.kind]} with {learned}, "
        f"{amount} in this prefill{share}. Fused they are one pass over memory each."
    )
