"""What was learnt, written: the changes of a lesson, how far it went and its run are one transaction."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, union, update
from sqlalchemy.exc import IntegrityError

from memory.access import own_scope, readable, writable_pool
from memory.errors import Forgotten, MemoryConflict, MemoryProblem, NotThere
from memory.learning import LISTS, PLAIN, LearnRun, Mark
from memory.operation import Operation, set_state
from memory.records import Change, Draft, parse_pool, text_hash
from memory.rows import millis, time_of
from memory.tables import audit, learn_marks, learn_runs, memories, state
from memory.topics import bounded_place
from memory.writes import Writes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.database import Records
    from memory.fulltext import FullText
    from memory.judge import Step
    from memory.learning import Lesson
    from memory.policy import RecordsPolicy
    from memory.records import Memory, Pool, Source, Viewer

BATCH = "learn.batch"
FIRST = "learn.first"
REACH = "learn.reach"
ON_SINCE = "learn.since"
KEPT_RUNS = 500
"""Runs kept of each pool."""


class LearningStore:
    """Watermarks and runs of learning, and the one write that changes memories with them."""

    def __init__(
        self,
        records: Records,
        fulltext: FullText,
        policy: RecordsPolicy,
        *,
        new_id: Callable[[], str],
    ) -> None:
        self._records = records
        self._fulltext = fulltext
        self._policy = policy
        self._new_id = new_id

    async def write(
        self, lesson: Lesson, steps: Sequence[Step], run: LearnRun, now: datetime
    ) -> tuple[LearnRun, list[Memory]]:
        """Takes the steps that still can be taken, one by one; the run as it is kept, and the memories that changed.

        A step that goes against what is there now is refused, and leaves nothing. Of a session that is gone nothing is
        written, neither its run. Raises NotThere and MemoryUnavailable: then nothing was written.
        """
        async with self._records.writing() as connection:
            if not lesson.is_there():
                await _forget(connection, lesson.source.session)
                return dataclasses.replace(run, state="nothing", problem=None), []
            await writable_pool(connection, lesson.viewer, lesson.pool)
            operation = Operation(connection, self._fulltext, lesson.viewer, name=run.id, now=now)
            taking = _Taking(operation, Writes(operation, self._policy, self._new_id), lesson)
            refused = list(run.refused)
            for step in steps:
                if (why := await taking.take(step)) is not None:
                    refused.append(why)
            done = dataclasses.replace(
                run,
                created=tuple(taking.created),
                updated=tuple(dict.fromkeys(taking.updated)),
                deleted=tuple(taking.deleted),
                refused=tuple(refused),
            )
            if done.state != "failed":
                done = dataclasses.replace(done, state="done" if done.changes else "nothing")
            if lesson.mark is not None:
                await _move(connection, lesson.mark)
            await _keep_run(connection, done)
            if not lesson.is_there():
                raise NotThere("session")
        return done, taking.changed

    # --- how far --------------------------------------------------------------------------------------------------

    async def mark(self, session: str, pool: Pool) -> Mark:
        """How far a pool has learnt from a session. For learning itself only."""
        query = select(learn_marks).where(learn_marks.c.session == session, learn_marks.c.pool == str(pool))
        async with self._records.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        return Mark(session=session, pool=pool) if row is None else _mark_from_row(row)

    async def marks(self) -> dict[str, list[Mark]]:
        """All of them, by session. For learning itself only."""
        found: dict[str, list[Mark]] = {}
        async with self._records.reading() as connection:
            for row in (await connection.execute(select(learn_marks))).mappings():
                found.setdefault(row["session"], []).append(_mark_from_row(row))
        return found

    async def batch_at(self) -> datetime | None:
        """When the last batch of everybody began; None: there was none. For learning itself only."""
        return await self._time(BATCH)

    async def batch_due_after(self, now: datetime) -> datetime:
        """The time after which the next one is due: that of the last, or when this was first asked."""
        known = await self.batch_at() or await self._time(FIRST)
        if known is None:
            await self._put_time(FIRST, now)
        return known or now

    async def put_batch_at(self, at: datetime) -> None:
        await self._put_time(BATCH, at)

    async def on_since(self, now: datetime, reach: int) -> datetime | None:
        """To be told at every start who is learnt from (`LearnPolicy.reach`). Since when more are than before; None: it
        was never less."""
        async with self._records.writing() as connection:
            known = await _state(connection, REACH)
            if known is not None and known < reach:
                await set_state(connection, ON_SINCE, millis(now))
            if known != reach:
                await set_state(connection, REACH, reach)
            since = await _state(connection, ON_SINCE)
        return None if since is None else time_of(since)

    async def _time(self, name: str) -> datetime | None:
        async with self._records.reading() as connection:
            at = await _state(connection, name)
        return None if at is None else time_of(at)

    async def _put_time(self, name: str, at: datetime) -> None:
        async with self._records.writing() as connection:
            await set_state(connection, name, millis(at))

    async def forget(self, session: str) -> None:
        """A session that is gone for good has no watermark, and no run names it."""
        async with self._records.writing() as connection:
            await _forget(connection, session)

    async def sessions(self) -> set[str]:
        """All that something is known of here. For learning itself only."""
        query = union(select(learn_marks.c.session), select(learn_runs.c.session))
        async with self._records.reading() as connection:
            return {session for (session,) in await connection.execute(query) if session is not None}

    # --- what came of it ------------------------------------------------------------------------------------------

    async def runs(
        self, viewer: Viewer, *, session: str | None = None, limit: int = 50, before: str | None = None
    ) -> list[LearnRun]:
        """The newest first; `before`: those older than a run."""
        query = (
            select(learn_runs)
            .where(readable(viewer, learn_runs.c.pool), own_scope(viewer, learn_runs.c.pool))
            .order_by(learn_runs.c.id.desc())
            .limit(limit)
        )
        if session is not None:
            query = query.where(learn_runs.c.session == session)
        if before is not None:
            query = query.where(learn_runs.c.id < before)
        async with self._records.reading() as connection:
            return [run_from_row(row) for row in (await connection.execute(query)).mappings()]

    async def run(self, viewer: Viewer, run_id: str) -> LearnRun | None:
        """One run; None when there is none, or the viewer may not see it."""
        query = select(learn_runs).where(learn_runs.c.id == run_id, readable(viewer, learn_runs.c.pool))
        async with self._records.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else run_from_row(row)


async def _state(connection: AsyncConnection, name: str) -> int | None:
    return (await connection.execute(select(state.c.value).where(state.c.name == name))).scalar()


class _Taking:
    """The steps of a lesson, each in a savepoint of its own."""

    def __init__(self, operation: Operation, writes: Writes, lesson: Lesson) -> None:
        self._operation = operation
        self._writes = writes
        self._lesson = lesson
        self.created: list[str] = []
        self.updated: list[str] = []
        self.deleted: list[str] = []
        self.changed: list[Memory] = []

    async def take(self, step: Step) -> str | None:
        """Why it cannot be taken; None when it was."""
        try:
            async with self._operation.connection.begin_nested():
                why = await self._take(step)
                await self._operation.flush()
        except IntegrityError:
            self._operation.drop()
            return "somebody has changed it meanwhile"
        except MemoryProblem as error:
            self._operation.drop()
            return _told(error)
        return why

    async def _take(self, step: Step) -> str | None:
        if step.text and await self._was_corrected(step):
            return "was corrected since it was said"
        if step.ids and await self._was_undone(step):
            return "was undone since it was said"
        match step.op:
            case "add":
                return await self._add(step)
            case "update":
                change = self._change(step, step.revisions[0])
                written = await self._writes.edit(step.ids[0], change)
                if written.outcome == "unchanged":
                    return "is known already"
                self.updated.append(written.memory.id)
                self.changed.append(written.memory)
            case "merge":
                for memory_id, revision in zip(step.ids, step.revisions, strict=True):
                    if (await self._writes.load(memory_id)).revision != revision:
                        raise MemoryConflict("Somebody has changed this memory meanwhile.")
                written = await self._writes.merge(step.ids, step.text, self._change(step, step.revisions[0]))
                self.updated.append(written.memory.id)
                self.deleted += [one for one in step.ids if one != written.memory.id]
                self.changed.append(written.memory)
            case "delete":
                gone = await self._writes.trash(step.ids[0], step.revisions[0])
                self.deleted.append(gone.id)
                self.changed.append(gone)
        return None

    async def _add(self, step: Step) -> str | None:
        pool = self._lesson.pool
        if step.topic is not None:
            topic = await self._writes.topic(pool, step.topic)
            place = bounded_place(pool, topic, step.properties) if topic.bounded else None
            if place is not None and await self._writes.holder(place) is not None:
                raise MemoryConflict("The topic holds another memory meanwhile.")
        draft = Draft(
            text=step.text,
            topic=step.topic,
            importance=step.importance,
            pool=pool,
            properties=step.properties,
            source=self._source(step),
            valid_from=step.said_at,
            created_at=self._lesson.created_at,
        )
        (written,) = await self._writes.add([draft])
        if isinstance(written, Forgotten):
            return "was deleted before"
        if written.outcome == "unchanged":
            return "is known already"
        (self.created if written.outcome == "added" else self.updated).append(written.memory.id)
        self.changed.append(written.memory)
        return None

    def _change(self, step: Step, revision: int) -> Change:
        return Change(text=step.text, revision=revision, source=self._source(step), valid_from=step.said_at)

    def _source(self, step: Step) -> Source:
        """Where in the session it was said, as exactly as the model has told."""
        source = dataclasses.replace(self._lesson.source, said_by=step.said_by)
        if source.session is None:
            return source
        return dataclasses.replace(source, first_seq=step.first_seq, last_seq=step.last_seq)

    async def _was_corrected(self, step: Step) -> bool:
        """The same words were true once, and were corrected after these were said: an old conversation read again."""
        query = select(memories.c.id).where(
            memories.c.pool == str(self._lesson.pool),
            memories.c.text_hash == text_hash(step.text),
            memories.c.state == "superseded",
            memories.c.valid_to >= millis(step.said_at),
        )
        return (await self._operation.connection.execute(query)).first() is not None

    async def _was_undone(self, step: Step) -> bool:
        """Who undoes a change of a memory has decided: earlier words do not change it."""
        since = audit.c.at >= millis(step.said_at)
        query = select(audit.c.id).where(audit.c.row.in_(step.ids), audit.c.action == "undone", since)
        return (await self._operation.connection.execute(query)).first() is not None


def _told(error: MemoryProblem) -> str:
    if isinstance(error, Forgotten):
        return "was deleted before"
    return "somebody has changed it meanwhile" if isinstance(error, MemoryConflict) else "cannot be kept as it is"


async def _forget(connection: AsyncConnection, session: str | None) -> None:
    await connection.execute(delete(learn_marks).where(learn_marks.c.session == session))
    await connection.execute(update(learn_runs).where(learn_runs.c.session == session).values(session=None))


async def _move(connection: AsyncConnection, mark: Mark) -> None:
    """Never back: another run may have come further meanwhile."""
    mine = learn_marks.c.session == mark.session, learn_marks.c.pool == str(mark.pool)
    row = (await connection.execute(select(learn_marks.c.through_seq).where(*mine))).first()
    if row is None:
        await connection.execute(insert(learn_marks).values(_mark_to_row(mark)))
    elif row[0] <= mark.through_seq:
        await connection.execute(update(learn_marks).where(*mine).values(_mark_to_row(mark)))


async def _keep_run(connection: AsyncConnection, run: LearnRun) -> None:
    await connection.execute(delete(learn_runs).where(learn_runs.c.id == run.id))
    await connection.execute(insert(learn_runs).values(run_to_row(run)))
    mine = learn_runs.c.pool == str(run.pool)
    oldest = select(learn_runs.c.id).where(mine).order_by(learn_runs.c.id.desc()).offset(KEPT_RUNS).limit(1)
    last = (await connection.execute(oldest)).scalar()
    if last is not None:
        await connection.execute(delete(learn_runs).where(mine, learn_runs.c.id <= last))


def _mark_to_row(mark: Mark) -> dict[str, Any]:
    return {**dataclasses.asdict(mark), "pool": str(mark.pool)}


def _mark_from_row(row: Mapping[Any, Any]) -> Mark:
    plain = {name: row[name] for name in "session through_seq failures".split()}
    return Mark(**plain, pool=parse_pool(row["pool"]))


def run_to_row(run: LearnRun) -> dict[str, Any]:
    times = {"started_at": millis(run.started_at), "ended_at": millis(run.ended_at)}
    return {**run.to_json(), **times, "pool": str(run.pool)}


def run_from_row(row: Mapping[Any, Any]) -> LearnRun:
    plain: dict[str, Any] = {name: row[name] for name in PLAIN}
    lists: dict[str, Any] = {name: tuple(row[name]) for name in LISTS}
    times: dict[str, Any] = {name: time_of(row[name]) for name in ("started_at", "ended_at")}
    return LearnRun(**plain, **lists, **times, pool=parse_pool(row["pool"]))
