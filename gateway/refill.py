"""Brings the usage ledger up to the transcripts: what a crash has cut off is in them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from gateway.ledger import LedgerClosed
from gateway.replies import CallNote
from sessions.entries import AssistantEntry
from sessions.files import StorageError
from sessions.listing import PageQuery
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gateway.parts import Parts
    from sessions.index import Index
    from sessions.record import SessionRecord

log = structlog.get_logger()

MARGIN = timedelta(hours=1)
RETRY_S = 5.0


async def refill(parts: Parts) -> None:
    """Notes the calls whose replies are in transcripts, but whose rows were not written before the last stop or crash.

    Looks at sessions used since an hour before the newest row, one after the other, and at all of them when there is no
    row; a row that is there already is left alone. A full disk delays it.
    """
    while True:
        try:
            latest = await parts.ledger.latest()
            await _note_since(parts, None if latest is None else latest - MARGIN)
        except LedgerClosed as error:
            log.warning("ledger.not_refilled", error=str(error), retry_s=RETRY_S)
            await parts.clock.sleep(RETRY_S)
        else:
            return


async def _note_since(parts: Parts, since: datetime | None) -> None:
    for record in _used_since(parts.store.index, since):
        try:
            entries = await parts.store.peek(record.session, former=since is None)
        except SessionGone:
            continue  # deleted since the page was read
        except StorageError as error:
            log.warning("ledger.transcript_not_read", session=record.session, error=str(error))
            continue
        for entry in entries:
            if isinstance(entry, AssistantEntry) and entry.usage is not None and (since is None or entry.at > since):
                parts.ledger.note(_note_of(parts, record.key, record.agent, entry), at=entry.at)


def _used_since(index: Index, since: datetime | None) -> Iterator[SessionRecord]:
    """Records with activity after `since`, without looking at older ones."""
    for state in ("active", "former", "archived"):
        cursor: str | None = None
        while True:
            page, cursor = index.page(PageQuery(limit=200, cursor=cursor, state=state))
            for record in page:
                if since is not None and record.active_at < since:
                    cursor = None
                    break
                yield record
            if cursor is None:
                break


def _note_of(parts: Parts, key: str, agent: str, entry: AssistantEntry) -> CallNote:
    assert entry.usage is not None  # noqa: S101
    model = entry.model or ""
    name = parts.models.name_of(model)
    return CallNote(
        id=entry.id,
        session=(entry.turn or "").partition("-")[0],
        key=key,
        user=None,
        agent=agent,
        role="chat",
        model_name=name,
        model=model,
        usage=entry.usage,
        cost=parts.ledger.cost(name, model, entry.usage),
        duration_s=0,
    )
