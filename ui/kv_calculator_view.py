"""The calculator: KV bytes of up to four configs, derived line by line, and what fits beside the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from figures import kv_stops
from figures.derived import derivation_markdown
from figures.format import group
from figures.kv import KIVI, RESIDUAL, UNITS, WEIGHTS, Setting, context_text, newest_bytes, size_text, sizes
from figures.kv_changed import UNCHANGED, Change, with_change
from figures.kv_stops import Asked, Control
from lmcore import derivations, hardware
from lmcore.errors import InputError, LmcoreError
from lmcore.formats import FORMATS
from lmcore.hardware import ACCELERATORS, Accelerator
from ui import components, configs, guard, page
from ui.configs import Named
from ui.markdown import plain

OPTIONS = (configs.SIDEBAR, configs.TYPED, configs.PASTED, *configs.PRESETS)
START = (configs.SIDEBAR, "Llama 3.3 70B", "Gemma 3 27B, text part", "DeepSeek-V3")
MOST = 4
AS_IT_IS = "as the config has it"
CACHED = {AS_IT_IS: "", "KV heads": "heads", "MLA latent": "latent"}
WINDOWS = {AS_IT_IS: "", "all layers full": "none", "sliding window": "sliding"}
DIMS = (AS_IT_IS, *map(str, (32, 64, 80, 96, 128, 192, 256)))
SHARED = (AS_IT_IS, *map(str, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)))
LAYERS = (AS_IT_IS, *map(str, (4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 126, 160)))
EVERY = {0: "none", 2: "every 2nd", 3: "every 3rd", 4: "every 4th", 6: "every 6th", 8: "every 8th"}
KEEPS = {
    "window": "min(S, w): lmcore",
    "reach": "min(S, w), chunks too: static caches",
    "past": "w − 1: the dynamic cache of transformers",
    "all": "everything: the window is in the mask only",
}
CUSTOM = "your own"
MACHINES = (CUSTOM, *(machine.name for machine in ACCELERATORS))
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@guard.fragment
def section() -> None:
    """Controls, the curves, a row a model, the derivation of the first, and the table of accelerators: one fragment.

    The three figures know every stop of every slider (`figures.kv_stops`): they are redrawn before this has run.
    """
    page.section(
        "Calculator",
        "From the configs alone. Up to four of them in one chart; the first is derived below and may be changed.",
    )
    found, errors = _models()
    setting, unit = _setting()
    change = _change(found[0]) if found else UNCHANGED
    for error in errors:
        _not_known(error)
    if not found:
        return
    machine = _machine()
    asked = Asked(chosen=tuple(found), setting=setting, change=change, unit=unit, machine=machine)
    _not_suited(asked)
    sized = asked.sized
    if not sized:
        return
    components.mount("lines", kv_stops.chart(asked), key="kv_context_chart")
    components.mount("grid", kv_stops.rows(asked), key="kv_models_table")
    first = Named(*sized[0][:2])
    _derived(first, setting, unit)
    _fits(first, asked)


def _not_suited(asked: Asked) -> None:
    """Of the models that the setting does not suit it is said why not."""
    for name, cfg in asked.models():
        try:
            sizes(cfg, asked.setting)
        except LmcoreError as error:
            of_it = f"{name}: {error.found}"
            guard.show(InputError(of_it, expected=error.expected, where=error.where, todo=error.todo))


def _models() -> tuple[list[Named], list[LmcoreError]]:
    labels = st.multiselect(
        "Models, the first is derived", OPTIONS, list(START), max_selections=MOST, key="kv_models", **_LINK
    )
    text = ""
    if configs.PASTED in labels:
        hint = "the text of a config.json"
        text = st.text_area("config.json", key="kv_json", placeholder=hint, height=116, max_chars=12_000, **_LINK)
    if not labels:
        st.markdown("No model is chosen: pick one from the list.")
    typed = configs.ask("kv_path", **_LINK) if configs.TYPED in labels else ""
    return configs.known(labels, text or "", typed)


def _not_known(error: LmcoreError) -> None:
    if isinstance(error, InputError):
        guard.show(error)
        return
    st.markdown(f"**Not known.** {guard.message(error)}")


def _slider(control: Control, default: Any, key: str, width: int, **more: Any) -> Any:
    return st.select_slider(control.name, control.values, default, key=key, width=width, **_LINK, **more)


def _setting() -> tuple[Setting, str]:
    """The sliders that every model shares, and the unit."""
    with st.container(horizontal=True, gap="medium"):
        context = _slider(kv_stops.CONTEXT, 32_768, "kv_context", 230, format_func=context_text)
        batch = _slider(kv_stops.BATCH, 1, "kv_batch", 160)
        stored = st.selectbox("Stored as", list(FORMATS), 1, key="kv_format", width=180, filter_mode=None, **_LINK)
        unit = st.segmented_control("Units", UNITS, default=UNITS[0], key="kv_unit", required=True, **_LINK)
    with st.expander("Beams, ranks, pages, and what windowed layers keep"), st.container(horizontal=True, gap="medium"):
        counts = kv_stops.BEAMS.values
        beams = st.slider(kv_stops.BEAMS.name, counts[0], counts[-1], 1, key="kv_beams", width=140, **_LINK)
        ranks = _slider(kv_stops.RANKS, 1, "kv_ranks", 180)
        paged = _slider(kv_stops.PAGE, 1, "kv_page", 180)
        keep = st.selectbox(
            "Windowed layers keep",
            list(KEEPS),
            format_func=lambda word: KEEPS[word],
            key="kv_keep",
            width=300,
            filter_mode=None,
            **_LINK,
        )
    setting = Setting(context=context, batch=batch, format=stored, beams=beams, ranks=ranks, page=paged, keep=keep)
    return setting, unit


def _change(first: Named) -> Change:
    """What is changed of the first model; where there is no such model that is said, and nothing is changed."""
    given: dict[str, Any] = {}
    with st.expander(f"Change {first.name}: heads, latent, window pattern, layers"):
        with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
            cached = st.segmented_control(
                "What is cached", list(CACHED), default=AS_IT_IS, key="kv_kind", required=True, **_LINK
            )
            if CACHED[cached] == "heads":
                given["n_kv_heads"] = _number("KV heads K", SHARED, "kv_heads")
                given["head_dim"] = _number("Head dim Dh", DIMS, "kv_dim")
            elif CACHED[cached] == "latent":
                given["kv_rank"] = _slider(kv_stops.LATENT, 512, "kv_rank", 210)
                given["rope_dim"] = _slider(kv_stops.ROTARY, 64, "kv_rotary", 170)
            given["layers"] = _number("Layers L", LAYERS, "kv_layers")
        with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
            windows = st.segmented_control(
                "Windows", list(WINDOWS), default=AS_IT_IS, key="kv_pattern", required=True, **_LINK
            )
            if WINDOWS[windows] == "sliding":
                given["window"] = _slider(kv_stops.WINDOW, 1024, "kv_window", 210, format_func=context_text)
                given["every"] = _slider(kv_stops.EVERY, 6, "kv_every", 210, format_func=EVERY.__getitem__)
    change = Change(cached=CACHED[cached], windows=WINDOWS[windows], **given)
    try:
        with_change(first.config, change)
    except LmcoreError as error:
        guard.show(error)
        return UNCHANGED
    return change


def _number(label: str, options: tuple[str, ...], key: str) -> int | None:
    chosen = st.selectbox(label, options, key=key, width=170, filter_mode=None, **_LINK)
    return None if chosen == AS_IT_IS else int(chosen)


def _machine() -> Accelerator | None:
    """The accelerator whose memory is drawn in the chart."""
    with st.container(horizontal=True, gap="medium"):
        name = st.selectbox("Accelerator", MACHINES, MACHINES.index("H100 SXM"), key="kv_machine", width=230, **_LINK)
        if name != CUSTOM:
            return hardware.accelerator(name)
        memory = st.number_input("Memory, in GB", 1, 100_000, 24, key="kv_memory", width=150, **_LINK)
        return hardware.custom(memory_gb=memory, gb_per_s=1.0, tflops=None)


def _derived(first: Named, setting: Setting, unit: str) -> None:
    derivation = derivations.kv_bytes(first.config, context=setting.context, **setting.how())
    rank = f" on each of {group(setting.ranks)} ranks" if setting.ranks > 1 else ""
    page.section(f"{plain(first.name)}, line by line", f"Bytes of the batch{rank}.")
    page.prose(derivation_markdown(derivation))
    if setting.format == KIVI:
        most = size_text(newest_bytes(first.config, setting), unit)
        page.prose(
            f":small[:gray[Not counted: KIVI keeps the newest positions in 16 bit. The {RESIDUAL} of its paper add at "
            f"most {most}. In the running model’s cache, below, they are counted.]]"
        )
    with page.tools():
        page.source("lmcore.kv_costs.kv_cache_bytes", snippet(setting), key="kv_calculator_source")


def _fits(first: Named, asked: Asked) -> None:
    ranks = asked.setting.ranks
    page.section(
        f"What fits beside the weights of {plain(first.name)}",
        f"{group(ranks)} accelerator{'s' if ranks > 1 else ''} of one kind, the weights split evenly, "
        "and a share of the memory kept free for activations and the runtime.",
    )
    with st.container(horizontal=True, gap="medium"):
        stored = st.selectbox(
            "Weights stored as", list(WEIGHTS), 1, key="kv_weights", width=200, filter_mode=None, **_LINK
        )
        shares = kv_stops.RESERVE.values
        reserve = st.slider(kv_stops.RESERVE.name, shares[0], shares[-1], 10, key="kv_reserve", width=200, **_LINK)
    payload = kv_stops.fit(replace(asked, weights=stored, reserve=reserve))
    components.mount("grid", payload, key="kv_fits_table")
    page.prose(
        ":small[:gray[Memory as its maker prints it, in powers of ten; the source of each row is on the page Cost. "
        "Not counted beyond the share kept free: activations, the runtime, fragmentation.]]"
    )


def snippet(setting: Setting) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in setting.how().items())
    return f"""
from lmcore import presets
from lmcore.formats import Quantised
from lmcore.kv_costs import kv_cache_bytes

cfg = presets.shipped("llama-3.3-70b").config
sum(kv_cache_bytes(cfg, context={setting.context}, {given}))
"""
