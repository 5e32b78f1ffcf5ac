"""Ends sessions when their time is up, not only at the next message (spec sessions.md, "Resets")."""

from __future__ import annotations

import asyncio
import heapq
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from sessions.cleanup import used_at
from sessions.entries import EndedEntry
from sessions.files import StorageError
from sessions.keys import MalformedKey, parse_key
from sessions.resets import SET_BACK, effective_reset, next_reset_at
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from sessions.entries import EndReason, Entry
    from sessions.keys import SessionKey
    from sessions.policy import ResetPolicy
    from sessions.record import SessionRecord
    from sessions.resets import EffectiveReset
    from sessions.session import Session
    from sessions.store import SessionStore

AT_ONCE = 4
SLICE = 50
AGAIN = timedelta(seconds=60)

log = structlog.get_logger()

Outcome = Literal["ended", "busy", "not due"]


class Ends(Protocol):
    """Ends a session between two messages; `gateway.turns.Turns` does."""

    async def end_if_due(self, key: SessionKey, session_id: str) -> Outcome: ...


def session_ended(
    told: Iterable[Callable[[SessionRecord, EndReason], None]],
) -> Callable[[Session, Sequence[Entry]], None]:
    """A hook for `SessionStore.after_append`: each of `told` hears of every session that has ended, however it did.

    They must not wait. A deleted session is not told: nothing of it is to be learnt.
    """

    def hook(session: Session, written: Sequence[Entry]) -> None:
        for entry in written:
            if isinstance(entry, EndedEntry) and entry.reason != "deleted":
                for one in told:
                    one(session.record, entry.reason)

    return hook


def log_ended(record: SessionRecord, reason: EndReason) -> None:
    """The first of those who are told."""
    log.debug("session.ended", session=record.session, reason=reason, messages=record.messages)


class SessionTimer:
    """Knows for every session that goes on when to look at it next; a thing of the scheduler.

    A message only ever moves a reset further away, so a session is looked at when it was due by its last look, and
    costs nothing in between, whatever is said in it.
    """

    name = "session resets"

    def __init__(
        self, *, store: SessionStore, turns: Ends, policy: ResetPolicy, machine_zone: ZoneInfo, wake: Callable[[], None]
    ) -> None:
        self._store = store
        self._turns = turns
        self._policy = policy
        self._machine_zone = machine_zone
        self._wake = wake
        self._looks: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []
        self._busy: set[str] = set()
        self._rules: dict[tuple[str, str | None], EffectiveReset] = {}
        self._seeded = False
        self._now: datetime | None = None

    # --- when to look ---------------------------------------------------------------------------------------------

    def next_due(self, now: datetime) -> datetime | None:
        if self._now is not None and self._now - now > SET_BACK:
            self._looks.clear()
            self._heap.clear()
            self._seeded = False
        self._now = now
        if not self._seeded:
            return now
        while self._heap and self._looks.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def consider(self, record: SessionRecord) -> None:
        """Looks at a session when it is due as it is now: it is new, goes on again, or has other settings."""
        try:
            self._look(record.session, None if record.ended else self._due(record))
        except MalformedKey as error:
            log.warning("session.not_timed", session=record.session, error=str(error))

    def turn_done(self, session: Session) -> None:
        """A hook for the turns: a session that was due during a turn ends right after it."""
        if session.id in self._busy:
            self._look(session.id, session.record.active_at)

    def appended(self, session: Session, _: Sequence[Entry]) -> None:
        """A hook for the store: a session that is not known yet is looked at."""
        if session.id not in self._looks and not session.ended:
            self.consider(session.record)

    def _look(self, session_id: str, at: datetime | None) -> None:
        self._busy.discard(session_id)
        if at is None:
            self._looks.pop(session_id, None)
            return
        self._looks[session_id] = at
        heapq.heappush(self._heap, (at, session_id))
        if self._heap[0] == (at, session_id):
            self._wake()

    def _due(self, record: SessionRecord) -> datetime | None:
        return next_reset_at(
            self._rules_of(record),
            started_at=record.resumed_at or record.created_at,
            active_at=used_at(record),
            now=self._now or record.active_at,
        )

    def _rules_of(self, record: SessionRecord) -> EffectiveReset:
        """Sessions without settings of their own share the rules of their type and channel."""
        if record.settings.reset is not None:
            key = parse_key(record.key)
            return effective_reset(self._policy, key, record.settings.reset, self._machine_zone)
        kind = (record.type, record.channel)
        if kind not in self._rules:
            self._rules[kind] = effective_reset(self._policy, parse_key(record.key), None, self._machine_zone)
        return self._rules[kind]

    # --- looking --------------------------------------------------------------------------------------------------

    async def run_due(self, now: datetime) -> None:
        """Ends what is due, a few at once: at four in the morning that may be everybody."""
        if not self._seeded:
            await self._seed()
        ended = 0
        while due := self._pop_due(now):
            ended += sum(await asyncio.gather(*(self._end(session_id, now) for session_id in due)))
            await asyncio.sleep(0)
        if ended:
            log.info("sessions.ended", count=ended)

    async def _seed(self) -> None:
        """All sessions that go on, in slices, so that nobody waits for it."""
        for number, session_id in enumerate(self._store.index.going_on(), 1):
            record = self._store.index.find(session_id)
            if record is not None and session_id not in self._looks:
                self.consider(record)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        self._seeded = True
        log.debug("sessions.timed", count=len(self._looks))

    def _pop_due(self, now: datetime) -> list[str]:
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(due) < AT_ONCE:
            at, session_id = heapq.heappop(self._heap)
            if self._looks.get(session_id) == at:
                del self._looks[session_id]
                due.append(session_id)
        return due

    async def _end(self, session_id: str, now: datetime) -> bool:
        record = self._store.index.find(session_id)
        if record is None or record.ended is not None or record.state != "active" or record.messages == 0:
            return False
        due = self._due(record)
        if due is None or due > now:
            self._look(session_id, due)
            return False
        try:
            outcome = await self._turns.end_if_due(parse_key(record.key), session_id)
        except StorageError as error:
            log.warning("session.not_ended", session=session_id, error=str(error))
            self._look(session_id, now + AGAIN)
            return False
        except SessionGone:
            return False
        if outcome != "ended":
            self._look(session_id, now + AGAIN)
        if outcome == "busy":
            self._busy.add(session_id)
        return outcome == "ended"
