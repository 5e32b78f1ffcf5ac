"""Replies of sessions that are to be pushed: each goes into the outbox once, also after a crash."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from gateway.jobs.store import JobsClosed, Mark
from sessions.entries import AssistantEntry
from sessions.files import StorageError
from sessions.listing import PageQuery
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from gateway.clock import Clock
    from gateway.jobs.outbox import Outbox
    from gateway.jobs.policy import DeliverTo
    from gateway.jobs.store import JobStore
    from sessions.entries import Entry
    from sessions.session import Session
    from sessions.store import SessionStore

log = structlog.get_logger()

RETRY_S = 5.0
LOOK_BACK = timedelta(days=1)


class FollowedSessions:
    """Sessions under the prefixes of `deliver.sessions`."""

    def __init__(
        self,
        targets: Mapping[str, DeliverTo],
        *,
        store: JobStore,
        outbox: Outbox,
        sessions: SessionStore,
        clock: Clock,
    ) -> None:
        self._targets = targets
        self._store = store
        self._outbox = outbox
        self._sessions = sessions
        self._clock = clock
        self._began = clock.now()
        self._since: dict[str, datetime] = {}
        self._waiting: asyncio.Queue[str] = asyncio.Queue()

    async def open(self) -> None:
        """Learns since when each prefix is followed. Raises JobsClosed."""
        self._since = await self._store.follow(tuple(self._targets), self._began)

    def turn_done(self, session: Session) -> None:
        """To be called after every turn."""
        if target_for(session.record.key, self._targets) is not None:
            self._waiting.put_nowait(session.id)

    async def run(self) -> None:
        """Until it is cancelled. What was replied just before a crash is looked for first."""
        if not self._targets:
            return
        self._look_back()
        while True:
            session_id = await self._waiting.get()
            try:
                await self._enter(session_id)
            except SessionGone:
                log.debug("delivery.session_gone", session=session_id)
            except (JobsClosed, StorageError) as error:
                log.warning("delivery.not_entered", session=session_id, error=str(error), retry_s=RETRY_S)
                self._waiting.put_nowait(session_id)
                await self._clock.sleep(RETRY_S)

    def _look_back(self) -> None:
        """Sessions with activity within the last day that some prefix names."""
        since = self._clock.now() - LOOK_BACK
        cursor: str | None = None
        while True:
            page, cursor = self._sessions.index.page(PageQuery(limit=200, cursor=cursor, state="active"))
            for record in page:
                if record.active_at < since:
                    return
                if target_for(record.key, self._targets) is not None:
                    self._waiting.put_nowait(record.session)
            if cursor is None:
                return

    async def _enter(self, session_id: str) -> None:
        """Its replies that are not in the outbox yet, with the mark up to where they are, in one transaction."""
        session = await self._sessions.open(session_id)
        key = session.record.key
        target = target_for(key, self._targets)
        mark = await self._store.mark(session_id)
        since = self._from_when(key)
        new = [entry for entry in session.entries if is_reply(entry) and entry.seq > (mark or 0) and entry.at >= since]
        if target is None or not new:
            return
        drafts = [
            self._outbox.draft(target, key=key, kind="session.reply", turn=entry.turn, facts={"session": session_id})
            for entry in new
        ]
        await self._store.save(deliveries=drafts, marks=[Mark(session_id, new[-1].seq)])
        self._outbox.wake()

    def _from_when(self, key: str) -> datetime:
        """Replies before this are not sent. One that is followed from a time to come was noted by a wrong clock."""
        now = self._clock.now()
        since = self._since.get(prefix_for(key, self._targets) or "", now)
        return now - LOOK_BACK if since > now else max(since, now - LOOK_BACK)


def is_reply(entry: Entry) -> bool:
    """Whether an entry is the end of a turn of a model; replies that were delivered here are not sent on."""
    if not isinstance(entry, AssistantEntry) or entry.finish in ("tool_calls", "client_tools"):
        return False
    return entry.turn is not None and not entry.turn.startswith("delivery-")


def target_for(key: str, targets: Mapping[str, DeliverTo]) -> DeliverTo | None:
    """The target of the longest prefix that names the key."""
    prefix = prefix_for(key, targets)
    return None if prefix is None else targets[prefix]


def prefix_for(key: str, prefixes: Iterable[str]) -> str | None:
    """The longest prefix that names the key, by whole words."""
    named = [prefix for prefix in prefixes if f"{key}:".startswith(prefix if prefix.endswith(":") else f"{prefix}:")]
    return max(named, key=len, default=None)
