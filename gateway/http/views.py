"""What the API shows of sessions, turns and entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from gateway.calls import is_estimate
from gateway.turn import context_json
from sessions.entries import entry_to_json, format_time

if TYPE_CHECKING:
    from gateway.turn import Turn, TurnResult
    from sessions.entries import Entry
    from sessions.record import SessionRecord


class ContextView(BaseModel):
    """Fill of the model's window; null where a number is not known."""

    tokens: int | None
    window: int | None
    share: float | None
    estimated: bool


class UsageView(BaseModel):
    """Tokens spent; `input_total` includes what was read from and written to the cache."""

    input_total: int
    cached_read: int
    cache_write: int
    output: int
    reasoning: int
    reported: bool


class EntryView(BaseModel):
    """One entry of a transcript; further fields depend on `type`."""

    model_config = ConfigDict(extra="allow")

    seq: int
    type: str
    at: str
    id: str | None = None
    turn: str | None = None
    tokens: int = 0


class ToolCallView(BaseModel):
    """A call to a tool of the client: the next message brings its result."""

    id: str
    name: str
    arguments: str


class TurnView(BaseModel):
    """A turn: `state` is waiting, running, done or failed; `error` tells why it failed."""

    turn: str
    session: str
    key: str
    state: str
    text: str = ""
    finish: str | None = None
    entries: list[EntryView] = []
    tool_calls: list[ToolCallView] = []
    usage: UsageView | None = None
    context: ContextView | None = None
    error: dict[str, str] | None = None


class SessionView(BaseModel):
    """A session as the index knows it."""

    model_config = ConfigDict(extra="allow")

    key: str
    session: str
    agent: str
    type: str
    state: str
    title: str | None = None
    created_at: str
    active_at: str
    messages: int
    context: ContextView


class SessionPageView(BaseModel):
    """One page of sessions; `next` is the cursor of the following one."""

    sessions: list[SessionView]
    next: str | None = None


class EntryPageView(BaseModel):
    """Entries in the order they were written; `before` is where older ones go on."""

    session: str
    entries: list[EntryView]
    before: int | None = None


def entry_view(entry: Entry) -> dict[str, Any]:
    return entry_to_json(entry)


def session_view(record: SessionRecord) -> dict[str, Any]:
    """All fields, whether at their default or not."""
    return {
        "key": record.key,
        "session": record.session,
        "agent": record.agent,
        "type": record.type,
        "channel": record.channel,
        "owner": record.owner,
        "state": record.state,
        "title": record.title,
        "created_at": format_time(record.created_at),
        "active_at": format_time(record.active_at),
        "generation": record.generation,
        "messages": record.messages,
        "entries": record.entries,
        "open_turns": record.open_turns,
        "ended": record.ended,
        "pinned": record.pinned,
        "compactions": record.compactions,
        "compaction": record.compaction,
        "tokens": {
            "input": record.input_tokens,
            "output": record.output_tokens,
            "cache_read": record.cache_read,
            "cache_write": record.cache_write,
        },
        "cost": record.cost,
        "context": context_json(record.context_tokens, record.window, estimated=is_estimate(record.call)),
        "settings": {
            "model": record.settings.model,
            "queue_mode": record.settings.queue_mode,
            "reset": None
            if record.settings.reset is None
            else record.settings.reset.model_dump(mode="json", exclude_unset=True),
            "notes": record.settings.notes,
        },
    }


def turn_view(turn: Turn) -> dict[str, Any]:
    """The turn as it stands."""
    if turn.result is not None:
        return result_view(turn.result, turn.client_tool_names)
    record = turn.record
    return {"turn": turn.id, "session": record.session, "key": record.key, "state": turn.state}


def result_view(result: TurnResult, client_tools: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The end of a turn."""
    content: dict[str, Any] = {
        "turn": result.turn,
        "session": result.session,
        "key": result.key,
        "state": "failed" if result.failed else "done",
        "text": result.text,
        "finish": result.finish,
        "entries": [entry_view(entry) for entry in result.entries],
        "usage": None if result.usage is None else result.usage.to_json(),
        "context": context_json(result.context_tokens, result.window, estimated=result.estimated),
    }
    if result.finish == "client_tools":
        content["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in result.calls
            if not client_tools or call.name in client_tools
        ]
    if result.failed:
        content["error"] = {"code": result.error_code, "detail": result.error}
    return content
