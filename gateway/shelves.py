"""The one place that says whose files somebody may find and read: notes of agents, and documents of projects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from memory.errors import MemoryUnavailable
from memory.records import Filters, project_pool
from sessions.folders import agent_folder

if TYPE_CHECKING:
    from gateway.vectors import Opener
    from memory.memory import Memories
    from memory.records import Viewer

Owner = tuple[Literal["agent", "project"], str]


def agent_shelf(agent: str) -> str:
    return f"agent:{agent_folder(agent)}"


def project_shelf(project: str) -> str:
    return f"project:{agent_folder(project)}"


async def shared_project(memories: Memories, viewer: Viewer | None) -> str | None:
    """The conversation's project, when the person is a member of it."""
    if viewer is None or viewer.project is None:
        return None
    return next(iter(await readable_projects(memories, viewer, viewer.project)), None)


async def readable_projects(memories: Memories, viewer: Viewer | None, among: str | None = None) -> list[str]:
    """The projects whose documents the viewer may read now, or this one of them; nobody has none."""
    if viewer is None:
        return []
    if among is None and viewer.whole and viewer.admin:
        return [project.id for project in await memories.topics.list_projects(viewer)]
    filters = Filters(pools=None if among is None else (project_pool(among),))
    return [pool.id for pool in await memories.store.pools(viewer, filters) if pool.kind == "project"]


async def readable_shelves(
    part: Opener, viewer: Viewer | None, *, agent: str | None = None, project: str | None = None
) -> dict[str, Owner]:
    """The shelf of an agent, whom the caller has to be allowed, and those of projects: of this one, or of all the
    viewer may read. While the records cannot be asked, no project's."""
    found: dict[str, Owner] = {} if agent is None else {agent_shelf(agent): ("agent", agent)}
    try:
        projects = await readable_projects(await part.open(), viewer, project)
    except MemoryUnavailable:
        projects = []
    for one in projects:
        found[project_shelf(one)] = ("project", one)
    return found
