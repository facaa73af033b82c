"""What norms would add to a count of matrix products, said in a sentence."""

from __future__ import annotations

from figures.format import group, sig
from lmcore.config import ModelConfig
from lmcore.flops import work_per_token
from lmcore.norm_costs import forward_norm_operations, norm_operations

KINDS = {"rms": "an RMSNorm", "layer": "a LayerNorm"}


def norms_sentence(name: str, cfg: ModelConfig) -> str:
    """The operations of all norms that a token passes, beside the FLOPs of its projections and feed-forward."""
    found, work = forward_norm_operations(cfg, tokens=1), work_per_token(cfg)
    learned = "gain and bias" if cfg.norm.bias else "its gain"
    share = 100 * found / (2 * (work.projections + work.ffn))
    each = f"{norm_operations(1, cfg.norm)} for each number in {KINDS[cfg.norm.kind]} with {learned}"
    return (
        f"The norms of {name} take {group(found)} operations a token, {each}: {sig(share, 2)} % beside the FLOPs of "
        "its projections and feed-forward."
    )
