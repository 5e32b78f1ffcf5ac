"""The records of memory: the truth, read and written only through a viewer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
from contextlib import asynccontextmanager
from datetime import UTC
from typing import IO, TYPE_CHECKING, Any, TypeVar

from sqlalchemy import bindparam, func, or_, select, update

from memory.access import may_use, may_use_person, readable
from memory.errors import MemoryUnavailable, NotThere
from memory.exporting import write_pool
from memory.importing import Intake
from memory.job_store import JobStore
from memory.learning_store import LearningStore
from memory.listing import after_condition, cursor_of, fitting, moment, order_of, seen, valid
from memory.operation import CHUNK, Operation, last_change, load_rows, set_state
from memory.records import UPKEEP, Changed, Filters, ListQuery, Viewer, parse_pool, user_pool
from memory.removal import Deleted, note_forgotten, purge_rows, purges_to_forget, scrub_if_due
from memory.retention import due_pools, sweep_pool
from memory.rows import READ, audit_from_row, memory_from_row, memory_of, millis, time_of
from memory.setting_store import SettingStore
from memory.tables import audit, changes, memories, projects, state
from memory.undo import latest_operation, undo_operation
from memory.vitality import ONE_RECALL
from memory.writes import Writes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
    from datetime import datetime, tzinfo

    from sqlalchemy import Connection, Select

    from memory.database import Records
    from memory.errors import Forgotten
    from memory.fulltext import FullText
    from memory.importing import Imported
    from memory.policy import RecordsPolicy, RetentionPolicy
    from memory.records import Audit, Change, Draft, Memory, Pool, TextHit, Written
    from memory.removal import Purged
    from memory.retention import Swept

T = TypeVar("T")
NO_FILTERS = Filters()
MOST_POOLS = 1000
"""Pools an administrator's search over all of them looks into."""

WORDS = "words"
CUT_AT_ONCE = 200
EXPORTS = 2
"""Exports at once; others wait for their turn."""

UNSORTED_POOL = memories.c.pool.concat("")
"""The pool for rows that are chosen by id: as a column it would make SQLite read all of a pool instead."""

AMONG = memories.c.id.in_(bindparam("ids", expanding=True))
"""Rows whose ids are given with the execution."""

FIRST_PAGE = ListQuery()
EVERYBODY = dataclasses.replace(UPKEEP, whole=True)
RETENTION = dataclasses.replace(UPKEEP, origin="retention", why="nearly forgotten")


class MemoryStore:
    """Memories. Whoever reads or writes is a viewer, and `memory.access` says what that viewer may see.

    Vectors and text hits are proposals: only what `confirm` returns may be shown. `after_purge` hears of everything
    that was deleted for good, so that what was made of it goes too; who answers False does it later. Whoever keeps
    such things in files says `forgotten`, and asks for what is `to_forget` when it starts.
    """

    def __init__(
        self,
        records: Records,
        fulltext: FullText,
        policy: RecordsPolicy,
        *,
        new_id: Callable[[], str],
        now: Callable[[], datetime],
        zone: tzinfo = UTC,
    ) -> None:
        """`zone`: where the day of what somebody writes begins."""
        self._records = records
        self._zone = zone
        self._fulltext = fulltext
        self._policy = policy
        self._new_id = new_id
        self._now = now
        self.jobs = JobStore(records, fulltext, new_id=new_id, now=now)
        self.settings = SettingStore(records)
        self.learning = LearningStore(records, fulltext, policy, new_id=new_id)
        self._exports = asyncio.Semaphore(EXPORTS)
        self.after_purge: list[Callable[[Purged], Awaitable[bool | None]]] = []

    # --- reading --------------------------------------------------------------------------------------------------

    async def load(self, viewer: Viewer, memory_id: str) -> Memory:
        """A memory in any state, also a former version. Raises NotThere."""
        async with self._records.reading() as connection:
            query = select(memories).where(memories.c.id == memory_id, readable(viewer, memories.c.pool))
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            raise NotThere("memory")
        return memory_from_row(row)

    async def confirm(self, ids: Sequence[str], viewer: Viewer, filters: Filters = NO_FILTERS) -> list[Memory]:
        """Those of the proposed memories that the viewer may see and that fit, in the order proposed, each once."""
        query, given = READ.where(AMONG, fitting(viewer, filters, UNSORTED_POOL), valid(filters)), moment(self._now())
        return await self._records.read(lambda connection: confirmed(connection, query, given, ids)) if ids else []

    async def text_hits(
        self,
        words: str,
        viewer: Viewer,
        filters: Filters = NO_FILTERS,
        *,
        limit: int = 50,
        pools: Sequence[Pool] | None = None,
    ) -> list[TextHit]:
        """What the full text proposes, the best first. `pools`: those of the viewer, where they are known already."""
        pools = await self.pools(viewer, filters) if pools is None else pools
        now, as_of = millis(self._now()), None if filters.as_of is None else millis(filters.as_of)
        return await self._records.read(
            lambda connection: self._fulltext.hits(connection, words, pools, limit, now=now, as_of=as_of)
        )

    async def pools(self, viewer: Viewer, filters: Filters = NO_FILTERS) -> list[Pool]:
        """The pools a search of this viewer may look into: the own one first, then projects."""
        given = filters.pools
        if given is not None and all(pool.kind == "user" for pool in given):
            return [pool for pool in given if may_use_person(viewer, pool)]
        if given is not None:
            async with self._records.reading() as connection:
                return [pool for pool in given if await may_use(connection, viewer, pool)]
        if viewer.whole and viewer.admin:
            every = select(memories.c.pool).where(readable(viewer, memories.c.pool)).distinct().limit(MOST_POOLS)
            return await self._records.read(
                lambda connection: [parse_pool(row[0]) for row in connection.execute(every)]
            )
        own = [] if viewer.user is None or viewer.delegated else [user_pool(viewer.user)]
        name = ("project:" + projects.c.id).label("pool")
        shared = select(name).where(readable(viewer, name)).order_by(name)
        return own + await self._records.read(
            lambda connection: [parse_pool(row[0]) for row in connection.execute(shared)]
        )

    async def page(
        self, viewer: Viewer, filters: Filters = NO_FILTERS, query: ListQuery = FIRST_PAGE
    ) -> tuple[list[Memory], str | None]:
        """A page of memories in one state, and the cursor of the next page."""
        in_state = valid(filters) if query.state == "active" else memories.c.state == query.state
        statement = (
            select(memories)
            .where(fitting(viewer, filters), in_state, after_condition(query))
            .order_by(*(column.desc() for column in order_of(query.sort)))
            .limit(query.limit + 1)
        )
        async with self._records.reading() as connection:
            rows = (await connection.execute(statement, moment(self._now()))).mappings().all()
        shown = rows[: query.limit]
        more = cursor_of(query, shown[-1]) if len(rows) > query.limit else None
        return [memory_from_row(row) for row in shown], more

    async def count(self, viewer: Viewer, filters: Filters = NO_FILTERS) -> int:
        """How many active memories fit."""
        query = select(func.count()).select_from(memories).where(fitting(viewer, filters), valid(filters))
        async with self._records.reading() as connection:
            return (await connection.execute(query, moment(self._now()))).scalar_one()

    async def history(self, viewer: Viewer, memory_id: str, *, limit: int = 200) -> list[Audit]:
        """The changes of a memory, the newest first; also of one that is gone for good. Raises NotThere."""
        query = (
            select(audit)
            .where(or_(audit.c.memory == memory_id, audit.c.row == memory_id), readable(viewer, audit.c.pool))
            .order_by(audit.c.id.desc())
            .limit(limit)
        )
        async with self._records.reading() as connection:
            found = [audit_from_row(row) for row in (await connection.execute(query)).mappings()]
        if not found:
            raise NotThere("memory")
        return found

    async def as_they_were(self, viewer: Viewer, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], Memory]:
        """Memories in one of their revisions each, from the history; not those whose words are gone for good."""
        pairs = sorted(wanted)
        revision = audit.c.after["revision"].as_integer()
        found: dict[tuple[str, int], Memory] = {}
        async with self._records.reading() as connection:
            for at in range(0, len(pairs), CHUNK):
                ids, revisions = zip(*pairs[at : at + CHUNK], strict=True)
                query = select(audit.c.row, audit.c.after).where(
                    audit.c.row.in_(set(ids)), revision.in_(set(revisions)), readable(viewer, audit.c.pool)
                )
                for row, after in await connection.execute(query.order_by(audit.c.id)):
                    if (row, after["revision"]) in wanted:
                        found[row, after["revision"]] = memory_from_row(after)
        return found

    async def export(self, viewer: Viewer, pool: Pool, into: IO[bytes]) -> None:
        """The pool as JSON lines, as it is at one moment. Some at once: searches need the same threads."""
        async with self._exports:
            now = self._now()
            await self._records.read(lambda connection: write_pool(connection, viewer, pool, into, now))

    # --- writing --------------------------------------------------------------------------------------------------

    async def add(self, viewer: Viewer, drafts: Sequence[Draft]) -> list[Written | Forgotten]:
        """All drafts in one transaction. Raises InvalidMemory, NotThere, MemoryConflict: then nothing is written."""
        return await self._write(viewer, lambda writes: writes.add(drafts))

    async def edit(self, viewer: Viewer, memory_id: str, change: Change) -> Written:
        """Raises InvalidMemory, NotThere, MemoryConflict, Forgotten."""
        return await self._write(viewer, lambda writes: writes.edit(memory_id, change))

    async def merge(self, viewer: Viewer, ids: Sequence[str], text: str, change: Change) -> Written:
        """Raises InvalidMemory, NotThere, MemoryConflict, Forgotten."""
        return await self._write(viewer, lambda writes: writes.merge(ids, text, change))

    async def trash(self, viewer: Viewer, memory_id: str, *, revision: int | None = None) -> Memory:
        """Raises NotThere and MemoryConflict."""
        return await self._write(viewer, lambda writes: writes.trash(memory_id, revision))

    async def restore(self, viewer: Viewer, memory_id: str) -> Memory:
        """Raises NotThere, MemoryConflict, Forgotten."""
        return await self._write(viewer, lambda writes: writes.restore(memory_id))

    async def undo(self, viewer: Viewer, operation: str) -> list[Memory]:
        """Raises NotThere and MemoryConflict."""
        async with self._operation(viewer) as writing:
            return await undo_operation(writing, self._fulltext, operation)

    async def undo_latest(self, viewer: Viewer, memory_id: str) -> list[Memory]:
        """Undoes the newest change of a memory that holds; once more, the one before. Raises NotThere and
        MemoryConflict."""
        async with self._operation(viewer) as writing:
            return await undo_operation(writing, self._fulltext, await latest_operation(writing, memory_id))

    async def purge(self, viewer: Viewer, ids: Sequence[str]) -> Deleted:
        """Deletes memories and their former versions for good. Raises NotThere.

        When it returns `cleared`, the text is in no file of the database; else that is tried again by `scrub`.
        """
        async with self._operation(viewer) as operation:
            writes = Writes(operation, self._policy, self._new_id)
            chosen = [await writes.load(memory_id) for memory_id in dict.fromkeys(ids)]
            for one in chosen:
                if one.state == "active":  # a plan leaves the place of a bounded topic before the present comes back
                    await writes.trash(one.id, None)
            await operation.flush()
            gone = await purge_rows(operation, self._fulltext, chosen)
        return Deleted(chosen, await self._clear(gone))

    async def purge_trash(self, viewer: Viewer, filters: Filters, through: datetime) -> Deleted:
        """Deletes for good some of what has been in the trash since a time or longer; none: nothing is left of it.

        What is deleted is chosen in the transaction that deletes it, so nothing goes that was restored meanwhile.
        """
        old = memories.c.state == "trashed", memories.c.trashed_at <= millis(through)
        query = select(memories).where(fitting(viewer, filters), *old).limit(CHUNK)
        async with self._operation(viewer) as operation:
            chosen = [memory_from_row(row) for row in (await operation.connection.execute(query)).mappings()]
            if not chosen:
                return Deleted([], cleared=True)
            gone = await purge_rows(operation, self._fulltext, chosen)
        return Deleted(chosen, await self._clear(gone))

    async def _clear(self, gone: Purged) -> bool:
        """Wipes what was made of the rows that are gone. False: files are wiped later, by `scrub` or by a hook."""
        cleared = False
        try:
            with contextlib.suppress(MemoryUnavailable):  # that it is due is kept with the purge
                cleared = await self.scrub()
        finally:
            for hook in self.after_purge:
                if await hook(gone) is False:
                    cleared = False
        return cleared

    async def take_in(self, viewer: Viewer, pool: Pool, file: IO[bytes], tell: Callable[[Memory], None]) -> Imported:
        """All of a file in one transaction, or nothing of it; `tell` hears of what changed once that is kept.

        Raises InvalidMemory, NotThere, MemoryConflict.
        """
        intake = Intake(file, pool, self._policy, self._new_id)
        await asyncio.to_thread(intake.check)
        done, first, last = await self._taken_in(viewer, intake)
        with contextlib.suppress(MemoryUnavailable):  # it is kept, and whoever was not told finds it at the next start
            while first < last and (part := await self.changes_since(first)):
                first = part[-1].number
                for one in part:
                    if one.memory is not None and one.memory.state == "active" and one.pool == pool:
                        tell(one.memory)
        return done

    async def _taken_in(self, viewer: Viewer, intake: Intake) -> tuple[Imported, int, int]:
        """Also the numbers of the change feed before and after it."""
        async with self._operation(viewer) as operation:
            first = await last_change(operation.connection)
            done = await intake.write(operation, Writes(operation, self._policy, self._new_id))
            return done, first, await last_change(operation.connection)

    async def purge_old(self, through: datetime) -> int:
        """Deletes for good all that has been in the trash since a time or longer, of everybody. For upkeep only."""
        gone = 0
        while part := (await self.purge_trash(EVERYBODY, NO_FILTERS, through)).memories:
            gone += len(part)
            await asyncio.sleep(0)
        return gone

    async def due_pools(self, policy: RetentionPolicy) -> list[Pool]:
        """Whoever has memories that are due for the trash. For upkeep only."""
        async with self._records.reading() as connection:
            return await due_pools(connection, policy, self._now())

    async def sweep(self, pool: Pool, policy: RetentionPolicy) -> Swept:
        """Puts what is due into the trash, as far as the cap allows. For upkeep only."""
        async with self._operation(RETENTION) as operation:
            swept = await sweep_pool(operation, policy, pool)
            await operation.flush()
        return swept

    async def noted(self, name: str) -> datetime | None:
        """A time that was noted for upkeep."""
        async with self._records.reading() as connection:
            value = (await connection.execute(select(state.c.value).where(state.c.name == name))).scalar()
        return None if value is None else time_of(value)

    async def note(self, name: str, at: datetime) -> None:
        """Notes a time for upkeep."""
        async with self._records.writing() as connection:
            await set_state(connection, name, millis(at))

    async def scrub(self) -> bool:
        """Wipes what purges have left in files; True when nothing is left to do."""
        return await scrub_if_due(self._records, self._fulltext)

    async def to_forget(self) -> list[int]:
        """The purges after which nobody has said `forgotten`, also of former daemons. For upkeep only."""
        return await purges_to_forget(self._records)

    async def forgotten(self, purges: Collection[int]) -> None:
        """Nothing that was made of the texts of these purges is in a file of its own."""
        await note_forgotten(self._records, purges)

    async def cut_anew(self) -> bool:
        """Where texts are cut in another way than before, all are, page by page; False: none had to be."""
        version = self._fulltext.version
        async with self._records.reading() as connection:
            known = (await connection.execute(select(state.c.value).where(state.c.name == WORDS))).scalar()
        if known == version:
            return False
        at: int | None = 0
        cut = False
        while at is not None:
            async with self._records.writing(patient=True) as connection:
                at = await self._fulltext.put_again(connection, at, CUT_AT_ONCE)
                if at is None:
                    await set_state(connection, WORDS, version)
                cut = cut or at is not None
        return cut

    async def note_recalled(self, viewer: Viewer, ids: Sequence[str]) -> None:
        """A recall raises vitality; within a day of the last one it counts once. Nothing else of a memory changes."""
        now = self._now()
        since = millis(now - ONE_RECALL)
        stale = or_(memories.c.last_recalled_at.is_(None), memories.c.last_recalled_at <= since)
        statement = (
            update(memories)
            .where(memories.c.id.in_(list(ids)[:CHUNK]), seen(viewer, NO_FILTERS), memories.c.state == "active", stale)
            .values(last_recalled_at=millis(now), recall_count=memories.c.recall_count + 1)
        )
        async with self._records.writing(patient=True) as connection:
            await connection.execute(statement)

    @asynccontextmanager
    async def _operation(self, viewer: Viewer) -> AsyncGenerator[Operation, None]:
        async with self._records.writing() as connection:
            yield Operation(connection, self._fulltext, viewer, name=self._new_id(), now=self._now())

    async def _write(self, viewer: Viewer, work: Callable[[Writes], Awaitable[T]]) -> T:
        async with self._operation(viewer) as operation:
            done = await work(Writes(operation, self._policy, self._new_id, self._zone))
            await operation.flush()
            return done

    async def tell_once(self, pool: Pool, what: str) -> bool:
        """True the first time somebody is to be told this about a pool."""
        name = f"{what}:{hashlib.sha256(str(pool).encode()).hexdigest()}"[:32]
        async with self._records.writing() as connection:
            if (await connection.execute(select(state.c.value).where(state.c.name == name))).first() is not None:
                return False
            await set_state(connection, name, 1)
            return True

    # --- for the vector index -------------------------------------------------------------------------------------

    async def changes_since(self, number: int, *, limit: int = 1000) -> list[Changed]:
        """The change feed after a number, in order. For upkeep only: it belongs to nobody and must not be shown."""
        query = select(changes).where(changes.c.number > number).order_by(changes.c.number).limit(limit)
        async with self._records.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
            present = await load_rows(connection, [row["id"] for row in rows])
        kept = {memory_id: memory for memory_id, memory in present.items() if memory.state != "trashed"}
        return [Changed(row["number"], row["id"], parse_pool(row["pool"]), kept.get(row["id"])) for row in rows]

    async def everything(self, after: int = 0, *, limit: int = 1000) -> list[tuple[int, Memory]]:
        """All memories but those in the trash, by a growing number, after one. For upkeep only."""
        query = (
            select(memories)
            .where(memories.c.number > after, memories.c.state != "trashed")
            .order_by(memories.c.number)
            .limit(limit)
        )
        async with self._records.reading() as connection:
            rows = (await connection.execute(query)).mappings()
            return [(row["number"], memory_from_row(row)) for row in rows]

    async def last_change(self) -> int:
        """The number of the newest change; 0: there is none."""
        async with self._records.reading() as connection:
            return (await connection.execute(select(func.max(changes.c.number)))).scalar() or 0


def confirmed(connection: Connection, query: Select[Any], given: Mapping[str, Any], ids: Sequence[str]) -> list[Memory]:
    """The memories of these ids that a query over AMONG finds, in the order of the ids, each once."""
    wanted = list(dict.fromkeys(ids))
    found: dict[str, Memory] = {}
    for at in range(0, len(wanted), CHUNK):
        rows = connection.execute(query, {**given, "ids": wanted[at : at + CHUNK]})
        found |= {row[0]: memory_of(row) for row in rows.all()}
    return [found[memory_id] for memory_id in wanted if memory_id in found]
