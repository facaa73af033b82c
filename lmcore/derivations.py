"""How a number comes about, term by term: sums of products of named terms, which a page prints with numbers filled in.

A second way to each count: written from the fields of the config as the papers write it, where `lmcore.costs`,
`kv_costs` and `flops` go through the shape table. Symbols are LaTeX and those of every docstring (B, T, S, D, H, K, Dh,
F, V, L); a product is one line. The value of a derivation equals its function for every config.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lmcore.config import ModelConfig
from lmcore.costs import gated_d_ff
from lmcore.kv_costs import Storage, kv_cache_bytes, kv_share, positions_kept
from lmcore.layer_kinds import LayerKind, layer_kinds, outer_rows
from lmcore.specs import Dense, GroupedQuery, Latent, MoE


@dataclass(frozen=True, slots=True)
class Term:
    """One factor: its symbol in LaTeX, its value, and what it is."""

    symbol: str
    value: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Product:
    """One line: what it counts, and the factors."""

    what: str
    factors: tuple[Term, ...]

    @property
    def value(self) -> int:
        return prod(term.value for term in self.factors)

    @property
    def formula(self) -> str:
        """The symbols, in LaTeX."""
        return r" \cdot ".join(term.symbol for term in self.factors)


@dataclass(frozen=True, slots=True)
class Derivation:
    """A sum of products: name, unit ("parameters", "B", "FLOP"), where the formula is from, and the lines."""

    name: str
    unit: str
    source: str
    products: tuple[Product, ...]

    @property
    def value(self) -> int:
        return sum(product.value for product in self.products)

    @property
    def formula(self) -> str:
        """All lines as one sum, in LaTeX."""
        return " + ".join(product.formula for product in self.products) or "0"

    @property
    def terms(self) -> tuple[Term, ...]:
        """The different terms in order of appearance, bare numbers left out."""
        seen: dict[tuple[str, int], Term] = {}
        for product in self.products:
            for term in product.factors:
                if not term.symbol.isdigit():
                    seen.setdefault((term.symbol, term.value), term)
        return tuple(seen.values())

    def times(self, factor: Term, name: str) -> Derivation:
        """The same with one more factor on every line."""
        products = tuple(Product(line.what, (factor, *line.factors)) for line in self.products)
        return Derivation(name, self.unit, self.source, products)


Line = tuple[str, tuple[Term, ...]]


def number(value: int, meaning: str = "") -> Term:
    """A bare factor."""
    return Term(str(value), value, meaning)


def _width(cfg: ModelConfig) -> Term:
    return Term("D", cfg.d_model, "d_model")


def _vocabulary(cfg: ModelConfig) -> Term:
    return Term("V", cfg.vocab_size, "vocabulary")


def layers_by(cfg: ModelConfig, what: str) -> list[tuple[Term, LayerKind]]:
    """Layers grouped by their "reach" or by their "ffn": how many there are, and one kind of the group."""
    groups: dict[str, tuple[int, LayerKind]] = {}
    for kind in layer_kinds(cfg):
        name = kind.type if what == "reach" else "MoE" if isinstance(kind.ffn, MoE) else "dense"
        held = groups.get(name, (0, kind))[0]
        groups[name] = (held + kind.count, groups.get(name, (0, kind))[1])
    if len(groups) == 1:
        return [(all_layers(cfg), kind) for _, kind in groups.values()]
    marks = {"full": "full attention", "sliding": "with a window", "chunked": "in chunks", "MoE": "with experts"}
    return [
        (Term(rf"L_{{\text{{{name}}}}}", count, f"layers {marks.get(name, name)}"), kind)
        for name, (count, kind) in groups.items()
    ]


def all_layers(cfg: ModelConfig) -> Term:
    return Term("L", cfg.n_layers, "layers")


def attention_matrices(cfg: ModelConfig) -> list[Line]:
    """The matrices of one attention sublayer: D H Dh for q and o, D K Dh for k and v; MLA's low-rank ones."""
    a, d = cfg.attention, _width(cfg)
    heads = Term("H", a.n_heads, "query heads")
    if isinstance(a, GroupedQuery):
        dim, shared = Term("D_h", a.head_dim, "head dim"), Term("K", a.n_kv_heads, "KV heads")
        two = number(2)
        return [("q and o", (two, d, heads, dim)), ("k and v", (two, d, shared, dim))]
    rank, rotary = Term("r", a.kv_rank, "rank of the latent"), Term("d_R", a.rope_dim, "dims of the rotary key")
    query = Term(r"(d_N + d_R)", a.head_dim, "dims of a head's q: without and with RoPE")
    both = Term(r"(d_N + d_V)", a.nope_dim + a.value_dim, "dims of a head's key without RoPE and of its value")
    value = Term("d_V", a.value_dim, "dims of a head's value")
    if a.q_rank is None:
        lines: list[Line] = [("q", (d, heads, query))]
    else:
        low = Term("r_q", a.q_rank, "rank of the query")
        lines = [("q down", (d, low)), ("q up", (low, heads, query))]
    lines += [("latent", (d, rank)), ("rotary key", (d, rotary)), ("k and v up", (rank, heads, both))]
    return [*lines, ("o", (heads, value, d))]


def ffn_matrices(cfg: ModelConfig, kind: LayerKind, *, active: bool) -> list[Line]:
    """The matrices of one feed-forward sublayer: 3 D F gated, 2 D F plain; of a mixture each expert (or each chosen
    one, when `active`), the router and what every token passes."""
    f, d = kind.ffn, _width(cfg)
    if not isinstance(f, MoE):
        if not f.d_ff:
            return []
        matrices = number(3 if f.gated else 2, "gate, up and down" if f.gated else "up and down")
        return [("feed-forward", (matrices, d, Term("F", f.d_ff, _width_rule(f, cfg.d_model))))]
    experts = Term("k", f.top_k, "experts a token is sent to") if active else Term("E", f.n_experts, "experts")
    three, wide = number(3, "gate, up and down"), Term("F_E", f.d_ff, "d_ff of an expert")
    lines: list[Line] = [("experts", (experts, three, d, wide)), ("router", (d, Term("E", f.n_experts, "experts")))]
    if f.shared_d_ff:
        lines.append(("shared expert", (three, d, Term("F_S", f.shared_d_ff, "d_ff of the shared expert"))))
    if f.shared_gate:
        lines.append(("gate of the shared expert", (d,)))
    return lines


def _width_rule(f: Dense, d_model: int) -> str:
    """What d_ff is, with the rule that gives it where there is one."""
    if f.gated and f.d_ff == gated_d_ff(d_model):
        return "d_ff: 8/3 of D, rounded up to a multiple of 256"
    return "d_ff: 4 D" if not f.gated and f.d_ff == 4 * d_model else "d_ff"


def parameters(cfg: ModelConfig, *, active: bool = False, input_table: bool = True, head: bool = True) -> Derivation:
    """`costs.param_counts(cfg).total`, or with `active` what `costs.active_counts` gives: chosen experts only, with or
    without the looked-up tables and the head (without both: the blocks and the final norm)."""
    lines: list[Product] = []
    d, v = _width(cfg), _vocabulary(cfg)
    if (input_table and (head or not cfg.tied)) or (cfg.tied and head):
        lines.append(Product("embedding, the head as well" if cfg.tied else "embedding", (v, d)))
    if cfg.learned_positions is not None and input_table:
        lines.append(Product("positions", (Term("P", cfg.learned_positions, "rows of the table"), d)))
    if head and not cfg.tied:
        lines.append(Product("head", (v, d)))
    if head and cfg.head_bias:
        lines.append(Product("bias of the head", (v,)))
    lines += [Product(what, (all_layers(cfg), *factors)) for what, factors in attention_matrices(cfg)]
    for layers, kind in layers_by(cfg, "ffn"):
        lines += [Product(what, (layers, *factors)) for what, factors in ffn_matrices(cfg, kind, active=active)]
        vectors = _vectors(kind, active)
        if vectors:
            each = Term("n", vectors, "numbers in the norms and biases of a layer")
            lines.append(Product("norms and biases", (layers, each)))
    rest = sum(row.numbers for row in outer_rows(cfg) if "embed_tokens" not in row.name and "embed_pos" not in row.name)
    rest -= sum(row.numbers for row in outer_rows(cfg) if row.name.startswith("lm_head"))
    if rest:
        lines.append(Product("outside the blocks", (Term("n_0", rest, "numbers in norms outside the blocks"),)))
    name = "Active parameters" if active else "Parameters"
    return Derivation(
        name, "parameters", "the shapes; GQA: Ainslie et al. 2023; MLA: DeepSeek-V2, table 1", tuple(lines)
    )


def _vectors(kind: LayerKind, active: bool) -> int:
    """Numbers of one layer in tensors that are no matrices: norms, biases, sinks."""
    ffn, total = kind.ffn, 0
    for row in kind.rows:
        if not row.is_matrix and not row.name.endswith("e_score_correction_bias"):
            times = ffn.top_k if active and row.times > 1 and isinstance(ffn, MoE) else row.times
            total += times * row.numbers
    return total


def kv_bytes(
    cfg: ModelConfig,
    *,
    context: int,
    batch: int = 1,
    itemsize: int = 2,
    beams: int = 1,
    tensor_parallel: int = 1,
    page: int | None = None,
    quantised: Storage | None = None,
    keep: str = "window",
) -> Derivation:
    """The sum over layers of `kv_costs.kv_cache_bytes` with the same arguments: one rank's cache."""
    kv_cache_bytes(cfg, context=context, batch=batch, itemsize=itemsize, beams=beams, page=page, keep=keep)
    sequences = [Term("B", batch, "sequences")]
    if beams > 1:
        sequences.append(Term("b", beams, "beams"))
    lines = []
    for layers, kind in layers_by(cfg, "reach"):
        kept = positions_kept(kind, context, keep=keep, page=page)
        outer = (layers, *sequences)
        stored = Term(*_kept_symbol(kind, context, kept, page))
        for what, factors in _cached_numbers(cfg, tensor_parallel, quantised):
            if quantised is None:
                size = Term("s", itemsize, "bytes a number")
                lines.append(Product(what, (*outer, *factors, stored, size)))
            else:
                lines += _quantised_lines(what, outer, factors, stored, quantised)
    source = "k and v of each KV head and position; MLA: DeepSeek-V2, section 2.1.2"
    return Derivation("KV cache", "B", source, tuple(lines))


def _kept_symbol(kind: LayerKind, context: int, kept: int, page: int | None) -> tuple[str, int, str]:
    if page is not None:
        return r"\lceil S \rceil_p", kept, f"positions kept, in whole pages of {page:,}"
    if kept == context:
        return "S", kept, "positions"
    return r"\min(S, w)", kept, f"positions kept of {context:,}, the window being {kind.reach:,}"


def _cached_numbers(cfg: ModelConfig, tensor_parallel: int, quantised: Storage | None) -> list[Line]:
    """Numbers that one position leaves in one layer on one rank, keys and values apart if they are stored apart."""
    a, (mine, heads) = cfg.attention, kv_share(cfg, tensor_parallel)
    if isinstance(a, Latent):
        rank, rotary = Term("r", a.kv_rank, "rank of the latent"), Term("d_R", a.rope_dim, "dims of the rotary key")
        if quantised is None:
            return [("latent and rotary key", (Term("(r + d_R)", a.kv_rank + a.rope_dim, "latent and rotary key"),))]
        return [("latent", (rank,)), ("rotary key", (rotary,))]
    assert heads == a.n_kv_heads
    if tensor_parallel == 1:
        shared = Term("K", a.n_kv_heads, "KV heads")
    else:
        shared = Term(r"\max(1, K/p)", mine, f"KV heads on each of {tensor_parallel:,} ranks")
    dim = Term("D_h", a.head_dim, "head dim")
    if isinstance(quantised, tuple):
        return [("keys", (shared, dim)), ("values", (shared, dim))]
    return [("keys and values", (number(2, "keys and values"), shared, dim))]


def _quantised_lines(
    what: str, outer: tuple[Term, ...], factors: tuple[Term, ...], stored: Term, quantised: Storage
) -> list[Product]:
    """Numbers in few bits, and a scale (and zero point) for every group."""
    second = what in ("values", "rotary key")
    q = quantised[1 if second else 0] if isinstance(quantised, tuple) else quantised
    pair = factors[:1] if what == "keys and values" else ()
    values = prod(term.value for term in factors) // prod(term.value for term in pair)
    row = Term(r"\lceil n\,\beta/8 \rceil", -(-values * q.bits // 8), f"bytes of {values:,} values of {q.bits} bits")
    lines = [Product(what, (*outer, *pair, stored, row))]
    if q.group is not None:
        scale = Term("s_g", q.scale_bytes + q.zero_bytes, "bytes of scale and zero point of a group")
        if q.along == "channel":
            groups = (stored, Term(r"\lceil n/g \rceil", -(-values // q.group), f"groups of {q.group} values"))
        else:
            runs = Term(r"\lceil S/g \rceil", -(-stored.value // q.group), f"groups of {q.group} positions")
            groups = (Term("n", values, "channels"), runs)
        lines.append(Product(f"scales of the {what}", (*outer, *pair, *groups, scale)))
    return lines
