"""What rules of all families share: the reordering of rotary rows, and tensors that old files hold for nothing."""

from __future__ import annotations

from torch import Tensor

from lmcore.checkpoint.rules import Rule


def half_split(rows: Tensor, heads: int) -> Tensor:
    """Rows (heads * Dh, ...) whose rotary pairs are dims 2i and 2i+1, reordered head by head to i and i + Dh/2."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


_ANGLES = "rotary_emb.inv_freq is a copy of the RoPE frequencies, which lmcore takes from the config"
HF_RULES = (
    Rule("model.layers.{n}.self_attn.rotary_emb.inv_freq", (), note=_ANGLES),
    Rule("model.rotary_emb.inv_freq", (), note=_ANGLES),
)
