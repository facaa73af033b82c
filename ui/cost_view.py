"""What a config costs: a model, lengths and conventions are chosen, and everything that follows is redrawn at once."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import streamlit as st
from streamlit.errors import StreamlitAPIException

from figures.cost import ACTIVE, START, WEIGHTS, Setting, costs_payload, storage_of_cache, table_payload
from figures.cost_stops import BATCH, BATCHES, CONTEXT, CONTEXTS, RANK, RANKS, followed, followed_on
from figures.format import THOUSANDS, group
from figures.roofline import machine_roofline, machines_payload, sweep_payload
from lmcore import flop_derivations
from lmcore.config import ModelConfig
from lmcore.derivations import Derivation, kv_bytes, parameters
from lmcore.formats import FORMATS
from lmcore.hardware import ACCELERATORS, Accelerator, accelerator, custom
from lmcore.specs import Latent
from ui import components, configs, derived_view, guard, page, state

OWN = "a machine of your own"
FIRST = "DeepSeek-V3"
MAX_JSON_CHARS = 12_000
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


FIGURE = "cost_figures"


class Asked(NamedTuple):
    """What is on the page: a config under its name, and the setting."""

    name: str
    config: ModelConfig
    setting: Setting


def section() -> configs.Named | None:
    """The controls, then a fragment of everything that follows from them: any of them redraws that and nothing else.

    Returns the config that is on the page, None when there is none and the reason is shown instead.
    """
    found = None
    with guard.guard():
        found = controls()
        st.fragment(_figures, key=FIGURE)(found)
    return found


def repaint() -> None:
    """Callback of the controls: only the figures run again, not the controls themselves."""
    try:
        st.rerun(FIGURE)
    except StreamlitAPIException:
        # They do not stand yet: the page runs.
        return


_REPAINT: dict[str, Any] = {"on_change": repaint}


def _figures(found: configs.Named) -> None:
    with guard.guard():
        asked = Asked(found.name, found.config, setting())
        cfg, at = asked.config, asked.setting
        bars = followed(lambda given: costs_payload(cfg, given, to_copy=given == at), at)
        components.mount("costs", bars, key="cost_bars")
        with page.tools():
            derivations(asked)
            call = f"prefill_flops(cfg, tokens={at.context}, batch={at.batch})"
            page.source("lmcore.flops.forward_flops", f"flops = {call}\nsum(flops.values())", key="cost_source")
        components.mount("sheet", followed(partial(table_payload, cfg), at), key="cost_table")
        roofline(asked)


def controls() -> configs.Named:
    """The model, the lengths, and the conventions that change the numbers. Another model runs the page again."""
    labels = (*configs.PRESETS, configs.SIDEBAR, configs.TYPED, configs.PASTED)
    context, batch = _linked("cost_context", CONTEXTS), _linked("cost_batch", BATCHES)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        label = st.selectbox("Config", labels, labels.index(FIRST), key="cost_config", width=165, **_LINK)
        _length(CONTEXT, CONTEXTS, context, "cost_context", 190)
        _length(BATCH, BATCHES, batch, "cost_batch", 150)
        _choice("Weights stored in", WEIGHTS, "16 bit", "cost_weights", 120, **_REPAINT)
        _choice("Cache stored in", tuple(FORMATS), "16 bit", "cost_cache", 120, **_REPAINT)
        _choice("Active parameters", tuple(ACTIVE), next(iter(ACTIVE)), "cost_active", 140, **_REPAINT)
    pasted = ""
    if label == configs.PASTED:
        box: dict[str, Any] = {"height": 116, "max_chars": MAX_JSON_CHARS, **_LINK}
        pasted = st.text_area("The text of a config.json", key="cost_json", **box) or ""
    typed = configs.ask("cost_path", **_LINK) if label == configs.TYPED else ""
    found = configs.named(label, pasted, typed)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        _switch("Count", ("FLOPs", "MACs"), "cost_item", **_REPAINT)
        _switch("Bytes", ("GiB", "GB"), "cost_bytes", **_REPAINT)
        _switch("Attention", ("full", "causal"), "cost_attention", **_REPAINT)
        _switch("Logits of a prefill", ("last", "all"), "cost_logits", **_REPAINT)
        _switch("T × T weights", ("fused", "written"), "cost_scores", **_REPAINT)
        _choice("Training runs again", ("none", "attention", "all"), "none", "cost_recompute", 120, **_REPAINT)
        if isinstance(found.config.attention, Latent):
            _choice("MLA decode", ("absorbed", "expanded"), "absorbed", "cost_latent", 116, **_REPAINT)
    return found


def setting() -> Setting:
    """What the controls, once drawn, stand at."""
    at = st.session_state
    return Setting(
        context=at["cost_context"],
        batch=at["cost_batch"],
        weights=at["cost_weights"],
        cache=at["cost_cache"],
        macs=at["cost_item"] == "MACs",
        decimal=at["cost_bytes"] == "GB",
        attention="useful" if at["cost_attention"] == "causal" else "executed",
        logits=at["cost_logits"],
        active=at["cost_active"],
        recompute=at["cost_recompute"],
        scores=at["cost_scores"],
        latent=at.get("cost_latent") or "as run",
    )


def derivations(asked: Asked) -> None:
    """Quiet buttons: each number term by term."""
    cfg, s = asked.config, asked.setting
    how: dict[str, Any] = {"batch": s.batch, "attention": s.attention}

    def counted() -> list[Derivation]:
        total = parameters(cfg)
        table, head = s.active == "all", s.active != "blocks only"
        active = parameters(cfg, active=True, input_table=table, head=head)
        return [total, active]

    def cached() -> list[Derivation]:
        return [kv_bytes(cfg, context=s.context, batch=s.batch, quantised=storage_of_cache(s.cache))]

    def prefill() -> list[Derivation]:
        kept = 1 if s.logits == "last" else None
        return list(_named(flop_derivations.forward(cfg, tokens=s.context, logits=kept, **how)))

    def decode() -> list[Derivation]:
        return list(_named(flop_derivations.forward(cfg, tokens=1, cached=s.context, latent=s.latent, **how)))

    def training() -> list[Derivation]:
        return list(_named(flop_derivations.training(cfg, tokens=s.context, recompute=s.recompute, **how)))

    derived_view.button("Parameters, term by term", counted, key="cost_derive_parameters")
    derived_view.button("KV cache", cached, key="cost_derive_cache")
    derived_view.button("Training", training, key="cost_derive_training")
    derived_view.button("Prefill", prefill, key="cost_derive_prefill")
    derived_view.button("Decode", decode, key="cost_derive_decode")


def roofline(asked: Asked) -> None:
    """The same forwards on a machine: what bounds them, and how long they take at least."""
    page.section(
        "How long it takes at least",
        "A forward takes at least its FLOPs at the machine's peak, and at least its bytes at the bandwidth; the larger "
        "of the two is the bound. A prefill shares each weight among its tokens, a decode step among its sequences.",
    )
    names = tuple(row.name for row in ACCELERATORS)
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        name = _choice("Machine", (*names, OWN), "H100 SXM", "cost_machine", 210)
        ranks = st.select_slider(RANK, RANKS, 1, key="cost_ranks", width=210, **_LINK)
        over = _switch("Curves over", ("batch", "context"), "cost_over")
        machine = _own() if name == OWN else accelerator(name)
    cfg, s, at = asked.config, asked.setting, ranks

    def roof(given: Setting, ranks: int) -> bytes:
        return machine_roofline(cfg, given, machine, ranks)

    def swept(given: Setting, ranks: int) -> bytes:
        return sweep_payload(cfg, given, machine, ranks, over)

    def machines(given: Setting, ranks: int) -> bytes:
        return machines_payload(cfg, given, machine, ranks, to_copy=given == s and ranks == at)

    left, right = st.columns(2, gap="medium")
    with left:
        components.mount("roofline", followed_on(roof, s, ranks), key="cost_roofline")
    with right:
        components.mount(
            "lines", followed_on(swept, s, ranks, apart=[BATCH if over == "batch" else CONTEXT]), key="cost_sweep"
        )
    components.mount("sheet", followed_on(machines, s, ranks), key="cost_machines")


def _own() -> Accelerator:
    memory = st.number_input("Memory, GB", 1.0, 100_000.0, 24.0, key="cost_own_memory", width=130, **_LINK)
    bandwidth = st.number_input("Bandwidth, GB/s", 1.0, 100_000.0, 1000.0, key="cost_own_bandwidth", width=150, **_LINK)
    peak = st.number_input("Peak, TFLOP/s", 0.01, 1e6, 100.0, key="cost_own_peak", width=140, **_LINK)
    return custom(memory_gb=memory, gb_per_s=bandwidth, tflops=peak)


def _named(parts: dict[str, Derivation]) -> list[Derivation]:
    return [part for part in parts.values() if part.value]


def _length(label: str, values: list[int], start: int, key: str, width: int) -> None:
    """A slider that groups its digits. Bound to the address by Streamlit it would write them there as it shows them;
    the bars write the number."""
    how: dict[str, Any] = {"key": key, "width": width, "persist_state": "session", **_REPAINT}
    st.select_slider(label, values, start, format_func=group, **how)


def _linked(key: str, options: list[int]) -> int:
    """The option under `key` in the address, also with its digits grouped, as links had them once."""

    def parse(text: str) -> int | None:
        digits = text.replace(THOUSANDS, "")
        return next((option for option in options if str(option) == digits), None)

    start = START[key.removeprefix("cost_")]
    return state.parsed(key, parse, start, f"one of 1, 2, 4, 8 and so on to {group(options[-1])}")


def _choice(label: str, options: tuple[str, ...], default: str, key: str, width: int, **more: Any) -> str:
    index = options.index(default)
    return st.selectbox(label, options, index, key=key, width=width, filter_mode=None, **_LINK, **more)


def _switch(label: str, options: tuple[str, ...], key: str, **more: Any) -> str:
    how: dict[str, Any] = {"default": options[0], "required": True, "width": "content", **_LINK, **more}
    return st.segmented_control(label, options, key=key, **how)
