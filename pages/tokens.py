"""Tokens and logits: the prompt as the model reads it, and what it expects at each position."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from figures.format import group
from figures.loss import dots_csv, dots_payload, loss_csv, loss_payload, loss_points, loss_tiles, with_next
from figures.scripts import SENTENCES, scripts_csv, scripts_payload, scripts_point
from figures.strip import strip_csv, strip_payload
from figures.twins import tiles_payload
from ui import components, measured, models, page, runs, shell, state, vocabulary
from ui.guard import guard
from ui.markdown import plain

CANDIDATES = 6
STRIP_PX, PHONE_PX = 281, 590


def head(what: str) -> None:
    page.head(
        what,
        "Tokens and logits",
        "A model reads numbers, not words. After each it gives every entry of its vocabulary a chance to come next.",
    )


def strip(opened: models.Opened, run: runs.Run, place: Callable[[], DeltaGenerator]) -> None:
    said, tokens = measured.prediction(opened, run), vocabulary.tokens(opened, run.tokens)
    payload = strip_payload(
        tokens,
        loss=said.loss,
        rank=said.rank,
        top_ids=said.top_ids,
        top_probs=said.top_probs,
        token_of=lambda i: vocabulary.token(opened, i),
        vocab_size=opened.config.vocab_size,
        ids=True,
        spelled=opened.tokenizer is not None,
    )
    with place(), page.at_least(STRIP_PX, phone=PHONE_PX):
        components.strip(payload, key="tokens_strip")
    page.prose(bos(opened, run.tokens))
    with page.tools():
        page.source(
            "lmcore.tokenizer.Tokenizer.pieces",
            f"model, tokenizer, report = load_pretrained({opened.choice.source!r})\n"
            "ids = tokenizer.encode(prompt)\n"
            "list(zip(ids, tokenizer.pieces(ids)))",
            key="tokens_strip_source",
        )
        page.csv(strip_csv(tokens, said.loss, said.rank), "tokens.csv", key="tokens_strip_csv")


def bos(opened: models.Opened, ids: tuple[int, ...]) -> str:
    known = opened.tokenizer
    if known is None:
        return "This checkpoint has no tokenizer: the prompt is read as token ids, and a token is shown by its id."
    if known.adds_bos and known.bos_id is not None and ids[0] == known.bos_id:
        name = plain(known.name(known.bos_id))
        return (
            f"Position 0 was not typed: this tokenizer puts {name}, id {group(known.bos_id)}, in front of every text."
        )
    return "This tokenizer puts nothing in front of the text: position 0 is its first token."


def loss(opened: models.Opened, run: runs.Run) -> None:
    said = measured.prediction(opened, run)
    page.section(
        "The loss, taken apart",
        "The loss of a token is how far its logit z lies below the logarithm of the sum of all exponentials, LSE(z). "
        "Choose a token above, with the mouse or the arrow keys.",
    )
    counts, edges = measured.logit_counts(opened, run)
    payload = loss_payload(
        vocabulary.tokens(opened, run.tokens),
        logit=said.logit,
        logsumexp=said.logsumexp,
        counts=counts,
        edges=edges,
        vocab_size=opened.config.vocab_size,
    )
    with page.at_least(378, phone=478):
        components.mount("loss", payload, key="tokens_loss")
    if tiles := loss_tiles(said, measured.mean_loss(opened, run)):
        st.space("small")
        components.twins(tiles_payload(tiles), key="tokens_tiles")
    page.notice(loss_points(run.tokens, said, name=lambda i: f"**{plain(vocabulary.label(opened, i))}**"))
    page.formula(
        r"\mathrm{loss}_y = -\log \frac{e^{z_y}}{\sum_v e^{z_v}} = -z_y + \mathrm{LSE}(z)",
        r"\mathrm{perplexity} = \exp\Big(\frac{1}{T-1}\sum_{t=1}^{T-1} \mathrm{loss}_t\Big)",
    )
    with page.tools():
        page.source(
            "lmcore.likelihood.predict",
            "logits = model(torch.tensor([ids])).logits[0].numpy()\n"
            "said = predict(logits, ids)\n"
            "said.logsumexp - said.logit, said.perplexity",
            key="tokens_loss_source",
        )
        page.csv(loss_csv(run.tokens, said), "loss.csv", key="tokens_loss_csv")


def dots(opened: models.Opened, run: runs.Run) -> None:
    cfg = opened.config
    tied = (
        "The unembedding is tied: w is also the row by which the token enters, in the embedding."
        if cfg.tied
        else f"The unembedding is untied: a matrix of its own, {group(cfg.vocab_size)} × {group(cfg.d_model)}."
    )
    page.section(
        "A logit is a dot product",
        f"The final normed residual h, {group(cfg.d_model)} numbers, is compared with one row w for each token of the "
        f"vocabulary. {tied} The likeliest next tokens after the selected position, each found twice:",
    )
    said = measured.prediction(opened, run)
    candidates = with_next(said.top_ids, run.tokens, CANDIDATES)
    found = measured.dots(opened, run, candidates)
    logits = run.logits[range(len(run.tokens)), candidates.T].T
    payload = dots_payload(
        vocabulary.tokens(opened, run.tokens),
        candidates=candidates,
        product=found.logit,
        logit=logits,
        normed_length=found.normed_length,
        row_length=found.row_length,
        token_of=lambda i: vocabulary.token(opened, i),
        transformed=cfg.head_bias or cfg.logit_scale != 1 or cfg.logit_softcap is not None,
    )
    components.mount("dots", payload, key="tokens_dots")
    page.formula(r"h = \mathrm{norm}(x_L)", r"z_v = h \cdot w_v = \lvert h \rvert \, \lvert w_v \rvert \cos\theta_v")
    with page.tools():
        page.source(
            "lmcore.measure.dot_products",
            "trace = model(torch.tensor([ids]), capture=Capture.of()).trace\n"
            "trace.final_normed[0, -1].double() @ model.unembedding.double().T",
            key="tokens_dots_source",
        )
        text = dots_csv(candidates, found.logit, logits)
        page.csv(text, "dot-products.csv", key="tokens_dots_csv")


def scripts(opened: models.Opened) -> None:
    known = opened.tokenizer
    page.section(
        "What a character costs",
        "One short sentence in several scripts, and some code, cut by this tokenizer. Few characters per token make a "
        "text long for the model. Choose a row to see the cuts.",
    )
    if known is None:
        st.info("This checkpoint has no tokenizer. Models from the list in the sidebar have one.")
        return
    rows = [(s, vocabulary.tokens(opened, known.encode(s.text, add_special=False))) for s in SENTENCES]
    components.mount("scripts", scripts_payload(rows), key="tokens_scripts")
    page.notice([scripts_point(rows)])
    with page.tools():
        page.source(
            "lmcore.tokenizer.Tokenizer.encode",
            'text = "Кошка спит на тёплом камне у реки."\nlen(text) / len(tokenizer.encode(text, add_special=False))',
            key="tokens_scripts_source",
        )
        page.csv(scripts_csv(rows), "characters-per-token.csv", key="tokens_scripts_csv")


def main() -> None:
    title = st.empty()
    with title.container():
        head(state.choice().label)
    opened = models.current(height=STRIP_PX)
    with guard():
        prompt = runs.prompt(opened, all_logits=True)
        ids = prompt.ids
        with title.container():
            head(f"{opened.name} · {group(len(ids))} {'token' if len(ids) == 1 else 'tokens'}")
        if ids:
            place = page.awaited("strip", height=STRIP_PX, phone=PHONE_PX)
            run = runs.run(opened, ids, "resid_post")
            strip(opened, run, place)
            if cut := runs.shortened(opened, prompt):
                page.prose(cut)
            loss(opened, run)
            dots(opened, run)
        else:
            page.empty_prompt()
    scripts(opened)


shell.ensure()
main()
