"""The step that the sections of the Decode page look at: one cursor, which its components move in the browser.

They write it into the address without a message. A component that needs another step from Python sends where the
cursor is, so the newest answer counts, for as long as the run has the steps that it was given for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ui import components

if TYPE_CHECKING:
    from lmcore.decode import Step
    from ui.decoding import Decoding, Plan


@dataclass
class Cursor:
    """Step `step` of a run of `of` steps, as said at `when` by the browser's clock, in milliseconds."""

    step: int = 0
    of: int = 0
    when: float = 0.0

    def hear(self, answer: object) -> None:
        """Take over what a component sent, if it is newer; it is not to be trusted."""
        given = answer if isinstance(answer, Mapping) else {}
        step, of, when = (_number(given.get(name)) for name in ("step", "of", "when"))
        if 0 <= step < of <= 10_000 and when > self.when:
            self.step, self.of, self.when = int(step), int(of), when


def _number(value: object) -> float:
    """The number sent, or one that is no place and no time."""
    return -1.0 if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def looked_at(run: Decoding, plan: Plan, key: str) -> Step:
    """The step of the cursor, which the component mounted under `key` may have moved; else the newest."""
    plan.cursor.hear(components.sent(key, "cursor"))
    here = plan.cursor.of == len(run.steps) and plan.cursor.step < len(run.steps)
    return run.steps[plan.cursor.step if here else -1]
