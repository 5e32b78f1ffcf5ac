"""Conversations in and out: the formats others read, and those they bring."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from sessions.context import conversation
from sessions.entries import (
    EPOCH,
    AssistantEntry,
    DamagedEntry,
    Entry,
    Header,
    JsonObject,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    UserEntry,
    entry_from_json,
    format_time,
    parse_time,
)
from sessions.lines import encode_entry, encode_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ExportFormat = Literal["jsonl", "markdown", "openai"]
MEDIA_TYPES: dict[ExportFormat, str] = {
    "jsonl": "application/x-ndjson",
    "markdown": "text/markdown",
    "openai": "application/json",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Where in a file something cannot be taken: the record, counted from 1, and why."""

    record: int
    detail: str


class ImportProblem(ValueError):
    """A file that cannot be imported; nothing of it was taken."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f"record {p.record}: {p.detail}" for p in problems[:10]))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """One conversation of a file: drafts in order, with their own times. `key` is known for our own format only."""

    entries: tuple[Entry, ...]
    key: str | None = None
    title: str | None = None


# --- out --------------------------------------------------------------------------------------------------------------


def render_export(form: ExportFormat, header: Header, title: str | None, entries: Sequence[Entry]) -> bytes:
    """A session as a file of the given format."""
    match form:
        case "jsonl":
            return encode_header(header) + b"".join(encode_entry(entry) for entry in entries)
        case "openai":
            messages = [message for entry in conversation(entries) if (message := _openai(entry)) is not None]
            return json.dumps({"messages": messages}, ensure_ascii=False, indent=1).encode()
        case "markdown":
            return "\n".join(_markdown(header, title, conversation(entries))).encode()


def _openai(entry: Entry) -> JsonObject | None:
    match entry:
        case UserEntry():
            return {"role": "user", "content": entry.text}
        case AssistantEntry():
            message: JsonObject = {"role": "assistant", "content": entry.text or None}
            if entry.calls:
                message["tool_calls"] = [
                    {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                    for c in entry.calls
                ]
            return message
        case ToolResultEntry():
            return {"role": "tool", "tool_call_id": entry.call_id, "name": entry.name, "content": entry.text}
        case _:
            return None


def _markdown(header: Header, title: str | None, entries: Iterable[Entry]) -> Iterator[str]:
    yield f"# {title or header.key}"
    yield ""
    yield f"{header.key}, session {header.session}, since {format_time(header.at)}"
    for entry in entries:
        match entry:
            case UserEntry():
                yield f"\n## {entry.sender_name or entry.sender or 'User'} · {format_time(entry.at)}\n"
                yield entry.text
            case AssistantEntry():
                yield f"\n## Assistant · {format_time(entry.at)}\n"
                yield entry.text
                for call in entry.calls:
                    yield f"\n- calls `{call.name}`: `{call.arguments}`"
            case ToolResultEntry():
                quoted = "\n".join(f"> {line}" for line in entry.text.splitlines())
                yield f"\n{quoted}"
            case SummaryEntry():
                yield f"\n## Summary · {format_time(entry.at)}\n"
                yield f"```json\n{json.dumps(entry.summary, ensure_ascii=False, indent=1)}\n```"
            case _:
                pass
    yield ""


# --- in ---------------------------------------------------------------------------------------------------------------


def parse_import(payload: bytes) -> list[ImportedSession]:
    """The conversations of a file: our JSONL, OpenAI messages, a pi or OpenClaw session, ChatGPT's conversations.json.

    Everything is checked first. Raises ImportProblem with every place that is wrong.
    """
    try:
        text = payload.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImportProblem([Problem(1, f"not UTF-8 (byte {error.start})")]) from error
    whole = _json_or_none(text)
    if isinstance(whole, list) and whole and isinstance(whole[0], dict) and "mapping" in whole[0]:
        return _all(_chatgpt, cast("list[Any]", whole))
    if isinstance(whole, dict) and "messages" in whole:
        return [_openai_messages(cast("JsonObject", whole)["messages"])]
    if isinstance(whole, list):
        return [_openai_messages(cast("list[Any]", whole))]
    records = _records(text)
    if not records or records[0].get("type") != "session":
        raise ImportProblem([Problem(1, "neither a session file, OpenAI messages nor ChatGPT conversations")])
    return [_own(records) if "generation" in records[0] else _pi(records)]


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _records(text: str) -> list[JsonObject]:
    records: list[JsonObject] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        value = _json_or_none(line)
        if isinstance(value, dict):
            records.append(cast("JsonObject", value))
        else:
            problems.append(Problem(number, "not a JSON object"))
    if problems:
        raise ImportProblem(problems)
    return records


def _all(read: Any, records: list[Any]) -> list[ImportedSession]:
    sessions: list[ImportedSession] = []
    problems: list[Problem] = []
    for number, record in enumerate(records, 1):
        try:
            sessions.append(read(record))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(Problem(number, _why(error)))
    if problems:
        raise ImportProblem(problems)
    return [session for session in sessions if session.entries]


def _why(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


def _own(records: list[JsonObject]) -> ImportedSession:
    entries: list[Entry] = []
    problems: list[Problem] = []
    for number, record in enumerate(records[1:], 2):
        try:
            entry = entry_from_json({name: value for name, value in record.items() if name != "crc"})
        except DamagedEntry as error:
            problems.append(Problem(number, str(error)))
            continue
        if isinstance(entry, UserEntry | AssistantEntry | ToolResultEntry):
            entries.append(entry)
    if problems:
        raise ImportProblem(problems)
    ordered = [_draft(e) for e in conversation(entries)]
    return ImportedSession(entries=tuple(ordered), key=str(records[0].get("key") or "") or None)


def _draft(entry: Entry) -> Entry:
    loose = dataclasses.replace(entry, seq=0, id="", turn=None)
    if isinstance(loose, UserEntry):
        return dataclasses.replace(loose, request_id=None, request_sha256=None)
    return dataclasses.replace(loose, also=()) if isinstance(loose, AssistantEntry) else loose


def _openai_messages(messages: Any) -> ImportedSession:
    if not isinstance(messages, list):
        raise ImportProblem([Problem(1, "messages is not a list")])
    entries: list[Entry] = []
    problems: list[Problem] = []
    for number, message in enumerate(cast("list[Any]", messages), 1):
        try:
            entries.extend(_openai_message(message))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(Problem(number, _why(error)))
    if problems:
        raise ImportProblem(problems)
    return ImportedSession(entries=tuple(entries))


def _openai_message(message: JsonObject) -> list[Entry]:
    text = content_text(message.get("content"))
    match message["role"]:
        case "user":
            return [UserEntry(text=text, sender_name=message.get("name"))]
        case "assistant":
            calls = tuple(
                ToolCall(
                    id=str(call["id"]),
                    name=str(call["function"]["name"]),
                    arguments=str(call["function"]["arguments"]),
                )
                for call in message.get("tool_calls") or ()
            )
            return [AssistantEntry(text=text, calls=calls, finish="client_tools" if calls else "stop")]
        case "tool":
            return [
                ToolResultEntry(
                    call_id=str(message["tool_call_id"]), name=str(message.get("name") or "tool"), text=text
                )
            ]
        case "system" | "developer":
            return []
        case role:
            raise ValueError(f"role {role!r} is none of user, assistant, tool, system")


def content_text(content: Any) -> str:
    """The text of an OpenAI-style `content`: a text, or parts of which the texts are taken. Raises ValueError."""
    if content is None:
        return ""
    if isinstance(content, str):
        return _clean(content)
    if isinstance(content, list):
        return _clean("\n".join(p["text"] for p in _objects(content) if isinstance(p.get("text"), str)))
    raise ValueError("content is neither a text nor a list of parts")


def _objects(value: Any) -> list[JsonObject]:
    """The objects of a list; what else is in it is no content of ours."""
    if not isinstance(value, list):
        return []
    return [cast("JsonObject", item) for item in cast("list[Any]", value) if isinstance(item, dict)]


def _clean(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _pi(records: list[JsonObject]) -> ImportedSession:
    """A tree of messages by `parentId`; the branch of the last one is what was said."""
    by_id = {str(r["id"]): r for r in records[1:] if "id" in r}
    branch: list[JsonObject] = []
    at = next((str(r["id"]) for r in reversed(records[1:]) if "id" in r), None)
    if at is None:
        branch = [r for r in records[1:] if r.get("type") == "message"]
    while at is not None and at in by_id and len(branch) <= len(by_id):
        branch.append(by_id[at])
        parent = by_id[at].get("parentId")
        at = None if parent is None else str(parent)
    if by_id:
        branch.reverse()
    entries: list[Entry] = []
    problems: list[Problem] = []
    for record in branch:
        if record.get("type") != "message":
            continue
        try:
            entries.extend(_pi_message(record))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(Problem(records.index(record) + 1, _why(error)))
    if problems:
        raise ImportProblem(problems)
    return ImportedSession(entries=tuple(entries))


def _pi_message(record: JsonObject) -> list[Entry]:
    message = record["message"]
    at = parse_time(record["timestamp"]) if "timestamp" in record else EPOCH
    content = message.get("content")
    text = content_text(content)
    match message["role"]:
        case "user":
            return [UserEntry(text=text, at=at)]
        case "assistant":
            calls = tuple(
                ToolCall(id=str(p["id"]), name=str(p["name"]), arguments=json.dumps(p.get("arguments") or {}))
                for p in _objects(content)
                if p.get("type") == "toolCall"
            )
            return [AssistantEntry(text=text, calls=calls, at=at, finish="client_tools" if calls else "stop")]
        case "toolResult":
            return [
                ToolResultEntry(
                    call_id=str(message["toolCallId"]),
                    name=str(message.get("toolName") or "tool"),
                    text=text,
                    is_error=bool(message.get("isError")),
                    at=at,
                )
            ]
        case _:
            return []


def _chatgpt(record: JsonObject) -> ImportedSession:
    """ChatGPT keeps a tree; the branch that ends at `current_node` is what was said."""
    mapping: JsonObject = record["mapping"]
    at = record.get("current_node") or next(reversed(mapping), None)
    branch: list[JsonObject] = []
    while at in mapping and len(branch) <= len(mapping):
        node = mapping[at]
        if node.get("message"):
            branch.append(node["message"])
        at = node.get("parent")
    entries = [entry for message in reversed(branch) for entry in _chatgpt_message(message)]
    return ImportedSession(entries=tuple(entries), title=record.get("title"))


def _chatgpt_message(message: JsonObject) -> list[Entry]:
    content: JsonObject = message.get("content") or {}
    parts: list[Any] = content.get("parts") or []
    text = _clean("\n".join(part for part in parts if isinstance(part, str)))
    if not text.strip():
        return []
    created = message.get("create_time")
    at = datetime.fromtimestamp(created, UTC) if isinstance(created, int | float) else EPOCH
    match message["author"]["role"]:
        case "user":
            return [UserEntry(text=text, at=at)]
        case "assistant":
            return [AssistantEntry(text=text, at=at)]
        case _:
            return []
