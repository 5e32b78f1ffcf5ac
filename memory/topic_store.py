"""Topics, projects and their members, read and written only through a viewer."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, func, insert, or_, select, update

from memory.access import (
    INSTANCE,
    check_admin,
    check_may_change_topic,
    readable_project,
    readable_topic,
    writable_pool,
)
from memory.errors import InvalidMemory, MemoryConflict, MemoryUnavailable, NotThere
from memory.operation import Operation, count_rows
from memory.records import Project, Topic, checked_id, composed, folded_name, project_pool, user_pool
from memory.removal import empty_log_if_due, note_log
from memory.rows import memory_from_row, millis, owner_name, time_of, topic_from_row, topic_to_row
from memory.tables import members, memories, pools, projects, topics
from memory.topic_history import made_by_jobs, note_topic
from memory.topics import (
    MAX_TOPICS,
    PROJECT_DEFAULTS,
    USER_DEFAULTS,
    bounded_place,
    changed_draft,
    checked_draft,
    has_no_place,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.database import Records
    from memory.fulltext import FullText
    from memory.records import Memory, Pool, TopicChange, TopicDraft, Viewer

MAX_MEMBERS = 10_000
PAGE = 200

PUT_IN_PLACE = update(memories).where(memories.c.id == bindparam("_id")).values(place=bindparam("_place"))


class TopicStore:
    """Topics of people, projects and the instance; and who is a member of which project."""

    def __init__(
        self, records: Records, fulltext: FullText, *, new_id: Callable[[], str], now: Callable[[], datetime]
    ) -> None:
        self._records = records
        self._fulltext = fulltext
        self._new_id = new_id
        self._now = now
        self._ready: set[Pool] = set()

    # --- topics ---------------------------------------------------------------------------------------------------

    async def prepare(self, viewer: Viewer, pool: Pool | None) -> Pool:
        """The pool, with its default topics, which a new one gets once. Raises NotThere."""
        async with self._records.reading() as connection:
            chosen = await writable_pool(connection, viewer, pool)
            if chosen in self._ready:
                return chosen
            known = (await connection.execute(select(pools).where(pools.c.pool == str(chosen)))).first()
        if known is None:
            async with self._records.writing() as connection:
                await self._seed(connection, chosen)
        self._ready.add(chosen)
        return chosen

    async def _seed(self, connection: AsyncConnection, pool: Pool) -> None:
        if (await connection.execute(select(pools).where(pools.c.pool == str(pool)))).first() is not None:
            return
        now = self._now()
        await connection.execute(insert(pools).values(pool=str(pool), created_at=millis(now)))
        drafts = USER_DEFAULTS if pool.kind == "user" else PROJECT_DEFAULTS
        there = (await connection.execute(_names_of(pool))).scalars().all()
        rows = [
            topic_to_row(new_topic(draft, pool, self._new_id(), now))
            for draft in drafts
            if folded_name(draft.name) not in there
        ]
        if rows:
            await connection.execute(insert(topics), rows)

    async def topics(self, viewer: Viewer, pool: Pool | None = None) -> list[Topic]:
        """The pool's topics and those of the instance, by name. `pool` None: the viewer's own. Raises NotThere."""
        chosen = await self.prepare(viewer, pool)
        owned = topics.c.owner.in_([str(chosen), INSTANCE])
        query = select(topics).where(owned, readable_topic(viewer, topics.c.owner)).order_by(topics.c.name_folded)
        async with self._records.reading() as connection:
            return [topic_from_row(row) for row in (await connection.execute(query)).mappings()]

    async def by_id(self, viewer: Viewer, ids: Sequence[str]) -> dict[str, Topic]:
        """Those of the topics the viewer may see."""
        query = select(topics).where(topics.c.id.in_(list(set(ids))), readable_topic(viewer, topics.c.owner))
        async with self._records.reading() as connection:
            rows = (await connection.execute(query)).mappings()
            return {row["id"]: topic_from_row(row) for row in rows}

    async def topic(self, viewer: Viewer, topic_id: str) -> Topic:
        """Raises NotThere."""
        found = await self.by_id(viewer, [topic_id])
        if topic_id not in found:
            raise NotThere("topic")
        return found[topic_id]

    async def find(self, viewer: Viewer, given: Sequence[str], owners: Sequence[Pool]) -> list[Topic]:
        """The topics of these pools, or the instance's, that have one of these ids or names. Raises NotThere."""
        names = [folded_name(name) for name in given]
        query = select(topics).where(
            topics.c.owner.in_([INSTANCE, *map(str, owners)]),
            or_(topics.c.id.in_(given), topics.c.name_folded.in_(names)),
            readable_topic(viewer, topics.c.owner),
        )
        async with self._records.reading() as connection:
            found = [topic_from_row(row) for row in (await connection.execute(query)).mappings()]
        known = {topic.id for topic in found} | {folded_name(topic.name) for topic in found}
        for one, name in zip(given, names, strict=True):
            if one not in known and name not in known:
                raise NotThere(f"topic {one!r:.80}")
        return found

    async def add_topic(self, viewer: Viewer, owner: Pool | None, draft: TopicDraft) -> Topic:
        """Owner None: the whole instance's. Raises InvalidMemory, NotThere, MemoryConflict."""
        if owner is not None:
            await self.prepare(viewer, owner)
        check_may_change_topic(viewer, owner)
        topic = new_topic(checked_draft(draft), owner, self._new_id(), self._now())
        async with self._records.writing() as connection:
            await self._check_binding(connection, viewer, topic)
            await insert_topic(connection, viewer, topic, self._now())
        return topic

    async def edit_topic(self, viewer: Viewer, topic_id: str, change: TopicChange) -> Topic:
        """Raises InvalidMemory, NotThere, MemoryConflict."""
        async with self._records.writing() as connection:
            before = await self._changeable(connection, viewer, topic_id)
            draft = changed_draft(before, change)
            fields = {field.name: getattr(draft, field.name) for field in dataclasses.fields(draft)}
            after = dataclasses.replace(before, **fields, updated_at=self._now())
            if after.project != before.project:  # whoever has left the project may still rename their topic
                await self._check_binding(connection, viewer, after)
            taken = (await connection.execute(_names_of(before.owner))).scalars().all()
            if folded_name(after.name) != folded_name(before.name) and folded_name(after.name) in taken:
                raise MemoryConflict(f"There is a topic {after.name!r} already. Choose another name.")
            if (after.bounded, after.scope_properties) != (before.bounded, before.scope_properties):
                await self._place_again(connection, after)
            await connection.execute(update(topics).where(topics.c.id == before.id).values(topic_to_row(after)))
            await note_topic(connection, viewer, self._now(), before, after)
        return after

    async def delete_topic(self, viewer: Viewer, topic_id: str) -> int:
        """Its memories stay, without topic; says how many. Raises NotThere."""
        async with self._records.writing() as connection:
            topic = await self._changeable(connection, viewer, topic_id)
            operation = Operation(connection, self._fulltext, viewer, name=self._new_id(), now=self._now())
            active = 0
            async for page in _held_by(connection, topic):
                for memory in page:
                    operation.update(memory, "classified", topic=None, place=None)
                await operation.flush()
                active += sum(1 for memory in page if memory.state == "active")
            await connection.execute(delete(topics).where(topics.c.id == topic.id))
            await note_topic(connection, viewer, self._now(), topic, None)
            await note_log(connection)
        with contextlib.suppress(MemoryUnavailable):  # it is deleted; its words leave the log at the next upkeep
            await empty_log_if_due(self._records)
        return active

    async def drop_unused(self, viewer: Viewer, owner: Pool, topic_id: str) -> bool:
        """Deletes a topic that a job has made, nobody has changed, and no active memory has. Raises NotThere."""
        async with self._records.reading() as connection:
            made = await made_by_jobs(connection, owner)
            held = await count_rows(connection, memories.c.topic == topic_id, memories.c.state == "active")
        if topic_id not in made or held:
            return False
        await self.delete_topic(viewer, topic_id)
        return True

    async def _changeable(self, connection: AsyncConnection, viewer: Viewer, topic_id: str) -> Topic:
        query = select(topics).where(topics.c.id == topic_id, readable_topic(viewer, topics.c.owner))
        row = (await connection.execute(query)).mappings().first()
        if row is None:
            raise NotThere("topic")
        topic = topic_from_row(row)
        check_may_change_topic(viewer, topic.owner)
        return topic

    async def _check_binding(self, connection: AsyncConnection, viewer: Viewer, topic: Topic) -> None:
        if topic.project is not None:
            query = select(projects.c.id).where(projects.c.id == topic.project, readable_project(viewer))
            if (await connection.execute(query)).first() is None:
                raise NotThere(f"project {topic.project!r:.80}")

    async def _place_again(self, connection: AsyncConnection, topic: Topic) -> None:
        """Gives every memory of a topic the place it has under new rules. Raises MemoryConflict for two in one."""
        taken: set[str] = set()
        async for page in _held_by(connection, topic):
            places: list[dict[str, str | None]] = []
            for memory in page:
                lacking = has_no_place(topic, memory.properties)
                place = bounded_place(memory.pool, topic, memory.properties)
                if memory.state == "active" and (lacking or (place is not None and place in taken)):
                    raise MemoryConflict("The topic holds more than one memory of a scope. Merge or move them first.")
                if memory.state == "active" and place is not None:
                    taken.add(place)
                places.append({"_id": memory.id, "_place": place})
            await connection.execute(PUT_IN_PLACE, places)

    # --- projects -------------------------------------------------------------------------------------------------

    async def list_projects(self, viewer: Viewer) -> list[Project]:
        """The projects the viewer is a member of, with their members."""
        async with self._records.reading() as connection:
            query = select(projects).where(readable_project(viewer)).order_by(projects.c.id)
            rows = (await connection.execute(query)).mappings().all()
            return [await _with_members(connection, row) for row in rows]

    async def project(self, viewer: Viewer, project_id: str) -> Project:
        """Raises NotThere."""
        async with self._records.reading() as connection:
            return await _load_project(connection, viewer, project_id)

    async def put_project(
        self,
        viewer: Viewer,
        project_id: str,
        *,
        name: str | None = None,
        with_members: Sequence[str] | None = None,
        must_be_new: bool = False,
    ) -> Project:
        """Makes a project, or changes its name and members; None: as they are.

        Raises InvalidMemory, and MemoryConflict for one that must be new and has members (an agent's begins without).
        """
        check_admin(viewer)
        pool = project_pool(project_id)
        people = None if with_members is None else sorted({user_pool(user).id for user in with_members})
        if people is not None and len(people) > MAX_MEMBERS:
            raise InvalidMemory("members", f"a project has at most {MAX_MEMBERS} members")
        title = None if name is None else checked_id("name", name)
        async with self._records.writing() as connection:
            known = (await connection.execute(select(projects).where(projects.c.id == pool.id))).first()
            if must_be_new and known is not None and (await _load_project(connection, viewer, pool.id)).members:
                raise MemoryConflict(
                    f"There is a project {pool.id!r} already. Change it with PATCH /v1/projects/{{id}}, its members"
                    " with `sessiond projects members`, or choose another id."
                )
            if known is None:
                fields = {"id": pool.id, "name": title or pool.id, "created_at": millis(self._now())}
                await connection.execute(insert(projects).values(fields))
            elif title is not None:
                await connection.execute(update(projects).where(projects.c.id == pool.id).values(name=title))
            if people is not None:
                await self._set_members(connection, pool, people)
            return await _load_project(connection, viewer, pool.id)

    async def _set_members(self, connection: AsyncConnection, pool: Pool, people: Sequence[str]) -> None:
        query = select(members.c.user).where(members.c.pool == str(pool))
        present = {row[0] for row in await connection.execute(query)}
        for user in present - set(people):
            await connection.execute(delete(members).where(members.c.pool == str(pool), members.c.user == user))
        since = millis(self._now())
        fresh = [{"pool": str(pool), "user": user, "since": since} for user in people if user not in present]
        if fresh:
            await connection.execute(insert(members), fresh)

    async def delete_project(self, viewer: Viewer, project_id: str) -> None:
        """An empty project goes, with its topics and members. Topics of others that are bound to it stay bound: what
        they hold is recalled nowhere, and not everywhere. Raises NotThere, InvalidMemory, MemoryConflict."""
        check_admin(viewer)
        async with self._records.writing() as connection:
            project = await _load_project(connection, viewer, project_id)
            pool = str(project_pool(project.id))
            held = select(func.count()).select_from(memories).where(memories.c.pool == pool)
            if (await connection.execute(held)).scalar_one():
                raise MemoryConflict("The project has memories. Delete them for good first, also those in the trash.")
            await connection.execute(delete(members).where(members.c.pool == pool))
            await connection.execute(delete(topics).where(topics.c.owner == pool))
            await connection.execute(delete(pools).where(pools.c.pool == pool))
            await connection.execute(delete(projects).where(projects.c.id == project.id))
        self._ready.discard(project_pool(project_id))


def new_topic(draft: TopicDraft, owner: Pool | None, topic_id: str, now: datetime) -> Topic:
    fields = {field.name: getattr(draft, field.name) for field in dataclasses.fields(draft)}
    return Topic(id=topic_id, owner=owner, created_at=now, updated_at=now, **fields)


async def insert_topic(connection: AsyncConnection, viewer: Viewer, topic: Topic, now: datetime) -> None:
    """Raises MemoryConflict. Whether the viewer may make it was checked before."""
    taken = (await connection.execute(_names_of(topic.owner))).scalars().all()
    if folded_name(topic.name) in taken:
        raise MemoryConflict(f"There is a topic {topic.name!r} already. Update it, or choose another name.")
    if len(taken) >= MAX_TOPICS:
        raise MemoryConflict(f"There are {MAX_TOPICS} topics already. Delete one first.")
    await connection.execute(insert(topics).values(topic_to_row(topic)))
    await note_topic(connection, viewer, now, None, topic)


async def _held_by(connection: AsyncConnection, topic: Topic) -> AsyncGenerator[list[Memory], None]:
    """The rows of a topic in any state, in pages: between two of them others have their turn."""
    last = 0
    while True:
        query = select(memories).where(memories.c.topic == topic.id, memories.c.number > last)
        rows = (await connection.execute(query.order_by(memories.c.number).limit(PAGE))).mappings().all()
        if not rows:
            return
        last = rows[-1]["number"]
        yield [memory_from_row(row) for row in rows]


def _names_of(owner: Pool | None) -> Select[tuple[str]]:
    return select(topics.c.name_folded).where(topics.c.owner == owner_name(owner))


async def _load_project(connection: AsyncConnection, viewer: Viewer, project_id: str) -> Project:
    query = select(projects).where(projects.c.id == composed(project_id), readable_project(viewer))
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise NotThere("project")
    return await _with_members(connection, row)


async def _with_members(connection: AsyncConnection, row: Mapping[Any, Any]) -> Project:
    pool = str(project_pool(row["id"]))
    found = await connection.execute(select(members.c.user).where(members.c.pool == pool).order_by(members.c.user))
    return Project(
        id=row["id"], name=row["name"], members=tuple(r[0] for r in found), created_at=time_of(row["created_at"])
    )
