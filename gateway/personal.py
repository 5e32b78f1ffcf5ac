"""What people may set of memory for themselves, and what holds for each of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import structlog
from pydantic import BaseModel, ValidationError

from memory.errors import InvalidMemory
from memory.policy import MemoryPolicy
from memory.records import Viewer
from memory.rows import millis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.clock import Clock
    from gateway.vectors import Opener
    from memory.policy import RecallPolicy
    from memory.records import Pool

log = structlog.get_logger()

PERSONAL: Mapping[str, tuple[str, ...] | None] = {
    "recall": None,
    "learn": ("after_reply", "max_changes"),
    "consolidation": ("enabled",),
}
"""Groups of `memory` in the configuration, with those of their settings a person may change; None: all."""
LEARN_SINCE = "learn.since"
"""When a person has turned learning on, in milliseconds; set by no one but us."""
KNOWN_PEOPLE = 10_000


def fields_of(group: str) -> tuple[str, ...]:
    """The settings of a group that a person may change."""
    return PERSONAL[group] or tuple(policy_of(group).model_fields)


def policy_of(group: str) -> type[BaseModel]:
    """The policy that describes a group."""
    return cast("type[BaseModel]", MemoryPolicy.model_fields[group].annotation)


def names() -> list[str]:
    """All settings a person may change, as they are stored: `recall.mid_turn.searches`."""
    return [name for group in PERSONAL for field in fields_of(group) for name, _ in _leaves(group, field)]


def _leaves(group: str, field: str) -> Iterator[tuple[str, type[BaseModel]]]:
    policy = policy_of(group)
    inner = policy.model_fields[field].annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        yield from ((f"{group}.{field}.{name}", inner) for name in inner.model_fields)
    else:
        yield f"{group}.{field}", policy


def flat(given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their stored names."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        at = f"{prefix}{name}"
        found |= flat(cast("Mapping[str, Any]", value), f"{at}.") if isinstance(value, dict) else {at: value}
    return found


def effective(policy: MemoryPolicy, chosen: Mapping[str, Any]) -> MemoryPolicy:
    """The settings with what somebody has chosen. What is not known, or no longer possible, is as configured."""
    known = set(names())
    for name, value in chosen.items():
        if name in known and value is not None:
            policy = _with(policy, name.split("."), value)
    return policy


def _with(policy: MemoryPolicy, place: list[str], value: Any) -> MemoryPolicy:
    settings = policy.model_dump()
    inner = settings
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    try:
        return MemoryPolicy.model_validate(settings)
    except ValidationError:
        log.warning("memory.setting_not_possible", name=".".join(place))
        return policy


class PersonalSettings:
    """The settings of every person. Recall asks at every turn, so what was read once is remembered."""

    def __init__(self, memory: Opener, policy: MemoryPolicy, clock: Clock) -> None:
        self._memory = memory
        self._policy = policy
        self._clock = clock
        self._recall: dict[str, RecallPolicy] = {}
        self._changes = 0

    @property
    def configured(self) -> MemoryPolicy:
        """What holds for who has set nothing."""
        return self._policy

    def recall_known(self, user: str | None) -> RecallPolicy | None:
        """What was read before, so that a turn does not wait; None: it must be read."""
        return self._policy.recall if user is None else self._recall.get(user)

    async def recall(self, user: str | None) -> RecallPolicy:
        """Raises MemoryProblem."""
        known = self.recall_known(user)
        if known is not None or user is None:
            return known or self._policy.recall
        changes = self._changes
        read = effective(self._policy, await self.chosen(Viewer(user=user, author=user), None)).recall
        if changes != self._changes:
            return read  # it may be older than what somebody has set meanwhile
        if len(self._recall) >= KNOWN_PEOPLE:
            self._recall.clear()
        self._recall[user] = read
        return read

    async def chosen(self, viewer: Viewer, pool: Pool | None) -> dict[str, Any]:
        """What a person has set, by name. Raises MemoryProblem."""
        memories = await self._memory.open()
        found = await memories.store.settings.of(viewer, pool)
        return {name: found[name] for name in names() if found.get(name) is not None}

    def _decided(self, changes: Mapping[str, Any], chosen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Who turns learning on lets it begin with what they say from then on."""
        before, after = effective(self._policy, chosen), effective(self._policy, {**chosen, **changes})
        begins = after.learn.reach > before.learn.reach == 0
        return {**changes, LEARN_SINCE: millis(self._clock.now())} if begins else changes

    async def put(self, viewer: Viewer, pool: Pool, changes: Mapping[str, Any]) -> None:
        """Sets what is given, by name; None: as configured again. Raises MemoryProblem."""
        if pool.kind != "user":
            raise InvalidMemory("pool", "only people have settings; name user:<id>")
        memories = await self._memory.open()
        known = {name: changes[name] for name in names() if name in changes}
        try:
            await memories.store.settings.change(viewer, pool, partial(self._decided, known))
        finally:
            self._changes += 1
            self._recall.pop(pool.id, None)
