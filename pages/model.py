"""Model: what is loaded and where from, what its config says and costs, and the proof beside transformers."""

from __future__ import annotations

import streamlit as st

from figures.described import config_facts, cost_tiles
from figures.facts import facts_payload, report_facts
from figures.format import group
from figures.proof import layers_payload, proof_rows, proof_tiles
from figures.table import csv_text
from figures.twins import tiles_csv, tiles_payload
from lmcore.device import DTYPES
from lmcore.errors import LmcoreError
from ui import components, guard, measured, models, page, proofs, runs, shell, state
from ui.markdown import plain

MAX_UPLOAD_MB = 64
CONTEXTS = [2**power for power in range(21)]
POLL_S = 0.5


def head(what: str) -> None:
    page.head(what, "Model", "What is loaded, where it came from, what it costs, and whether its numbers are right.")


def upload() -> None:
    """The uploader, while the sidebar asks for uploaded files: staged once, then opened like any other."""
    files = st.file_uploader(
        "A GGUF file, or config.json with safetensors and the tokenizer's files, 64 MB together",
        type=["gguf", "safetensors", "json", "jinja", "model", "txt"],
        accept_multiple_files=True,
        max_upload_size=MAX_UPLOAD_MB,
        key="model_upload",
    )
    chosen = tuple(file.file_id for file in files)
    if not files or chosen == st.session_state.get("_uploaded_files"):
        return
    from lmcore.checkpoint.staging import stage_upload

    with guard.guard():
        st.session_state["_uploaded"] = str(stage_upload([(file.name, file) for file in files]))
        st.session_state["_uploaded_files"] = chosen


def described(opened: models.Opened) -> None:
    page.section("What the config says", "Every page is drawn from these facts.")
    components.mount("facts", facts_payload(config_facts(opened.config)), key="model_config")


def costs(opened: models.Opened) -> None:
    page.section(
        "What follows from it",
        "Calculated from the config alone. The parameters are counted, too: in the loaded tensors, or, for a config "
        "without weights, in the modules of a model that was built without memory.",
    )
    context = st.select_slider(
        "Context, in tokens",
        CONTEXTS,
        4096,
        format_func=group,
        key="model_context",
        bind="query-params",
        persist_state="session",
        width=420,
    )
    slot = st.empty()
    slot.skeleton(height=190)
    tiles = cost_tiles(
        opened.config,
        context=context,
        itemsize=DTYPES[opened.dtype],
        dtype=opened.dtype,
        counted=sum(measured.parameters(opened).values()),
        held_bytes=None if opened.weights is None else measured.weight_bytes(opened),
    )
    with slot.container():
        components.twins(tiles_payload(tiles), key="model_costs")
    with page.tools():
        page.source(
            "lmcore.costs.kv_cache_bytes",
            f"cfg, notes = config_from_hf(json.load(open('config.json')))\nsum(kv_cache_bytes(cfg, context={context}))",
            key="model_costs_source",
        )
        page.csv(tiles_csv(tiles), "costs.csv", key="model_costs_csv")


def proof(opened: models.Opened) -> None:
    page.section(
        "Beside transformers",
        "The reference implementation runs on the same weights and the same prompt, in float32, in a process of its "
        "own. Each layer is compared: its residual, relative to the largest number in it, and its attention weights.",
    )
    ids = runs.prompt(opened).ids
    busy = proofs.running(opened) is not None
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        noise = st.session_state.get("model_noise", False)
        st.button(
            "Compare with transformers",
            on_click=lambda: proofs.start(opened, ids, noise=noise),
            disabled=busy or not ids,
            key="model_compare",
        )
        st.checkbox("with its rounding noise (float64)", key="model_noise", disabled=busy)
    st.fragment(progress, run_every=POLL_S if busy else None)(opened, busy)
    if (error := proofs.failure(opened)) is not None:
        guard.show(error)
    found = proofs.found(opened)
    if found is None:
        if not busy:
            page.prose(
                ":small[:gray[It takes some ten seconds and as much memory as the weights in float32. "
                "The prompt is empty, so there is nothing to run.]]"
                if not ids
                else ":small[:gray[It takes some ten seconds and as much memory as the weights in float32.]]"
            )
        return
    page.prose(f"**{plain(proofs.sentence(opened))}** {group(found.tokens)} tokens, torch {found.torch}.")
    components.twins(tiles_payload(proof_tiles(found)), key="model_proof_tiles")
    components.mount("layers", layers_payload(found), key="model_layers")
    with page.tools():
        page.source(
            "lmcore.proof.compare_with_transformers",
            f"loaded = load_pretrained({opened.choice.source!r})\n"
            "with weights_folder(loaded.model, loaded.report) as folder:\n"
            f"    proof = compare_with_transformers(loaded.model, folder, {list(ids)[:8]})\n"
            "proof.logits, proof.first_bad",
            key="model_proof_source",
        )
        header = ["layer", "residual, relative", "attention weights", "beyond rounding"]
        page.csv(csv_text(header, proof_rows(found)), "comparison.csv", key="model_proof_csv")


def progress(opened: models.Opened, busy: bool) -> None:
    page.progress(proofs.running(opened), lambda: proofs.cancel(opened), busy=busy, key="model_cancel")


def main() -> None:
    slot = st.empty()
    with slot.container():
        head(models.name_of(state.choice()))
    if state.choice().label == state.UPLOAD:
        upload()
        if not state.choice().source:
            page.prose("No file is here yet. What is uploaded stays in the cache of the server.")
            return
    opened = models.current(height=320, config_only=True)
    with slot.container():
        head(opened.name)
    page.section("What is loaded", "What the loader found, did with it, and had to assume.")
    components.mount("facts", facts_payload(report_facts(opened.report)), key="model_report")
    if opened.weights is not None:
        try:
            proof(opened)
        except LmcoreError as error:
            guard.show(error)
    described(opened)
    costs(opened)


shell.ensure()
main()
