"""What can go wrong with memories; every message says what to do."""

from __future__ import annotations

from typing import cast


class MemoryProblem(Exception):
    """Base of all refusals of memory."""


class InvalidMemory(MemoryProblem, ValueError):
    """A field cannot be kept as it was given; `field` names it."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}.")
        self.field = field
        self.why = why


class OnlySecrets(InvalidMemory):
    """Of a text nothing is left without its secrets."""

    def __init__(self) -> None:
        super().__init__("text", "holds nothing but a secret, which is not kept; write what it is for, without it")


class NotThere(MemoryProblem):
    """There is no such thing, or this viewer may not see it: the same answer for both."""

    def __init__(self, what: str) -> None:
        super().__init__(f"There is no {what} here, or you may not see it.")
        self.what = what


class MemoryConflict(MemoryProblem):
    """The write would go against what is there; nothing was changed."""


class Forgotten(MemoryProblem):
    """The fact was deleted; only a person or an explicit tool may bring it back."""


class MemoryUnavailable(MemoryProblem):
    """The records cannot be reached now; try again in a moment."""


def innermost(error: Exception) -> BaseException:
    """The first error of a group, or of a group in it."""
    found: BaseException = error
    while isinstance(found, BaseExceptionGroup):
        found = cast("BaseExceptionGroup[BaseException]", found).exceptions[0]
    return found
