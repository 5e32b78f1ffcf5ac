"""The one place that decides who may see which memories, topics and projects; whatever it does not know is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, and_, false, literal, or_, select, true, union_all

from memory.errors import InvalidMemory, NotThere
from memory.records import Pool, project_pool, user_pool
from memory.tables import members
from memory.tables import projects as projects_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.records import Viewer

INSTANCE = "instance"


def readable(viewer: Viewer, pool: ColumnElement[str]) -> ColumnElement[bool]:
    """The condition under which a row of `pool` may be read, and written: the members of a project share its memories.

    Membership is part of the query, so nobody reads a moment longer than they are a member.
    """
    if viewer.admin and not viewer.conversation and not viewer.delegated:
        return true()
    if viewer.user is None:
        return false()
    shared = [members.c.user == viewer.user]
    if viewer.conversation:
        if viewer.project is None:
            return _personal(viewer, pool)
        shared.append(members.c.pool == str(project_pool(viewer.project)))
    pools = select(members.c.pool).where(*shared)
    # one list of pools: for "this pool or one of those" SQLite may read everybody's rows in the order they are sorted
    return pool.in_(pools if viewer.delegated else union_all(select(literal(str(user_pool(viewer.user)))), pools))


def readable_among(viewer: Viewer, pool: ColumnElement[str], pools: Sequence[Pool]) -> ColumnElement[bool]:
    """`readable`, within some pools. Where all are persons' nobody's membership matters, and the query is short: it is
    built for every search."""
    if all(one.kind == "user" for one in pools):
        mine = [str(one) for one in pools if may_use_person(viewer, one)]
        if len(mine) == 1:
            return pool == mine[0]
        return pool.in_(mine) if mine else false()
    return and_(readable(viewer, pool), pool.in_([str(one) for one in pools]))


def _personal(viewer: Viewer, pool: ColumnElement[str]) -> ColumnElement[bool]:
    """A person's own pool; delegated tasks have none (spec memory.md, "Records")."""
    if viewer.delegated or viewer.user is None:
        return false()
    return pool == str(user_pool(viewer.user))


def own_scope(viewer: Viewer, pool: ColumnElement[str]) -> ColumnElement[bool]:
    """What a viewer means who names no pool. An administrator who speaks for somebody means that person's memories."""
    if not viewer.admin or viewer.whole:
        return readable(viewer, pool)
    return or_(_personal(viewer, pool), pool.like("project:%"))


async def writable_pool(connection: AsyncConnection, viewer: Viewer, pool: Pool | None) -> Pool:
    """The pool a new memory goes to. Raises NotThere when the viewer may not use it, or has none."""
    if pool is None:
        if viewer.user is None or viewer.delegated:
            raise NotThere("personal memory for this sender")
        pool = user_pool(viewer.user)
    if not await may_use(connection, viewer, pool):
        raise NotThere(f"pool {pool}")
    return pool


def may_use_person(viewer: Viewer, pool: Pool) -> bool:
    """What `readable` says of a person's pool, without asking the database: membership does not matter for it."""
    if viewer.admin and not viewer.conversation and not viewer.delegated:
        return True
    return viewer.user is not None and not viewer.delegated and pool == user_pool(viewer.user)


async def may_use(connection: AsyncConnection, viewer: Viewer, pool: Pool) -> bool:
    """Whether the viewer may read and write the pool. A project that nobody made has no memories, for anybody."""
    if pool.kind == "user":
        return may_use_person(viewer, pool)
    column = projects_table.c.id
    probe = select(column).where(column == pool.id, _literal(viewer, pool))
    return (await connection.execute(probe)).first() is not None


def _literal(viewer: Viewer, pool: Pool) -> ColumnElement[bool]:
    return readable(viewer, literal(str(pool)))


def readable_topic(viewer: Viewer, owner: ColumnElement[str]) -> ColumnElement[bool]:
    """Topics of pools the viewer may read, and those of the instance for everybody who is somebody."""
    if viewer.user is None and not viewer.admin:
        return false()
    return or_(owner == INSTANCE, readable(viewer, owner))


def check_may_change_topic(viewer: Viewer, owner: Pool | None) -> None:
    """Own topics are a person's own; those of projects and of the instance are an administrator's. Raises NotThere."""
    if owner is not None and owner.kind == "user" and viewer.user == owner.id and not viewer.delegated:
        return
    if viewer.admin and not viewer.conversation:
        return
    raise NotThere("topic you may change")


def readable_project(viewer: Viewer) -> ColumnElement[bool]:
    """Projects the viewer is a member of; an administrator sees all."""
    if viewer.admin and not viewer.conversation:
        return true()
    if viewer.user is None:
        return false()
    joined = select(members.c.pool).where(members.c.user == viewer.user)
    return and_(true(), ("project:" + projects_table.c.id).in_(joined))


def check_admin(viewer: Viewer) -> None:
    """Projects and their members are an administrator's. Raises InvalidMemory."""
    if not viewer.admin or viewer.conversation:
        raise InvalidMemory("project", "only an administrator makes, changes and deletes projects")
