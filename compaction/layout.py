"""The prompt of one model call, laid out so that its prefix stays byte-identical from turn to turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sessions.context import Message

CacheLayout = Literal["memories_last", "memories_first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model is told about it. `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What one call is sent, in this order (spec compaction.md, "Prompt layout and cache").

    `system` is frozen at session start; `summary` is the text of the one reference message that opens a generation
    after the first; `trailing` changes with every call, stands after the newest user message, and is not history.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    summary: str | None = None
    trailing: str | None = None


def sorted_tools(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """By name, so that the order they were registered in cannot break the cache."""
    return tuple(sorted(tools, key=lambda tool: tool.name))


def build_prompt(
    *,
    system: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    summary: str | None = None,
    trailing: str | None = None,
    layout: CacheLayout = "memories_last",
) -> Prompt:
    """`trailing`: what differs from call to call. Under `memories_first` it goes where most put it, into the
    system text, and every call pays for it."""
    if trailing and layout == "memories_first":
        system, trailing = f"{system}\n\n{trailing}", None
    return Prompt(
        system=system,
        messages=tuple(messages),
        tools=sorted_tools(tools),
        summary=summary,
        trailing=trailing,
    )
