"""The branches that were left: one beside the run as it is, and the way back to it."""

from __future__ import annotations

import streamlit as st

from figures.format import group, sig
from figures.texts import Version, first_difference, texts_payload
from lmcore.sampling import Sampler
from ui import branches, components, decoding, models, page, vocabulary
from ui.branches import Branch
from ui.markdown import plain


def section(opened: models.Opened, run: decoding.Decoding, plan: decoding.Plan, sampler: Sampler, seed: int) -> None:
    """Nothing while no branch was left."""
    now = run.branch()
    left = [branch for branch in reversed(plan.branches) if not branches.starts(now.tokens, branch.tokens)]
    if not left:
        return
    page.section(
        "Branches",
        "A continuation stays here when its steps are taken back, when another token is chosen or another sampler "
        "draws one. Log-probabilities are the model’s own, before the sampler.",
    )
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        at = st.selectbox(
            "Branch that was left",
            range(len(left)),
            format_func=lambda index: label(opened, now, left[index]),
            key="decode_branch",
            width=420,
        )
        branch = left[min(int(at or 0), len(left) - 1)]
        st.button("Return to it", on_click=plan.back_to, args=(branch, sampler, seed), key="decode_return")
    versions = [
        Version("The run as it is", now.tokens, total(now)),
        Version("The branch", branch.tokens, total(branch)),
    ]
    payload = texts_payload(versions, piece=lambda token: vocabulary.generated(opened, token))
    components.mount("texts", payload, key="decode_branches")
    page.notice(points(opened, now, branch))


def label(opened: models.Opened, now: Branch, branch: Branch) -> str:
    """Where a branch leaves the run, and with which token; plain text."""
    same = first_difference([now.tokens, branch.tokens])
    many = f"{group(len(branch.tokens))} step{'s' if len(branch.tokens) > 1 else ''}"
    return f"at step {same}: {vocabulary.label(opened, branch.tokens[same])} ({many})"


def total(branch: Branch) -> str:
    many = len(branch.tokens)
    return f"log p {sig(sum(branch.log_probs), 4)} for {group(many)} token{'s' if many > 1 else ''}"


def points(opened: models.Opened, now: Branch, branch: Branch) -> list[str]:
    """Where the two part, and what the model thinks of either."""
    same, both = first_difference([now.tokens, branch.tokens]), min(len(now.tokens), len(branch.tokens))
    if same == len(now.tokens):
        return [f"The run as it is ends where the branch goes on, with step {same}."]
    mine, other = (f"**{plain(vocabulary.label(opened, b.tokens[same]))}**" for b in (now, branch))
    given = [sig(b.log_probs[same], 3) for b in (now, branch)]
    first = f"They part at step {same}: {mine} has log p {given[0]}, {other} {given[1]}."
    sums = [sum(b.log_probs[:both]) for b in (now, branch)]
    return [first, f"Over the {group(both)} steps that both have, log p is {sig(sums[0], 4)} and {sig(sums[1], 4)}."]
