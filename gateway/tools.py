"""The tools a model may call: a registry of built-in ones, and how a call is run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson
import structlog

from compaction.fingerprints import text_of_tools
from compaction.layout import ToolSpec
from sessions.entries import ToolResultEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from sessions.entries import ToolCall
    from sessions.keys import SessionKey

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Who is asking: the session a call comes from, and the person it speaks for (None: nobody known)."""

    key: SessionKey
    user: str | None
    now: datetime


class ToolFailed(Exception):
    """A tool could not do what was asked; the text is for the model."""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """The result as text. Raises ToolFailed."""
        ...


class CurrentTime:
    """The date and time now, in a time zone of the model's choice."""

    spec = ToolSpec(
        name="current_time",
        description="The current date and time. Use it whenever the answer depends on what day or time it is.",
        parameters={
            "type": "object",
            "properties": {
                "timezone": {"type": "string", "description": "IANA name such as Europe/Prague; UTC when left out."}
            },
            "additionalProperties": False,
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        name = arguments.get("timezone") or "UTC"
        try:
            zone = ZoneInfo(str(name))
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ToolFailed(f"{name!r} is no IANA time zone; try Europe/Prague or UTC.") from error
        local = context.now.astimezone(zone)
        return f"{local:%A}, {local.isoformat(timespec='seconds')} ({zone.key})"


def fitting(tools: Sequence[ToolSpec], limit: int, count: Callable[[str], int]) -> list[ToolSpec]:
    """The first tools that take at most `limit` tokens together: their order is that of their use."""
    taken = 0
    for number, tool in enumerate(tools):
        taken += count(text_of_tools([tool]))
        if taken > limit:
            return list(tools[:number])
    return list(tools)


class ToolRegistry:
    """Built-in tools by name, the most useful ones first."""

    def __init__(self, tools: Iterable[Tool], *, timeout_s: float) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._timeout_s = timeout_s

    def specs(self, names: Iterable[str] | None = None) -> list[ToolSpec]:
        """The named tools, or all; names nobody registered are left out."""
        wanted = self._tools if names is None else names
        return [self._tools[name].spec for name in wanted if name in self._tools]

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    @property
    def names(self) -> list[str]:
        return sorted(self._tools)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResultEntry:
        """Runs one call. Whatever goes wrong becomes an error result: a tool never ends a turn."""
        text, is_error = await outcome_of(call.name, self._run(call, context), timeout_s=self._timeout_s)
        return ToolResultEntry(call_id=call.id, name=call.name, text=text, is_error=is_error)

    async def _run(self, call: ToolCall, context: ToolContext) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            raise ToolFailed(f"There is no tool {call.name!r}. Known tools: {', '.join(self.names)}.")
        try:
            arguments = orjson.loads(call.arguments or "{}")
        except orjson.JSONDecodeError as error:
            raise ToolFailed(f"The arguments are not JSON ({error}). Send a JSON object.") from error
        if not isinstance(arguments, dict):
            raise ToolFailed("The arguments must be a JSON object.")
        return await tool.run(cast("dict[str, Any]", arguments), context)


async def outcome_of(name: str, work: Awaitable[str], *, timeout_s: float) -> tuple[str, bool]:
    """What a tool says, and whether it is an error: whatever goes wrong is told in words."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work, False
    except ToolFailed as error:
        return str(error), True
    except TimeoutError:
        return f"{name} took longer than {timeout_s:g} s and was stopped.", True
    except Exception as error:
        log.exception("tool.failed", tool=name)
        return f"{name} failed inside: {type(error).__name__}.", True
