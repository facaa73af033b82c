"""The branches that were left: all of them as a tree, two of them beside each other, and the way back to any."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from figures.decode import streamed
from figures.format import group, sig
from figures.texts import Version, first_difference, texts_payload
from figures.tree import Continuation, tree_payload
from lmcore.sampling import Sampler
from ui import branches, components, decoding, guard, models, page, runs, vocabulary
from ui.branches import Branch
from ui.markdown import plain

NOW, END = "The run as it is", 28


@partial(guard.fragment, key="decode_branches")
def section(opened: models.Opened, prompt: runs.Prompt, plan: decoding.Plan) -> None:
    """Nothing while no branch was left."""
    run = decoding.run(opened, prompt.ids)
    sampler, seed, now = run.decoder.sampler, run.decoder.seed, run.branch()
    left = [branch for branch in reversed(plan.branches) if not branches.starts(now.tokens, branch.tokens)]
    if not left and not plan.unscored:
        return
    page.section(
        "Branches",
        "A continuation stays here when its steps are taken back, when another token is chosen or another sampler "
        f"draws one: the newest {branches.MOST}, which a link holds, too. What they begin with alike is drawn once. "
        "Log-probabilities are the model’s own, before the sampler.",
    )
    if plan.unscored:
        with page.awaited("decode_tree", height=190)():
            run.score(plan)
        left = [branch for branch in reversed(plan.branches) if not branches.starts(now.tokens, branch.tokens)]
        if not left:
            page.prose("Those of the link are what this run begins with.")
            return
    listed = [now, *left]
    names = [NOW, *labels(opened, left)]
    if (path := asked(tree(opened, listed, names))) is not None and go(plan, listed, path, sampler, seed):
        st.rerun()
    _beside(opened, plan, listed, names, sampler, seed)


def tree(opened: models.Opened, listed: Sequence[Branch], names: Sequence[str]) -> object:
    """Draws the tree; what it answers, which is not to be trusted: the tokens from the prompt to the node chosen."""
    payload = tree_payload(
        [Continuation(branch.tokens, branch.log_probs) for branch in listed],
        names=[names[0].lower(), *(f"the branch “{name}”" for name in names[1:])],
        parts=lambda token: vocabulary.token(opened, token).parts,
        prompt="prompt",
    )
    return components.mount("tree", payload, key="decode_tree", triggers=("go",)).go


def asked(answer: object) -> tuple[int, ...] | None:
    """The path that the tree answered, if it is one."""
    if not isinstance(answer, list) or not 0 < len(answer) <= decoding.MAX_STEPS:
        return None
    whole = all(isinstance(token, int | float) and token == int(token) for token in answer)
    return tuple(int(token) for token in answer) if whole else None


def go(plan: decoding.Plan, listed: Sequence[Branch], path: tuple[int, ...], sampler: Sampler, seed: int) -> bool:
    """Make the steps of this path, which one of the branches begins with; whether one does."""
    branch = next((branch for branch in listed if branches.starts(branch.tokens, path)), None)
    if branch is None:
        return False
    plan.back_to(branch, sampler, seed)
    plan.to(len(path))
    return True


def _beside(
    opened: models.Opened,
    plan: decoding.Plan,
    listed: Sequence[Branch],
    names: Sequence[str],
    sampler: Sampler,
    seed: int,
) -> None:
    """Two branches that the reader chooses, their texts and where they part."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        chosen = [
            st.selectbox(title, names, start, key=key, width=380)
            for title, start, key in (("Compare", 0, "decode_branch_one"), ("with", 1, "decode_branch"))
        ]
        one, other = (listed[names.index(name)] for name in chosen)

        def back() -> None:
            plan.back_to(other, sampler, seed)
            st.rerun()

        st.button(
            "Return to it",
            on_click=back,
            disabled=other is listed[0],
            key="decode_return",
        )
    versions = [
        Version(NOW if branch is listed[0] else f"The {place} branch", branch.tokens, total(branch))
        for branch, place in ((one, "first"), (other, "second"))
    ]
    payload = texts_payload(versions, piece=lambda token: vocabulary.generated(opened, token))
    components.mount("texts", payload, key="decode_branches")
    page.notice(points(opened, one, other))


def labels(opened: models.Opened, left: Sequence[Branch]) -> list[str]:
    """A name for each branch that stays its own whatever the run does: how it ends, and how long it is. Plain text."""
    found: list[str] = []
    for branch in left:
        text = "".join(part for part, _ in streamed([vocabulary.generated(opened, token) for token in branch.tokens]))
        end = " ".join(text.split())
        many = f"{group(len(branch.tokens))} token{'s' if len(branch.tokens) > 1 else ''}"
        name = f"{'…' if len(end) > END else ''}{end[-END:]} ({many})"
        found.append(name if name not in found else f"{name}, {len(found) + 1}")
    return found


def total(branch: Branch) -> str:
    many = len(branch.tokens)
    return f"log p {sig(sum(branch.log_probs), 4)} for {group(many)} token{'s' if many > 1 else ''}"


def points(opened: models.Opened, one: Branch, other: Branch) -> list[str]:
    """Where the two part, and what the model thinks of either."""
    same, both = first_difference([one.tokens, other.tokens]), min(len(one.tokens), len(other.tokens))
    if one.tokens == other.tokens:
        return ["They are the same: choose two that differ."]
    if same == both:
        short = "first" if len(one.tokens) < len(other.tokens) else "second"
        return [f"The {short} ends where the other goes on, with step {same}."]
    mine, its = (f"**{plain(vocabulary.label(opened, b.tokens[same]))}**" for b in (one, other))
    given = [sig(b.log_probs[same], 3) for b in (one, other)]
    first = f"They part at step {same}: {mine} has log p {given[0]}, {its} {given[1]}."
    sums = [sum(b.log_probs[:both]) for b in (one, other)]
    return [first, f"Over the {group(both)} steps that both have, log p is {sig(sums[0], 4)} and {sig(sums[1], 4)}."]
