"""Tiny random models, made by `transformers` at test time, whose weights hide nothing: no zero bias, no unit norm."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lmcore.families import config_from_hf
from lmcore.model import Transformer

BASE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
# One variant a line: what each adds to BASE.
LLAMAS = {
    "gqa": {},
    "mha": {"num_key_value_heads": 4},
    "mqa": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "head_dim": {"head_dim": 20},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "gelu": {"hidden_act": "gelu_pytorch_tanh"},
}


def refill(model: torch.nn.Module, seed: int = 0) -> None:
    """Every tensor redrawn: matrices sharp enough that attention isn't flat, norms away from 1, biases away from 0."""
    random = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
        if parameter.ndim == 2:
            noise = noise * 2.0 / parameter.shape[1] ** 0.5
        elif "norm" in name:
            noise = 1 + 0.3 * noise
        else:
            noise = 0.5 * noise
        parameter.data.copy_(noise)


def hf_llama(variant: str, **changes: object) -> LlamaForCausalLM:
    """A tiny LLaMA of `transformers` in eager float32."""
    config = LlamaConfig(**(BASE | LLAMAS[variant] | changes))
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    refill(model)
    return model


def ours(reference: LlamaForCausalLM) -> Transformer:
    """The same model in lmcore, from the reference's own config and tensors."""
    cfg, _ = config_from_hf(reference.config.to_dict())
    model = Transformer(cfg)
    state = reference.state_dict()
    if cfg.tied:
        del state["lm_head.weight"]
    model.load_state_dict(state)
    return model


def tiny_tokens(length: int = 12, vocab_size: int = 96, seed: int = 1, batch: int = 1) -> torch.Tensor:
    """Random ids (batch, length); position 0 alone would hide a wrong rotation."""
    return torch.randint(0, vocab_size, (batch, length), generator=torch.Generator().manual_seed(seed))
