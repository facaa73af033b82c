"""The components of the Overview page with made-up tensors; `case` in the address chooses them."""

import numpy as np
import streamlit as st

from figures.overview import arch_payload
from figures.tokens import token_parts
from figures.twins import tile, tiles_payload
from lmcore.config import Dense, GroupedQuery, ModelConfig, Norm, Rope
from lmcore.costs import param_counts
from ui import components

PAGES = {"ids": "tokens", "embedding": "tokens", "attention": "attention", "positions": "positions"}
PAGES |= {"logits": "tokens", "sampler": "decode"}


def config(
    layers: int, heads: int, kv: int, *, d_model: int, vocab: int, d_ff: int, gated: bool, tied: bool
) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab,
        d_model=d_model,
        n_layers=layers,
        max_positions=4096,
        attention=GroupedQuery(n_heads=heads, n_kv_heads=kv, head_dim=d_model // heads, scale=0.125),
        ffn=Dense(d_ff=d_ff, gated=gated),
        norm=Norm(),
        rope=Rope(rotary_dim=d_model // heads),
        tied=tied,
        layer_types=("full",) * layers,
    )


def lengths(layers: int, tokens: int) -> np.ndarray:
    """What the tests compute again: growing by block, largest at position 0."""
    row, position = np.mgrid[: layers + 1, :tokens]
    return (2.0 * 1.3 ** (row % 20) * (1 + 100 / (1 + 5 * position))).astype(np.float32)


CASES = {
    "small": (config(4, 9, 3, d_model=576, vocab=49152, d_ff=1536, gated=True, tied=True), 20),
    "large": (config(126, 128, 8, d_model=16384, vocab=128256, d_ff=53248, gated=True, tied=False), 512),
    "least": (config(1, 4, 4, d_model=16, vocab=300, d_ff=40, gated=False, tied=False), 1),
    "empty": (config(30, 9, 1, d_model=576, vocab=49152, d_ff=1536, gated=True, tied=True), 0),
}

st.set_page_config(layout="wide")
st.title("Overview components")
case = st.query_params.get("case", "small")
cfg, tokens = CASES[case]
counts = param_counts(cfg)
counted = {name: getattr(counts, name) for name in ("embedding", "attention", "ffn", "norms", "head")}
if case == "small":
    counted["norms"] -= 1
opened = components.arch(
    arch_payload(
        cfg,
        tokens=tokens,
        pages=PAGES,
        pieces=[token_parts(b" <b>x</b>" if k % 7 == 3 else b" t%d" % k) for k in range(tokens)],
        residual=lengths(cfg.n_layers, tokens) if tokens else None,
        counted=None if case == "large" else counted,
        url="position",
    ),
    key="arch",
)
if opened is not None:
    # A page would switch; `ignore` plays one that does not.
    st.session_state.opened = opened
st.text(f"opened {st.session_state.get('opened')}")

asked = components.twins(
    tiles_payload(
        [
            tile("Parameters", counts.total, counts.total, unit="parameters"),
            tile("FLOPs <b>x</b>", 5_406_842_880, 5_406_842_879, unit="FLOP", reason="One was left out."),
            tile("Row sum", 1, 1 + 2.4e-7, how="measured", rounding=1e-6, reason="float32 rounding"),
            tile("Long context", 1_509_949_440, unit="B", run="Measure now"),
            tile("Without sharing", 4_529_848_320, unit="B", missing="no such weights", impossible=True, run="never"),
        ]
    ),
    key="twins",
)
st.text(f"asked {asked}")
