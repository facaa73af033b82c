"""Speculative decoding on the loaded model: drafts, what became of them, and the time beside plain decoding."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from figures.facts import Fact, facts_payload
from figures.format import fixed, group, sig
from figures.speculative import HEADER, draft_rows, speculative_payload
from figures.table import csv_text
from figures.twins import Tile, tile, tiles_payload
from lmcore.sampling import Sampler
from ui import components, decoding, guard, models, page, runs, speculating, state, vocabulary
from ui.markdown import plain
from ui.speculating import LAYERS, LOOKUP, MODEL, Outcome, Setting

OTHER = "Another, by its path"
_LINK: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@partial(guard.fragment, key="decode_speculative")
def section(opened: models.Opened, prompt: runs.Prompt) -> None:
    """Controls, a button, and what the last run with these settings showed."""
    page.section(
        "Speculative decoding",
        "A cheap draft proposes several tokens, one pass of the model checks them all, and the acceptance rule keeps "
        "the output’s distribution exactly the model’s. Sampler and seed are those above.",
    )
    run = decoding.run(opened, prompt.ids)
    setting = _controls(opened, prompt, run.decoder.sampler, run.decoder.seed)
    if setting is None:
        st.markdown("The prompt leaves no room for drafts before the trained limit of the model.")
        return
    if setting.kind == MODEL and not setting.source:
        st.markdown(no_partner(opened))
        return
    found = speculating.known(opened, prompt.ids, setting)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        label = f"Decode {group(setting.tokens)} tokens both ways"
        st.button(label, on_click=_ask, key="decode_speculate", disabled=found is not None)
        told = st.empty()
    if st.session_state.pop("_decode_speculate", False) and found is None:
        for words in speculating.run(opened, prompt.ids, setting):
            told.markdown(f":small[:gray[{words}]]")
        told.empty()
        found = speculating.known(opened, prompt.ids, setting)
    if found is not None:
        _figures(opened, found, setting)
    page.formula(
        r"\text{keep } x \text{ if } u\, q(x) < p(x), \qquad u \sim U[0, 1)",
        r"\text{else draw from } \frac{\max(p - q, 0)}{\sum_y \max(p(y) - q(y), 0)}",
        r"\mathbb{E}[\text{tokens a pass}] = \frac{1 - \alpha^{\gamma + 1}}{1 - \alpha}",
    )
    page.prose(
        "$p$ is the model’s and $q$ the draft’s distribution, both after the sampler; a token copied from the prompt "
        "has $q = 1$. $\\alpha$ is the share of drafts kept, $\\gamma$ their number. The text follows $p$ whatever "
        "the draft is: a bad one costs time, never quality (Leviathan et al. 2023, algorithm 1 and eq. 1; Chen et al. "
        "2023)."
    )
    with page.tools():
        page.source("lmcore.speculative.check", snippet(opened, prompt, setting), key="decode_speculative_source")
        if found is not None:
            rows = draft_rows(found.rounds, lambda token: vocabulary.label(opened, token))
            page.csv(csv_text(HEADER, rows), "drafts.csv", key="decode_speculative_csv")


def _ask() -> None:
    st.session_state["_decode_speculate"] = True


def _controls(opened: models.Opened, prompt: runs.Prompt, sampler: Sampler, seed: int) -> Setting | None:
    layers = opened.config.n_layers
    kinds = (LOOKUP, LAYERS, MODEL) if layers > 1 else (LOOKUP, MODEL)
    kind = st.segmented_control("Drafts by", kinds, default=LOOKUP, key="decode_draft", required=True, **_LINK)
    with st.container(horizontal=True, gap="medium"):
        most = st.slider("Drafts a pass", 1, 8, 4, key="decode_drafts", width=240, **_LINK)
        tokens = st.slider("Tokens", 8, speculating.MOST_TOKENS, 24, 8, key="decode_draft_tokens", width=240, **_LINK)
        depth = 0
        if kind == LAYERS and layers > 2:
            depth = st.slider("Layers of the draft", 1, layers - 1, layers // 2, key="decode_depth", width=240, **_LINK)
        elif kind == LAYERS:
            depth = 1
    source = _source(opened) if kind == MODEL else ""
    room = speculating.room(opened, prompt.ids, most)
    if room < 1:
        return None
    return Setting(
        kind=str(kind),
        depth=depth,
        most=most,
        tokens=min(tokens, room),
        sampler=sampler,
        seed=seed,
        source=source,
        on_disk=speculating.on_disk(source) if source else None,
    )


def _source(opened: models.Opened) -> str:
    """The draft model asked for: one that is known to share the tokenizer, or a path; "" before one is typed."""
    partners = speculating.partners(opened)
    with st.container(horizontal=True, gap="medium"):
        label = OTHER
        if partners:
            label = st.selectbox("Draft model", [*partners, OTHER], key="decode_draft_model", width=300, **_LINK)
        if label in partners:
            return partners[label]
        typed = st.text_input(
            "Folder or GGUF file of the draft model",
            key="decode_draft_path",
            max_chars=state.MAX_PATH_CHARS,
            width=420,
            **_LINK,
        )
    return (typed or "").strip()


def no_partner(opened: models.Opened) -> str:
    """What to say while no draft model is named, in Markdown."""
    name = plain(opened.name)
    said = f"No smaller model that comes with Glassbox is known to share the tokenizer of {name}."
    if speculating.partners(opened):
        said = "Type the path of a smaller model with the same tokenizer."
    pairs = " ".join(f"What works without a path: {pair}." for pair in speculating.pairs())
    return f"{said} {pairs} A folder or a GGUF file works where the vocabularies are equal token by token."


def _figures(opened: models.Opened, found: Outcome, setting: Setting) -> None:
    components.mount(
        "speculative",
        speculative_payload(
            found.rounds,
            parts=lambda token: vocabulary.token(opened, token).parts,
            piece=lambda token: vocabulary.generated(opened, token),
        ),
        key="decode_speculative",
    )
    st.space("small")
    components.twins(tiles_payload(tiles(found, setting)), key="decode_speculative_tiles")
    st.space("small")
    components.mount("facts", facts_payload(facts(found)), key="decode_speculative_facts")
    page.notice(points(opened, found, setting))


def tiles(found: Outcome, setting: Setting) -> list[Tile]:
    passes = len(found.rounds)
    same = tile(
        "Tokens equal to plain decoding",
        len(found.tokens),
        found.equal if setting.sampler.greedy else None,
        unit=f"of {group(len(found.tokens))}",
        missing="only when greedy",
        impossible=True,
        note="Greedy: both must choose the likeliest token."
        if setting.sampler.greedy
        else "Sampled: other draws from the same distribution. Set the temperature to 0 to compare token by token.",
    )
    per_pass = tile(
        "Tokens a pass of the model",
        found.expected_per_pass,
        found.tokens_per_pass,
        how="measured",
        note=f"{group(len(found.tokens))} tokens in {group(passes)} pass{'es' if passes > 1 else ''}; plain decoding "
        "gives 1. Calculated from the share kept.",
    )
    return [per_pass, same]


def facts(found: Outcome) -> list[Fact]:
    count, passes = len(found.tokens), len(found.rounds)
    drafts, target = (sum(getattr(done, name) for done in found.rounds) for name in ("draft_s", "target_s"))
    kept, seen = sum(done.accepted for done in found.rounds), sum(len(done.drafts) for done in found.rounds)
    proposed = sum(len(done.proposed) for done in found.rounds)
    share = f"{fixed(100 * kept / seen, 1)} % of those looked at" if seen else "none was looked at"
    return [
        Fact(
            "With drafts",
            f"{sig(found.time_s * 1e3, 3)} ms",
            f"drafts {sig(drafts * 1e3, 3)}, model {sig(target * 1e3, 3)}",
        ),
        Fact("Plain", f"{sig(found.plain_s * 1e3, 3)} ms", f"{group(count)} passes"),
        Fact("Drafts kept", f"{group(kept)} of {group(proposed)}", share),
        Fact("Passes", group(passes), f"for {group(count)} tokens"),
    ]


def points(opened: models.Opened, found: Outcome, setting: Setting) -> list[str]:
    """What to notice, computed from this run."""
    ratio = found.plain_s / found.time_s
    said = (
        f"{sig(ratio, 3)} times the speed of plain decoding, measured on {group(len(found.tokens))} tokens with the "
        "prefill in both."
    )
    if ratio < 1:
        said += " The drafts cost more time than the passes they saved."
    found_none = sum(1 for done in found.rounds if not done.proposed)
    if setting.kind == LOOKUP:
        more = (
            f"In {group(found_none)} of {group(len(found.rounds))} passes the end of the text occurs nowhere before, "
            "and nothing could be copied."
        )
    elif setting.kind == MODEL:
        share = f"{sig(100 * found.draft_parameters / opened.report.parameter_count, 3)} %"
        more = (
            f"The draft model has {group(found.draft_parameters)} parameters, {share} of the model’s, and a cache of "
            "its own: what is rejected is cut off both."
        )
    else:
        more = (
            f"The draft runs layers 0 to {setting.depth - 1} and the head on what they give: the logit lens of layer "
            f"{setting.depth - 1}, one token at a time."
        )
    return [said, more]


def snippet(opened: models.Opened, prompt: runs.Prompt, setting: Setting) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in vars(setting.sampler).items())
    by_layers = f"ModelDraft(model, sampler, {setting.seed}, depth={setting.depth})"
    by_model = f"ModelDraft(load_pretrained({setting.source!r}, dtype={opened.dtype!r}).model, sampler, {setting.seed})"
    draft = {LOOKUP: "PromptLookup(model.cfg.vocab_size)", LAYERS: by_layers, MODEL: by_model}[setting.kind]
    return f"""
from lmcore.checkpoint import load_pretrained
from lmcore.sampling import Sampler
from lmcore.speculative import ModelDraft, PromptLookup, SpeculativeDecoder

model = load_pretrained({opened.choice.source!r}, dtype={opened.dtype!r}).model
sampler = Sampler({given})
decoder = SpeculativeDecoder(model, {list(prompt.ids)}, sampler, {draft}, seed={setting.seed}, most={setting.most})
while len(decoder.tokens) - decoder.prompt_length < {setting.tokens}:
    decoder.round()
decoder.rounds, decoder.tokens_per_pass
"""
