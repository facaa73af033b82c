"""The errors a user or a file can cause. Each says what was found, what was expected, where, and what to do."""

from __future__ import annotations


class LmcoreError(Exception):
    """What was found, what was expected, where (file, tensor, field), what to do; `str()` joins them in that order."""

    def __init__(self, found: str, *, expected: str = "", where: str = "", todo: str = "") -> None:
        self.found, self.expected, self.where, self.todo = found, expected, where, todo
        super().__init__(found, expected, where, todo)

    def __str__(self) -> str:
        parts = [self.found]
        if self.expected:
            parts.append(f"expected {self.expected}")
        text = ", ".join(parts) + "."
        if self.where:
            text += f" In {self.where}."
        return f"{text} {self.todo}".strip()


class ConfigError(LmcoreError):
    """A configuration that describes no model, or one that lmcore cannot run."""


class CheckpointError(LmcoreError):
    """A file that is missing, damaged, hostile or of a kind that is refused."""


class CapacityError(LmcoreError):
    """More positions, memory or tokens than there is room for."""


class InputError(LmcoreError):
    """Tokens, text or a setting that the model cannot take."""


class NotInModel(LmcoreError):
    """What was asked for is a thing that this model does not have: weights, rotary positions, a chat template."""


class Cancelled(LmcoreError):
    """The caller's progress function asked to stop."""
