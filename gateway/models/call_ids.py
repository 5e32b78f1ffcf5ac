"""Ids of tool calls as a provider will take them: each used once in a prompt, and its result with it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sessions.context import AssistantMessage, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sessions.context import Message


def with_unique_ids(messages: Sequence[Message], clean: Callable[[str], str] = lambda id_: id_) -> list[Message]:
    """Models that count their calls anew in each reply use ids twice; providers refuse such a prompt for ever.

    An id depends on the messages before it only, so the bytes of the history stay as they are.
    """
    used: dict[str, int] = {}
    waiting: dict[str, list[str]] = {}
    out: list[Message] = []
    for message in messages:
        match message:
            case AssistantMessage() if message.calls:
                waiting = {}
                calls = [dataclasses.replace(call, id=_unused(clean(call.id), used)) for call in message.calls]
                for call, renamed in zip(message.calls, calls, strict=True):
                    waiting.setdefault(call.id, []).append(renamed.id)
                out.append(dataclasses.replace(message, calls=tuple(calls)))
            case ToolMessage() if waiting.get(message.call_id):
                out.append(dataclasses.replace(message, call_id=waiting[message.call_id].pop(0)))
            case _:
                out.append(message)
    return out


def _unused(id_: str, used: dict[str, int]) -> str:
    wanted = id_
    while wanted in used:
        used[id_] += 1
        wanted = f"{id_}_{used[id_]}"
    used[wanted] = 1
    return wanted
