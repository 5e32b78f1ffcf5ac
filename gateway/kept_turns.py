"""Turns that ended a moment ago, kept so that their events can be replayed."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.turn import Turn

KEPT_CHARACTERS = 16_000_000
"""How much text they may hold in memory; what goes can still be read back from its transcript."""


class KeptTurns:
    """The last `limit` turns that ended, without their sessions."""

    def __init__(self, limit: int, characters: int = KEPT_CHARACTERS) -> None:
        self._limit = limit
        self._most = characters
        self._turns: OrderedDict[str, tuple[Turn, int]] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._turns)

    def find(self, wanted: str) -> Turn | None:
        turn, _ = self._turns.get(wanted, (None, 0))
        return turn

    def keep(self, turn: Turn) -> None:
        """The oldest beyond the limits go."""
        self._drop(turn.id)
        size = _characters_of(turn)
        self._turns[turn.id] = turn, size
        self._characters += size
        while self._turns and (len(self._turns) > self._limit or self._characters > self._most):
            self._drop(next(iter(self._turns)))

    def forget(self, session_id: str) -> None:
        """Those of a session that is deleted are found no more."""
        for wanted in [turn.id for turn, _ in self._turns.values() if turn.record.session == session_id]:
            self._drop(wanted)

    def _drop(self, wanted: str) -> None:
        _, size = self._turns.pop(wanted, (None, 0))
        self._characters -= size


def _characters_of(turn: Turn) -> int:
    """Its entries, and its events, which say the reply again."""
    if turn.result is None:
        return 0
    return len(turn.result.text) + sum(len(getattr(entry, "text", "")) for entry in turn.result.entries)
