"""Bytes that autograd keeps of one training forward as lmcore runs it: tensor by tensor, from the config alone.

`traffic.activation_bytes` counts by the convention of the literature, norms and activations fused. What an eager
forward keeps is more: a norm keeps its input and its normalised rows in float32, SiLU keeps what goes in and what comes
out, a rotated head is a copy. The walk below follows `lmcore.block` operation by operation and saves what each needs
for its gradient, every tensor once, parameters not at all. It knows the kernels of the CPU; others keep other tensors.
`lmcore.kept_measured` counts the same on a running model.
"""

from __future__ import annotations

from itertools import count as numbering
from typing import NamedTuple

from lmcore.bounds import count
from lmcore.config import ModelConfig
from lmcore.specs import Dense, GroupedQuery, Latent, MoE, Norm

COMPONENTS = ("embedding", "norms", "attention", "ffn", "logits")
INDEX = 8  # bytes of an int64, which PyTorch's indices are
WIDE = 4  # bytes of a float32, in which norms, softmax and the router are computed


class _Tensor(NamedTuple):
    """A tensor of the walk: a number of its own, and the bytes of its memory."""

    key: int
    bytes: int


class _Walk:
    """One forward: what is made, and what is saved of it, by component."""

    def __init__(self, cfg: ModelConfig, tokens: int, batch: int, size: int) -> None:
        self.cfg, self.t, self.b, self.size = cfg, tokens, batch, size
        self.rows = batch * tokens
        self.held: dict[str, int] = dict.fromkeys(COMPONENTS, 0)
        self._numbers, self._saved = numbering(), set[int]()
        self._shared: dict[object, _Tensor] = {}

    def new(self, numbers: int, size: int | None = None) -> _Tensor:
        """A fresh tensor, of the model's dtype unless `size` says otherwise."""
        return _Tensor(next(self._numbers), numbers * (self.size if size is None else size))

    def save(self, part: str, *tensors: _Tensor) -> None:
        for tensor in tensors:
            if tensor.key not in self._saved:
                self._saved.add(tensor.key)
                self.held[part] += tensor.bytes

    def shared(self, part: str, what: object, numbers: int, size: int) -> None:
        """Save a tensor that several layers share."""
        if what not in self._shared:
            self._shared[what] = self.new(numbers, size)
        self.save(part, self._shared[what])

    def wide(self, x: _Tensor, numbers: int) -> _Tensor:
        """x in float32: itself, or a copy."""
        return x if self.size == WIDE else self.new(numbers, WIDE)

    def norm(
        self,
        x: _Tensor,
        width: int,
        spec: Norm,
        *,
        rows: int | None = None,
        apart: int | None = None,
        part: str = "norms",
    ) -> _Tensor:
        """`lmcore.norms` on `rows` vectors: RMSNorm is made of single operations, LayerNorm is one kernel.

        `apart`: a weight of so many numbers multiplies afterwards, in the model's dtype (norms of heads); 0: no weight.
        """
        n = self.rows if rows is None else rows
        if spec.kind == "layer":
            self.save(part, x, self.new(2 * n))  # means and inverse deviations
        else:
            self.save(part, self.wide(x, n * width), self.new(n, WIDE))
            if apart is None:
                self.save(part, self.new(n * width, WIDE))
        if apart:
            self.save(part, self.new(n * width))
        if spec.unit_offset and apart != 0:
            self.save(part, self.new(width if apart is None else apart))  # 1 + weight
        return self.new(n * width)


def kept_bytes(cfg: ModelConfig, *, tokens: int, batch: int = 1, itemsize: int = 4) -> dict[str, int]:
    """Bytes held for the backward between a forward with loss and its backward, by component, all layers together.

    `itemsize` 4 (float32) or 2 (bfloat16, float16) is that of weights and stream. "embedding": ids and what scales the
    rows; "norms": their inputs, float32 rows and inverse lengths; "attention": inputs of the projections, rotated q and
    k, v, z and the kernel's normalisers, or the T x T weights where no fused kernel does the model's scores; "ffn": of
    the chosen experts in a mixture, all counts summed over them; "logits": input of the head, soft-capped logits,
    float32 log-probabilities and targets of a mean cross-entropy. Raises InputError naming the argument.
    """
    t, b = count("tokens", tokens, 1), count("batch", batch, 1)
    walk = _Walk(cfg, t, b, count("itemsize", itemsize, 2, 4))
    stream = _embedded(walk)
    for layer in range(cfg.n_layers):
        stream = _block(walk, layer, stream)
    d, v = cfg.d_model, cfg.vocab_size
    normed = walk.norm(stream, d, cfg.norm) if cfg.final_norm else stream
    walk.save("logits", normed)
    if cfg.logit_softcap is not None:
        walk.save("logits", walk.new(walk.rows * v))
    walk.save("logits", walk.new(walk.rows * v, WIDE), walk.new(walk.rows, INDEX), walk.new(1, WIDE))
    return walk.held


def tokens_within(cfg: ModelConfig, most: int, max_bytes: int, *, itemsize: int = 4) -> int:
    """The most tokens of one sequence, up to `most`, of which no more than `max_bytes` are kept; 0 if not even one."""
    low, high = 0, count("most", most) + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = sum(kept_bytes(cfg, tokens=middle, itemsize=itemsize).values()) <= max_bytes
        low, high = (middle, high) if fits else (low, middle)
    return low


def _embedded(walk: _Walk) -> _Tensor:
    cfg = walk.cfg
    walk.save("embedding", walk.new(walk.rows, INDEX))
    if cfg.embedding_scale != 1:
        walk.save("embedding", walk.new(1))
    if cfg.learned_positions is not None:
        walk.save("embedding", walk.new(walk.t, INDEX))
    x = walk.new(walk.rows * cfg.d_model)
    return walk.norm(x, cfg.d_model, cfg.norm) if cfg.embedding_norm else x


def _block(walk: _Walk, layer: int, start: _Tensor) -> _Tensor:
    """`lmcore.block.Block.forward`: the stream after it."""
    cfg, w, d = walk.cfg, walk.cfg.wiring, walk.cfg.d_model
    normed = walk.norm(start, d, cfg.norm) if w.norms_input else start
    if isinstance(cfg.attention, Latent):
        _latent(walk, layer, normed, cfg.attention)
    else:
        _grouped(walk, layer, normed, cfg.attention)
    x = _added(walk)
    ffn = cfg.ffn_of(layer)
    if isinstance(ffn, Dense) and not ffn.d_ff:
        return x
    if not w.shared_norm:
        base = start if w.parallel else x
        normed = walk.norm(base, d, cfg.norm) if w.norms_input else base
    if isinstance(ffn, MoE):
        _mixture(walk, normed, ffn)
    else:
        walk.save("ffn", normed)
        _expert(walk, walk.rows, ffn.d_ff, ffn.activation, gated=ffn.gated)
    return _added(walk)


def _added(walk: _Walk) -> _Tensor:
    """The stream after a sublayer: a sum keeps nothing, a norm around it does."""
    cfg, total = walk.cfg, walk.rows * walk.cfg.d_model
    if cfg.wiring.order == "post":
        return walk.norm(walk.new(total), cfg.d_model, cfg.norm)
    if cfg.wiring.norms_output:
        walk.norm(walk.new(total), cfg.d_model, cfg.norm)
    return walk.new(total)


def _rotation(walk: _Walk, layer: int) -> bool:
    """Save the table of the layer's angles, once for all layers with the same; False where it has none."""
    rope = walk.cfg.rope_of(layer)
    if rope is None:
        return False
    walk.shared("attention", rope, 2 * walk.t * (rope.rotary_dim // 2), WIDE)
    return True


def _grouped(walk: _Walk, layer: int, x: _Tensor, a: GroupedQuery) -> None:
    """`lmcore.attention.Attention.forward`."""
    walk.save("attention", x)
    heads = {"q": a.n_heads, "k": a.n_kv_heads, "v": a.n_kv_heads}
    made = {name: walk.new(walk.rows * n * a.head_dim) for name, n in heads.items()}
    if a.qk_norm is not None and a.qk_norm.over != "unit":
        for name in ("q", "k"):
            n = heads[name]
            whole = a.qk_norm.over == "width"
            rows, width = (walk.rows, n * a.head_dim) if whole else (walk.rows * n, a.head_dim)
            weight = a.head_dim if a.qk_norm.over == "head" else n * a.head_dim
            made[name] = walk.norm(made[name], width, a.qk_norm.norm, rows=rows, apart=weight)
    if a.clip is not None:
        walk.save("attention", *made.values())
        made = {name: walk.new(walk.rows * n * a.head_dim) for name, n in heads.items()}
    turned = _rotation(walk, layer)
    if turned:
        for name in ("q", "k"):
            made[name] = walk.new(walk.rows * heads[name] * a.head_dim)
            if a.qk_norm is not None and a.qk_norm.over == "unit":
                rows = walk.rows * heads[name]
                made[name] = walk.norm(made[name], a.head_dim, Norm(), rows=rows, apart=0, part="attention")
    elif a.tuning is not None:
        walk.save("attention", walk.new(walk.t, WIDE))
        made["q"] = walk.new(walk.rows * a.n_heads * a.head_dim)
    _mix(walk, layer, (made["q"], made["k"], made["v"]), copied=turned)


def _latent(walk: _Walk, layer: int, x: _Tensor, a: Latent) -> None:
    """`lmcore.mla.LatentAttention.forward`, expanded as it is without a cache."""
    norm, n = Norm(eps=a.eps), walk.rows
    walk.save("attention", x)
    if a.q_rank is not None:
        walk.save("attention", walk.norm(walk.new(n * a.q_rank), a.q_rank, norm))
    down = walk.new(n * (a.kv_rank + a.rope_dim))
    walk.save("attention", walk.norm(down, a.kv_rank, norm))
    turned = _rotation(walk, layer)
    q = walk.new(n * a.n_heads * a.head_dim)
    k = walk.new(n * a.n_heads * a.head_dim)
    # v is a part of what the latent expands to and holds its memory; the plain kernel copies it for more sequences.
    whole = a.nope_dim + a.value_dim
    alone = min(walk.b, walk.t, a.n_heads) > 1 and not _flash(walk.cfg)
    _mix(walk, layer, (q, k, walk.new(n * a.n_heads * (a.value_dim if alone else whole))), copied=turned)


def _flash(cfg: ModelConfig) -> bool:
    """Whether the CPU's fused kernel does it: scores as they are, at most a mask, q and v of one width."""
    a = cfg.attention
    return not _written_out(cfg) and cfg.alibi is None and cfg.relative_bias is None and a.head_dim == a.value_dim


def _written_out(cfg: ModelConfig) -> bool:
    a = cfg.attention
    return isinstance(a, GroupedQuery) and (a.softcap is not None or a.sinks)


def _mix(walk: _Walk, layer: int, qkv: tuple[_Tensor, ...], *, copied: bool) -> None:
    """`lmcore.attention.mix` and the output projection. `copied`: q is a tensor of its own, head by head in memory."""
    cfg, a, t = walk.cfg, walk.cfg.attention, walk.t
    pairs = walk.b * a.n_heads * t * t
    z = walk.new(walk.rows * a.n_heads * a.value_dim)
    if _flash(cfg):
        walk.save("attention", *qkv, walk.new(walk.rows * a.n_heads, WIDE), z)
        if _masked(cfg, layer, t):
            walk.save("attention", walk.new(t * t))
        if copied and a.n_heads > 1 and t > 1:
            z = walk.new(walk.rows * a.n_heads * a.value_dim)
    elif _written_out(cfg):
        assert isinstance(a, GroupedQuery)
        walk.save("attention", *qkv)
        if a.softcap is not None:
            walk.save("attention", walk.new(pairs))
        walk.save("attention", walk.new(pairs + (walk.rows * a.n_heads if a.sinks else 0), WIDE))
        if walk.size != WIDE:
            walk.save("attention", walk.new(pairs))
    else:
        if walk.size != WIDE or a.n_kv_heads != a.n_heads:  # converted, or repeated for each query head
            widths = (a.head_dim, a.head_dim, a.value_dim)
            qkv = tuple(walk.new(walk.rows * a.n_heads * width, WIDE) for width in widths)
        walk.save("attention", *qkv)
        walk.save("attention", walk.new(pairs, WIDE))
        if cfg.relative_bias is not None:
            walk.shared("attention", cfg.layer_types[layer], t * t, INDEX)
    walk.save("attention", z)


def _masked(cfg: ModelConfig, layer: int, t: int) -> bool:
    """Whether the kernel is handed a mask, not told "causal"."""
    kind = cfg.layer_types[layer]
    return kind == "chunked" or (kind == "sliding" and cfg.window is not None and t > cfg.window)


def _expert(walk: _Walk, rows: int, width: int, activation: str, *, gated: bool = True, clamped: bool = False) -> None:
    """A feed-forward on `rows` tokens, its input aside: what is kept between the projections into it and out of it."""
    if clamped:
        kept = 7  # gate and up before the clamp, the clamped gate, up + 1, their product, the sigmoid, the result
    else:
        before = {"relu": 0, "relu_squared": 1, "gelu_sigmoid": 2}.get(activation, 1)
        kept = before + (3 if gated else 1)
    walk.save("ffn", walk.new(kept * rows * width))


def _mixture(walk: _Walk, x: _Tensor, m: MoE) -> None:
    """`lmcore.ffn.Mixture.forward`: the router, then every chosen expert on its own tokens."""
    n, d, sent = walk.rows, walk.cfg.d_model, walk.rows * m.top_k
    walk.save("ffn", walk.wide(x, n * d))
    if walk.size != WIDE:
        walk.save("ffn", walk.new(m.n_experts * d, WIDE))
    walk.save("ffn", walk.new(sent, INDEX), walk.new(sent if m.score == "softmax_after" else n * m.n_experts, WIDE))
    if m.score != "softmax_after" and m.normalise:
        walk.save("ffn", walk.new(sent, WIDE), walk.new(n, WIDE))
    walk.save("ffn", walk.new(2 * sent, INDEX), walk.new(sent), walk.new(3 * sent * d))
    _expert(walk, sent, m.d_ff, m.activation, clamped=m.limit is not None)
    if m.shared_d_ff:
        walk.save("ffn", x)
        _expert(walk, n, m.shared_d_ff, m.activation, clamped=m.limit is not None)
    if m.shared_gate:
        walk.save("ffn", x, walk.new(n), walk.new(n * d))
