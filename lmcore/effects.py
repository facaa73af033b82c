"""What heads and sublayers do to the output, rather than where they look: contributions, logit attribution, logit lens.

A weight says how much of a value is read, not what the value does: `A_ij v_j W_O` is what key j adds to the residual
stream of query i (Kobayashi et al. 2020). Since the stream is a sum, the logit of a token is a sum too, once the scale
of the final norm is held at what it was (direct logit attribution: Elhage et al. 2021, section "Logit lens").
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch import Tensor

from lmcore.block import Block
from lmcore.errors import InputError
from lmcore.model import Transformer
from lmcore.norms import Normalise
from lmcore.trace import Capture

Array = np.ndarray
STAGES = ("z", "attn_out", "ffn_out", "resid_post")


def output_matrices(model: Transformer, layer: int) -> Float64[Tensor, "H D Dv"]:
    """W_O of one layer, head by head: (H, D, Dv)."""
    a = model.cfg.attention
    w = cast(Block, model.model.layers[layer]).self_attn.o_proj.weight
    return w.double().cpu().view(model.cfg.d_model, a.n_heads, a.value_dim).permute(1, 0, 2)


@torch.inference_mode()
def contribution_map(
    model: Transformer, layer: int, pattern: Float[Array, "H T S"], v: Float[Array, "K S Dv"]
) -> Float64[Array, "H T S"]:
    """`|| A_ij v_j W_O ||`, the length of what key j adds to query i, for every head of one layer.

    A_ij is a number, so the length is A_ij times that of v_j W_O.
    """
    w, heads = output_matrices(model, layer), pattern.shape[0]
    values = torch.from_numpy(v.astype(np.float64)).repeat_interleave(heads // v.shape[0], dim=0)  # (H, S, Dv)
    lengths = (values @ w.mT).norm(dim=-1).numpy()
    return pattern.astype(np.float64) * lengths[:, None, :]


class Attribution(NamedTuple):
    """The logit of one token at one position as a sum: embedding, heads (L, H), FFNs (L,), and biases.

    `logit` is the model's own, before any soft-cap; `difference` is it less the sum, and rounding when all is well.
    """

    embedding: float
    heads: Float64[Array, "L H"]
    ffn: Float64[Array, " L"]
    biases: float
    logit: float

    @property
    def total(self) -> float:
        return self.embedding + float(self.heads.sum()) + float(self.ffn.sum()) + self.biases

    @property
    def difference(self) -> float:
        return self.logit - self.total


@torch.inference_mode()
def attribute_logit(
    model: Transformer,
    *,
    embedding: Float[Array, " D"],
    z: Float[Array, "L H Dv"],
    attn_out: Float[Array, "L D"],
    ffn_out: Float[Array, "L D"],
    resid: Float[Array, " D"],
    token: int,
) -> Attribution:
    """How much each part of the model adds to the logit of `token`, all stages being those of one position.

    `resid` is the stream after the last block. Norms on a sublayer's output count with the scale they had. InputError
    for post-norm models, whose stream is no sum.
    """
    cfg = model.cfg
    if cfg.wiring.order == "post":
        raise InputError(
            "the residual stream of a post-norm model is no sum of its sublayers",
            expected="a model with pre-norm, sandwich or output norms",
            where="the logit attribution",
        )
    direction, constant, mean_free = _direction(model, resid, token)
    scale = cfg.wiring.residual_scale

    def along(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True) if mean_free else x) @ direction

    heads, ffn, biases = np.zeros(z.shape[:2]), np.zeros(len(ffn_out)), constant
    for layer, module in enumerate(model.model.layers):
        block = cast(Block, module)
        writes = torch.einsum("hdv,hv->hd", output_matrices(model, layer), _double(z[layer]))
        bias = block.self_attn.o_proj.bias
        rest = torch.zeros(cfg.d_model, dtype=torch.float64) if bias is None else bias.double().cpu()
        out = _double(ffn_out[layer])
        if cfg.wiring.norms_output:
            writes, rest = _frozen(block.post_self_attn_layernorm, writes, rest, _double(attn_out[layer]))
            out, more = _frozen(block.post_mlp_layernorm, out[None], torch.zeros_like(rest), _double(ffn_out[layer]))
            out, rest = out[0], rest + more
        heads[layer] = (along(writes) * scale).numpy()
        ffn[layer] = float(along(out) * scale)
        biases += float(along(rest) * scale)
    normed = model.final_norm(torch.from_numpy(resid[None, None]).to(model.device, model.dtype))
    plain = F.linear(normed, model.unembedding[token : token + 1]).double()[0, 0, 0] * cfg.logit_scale
    if cfg.head_bias:
        plain = plain + model.lm_head.bias[token].double() * cfg.logit_scale
    return Attribution(float(along(_double(embedding))), heads, ffn, biases, float(plain))


def _double(x: Array) -> Tensor:
    return torch.from_numpy(np.asarray(x, dtype=np.float64))


def _direction(model: Transformer, resid: Array, token: int) -> tuple[Tensor, float, bool]:
    """The vector that turns a part of the stream into its part of the logit, what is added whatever the stream, and
    whether the final norm takes the mean out first."""
    cfg, row = model.cfg, model.unembedding[token].double().cpu()
    constant = float(model.lm_head.bias[token]) if cfg.head_bias else 0.0
    if not cfg.final_norm:
        return row * cfg.logit_scale, constant * cfg.logit_scale, False
    weight, bias, scale, mean_free = _norm_parts(model.model.norm, _double(resid))
    constant += float(bias @ row)
    return row * weight * scale * cfg.logit_scale, constant * cfg.logit_scale, mean_free


def _norm_parts(norm: Normalise, x: Tensor) -> tuple[Tensor, Tensor, float, bool]:
    """Weight, bias, 1 / size of x, and whether the mean goes: what a norm is, once its scale is held."""
    weight = norm.weight.double().cpu() + (1 if norm.spec.unit_offset else 0)
    bias = norm.bias.double().cpu() if norm.spec.bias else torch.zeros_like(weight)
    mean_free = norm.spec.kind == "layer"
    inner = x - x.mean() if mean_free else x
    return weight, bias, float((inner.square().mean() + norm.spec.eps) ** -0.5), mean_free


def _frozen(norm: Normalise, parts: Tensor, rest: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    """A norm's output split over the parts (N, D) and the rest (D,) of its input, whose sum is `whole`."""
    weight, bias, scale, mean_free = _norm_parts(norm, whole)
    if mean_free:
        parts, rest = parts - parts.mean(-1, keepdim=True), rest - rest.mean()
    return parts * weight * scale, rest * weight * scale + bias


class Lens(NamedTuple):
    """The likeliest tokens after each layer, as if the model ended there: ids and probabilities (N, k), and the
    probability and rank of one chosen token at each."""

    top_ids: Int[Array, "N k"]
    top_probs: Float64[Array, "N k"]
    probs: Float64[Array, " N"]
    ranks: Int[Array, " N"]


@torch.inference_mode()
def logit_lens(model: Transformer, resid: Float[Array, "N D"], token: int, *, top: int = 5) -> Lens:
    """Final norm, once, and unembedding of N states of the residual stream (nostalgebraist 2020, logit lens).

    Given the stream after the last layer the row is the model's own output.
    """
    states = torch.from_numpy(np.ascontiguousarray(resid)).to(model.device, model.dtype)
    logits = model.unembed(states[None])[0].double()
    probs = logits.softmax(-1)
    best = probs.topk(min(top, probs.shape[-1]), dim=-1)
    ranks = (logits > logits[:, token : token + 1]).sum(-1) + 1
    return Lens(*(t.cpu().numpy() for t in (best.indices, best.values, probs[:, token], ranks)))


class Planted(NamedTuple):
    """Scores (L, H) on a random sequence repeated once: mean weight on the previous token, and, in the second half, on
    the token after the earlier copy of the query's own (induction) and on that copy itself (same token)."""

    previous: Float64[Array, "L H"]
    induction: Float64[Array, "L H"]
    same: Float64[Array, "L H"]


@torch.inference_mode()
def planted_scores(model: Transformer, *, length: int = 64, seed: int = 0, first: int | None = None) -> Planted:
    """The planted test: `length` random tokens, twice, after `first` (the BOS, if the model has one).

    On ordinary text the mass on the first token hides what a head does; here only a head that matches and copies gets
    a high induction score (Olsson et al. 2022).
    """
    cfg = model.cfg
    length = min(length, (cfg.max_positions - 1) // 2)
    once = np.random.default_rng(seed).integers(0, cfg.vocab_size, length)
    start = [] if first is None else [first]
    tokens = torch.tensor([[*start, *once, *once]], device=model.device)
    second = np.arange(len(start) + length, tokens.shape[1])
    scores = np.zeros((3, cfg.n_layers, cfg.n_heads))
    trace = model(tokens, capture=Capture.of("pattern"), logits_to_keep=1).trace
    assert trace is not None
    for layer, stages in trace.layers.items():
        weights = stages["pattern"][0].double().cpu().numpy()
        after = np.arange(1, tokens.shape[1])
        for row, (query, key) in enumerate(
            ((after, after - 1), (second, second - length + 1), (second, second - length))
        ):
            scores[row, layer] = weights[:, query, key].mean(-1)
    return Planted(*scores)
