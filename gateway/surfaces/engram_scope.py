"""Which topics a request of Engram's clients means, and which scopes it must give: pure."""

from __future__ import annotations

import base64
import binascii
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ulid import ULID

from gateway.http.problems import Problem
from memory.errors import InvalidMemory
from memory.records import Pool, Viewer, folded_name, project_pool, user_pool
from memory.topics import USER_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.http.auth import Caller
    from gateway.surfaces.policy import EngramPolicy
    from memory.records import Memory, Origin, Topic

DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedTopic:
    """A topic with what keeps its memories apart."""

    name: str
    description: str
    bounded: bool = False
    user_scoped: bool = True
    scope_properties: tuple[str, ...] = ()
    group: str = DEFAULT_GROUP

    @property
    def own_name(self) -> str:
        """What it is called in its pool, where names are told apart over all groups."""
        return self.name if self.group == DEFAULT_GROUP else f"{self.group}/{self.name}"


@dataclass(frozen=True, slots=True)
class Project:
    """A project of Engram: its topics by their own names, folded, and where its memories belong."""

    name: str
    topics: Mapping[str, ScopedTopic]

    @property
    def shared(self) -> Pool:
        """Where topics belong that are not a user's."""
        return project_pool(self.name)

    def pool_of(self, user_id: str) -> Pool:
        """A user's pool. Engram's user ids do not tell cases apart. Raises Problem."""
        try:
            return user_pool(f"{self.name}:{user_id.strip().casefold()}")
        except InvalidMemory as error:
            raise refused("user_id", error.why) from error

    def user_of(self, pool: Pool) -> str | None:
        return pool.id.removeprefix(f"{self.name}:") if pool.kind == "user" else None

    @property
    def has_shared(self) -> bool:
        return any(not topic.user_scoped for topic in self.topics.values())

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys([DEFAULT_GROUP, *(topic.group for topic in self.topics.values())]))

    def shown(self, own_name: str) -> tuple[str, str]:
        """Name and group of a topic as clients know it; people's own topics belong to the default group."""
        known = self.topics.get(folded_name(own_name))
        return (own_name, DEFAULT_GROUP) if known is None else (known.name, known.group)

    def in_group(self, group: str) -> list[ScopedTopic]:
        return [topic for topic in self.topics.values() if topic.group == group]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One part of a search: topics that share a filter of properties."""

    topics: tuple[ScopedTopic, ...]
    properties: tuple[tuple[str, str], ...]


def project_of(policy: EngramPolicy, caller: Caller) -> str:
    """The project of a token. Raises Problem."""
    found = next((one for one in policy.projects if one.token == caller.name), None)
    if found is None:
        detail = "This token has no Engram project. Add one under engram.projects: {token: <its name>, project: <id>}."
        raise Problem(404, "Not found", detail)
    return found.project


def project_to_fill(policy: EngramPolicy, caller: Caller, named: str | None) -> str:
    """The project an import goes to: an administrator names one, where there are several. Raises Problem."""
    known = list(dict.fromkeys(one.project for one in policy.projects))
    if caller.role != "admin" or not known:
        found = project_of(policy, caller)
        if named not in (None, found):
            raise Problem(404, "Not found", f"This token has no project {named!r:.80}. Leave out project.")
        return found
    if named is None and len(known) == 1:
        return known[0]
    if named not in known:
        raise refused("project", f"name one of {', '.join(known)}")
    return named


def build_project(name: str, topics: Iterable[ScopedTopic]) -> Project:
    """The default topics, changed and added to by those given, the last one first."""
    defaults = [ScopedTopic(name=d.name, description=d.description, bounded=d.bounded) for d in USER_DEFAULTS]
    return Project(name, {folded_name(topic.own_name): topic for topic in [*defaults, *topics]})


def viewer_of_user(project: Project, user_id: str, token: str, origin: Origin = "tool") -> Viewer:
    """The user of a project: sees their own pool, and no project of the same name."""
    return Viewer(user=project.pool_of(user_id).id, author=token, origin=origin, conversation=True)


def viewer_of_project(token: str, origin: Origin = "tool") -> Viewer:
    """For the pool a project shares: whoever uses it names that pool and no other."""
    return Viewer(user=None, author=token, origin=origin, admin=True)


def refused(field: str, why: str) -> Problem:
    return Problem(400, "Invalid request", f"{field}: {why}", [(field, why)])


def checked_group(project: Project, group: str | None) -> str:
    """Raises Problem."""
    name = group or DEFAULT_GROUP
    if name not in project.groups:
        raise refused("group", f"there is no group {name!r:.80}; known: {', '.join(project.groups)}")
    return name


def known_topics(project: Project, group: str, own: Iterable[Topic]) -> dict[str, ScopedTopic]:
    """The topics of a group by name, folded; those a user made elsewhere belong to the default one."""
    known = {folded_name(topic.name): topic for topic in project.in_group(group)}
    for topic in own if group == DEFAULT_GROUP else ():
        if folded_name(topic.name) not in project.topics:
            known[folded_name(topic.name)] = ScopedTopic(
                name=topic.name,
                description=topic.description,
                bounded=topic.bounded,
                scope_properties=topic.scope_properties,
            )
    return known


def named_topic(known: Mapping[str, ScopedTopic], name: str, field: str = "topics") -> ScopedTopic:
    """Raises Problem."""
    found = known.get(folded_name(name))
    if found is None:
        names = ", ".join(topic.name for topic in known.values())
        raise refused(field, f"there is no topic {name!r:.80}; known: {names}")
    return found


def check_write(topics: Sequence[ScopedTopic], user_id: str | None, properties: Mapping[str, str]) -> None:
    """A write gives the union of the scopes of the topics it may go to. Raises Problem."""
    if user_id is None and (scoped := [topic.name for topic in topics if topic.user_scoped]):
        raise refused("user_id", f"is required: {', '.join(scoped)} belong to a user")
    for topic in topics:
        missing = [name for name in topic.scope_properties if not properties.get(name)]
        if missing:
            raise refused("properties", f"the topic {topic.name!r} needs {', '.join(missing)}")


def scope_of(topic: ScopedTopic, properties: Mapping[str, str]) -> dict[str, str]:
    """A memory keeps the properties its topic is scoped by."""
    return {name: properties[name] for name in topic.scope_properties}


def wanted_parts(
    known: Mapping[str, ScopedTopic],
    selectors: Sequence[tuple[str, Mapping[str, str | None]]] | None,
    properties: Mapping[str, str],
) -> list[Wanted]:
    """The parts of a search. A property narrows the topics it scopes; one that scopes no topic meant is refused.

    Raises Problem.
    """
    meant = list(known.values())
    own: dict[str, Mapping[str, str | None]] = {}
    if selectors is not None:
        if not selectors:
            raise refused("topics", "names no topic; leave it out to search all")
        meant = [named_topic(known, name) for name, _ in selectors]
        own = {topic.name: given for topic, (_, given) in zip(meant, selectors, strict=True)}
    scopes = {name for topic in meant for name in topic.scope_properties}
    for name in properties:
        if name not in scopes:
            raise refused(f"properties.{name}"[:200], "no topic of this search is scoped by it")
    parts: dict[tuple[tuple[str, str], ...], list[ScopedTopic]] = {}
    for topic in meant:
        parts.setdefault(_filter_of(topic, properties, own.get(topic.name, {})), []).append(topic)
    return [Wanted(tuple(topics), given) for given, topics in parts.items()]


def _filter_of(
    topic: ScopedTopic, inherited: Mapping[str, str], own: Mapping[str, str | None]
) -> tuple[tuple[str, str], ...]:
    """The filter of one topic: its own values win, and null clears an inherited one. Raises Problem."""
    unknown = next((name for name in own if name not in topic.scope_properties), None)
    if unknown is not None:
        raise refused("topics", f"the topic {topic.name!r} is not scoped by {unknown!r:.80}")
    given = {**{n: v for n, v in inherited.items() if n in topic.scope_properties}, **own}
    return tuple(sorted((name, value) for name, value in given.items() if value is not None))


# --- ids ------------------------------------------------------------------------------------------------------------


def public_id(own_id: str) -> str:
    """An id as Engram's clients know them: a UUID. Ours are 128 bits too."""
    try:
        return str(ULID.from_str(own_id).to_uuid())
    except ValueError:
        pass
    try:
        return str(uuid.UUID(bytes=base64.b32decode(own_id + "======")))
    except (ValueError, binascii.Error):
        return own_id


def own_ids(given: str) -> list[str]:
    """The ids a UUID may stand for: one of a clock, or the derived one of a bounded topic."""
    try:
        value = uuid.UUID(given)
    except ValueError:
        return [given]
    return [str(ULID.from_uuid(value)), base64.b32encode(value.bytes).decode().rstrip("=")]


def own_id(project: str, given: str) -> str:
    """The id a memory of Engram has here: the same UUID, so that what a client has noted stays good."""
    try:
        value = uuid.UUID(given)
    except ValueError:
        value = uuid.uuid5(uuid.NAMESPACE_URL, f"urn:sessiond:engram:{project}:memory:{given}")
    return str(ULID.from_uuid(value))


def group_id(project: str, group: str) -> str:
    """The same for ever, as nothing keeps it."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:sessiond:engram:{project}:{group}"))


def belongs(memory: Memory, pool: Pool) -> bool:
    return memory.pool == pool and memory.state == "active"
