"""Sessions that are kept in memory because somebody may come back to them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sessions.session import Session

OVERHEAD_BYTES = 3000
PER_BYTE = 2
"""What a session takes beside its transcript, and what a byte of that takes as objects; measured, and about right for
entries of any length."""


class SessionCache:
    """The most recently used sessions, up to `limit` bytes of memory.

    A session that somebody still holds stays the one object of its id: letting go only drops our own reference.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, tuple[Session, int]] = OrderedDict()
        self._bytes = 0

    def __iter__(self) -> Iterator[Session]:
        return (session for session, _ in self._kept.values())

    def keep(self, session: Session) -> None:
        """Marks a session as used now, with what it weighs now; the longest unused ones beyond the limit go."""
        self.drop(session.id)
        weight = OVERHEAD_BYTES + PER_BYTE * session.record.size
        self._kept[session.id] = session, weight
        self._bytes += weight
        while self._bytes > self._limit and len(self._kept) > 1:
            self.drop(next(iter(self._kept)))

    def drop(self, session_id: str) -> None:
        """Nobody is expected to come back to it."""
        _, weight = self._kept.pop(session_id, (None, 0))
        self._bytes -= weight
