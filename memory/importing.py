"""A file of memories taken in: all its lines are checked before the first write, and written in one transaction."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from itertools import islice
from typing import IO, TYPE_CHECKING, TypeVar

from sqlalchemy import or_, select

from memory.access import INSTANCE, check_may_change_topic, readable_project, readable_topic, writable_pool
from memory.cleaning import checked_importance, checked_text
from memory.errors import Forgotten, InvalidMemory, NotThere, OnlySecrets
from memory.known import bury
from memory.portable import MAX_LINE_BYTES, Tombstone, at_line, parse_lines
from memory.records import Draft, TopicDraft, folded_name
from memory.rows import owner_name, topic_from_row
from memory.tables import projects, topics
from memory.topic_plan import plan_topics
from memory.topic_store import insert_topic, new_topic
from memory.topics import MAX_TOPICS, check_scope, checked_draft, checked_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory.operation import Operation
    from memory.policy import RecordsPolicy
    from memory.portable import Item
    from memory.records import Pool, Topic, Written
    from memory.topic_plan import TopicPlan
    from memory.writes import Writes

T = TypeVar("T")

PIECE = 100
"""Memories written at once: what comes between is not held up by more."""

SHOWN = 20
"""Lines named in a note."""

MOST_TOPICS = 2 * MAX_TOPICS
"""An export has those of the pool and those of the instance."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of an import. `forgotten` were deleted here before and stay so; `topics` had to be made; `notes` tell
    what is not as in the file."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    forgotten: int = 0
    redacted: int = 0
    topics: int = 0
    notes: tuple[str, ...] = ()


class Intake:
    """A file on its way into a pool. It is read three times from its beginning, a hundred lines at once."""

    def __init__(self, file: IO[bytes], pool: Pool, policy: RecordsPolicy, new_id: Callable[[], str]) -> None:
        self._file = file
        self._pool = pool
        self._policy = policy
        self._new_id = new_id
        self._given: dict[str, TopicDraft] = {}
        self._topics: dict[str, Topic] = {}
        self._without = 0
        self._secrets: list[str] = []

    def check(self) -> None:
        """Reads every line, also what it means; blocking. Raises InvalidMemory with the line."""
        for where, item in self._items():
            with at_line(where):
                match item:
                    case TopicDraft():
                        draft = checked_draft(item)
                        self._given[folded_name(draft.name)] = draft
                        if len(self._given) > MOST_TOPICS:
                            raise InvalidMemory("topics", f"a file has at most {MOST_TOPICS}")
                    case Draft():
                        checked_text(item.text, self._policy.max_characters)
                        checked_properties(item.properties)
                        checked_importance(5 if item.importance is None else item.importance)
                    case Tombstone():
                        pass

    async def write(self, operation: Operation, writes: Writes) -> Imported:
        """All of a file that was checked, in the operation's transaction. What was deleted here stays deleted.

        Raises InvalidMemory, NotThere, MemoryConflict: then nothing may be kept.
        """
        await writable_pool(operation.connection, operation.viewer, self._pool)
        plan = await self._plan(operation)
        self._topics, self._without, self._secrets = dict(plan.there), 0, []
        for name, draft in plan.fresh.items():
            topic = new_topic(draft, self._pool, self._new_id(), operation.now)
            await insert_topic(operation.connection, operation.viewer, topic, operation.now)
            self._topics[name] = topic
        stones = (item.digest for _, item in self._items() if isinstance(item, Tombstone))
        while part := await asyncio.to_thread(_some, stones):
            await bury(operation.connection, self._pool, part, operation.now)
        counts = await self._write_drafts(operation, writes)
        notes = plan.notes
        if self._without:
            notes += (f"{self._without} memories have no topic: theirs is not here, and not in the file.",)
        if self._secrets:
            notes += (_left_out(self._secrets),)
        return Imported(**counts, topics=len(plan.fresh), notes=notes)

    async def _write_drafts(self, operation: Operation, writes: Writes) -> dict[str, int]:
        """In pieces, each an operation of the history of its own: taking one back does not take back everything."""
        counts: Counter[str] = Counter()
        drafts = ((where, self._placed(where, item)) for where, item in self._items() if isinstance(item, Draft))
        while part := await asyncio.to_thread(_some, drafts):
            for outcome in await self._add(part, writes):
                counts.update(_words(outcome))
            await operation.flush()
            operation.name = self._new_id()
        return dict(counts)

    async def _add(self, part: list[tuple[str, Draft]], writes: Writes) -> list[Written | Forgotten]:
        """What is nothing but a secret is left out, and its line noted."""
        try:
            return await writes.add([draft for _, draft in part])
        except OnlySecrets:
            if len(part) > 1:
                return [outcome for one in part for outcome in await self._add([one], writes)]
            self._secrets.append(part[0][0])
            return []

    def _placed(self, where: str, draft: Draft) -> Draft:
        if draft.topic is None:
            return draft
        topic = self._topics.get(folded_name(draft.topic))
        if topic is None:
            self._without += 1
            return dataclasses.replace(draft, topic=None)
        with at_line(where):
            check_scope(topic, draft.properties)
        return dataclasses.replace(draft, topic=topic.id)

    async def _plan(self, operation: Operation) -> TopicPlan:
        connection, viewer = operation.connection, operation.viewer
        own, instance = topics.c.owner == owner_name(self._pool), topics.c.owner == INSTANCE
        query = select(topics).where(or_(own, instance), readable_topic(viewer, topics.c.owner)).order_by(own)
        found = [topic_from_row(row) for row in (await connection.execute(query)).mappings()]
        bound = {draft.project for draft in self._given.values() if draft.project is not None}
        member = select(projects.c.id).where(projects.c.id.in_(bound), readable_project(viewer))
        try:
            check_may_change_topic(viewer, self._pool)
            may_make = True
        except NotThere:
            may_make = False
        return plan_topics(
            self._given,
            {folded_name(topic.name): topic for topic in found},
            self._pool,
            may_make=may_make,
            projects=set((await connection.execute(member)).scalars()),
        )

    def _items(self) -> Iterator[tuple[str, Item]]:
        self._file.seek(0)
        return parse_lines(iter(lambda: self._file.readline(MAX_LINE_BYTES + 1), b""), self._pool)


def _some(items: Iterator[T]) -> list[T]:
    return list(islice(items, PIECE))


def _left_out(lines: list[str]) -> str:
    more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return f"{len(lines)} memories hold nothing but a secret and were left out: {', '.join(lines[:SHOWN])}{more}."


def _words(outcome: Written | Forgotten) -> list[str]:
    if isinstance(outcome, Forgotten):
        return ["forgotten"]
    return [outcome.outcome, *(["redacted"] if outcome.redacted else [])]
