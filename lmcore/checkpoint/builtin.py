"""The built-in model: tiny, LLaMA-shaped, with seeded random weights and one token per byte. Needs no file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from lmcore.checkpoint.builtin_config import config
from lmcore.config import ModelConfig
from lmcore.shapes import param_shapes
from lmcore.tokenizer import Tokenizer as ByteTokenizer
from lmcore.tokenizer import byte_alphabet

__all__ = ["NOTE", "SEED", "config", "tokenizer", "weights"]

SEED = 0
NOTE = "the weights are random: what this model shows is how the parts work, not what a trained model has learned"


def weights(cfg: ModelConfig, seed: int = SEED) -> Iterator[tuple[str, torch.Tensor]]:
    """Random float32 weights of any config, the same for the same seed on every machine and torch version.

    A matrix has standard deviation gain / sqrt(fan in), so the residual stream keeps its size. q and k have a gain of
    1.5, which gives scaled scores a standard deviation of about 2: at the usual 0.02 all attention would be flat. A
    tied embedding is a matrix like any other, since logits are products with it.
    """
    rng = np.random.default_rng(seed)
    for name, shape in param_shapes(cfg).items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if "norm" in name and name.endswith("weight"):
            values = (0 if cfg.norm.unit_offset else 1) + 0.1 * values
        elif len(shape) == 1:
            values *= 0.1
        elif "embed" not in name or (cfg.tied and "tokens" in name):
            values *= (1.5 if "q_proj" in name or "k_proj" in name else 1.0) / shape[1] ** 0.5
        yield name, torch.from_numpy(values)


def tokenizer() -> ByteTokenizer:
    """Each byte its own token, with the byte as its id; <s> is put in front of a text."""
    vocab = byte_alphabet() | {"<s>": 256, "</s>": 257}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in ("<s>", "</s>")])
    backend.post_processor = processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 256)])
    return ByteTokenizer(backend, bos="<s>", eos="</s>")
