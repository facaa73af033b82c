"""What the built-in model looks like, for whoever asks without opening it. No torch."""

from __future__ import annotations

from lmcore.config import Dense, GroupedQuery, ModelConfig, Norm, Rope


def config() -> ModelConfig:
    """4 layers of width 64, 4 query heads on 2 KV heads, a vocabulary of 256 bytes and two special tokens."""
    heads, head_dim, layers = 4, 16, 4
    return ModelConfig(
        vocab_size=258,
        d_model=heads * head_dim,
        n_layers=layers,
        max_positions=2048,
        attention=GroupedQuery(n_heads=heads, n_kv_heads=2, head_dim=head_dim, scale=head_dim**-0.5),
        ffn=Dense(d_ff=176),
        norm=Norm(),
        rope=Rope(rotary_dim=head_dim),
        tied=False,
        layer_types=("full",) * layers,
    )
