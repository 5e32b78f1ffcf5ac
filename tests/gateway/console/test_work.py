"""What a page costs: it reads as much when there is much as when there is little, whatever the machine does besides."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

import sessions.index
from tests.journeys.daemon import KEY, Client, config, running

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import pytest

    from sessions.record import SessionRecord

FEW, MANY = 60, 300
MOST_QUERIES = 40
PAGES = (
    "",
    "/sessions",
    "/sessions?sort=cost",
    "/sessions?q=web",
    f"/sessions/{KEY}",
    "/memory",
    "/memory?q=bees",
    "/memory/topics",
    "/memory/runs",
    "/jobs",
    "/usage",
    "/settings",
)


class Work:
    """Counts what is read: questions to the database, and records of sessions that are decoded."""

    def __init__(self) -> None:
        self.queries = 0
        self.records = 0

    def asked(self, _c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self.queries += statement.lstrip().startswith(("SELECT", "WITH"))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Generator[Work]:
    work, decode = Work(), sessions.index.decode_row

    def noted(row: bytes) -> SessionRecord:
        work.records += 1
        return decode(row)

    monkeypatch.setattr("sessions.index.decode_row", noted)
    event.listen(Engine, "before_cursor_execute", work.asked)
    try:
        yield work
    finally:
        event.remove(Engine, "before_cursor_execute", work.asked)


async def filled(client: Client, first: int, last: int) -> None:
    """Sessions and memories with these numbers."""
    index = client.daemon.parts.store.index
    like = index.active(KEY)
    assert like is not None
    for number in range(first, last):
        key, session = f"agent:main:web:group:{number}", f"01ZZZZZZZZZZZZZZZZZZZZ{number:04}"
        index.put(replace(like, key=key, session=session, owner=None, active_at=like.active_at - timedelta(number)))
    content = "".join(f'{{"type":"memory","text":"Hive {n} has bees of kind {n * n}."}}\n' for n in range(first, last))
    status, told = await client.call("POST", "/v1/memories/import-file", content.encode())
    assert (status, told["added"]) == (200, last - first), told


async def cost_of(client: Client, work: Work, page: str) -> tuple[int, int]:
    """(queries, records) of a page: of the cheapest of three looks, since the daemon has work of its own."""
    seen: list[tuple[int, int]] = []
    for _ in range(3):
        work.queries = work.records = 0
        await client.get(f"/console{page}")
        seen.append((work.queries, work.records))
    return min(queries for queries, _ in seen), min(records for _, records in seen)


async def test_no_page_reads_more_when_there_is_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "data", config()) as client:
        await client.say("hi")
        await filled(client, 0, FEW)
        with counted(monkeypatch) as work:
            little = {page: await cost_of(client, work, page) for page in PAGES}
            await filled(client, FEW, MANY)
            much = {page: await cost_of(client, work, page) for page in PAGES}
    more = {page: (little[page], cost) for page, cost in much.items() if max(map(operator.sub, cost, little[page])) > 0}
    assert not more
    assert max(queries for queries, _ in little.values()) <= MOST_QUERIES, little
    assert max(records for _, records in little.values()) <= FEW, little
