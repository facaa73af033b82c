"""The calculator: KV bytes of up to four configs, derived line by line, and what fits beside the weights."""

from __future__ import annotations

from typing import Any

import streamlit as st

from figures.format import group
from figures.grid import grid_payload
from figures.kv import (
    UNITS,
    WEIGHTS,
    Setting,
    Sizes,
    context_payload,
    context_text,
    derivation_table,
    fit_rows,
    fits,
    meanings,
    model_columns,
    model_rows,
    size_text,
    sizes,
)
from figures.kv_changed import with_heads, with_latent, with_layers, with_window, without_window
from lmcore import derivations, hardware
from lmcore.errors import InputError, LmcoreError
from lmcore.formats import FORMATS
from lmcore.hardware import ACCELERATORS, Accelerator
from ui import components, configs, guard, page
from ui.configs import Named
from ui.markdown import plain

OPTIONS = (configs.SIDEBAR, configs.PASTED, *configs.PRESETS)
START = (configs.SIDEBAR, "Llama 3.3 70B", "Gemma 3 27B, text part", "DeepSeek-V3")
MOST = 4
CONTEXTS = [2**power for power in range(7, 21)]
POWERS = [2**power for power in range(11)]
AS_IT_IS = "as the config has it"
HEADS, LATENT = "KV heads", "MLA latent"
PATTERNS = (AS_IT_IS, "all layers full", "sliding window")
DIMS = (AS_IT_IS, *map(str, (32, 64, 80, 96, 128, 192, 256)))
SHARED = (AS_IT_IS, *map(str, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)))
LAYERS = (AS_IT_IS, *map(str, (4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 126, 160)))
RANKS = [2**power for power in range(6, 12)]
EVERY = {0: "none", 2: "every 2nd", 3: "every 3rd", 4: "every 4th", 6: "every 6th", 8: "every 8th"}
PAGES = [1, 8, 16, 32, 64, 128, 256, 512]
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
    """Controls, the curves, a row a model, the derivation of the first, and the table of accelerators: one fragment."""
    page.section(
        "Calculator",
        "From the configs alone. Up to four of them in one chart; the first is derived below and may be changed.",
    )
    found, errors = _models()
    setting, unit = _setting()
    changed = _changed(found[0]) if found else None
    for error in errors:
        _not_known(error)
    if changed is None:
        return
    machine = _machine()
    sized = _sized([changed, *found[1:]], setting)
    if not sized:
        return
    drawn = [(one.name, one.config) for one, _ in sized]
    limit = None
    if machine is not None:
        limit = (machine.memory_bytes, f"{machine.name}: {size_text(machine.memory_bytes, unit)}")
    components.mount("lines", context_payload(drawn, setting, unit=unit, limit=limit), key="kv_context_chart")
    rows = model_rows([(one.name, one.config, size) for one, size in sized], setting, unit)
    columns = model_columns(setting)
    marks = "  " + "c" * (len(columns) - 2)
    payload = grid_payload(columns, rows, label="KV bytes of each model", words=2, marks=marks)
    components.mount("grid", payload, key="kv_models_table")
    first = sized[0][0]
    _derived(first, setting)
    _fits(first, setting, unit, machine)


def _sized(found: list[Named], setting: Setting) -> list[tuple[Named, Sizes]]:
    """The models that this setting suits, with their bytes; of the others it is said why not."""
    sized = []
    for one in found:
        try:
            sized.append((one, sizes(one.config, setting)))
        except LmcoreError as error:
            found_of_it = f"{one.name}: {error.found}"
            guard.show(InputError(found_of_it, expected=error.expected, where=error.where, todo=error.todo))
    return sized


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
    return configs.known(labels, text or "")


def _not_known(error: LmcoreError) -> None:
    if isinstance(error, InputError):
        guard.show(error)
        return
    st.markdown(f"**Not known.** {guard.message(error)}")


def _setting() -> tuple[Setting, str]:
    """The sliders that every model shares, and the unit."""
    with st.container(horizontal=True, gap="medium"):
        context = st.select_slider(
            "Context S", CONTEXTS, 32_768, format_func=context_text, key="kv_context", width=230, **_LINK
        )
        batch = st.select_slider("Batch B", POWERS, 1, key="kv_batch", width=160, **_LINK)
        stored = st.selectbox("Stored as", list(FORMATS), 1, key="kv_format", width=180, filter_mode=None, **_LINK)
        unit = st.segmented_control("Units", UNITS, default=UNITS[0], key="kv_unit", required=True, **_LINK)
    with st.expander("Beams, ranks, pages, and what windowed layers keep"), st.container(horizontal=True, gap="medium"):
        beams = st.slider("Beams", 1, 8, 1, key="kv_beams", width=140, **_LINK)
        ranks = st.select_slider("Tensor-parallel ranks", POWERS[:8], 1, key="kv_ranks", width=180, **_LINK)
        paged = st.select_slider("Page, in positions", PAGES, 1, key="kv_page", width=180, **_LINK)
        keep = st.selectbox(
            "Windowed layers keep",
            list(KEEPS),
            format_func=lambda word: KEEPS[word],
            key="kv_keep",
            width=300,
            filter_mode=None,
            **_LINK,
        )
    page_size = None if paged == 1 else int(paged)
    setting = Setting(context=context, batch=batch, format=stored, beams=beams, ranks=ranks, page=page_size, keep=keep)
    return setting, unit


def _changed(first: Named) -> Named:
    """The first model with what is changed of it; what cannot be is said, and the model left as it is."""
    cfg = first.config
    with st.expander(f"Change {first.name}: heads, latent, window pattern, layers"):
        with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
            kind = st.segmented_control(
                "What is cached", (AS_IT_IS, HEADS, LATENT), default=AS_IT_IS, key="kv_kind", required=True, **_LINK
            )
            shared = dim = AS_IT_IS
            rank, rotary = 512, 64
            if kind == HEADS:
                shared = st.selectbox("KV heads K", SHARED, key="kv_heads", width=170, filter_mode=None, **_LINK)
                dim = st.selectbox("Head dim Dh", DIMS, key="kv_dim", width=170, filter_mode=None, **_LINK)
            elif kind == LATENT:
                rank = st.select_slider("Rank of the latent r", RANKS, 512, key="kv_rank", width=210, **_LINK)
                rotary = st.select_slider("Rotary key", [16, 32, 64, 96, 128], 64, key="kv_rotary", width=170, **_LINK)
            layers = st.selectbox("Layers L", LAYERS, key="kv_layers", width=170, filter_mode=None, **_LINK)
        with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
            pattern = st.segmented_control(
                "Windows", PATTERNS, default=AS_IT_IS, key="kv_pattern", required=True, **_LINK
            )
            window, every = 1024, 6
            if pattern == PATTERNS[2]:
                window = st.select_slider(
                    "Window w", CONTEXTS[:10], 1024, format_func=context_text, key="kv_window", width=210, **_LINK
                )
                every = st.select_slider(
                    "Full layers", list(EVERY), 6, format_func=EVERY.__getitem__, key="kv_every", width=210, **_LINK
                )
    try:
        if kind == HEADS:
            cfg = with_heads(cfg, _number(shared), _number(dim))
        elif kind == LATENT:
            cfg = with_latent(cfg, rank, rotary)
        if (count := _number(layers)) is not None:
            cfg = with_layers(cfg, count)
        if pattern != AS_IT_IS:
            cfg = without_window(cfg) if pattern == PATTERNS[1] else with_window(cfg, window, every)
    except LmcoreError as error:
        guard.show(error)
        cfg = first.config
    return first if cfg == first.config else Named(f"{first.name}, changed", cfg)


def _number(choice: str) -> int | None:
    return None if choice == AS_IT_IS else int(choice)


def _machine() -> Accelerator | None:
    """The accelerator whose memory is drawn in the chart."""
    with st.container(horizontal=True, gap="medium"):
        name = st.selectbox("Accelerator", MACHINES, MACHINES.index("H100 SXM"), key="kv_machine", width=230, **_LINK)
        if name != CUSTOM:
            return hardware.accelerator(name)
        memory = st.number_input("Memory, in GB", 1, 100_000, 24, key="kv_memory", width=150, **_LINK)
        return hardware.custom(memory_gb=memory, gb_per_s=1.0, tflops=None)


def _derived(first: Named, setting: Setting) -> None:
    derivation = derivations.kv_bytes(first.config, context=setting.context, **setting.how())
    rank = f" on each of {group(setting.ranks)} ranks" if setting.ranks > 1 else ""
    page.section(f"{plain(first.name)}, line by line", f"Bytes of the batch{rank}; {derivation.source}.")
    st.markdown(derivation_table(derivation))
    page.prose(f":small[:gray[{meanings(derivation)}]]")
    with page.tools():
        page.source("lmcore.kv_costs.kv_cache_bytes", snippet(setting), key="kv_calculator_source")


def _fits(first: Named, setting: Setting, unit: str, machine: Accelerator | None) -> None:
    each = " each" if setting.ranks > 1 else ""
    page.section(
        f"What fits beside the weights of {plain(first.name)}",
        f"{group(setting.ranks)} accelerator{'s' if setting.ranks > 1 else ''} of one kind, the weights split evenly, "
        "and a share of the memory kept free for activations and the runtime.",
    )
    with st.container(horizontal=True, gap="medium"):
        stored = st.selectbox(
            "Weights stored as", list(WEIGHTS), 1, key="kv_weights", width=200, filter_mode=None, **_LINK
        )
        reserve = st.slider("Kept free, in %", 0, 40, 10, key="kv_reserve", width=200, **_LINK)
    machines = [*([machine] if machine is not None and machine.name == "custom" else []), *ACCELERATORS]
    found = fits(first.config, setting, machines, stored=stored, reserve=reserve)
    sequences = setting.batch * setting.beams
    columns = [
        "accelerator",
        f"memory{each}",
        f"weights{each}",
        "left for the cache",
        f"longest context of {group(sequences)}",
        f"largest batch at {context_text(setting.context)}",
    ]
    chosen = [at for at, fit in enumerate(found) if machine is not None and fit.machine.name == machine.name]
    payload = grid_payload(columns, fit_rows(found, unit), label="what fits", marks="  cccc", bold=chosen)
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
