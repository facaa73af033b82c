"""Overview: the model that is loaded, drawn from its config, and what one forward of the prompt does."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from figures.facts import facts_payload, report_facts
from figures.format import group
from figures.forward import cost_formulas, path_formulas, prefill_tiles, run_points
from figures.overview import arch_payload
from figures.strip import strip_csv, strip_payload
from figures.twins import tile, tiles_csv, tiles_payload
from lmcore.costs import param_counts
from lmcore.errors import CapacityError
from ui import components, measured, models, page, runs, shell, state, vocabulary
from ui.guard import guard
from ui.markdown import plain

NODE_PAGES = {"ids": "tokens", "embedding": "tokens", "attention": "attention", "head": "tokens", "logits": "tokens"}
NODE_PAGES |= {"positions": "positions", "sampler": "decode"}
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
STRIP_PX, PHONE_PX = 218, 429


def head(what: str) -> None:
    page.head(
        what,
        "A glass box around a language model",
        "A real transformer runs below on your prompt. Every picture is drawn from its tensors, "
        "and beside each number stands its twin, found another way.",
    )


def strip(opened: models.Opened, run: runs.Run, place: Callable[[], DeltaGenerator]) -> None:
    said, tokens = measured.prediction(opened, run), vocabulary.tokens(opened, run.tokens)
    payload = strip_payload(
        tokens,
        loss=said.loss,
        rank=said.rank,
        top_ids=said.top_ids[:, :6],
        top_probs=said.top_probs[:, :6],
        token_of=lambda i: vocabulary.token(opened, i),
        vocab_size=opened.config.vocab_size,
        spelled=opened.tokenizer is not None,
    )
    with place(), page.at_least(STRIP_PX, phone=PHONE_PX):
        components.strip(payload, key="overview_strip")
    with page.tools():
        page.csv(strip_csv(tokens, said.loss, said.rank), "tokens.csv", key="overview_strip_csv")


def path(opened: models.Opened, run: runs.Run | None) -> None:
    cfg, ids = opened.config, run.tokens if run else ()
    page.section(
        "The forward path",
        f"Token ids become vectors of {group(cfg.d_model)} numbers. {group(cfg.n_layers)} blocks each read the "
        "residual stream and add to it. What is left at the end is compared with every row of the vocabulary. "
        "An underlined part opens its page.",
    )
    lengths = None if run is None else measured.lengths(opened, run)
    payload = arch_payload(
        cfg,
        tokens=len(ids) if opened.weights is not None else 1,
        pages=NODE_PAGES,
        pieces=[token.parts for token in vocabulary.tokens(opened, ids)],
        residual=lengths,
        counted=measured.parameters(opened),
        url="position",
    )
    with page.at_least(762, phone=1339):
        clicked = components.arch(payload, key="overview_arch")
    if clicked in NODE_PAGES.values():
        st.switch_page(f"pages/{clicked}.py")
    if run is not None and lengths is not None:
        said = measured.prediction(opened, run)
        points = run_points(run.tokens, said, lengths, name=lambda i: f"**{plain(vocabulary.label(opened, i))}**")
        page.notice(points)
    page.formula(*path_formulas(cfg))
    with page.tools():
        page.source(
            "lmcore.model.Transformer.forward",
            f"model, tokenizer, report = load_pretrained({opened.choice.source!r})\n"
            "tokens = torch.tensor([tokenizer.encode(prompt)])\n"
            'trace = model(tokens, capture=Capture.of("resid_post")).trace\n'
            "[layer.resid_post[0].norm(dim=-1) for layer in trace.layers.values()]",
            key="overview_path_source",
        )


def numbers(opened: models.Opened, ids: tuple[int, ...]) -> None:
    cfg, itemsize = opened.config, ITEMSIZE[opened.dtype]
    page.section("Calculated, measured, difference", "A formula, and the same number counted on the running model.")
    place = page.awaited("tiles", height=200)
    counted = sum(measured.parameters(opened).values())
    tiles = [tile("Parameters", param_counts(cfg).total, counted, unit="parameters")]
    found, why = None, "no prompt was run; calculated for one token"
    if ids:
        try:
            found = measured.measured_pass(opened, ids)
        except CapacityError as error:
            why = str(error)
    count = max(1, len(ids))
    tiles += prefill_tiles(cfg, count, dtype=opened.dtype, itemsize=itemsize, found=found, why=why)
    with place():
        components.twins(tiles_payload(tiles), key="overview_tiles")
    page.formula(*cost_formulas(cfg, tokens=count, itemsize=itemsize))
    with page.tools():
        page.source(
            "lmcore.measure.measured_pass",
            "ids = tokenizer.encode(prompt)\nforward_flops(model.cfg, tokens=len(ids)), counted_flops(model, ids)",
            key="overview_numbers_source",
        )
        page.csv(tiles_csv(tiles), "twins.csv", key="overview_numbers_csv")


def report(opened: models.Opened) -> None:
    found = opened.report
    page.section("The load report", "What the loader found in the checkpoint, did with it, and had to assume.")
    components.mount("facts", facts_payload(report_facts(found)), key="overview_report")
    with st.expander(f"{group(found.tensor_count)} tensors, one row each", on_change="rerun", key="tensors") as rows:
        if rows.open:
            table = [
                {"tensor": row.source, "becomes": ", ".join(row.targets) or "nothing", "how": row.transform}
                for row in found.mapped
            ]
            table += [{"tensor": name, "becomes": "nothing", "how": "unused"} for name in found.unused]
            st.dataframe(table, hide_index=True, height=320)


def why_none(opened: models.Opened) -> str:
    return "a config without weights" if opened.weights is None else "the prompt is empty"


def main() -> None:
    title = st.empty()
    with title.container():
        head(f"{state.choice().label} · one forward pass")
    opened = models.current(height=STRIP_PX, config_only=True)
    run = None
    with guard():
        prompt = runs.prompt(opened, all_logits=True)
        ids = prompt.ids
        count = f"{group(len(ids))} {'token' if len(ids) == 1 else 'tokens'}"
        with title.container():
            head(f"{opened.name} · " + (f"one forward pass, {count}" if ids else "no pass: " + why_none(opened)))
        if ids:
            place = page.awaited("strip", height=STRIP_PX, phone=PHONE_PX)
            run = runs.run(opened, ids, "resid_post")
            strip(opened, run, place)
            if cut := runs.shortened(opened, prompt):
                page.prose(cut)
        elif opened.weights is not None:
            page.empty_prompt()
    with guard():
        path(opened, run)
        numbers(opened, run.tokens if run else ())
    report(opened)


shell.ensure()
main()
