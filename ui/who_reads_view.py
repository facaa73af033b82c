"""Which query heads read which KV heads, for any numbers of them."""

from __future__ import annotations

from figures.payload import pack
from lmcore.errors import LmcoreError
from lmcore.specs import Latent
from ui import components, configs, guard, page
from ui.markdown import plain

MOST_HEADS = 128


@guard.fragment
def section() -> None:
    """The wiring of the sidebar's model, to begin with; every slider is served in the browser."""
    page.section(
        "Who reads whom",
        "A step stores one key and one value for each KV head. Query heads may share them: fewer stored heads, a "
        "smaller cache, the same number of attention patterns.",
    )
    try:
        name, cfg = configs.of_sidebar()
    except LmcoreError:
        name, cfg = configs.named("Llama 3.1 8B")
    a = cfg.attention
    latent = isinstance(a, Latent)
    payload = pack(
        {
            "name": name,
            "heads": min(a.n_heads, MOST_HEADS),
            "shared": min(a.n_kv_heads, MOST_HEADS),
            "dim": min(a.nope_dim if latent else a.head_dim, 256),
            "itemsize": 2,
            "bits": 16,
        }
    )
    components.mount("who", payload, key="kv_who")
    page.formula(
        r"\text{head } h \text{ reads } \lfloor h / G \rfloor, \quad G = H / K", r"\text{bytes} = 2\, K D_h\, b"
    )
    if latent:
        page.prose(
            f"{plain(name)} itself keeps no KV heads: its multi-head latent attention stores a latent of {a.kv_rank} "
            f"numbers and a rotary key of {a.rope_dim}, which all {a.n_heads} heads read. Drawn is what it would "
            "be with a KV head for each."
        )
    else:
        page.prose("Bytes are of one position in one layer, $b$ = 2 of them a number, keys and values together.")
