"""The teaching models that LLaMA's config cannot express: its block, and positions of another kind."""

from __future__ import annotations

from typing import Any

from lmcore.config import ModelConfig
from lmcore.families.shared import NO_CHANGE, llama_like
from lmcore.reading import Reader
from lmcore.specs import RelativeBias

POSITIONS = ("rope", "alibi", "learned", "sinusoidal", "t5", "none")


def glassbox(read: Reader) -> ModelConfig:
    """LLaMA's fields, and two of ours: `position`, one of POSITIONS, and `attention_only`, for blocks without
    feed-forward.

    Sinusoids come with the embedding times sqrt(D), as they were proposed (Vaswani et al. 2017, section 3.4).
    """
    position = read.text("position", default="rope")
    if position not in POSITIONS:
        raise read.fail("position", f"position {position[:40]!r} is not known", "one of " + ", ".join(POSITIONS))
    fields: dict[str, Any] = {}
    if position == "alibi":
        fields = {"alibi": read.number("alibi_bias_max", default=8.0)}
    elif position == "learned":
        fields = {"learned_positions": read.integer("max_position_embeddings", default=2048)}
    elif position == "sinusoidal":
        fields = {"sinusoidal": True, "embedding_scale": read.integer("hidden_size") ** 0.5}
    elif position == "t5":
        buckets = read.integer("relative_attention_num_buckets", default=32)
        distance = read.integer("relative_attention_max_distance", default=128)
        fields = {"relative_bias": RelativeBias(buckets=buckets, max_distance=distance)}
    ffn = {"bias": read.flag("mlp_bias")} | ({"d_ff": 0} if read.flag("attention_only") else {})
    return llama_like(read, ffn=ffn, rope=NO_CHANGE if position == "rope" else None, **fields)
