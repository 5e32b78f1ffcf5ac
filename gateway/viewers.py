"""Who asks for memories: from a token, or from a conversation, to the viewer the records know. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.records import Pool, Viewer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.agents import AgentPolicy
    from gateway.http.auth import Caller
    from memory.records import Origin
    from sessions.keys import SessionKey

OWNER_USER = "owner"


def viewer_of_caller(caller: Caller, user: str | None = None, pool: Pool | None = None) -> Viewer:
    """The viewer of a request. A frontend speaks for the user it names; a person for nobody else.

    An administrator writes as itself (the owner, where it has no user), and sees everything unless it names a user.
    A frontend that names nobody sees nothing, and so does one that may not speak for whom it names.
    """
    named = user or (pool.id if pool is not None and pool.kind == "user" else None)
    match caller.role:
        case "admin":
            own = caller.user or OWNER_USER
            return Viewer(user=user or own, author=caller.name, admin=True, whole=user is None)
        case "frontend":
            return Viewer(user=named if named and caller.may_speak_for(named) else None, author=caller.name)
        case "user":
            return Viewer(user=caller.user, author=caller.user or caller.name)


def viewer_of_tools(caller: Caller, user: str | None = None, project: str | None = None) -> Viewer | None:
    """The viewer of tools that are called outside any chat: one person's, also where the token may see everybody's.

    None: a frontend that names nobody, or somebody it may not speak for. `project` is where `shared` memories go; only
    its members may.
    """
    named = caller.user if caller.role == "user" else user
    if named is None and caller.role == "admin":
        named = caller.user or OWNER_USER
    if named is None or not caller.may_speak_for(named):
        return None
    return Viewer(user=named, author=caller.user or caller.name, origin="tool", project=project)


def viewer_of_chat(
    key: SessionKey, user: str | None, agents: Mapping[str, AgentPolicy], *, origin: Origin = "tool"
) -> Viewer:
    """The viewer of a conversation: the person who speaks, in the project the agent belongs to; never more."""
    agent = agents.get(key.agent)
    return Viewer(
        user=user,
        author=user or str(key),
        origin=origin,
        conversation=True,
        delegated=key.type == "sub",
        project=None if agent is None else agent.project,
    )
