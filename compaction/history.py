"""The messages of one generation, rendered once: a call looks at what is new, not at the whole conversation."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from compaction.fingerprints import Chain
from sessions.context import Conversation, UserMessage, render_messages, retracted, uncarried
from sessions.entries import RetractedEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessions.context import Message
    from sessions.entries import Entry


class RenderedHistory:
    """`named`: a person's name stands before what they said, as in groups. The entries given may only grow."""

    __slots__ = ("_chain", "_messages", "_named", "_settled")

    def __init__(self, *, named: bool) -> None:
        self._named = named
        self._settled = 0
        self._messages: list[Message] = []
        self._chain = Chain()

    def render(self, entries: Sequence[Entry], turns: frozenset[str] | None) -> tuple[tuple[Message, ...], Chain]:
        """What sessions.context.render_messages says of all entries, and its chain."""
        fresh = entries[self._settled :]
        if self._settled and any(isinstance(entry, RetractedEntry) for entry in fresh):
            self._settled, self._messages, self._chain = 0, [], Chain()
            fresh = entries
        count = settled_entries(fresh)
        if count:
            done = self._rendered(fresh[:count], None)
            self._messages += done
            self._chain.add(done)
            self._settled += count
            fresh = fresh[count:]
        tail = self._rendered(fresh, turns)
        return (*self._messages, *tail), self._chain.followed_by(tail)

    def _rendered(self, entries: Sequence[Entry], turns: frozenset[str] | None) -> list[Message]:
        messages = render_messages(entries, turns=turns)
        return [named(message) for message in messages] if self._named else messages


def named(message: Message) -> Message:
    """In a group the model is told who speaks."""
    if isinstance(message, UserMessage) and message.name:
        return dataclasses.replace(message, text=f"{message.name}: {message.text}")
    return message


def settled_entries(entries: Sequence[Entry]) -> int:
    """How many of the first entries nothing that comes later can change or move: up to the end of a turn while none
    waits and no call waits for its result. What is retracted after it unsettles everything before it."""
    flat = uncarried(entries)
    arranged = Conversation(retracted(flat))
    settled = 0
    for position, entry in enumerate(flat, 1):
        arranged.take(entry)
        if isinstance(entry, RetractedEntry):
            settled = 0
        if arranged.settled:
            settled = position
    return settled
