"""Continuations of one prompt as a tree: what they begin with alike is drawn once, and every node is a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from figures.payload import pack
from figures.tokens import Parts

PROMPT = -1
"""The parent of every first token."""


class Continuation(NamedTuple):
    """The tokens chosen after the prompt, and the log-probability that the model gave each."""

    tokens: Sequence[int]
    log_probs: Sequence[float]


class Tree(NamedTuple):
    """N nodes in an order in which parents come first; node n is `tokens[n]`, chosen at step `steps[n]`.

    `parents` holds the node before each, `PROMPT` for a first token. `rows`: the line that a node is drawn on. A line
    goes on with the first continuation that reached its nodes; one that parts from it has a line of its own, further
    down the earlier it parts, so that no edge crosses a line. `log_probs` of a node and `totals` from the first token
    to it. `ends`: the last node of each continuation.
    """

    tokens: np.ndarray
    steps: np.ndarray
    parents: np.ndarray
    rows: np.ndarray
    log_probs: np.ndarray
    totals: np.ndarray
    ends: tuple[int, ...]


def merged(continuations: Sequence[Continuation]) -> Tree:
    """The tree of these continuations; the first has the first line."""
    nodes: list[tuple[int, int, int, float, float]] = []  # token, step, parent, log p, total
    children: dict[int, dict[int, int]] = {PROMPT: {}}
    ends = []
    for tokens, log_probs in continuations:
        at = PROMPT
        for step, (token, log_p) in enumerate(zip(tokens, log_probs, strict=True)):
            if token not in children[at]:
                node = len(nodes)
                nodes.append((token, step, at, log_p, log_p + (nodes[at][4] if at >= 0 else 0.0)))
                children[at][token] = node
                children[node] = {}
            at = children[at][token]
        ends.append(at)
    columns = list(zip(*nodes, strict=True)) if nodes else [(), (), (), (), ()]
    return Tree(
        *(np.array(column, np.int32) for column in columns[:3]),
        rows=_rows(children, len(nodes)),
        log_probs=np.array(columns[3], np.float64),
        totals=np.array(columns[4], np.float64),
        ends=tuple(ends),
    )


def _rows(children: dict[int, dict[int, int]], count: int) -> np.ndarray:
    """Depth first: a node's first child shares its line, the others take the next free ones after its whole subtree."""
    rows, line, waiting = np.zeros(count, np.int32), 0, [PROMPT]
    while waiting:
        node = waiting.pop()
        if node != PROMPT:
            rows[node] = line
        below = list(children[node].values())
        waiting.extend(reversed(below))
        line += not below
    return rows


def tree_payload(
    continuations: Sequence[Continuation], *, names: Sequence[str], parts: Callable[[int], Parts], prompt: str
) -> bytes:
    """The payload of the tree component. The first continuation is the run as it is, and drawn as such.

    `names`: one for each continuation. `prompt`: what stands for the prompt, at the root. 40 bytes a node and the text
    of every token once; at most 9 continuations of 128 tokens.
    """
    tree = merged(continuations)
    meta = {
        "ends": list(tree.ends),
        "names": list(names),
        "prompt": prompt,
        "vocabulary": {str(token): parts(token) for token in np.unique(tree.tokens).tolist()},
    }
    return pack(meta, tree.tokens, tree.steps, tree.parents, tree.rows, tree.log_probs, tree.totals)
