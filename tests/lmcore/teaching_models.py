"""Small random models of the kinds that the teaching family varies, and their forward a second time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lmcore.checkpoint import builtin
from lmcore.checkpoint.load import assemble
from lmcore.config import ModelConfig
from lmcore.families import config_from_hf
from lmcore.model import Transformer

WIDTH, HEADS, LAYERS, VOCABULARY, TRAINED = 32, 4, 2, 60, 24
KINDS = ("rope", "alibi", "learned", "sinusoidal", "t5", "none", "attention only")


def raw(kind: str) -> dict[str, Any]:
    """A config.json of a kind."""
    made = {
        "model_type": "glassbox",
        "position": "rope" if kind == "attention only" else kind,
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": TRAINED,
        "tie_word_embeddings": True,
    }
    if kind == "attention only":
        return made | {"attention_only": True, "rope_theta": 10_000.0}
    rope = {"rope_theta": 10_000.0} if kind == "rope" else {}
    return made | {"intermediate_size": 48} | rope


def made(kind: str) -> Transformer:
    """A model of a kind with random weights; T5's bias is large enough to matter."""
    cfg, notes = config_from_hf(raw(kind))
    assert not notes
    tensors = dict(builtin.weights(cfg))
    if kind == "t5":
        tensors["model.relative_bias.weight"] *= 4
    return assemble(cfg, tensors)


def logits_again(model: Transformer, tokens: list[int], kind: str) -> np.ndarray:
    """(T, V) in float64 numpy, written from the papers: LLaMA's block, and the positions of a kind in a loop."""
    cfg = model.cfg
    w = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    x = w["model.embed_tokens.weight"][tokens]
    if kind == "learned":
        x = x + w["model.embed_positions.weight"][: len(tokens)]
    if kind == "sinusoidal":
        x = x * np.sqrt(WIDTH)
        for p in range(len(tokens)):
            for i in range(WIDTH):
                angle = p / 10_000 ** ((i - i % 2) / WIDTH)
                x[p, i] += np.cos(angle) if i % 2 else np.sin(angle)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        x = x + _attention(w, at + "self_attn.", _norm(x, w[at + "input_layernorm.weight"]), cfg, kind)
        if kind != "attention only":
            h = _norm(x, w[at + "post_attention_layernorm.weight"])
            gate = h @ w[at + "mlp.gate_proj.weight"].T
            hidden = gate / (1 + np.exp(-gate)) * (h @ w[at + "mlp.up_proj.weight"].T)
            x = x + hidden @ w[at + "mlp.down_proj.weight"].T
    return _norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T


def _norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


def _attention(w: dict[str, np.ndarray], at: str, x: np.ndarray, cfg: ModelConfig, kind: str) -> np.ndarray:
    dim, out = WIDTH // HEADS, []
    q, k, v = (x @ w[f"{at}{p}_proj.weight"].T for p in "qkv")
    for head in range(HEADS):
        mine, shared = slice(head * dim, (head + 1) * dim), slice(head // 2 * dim, (head // 2 + 1) * dim)
        z = np.zeros((len(x), dim))
        for i in range(len(x)):
            scores = np.array([_score(q[i, mine], k[j, shared], i, j, head, w, kind) for j in range(i + 1)])
            weights = np.exp(scores - scores.max())
            z[i] = weights / weights.sum() @ v[: i + 1, shared]
        out.append(z)
    return np.concatenate(out, axis=1) @ w[at + "o_proj.weight"].T


def _score(q: np.ndarray, k: np.ndarray, i: int, j: int, head: int, w: dict[str, np.ndarray], kind: str) -> float:
    dim = len(q)
    if kind in ("rope", "attention only"):
        turned = 0.0
        for pair in range(dim // 2):
            a, b = (complex(x[pair], x[pair + dim // 2]) for x in (q, k))
            turned += (a * b.conjugate() * np.exp(1j * (i - j) * 10_000 ** (-2 * pair / dim))).real
        return turned / np.sqrt(dim)
    score = float(q @ k) / np.sqrt(dim)
    if kind == "alibi":
        score -= 2 ** (-8 * (head + 1) / HEADS) * (i - j)
    if kind == "t5":
        n = i - j
        bucket = n if n < 16 else min(31, 16 + int(np.log(n / 16) / np.log(8) * 16))
        score += float(w["model.relative_bias.weight"][bucket, head])
    return score


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(seed))
