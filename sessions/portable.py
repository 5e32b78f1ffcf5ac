"""Conversations in and out: the formats others read, and those they bring."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from sessions.context import AssistantMessage, Message, ToolMessage, UserMessage, conversation, render_messages
from sessions.entries import (
    EPOCH,
    FORMAT,
    AssistantEntry,
    Attachment,
    CarriedEntry,
    Entry,
    Finish,
    Header,
    JsonObject,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    UnknownEntry,
    UserEntry,
    entry_from_json,
    format_time,
    parse_time,
)
from sessions.lines import decode_line, encode_entry, encode_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Read = TypeVar("Read")
Made = TypeVar("Made")
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
    """One conversation of a file: drafts in order, with their own times. `key` is known for our own format only.

    `left_out` counts what was said there and has no place here: system messages, thoughts, tool calls of others.
    """

    entries: tuple[Entry, ...]
    key: str | None = None
    title: str | None = None
    left_out: int = 0


# --- out --------------------------------------------------------------------------------------------------------------


def render_export(form: ExportFormat, header: Header, title: str | None, entries: Sequence[Entry]) -> bytes:
    """A session as a file of the given format. `entries` are those of all its generations."""
    match form:
        case "jsonl":
            return encode_header(header) + b"".join(encode_entry(entry) for entry in entries)
        case "openai":
            messages = [_openai(message) for message in render_messages(_each_once(entries))]
            return _encoded(json.dumps({"messages": messages}, ensure_ascii=False, indent=1))
        case "markdown":
            return _encoded("\n".join(_markdown(header, title, conversation(_each_once(entries)))))


def _each_once(entries: Sequence[Entry]) -> list[Entry]:
    """What a later generation carried over word for word only where the original is not among the entries."""
    seen = {entry.seq for entry in entries if not isinstance(entry, CarriedEntry)}
    out: list[Entry] = []
    for entry in entries:
        if not isinstance(entry, CarriedEntry):
            out.append(entry)
        elif entry.entry.seq not in seen:
            seen.add(entry.entry.seq)
            out.append(entry.entry)
    return out


def _encoded(text: str) -> bytes:
    return _clean(text).encode()


def _openai(message: Message) -> JsonObject:
    match message:
        case UserMessage():
            named: JsonObject = {"name": message.name} if message.name else {}
            return {"role": "user", **named, "content": _with_files(message.text, message.attachments)}
        case AssistantMessage():
            calls: JsonObject = {
                "tool_calls": [
                    {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                    for c in message.calls
                ]
            }
            return {"role": "assistant", "content": message.text or None, **(calls if message.calls else {})}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "name": message.name, "content": message.text}


def _with_files(text: str, attachments: Iterable[Attachment]) -> str:
    """The text with its files in words: their bytes are in no export."""
    named = [f"[attached: {a.name or 'a file'}, {a.media_type}, {a.size_bytes} bytes]" for a in attachments]
    return "\n".join([text, *named] if text else named)


def _markdown(header: Header, title: str | None, entries: Iterable[Entry]) -> Iterator[str]:
    yield f"# {title or header.key}"
    yield ""
    yield f"{header.key}, session {header.session}, since {format_time(header.at)}"
    for entry in entries:
        match entry:
            case UserEntry():
                yield f"\n## {entry.sender_name or entry.sender or 'User'} · {format_time(entry.at)}\n"
                yield _with_files(entry.text, entry.attachments)
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
    sessions = [session for session in _sessions(text) if session.entries]
    if not sessions:
        raise ImportProblem([Problem(1, "no message is in this file")])
    return sessions


def _sessions(text: str) -> list[ImportedSession]:
    whole = _json_or_none(text)
    if isinstance(whole, list):
        records = cast("list[Any]", whole)
        if any(isinstance(record, dict) and "mapping" in record for record in records):
            return _all_of_chatgpt(records)
        return [_openai_messages(records, None)]
    fields = cast("JsonObject", whole) if isinstance(whole, dict) else {}
    if "mapping" in fields:
        return _all_of_chatgpt([fields])
    if "messages" in fields:
        if not isinstance(fields["messages"], list):
            raise ImportProblem([Problem(1, "messages is not a list")])
        title = fields.get("title")
        return [_openai_messages(cast("list[Any]", fields["messages"]), title if isinstance(title, str) else None)]
    return [_session_file([(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()])]


def _session_file(lines: list[tuple[int, str]]) -> ImportedSession:
    first = _json_or_none(lines[0][1]) if lines else None
    fields = cast("JsonObject", first) if isinstance(first, dict) else {}
    if fields.get("type") != "session":
        raise ImportProblem([Problem(1, "neither a session file, OpenAI messages nor ChatGPT conversations")])
    return _own(lines) if "generation" in fields else _pi(lines[1:])


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _each(records: Iterable[tuple[int, Read]], read: Callable[[Read], Made]) -> list[Made]:
    """What `read` makes of every numbered record. Raises ImportProblem with all that it refused."""
    made: list[Made] = []
    problems: list[Problem] = []
    for number, record in records:
        try:
            made.append(read(record))
        except RecursionError:
            problems.append(Problem(number, "nested too deeply"))
        except ValueError as error:
            problems.append(Problem(number, str(error)))
    if problems:
        raise ImportProblem(problems)
    return made


# --- in: our own ------------------------------------------------------------------------------------------------------


def _own(lines: list[tuple[int, str]]) -> ImportedSession:
    header, *rest = _each(lines, lambda line: decode_line(line.strip().encode("utf-8", "replace")))
    if header.get("format") != FORMAT:
        raise ImportProblem([Problem(1, f"format is {header.get('format')!r}; this version reads format {FORMAT}")])
    numbers = [number for number, _ in lines[1:]]
    entries = _each(zip(numbers, rest, strict=True), entry_from_json)
    seqs = {entry.seq for entry in entries}
    for number, entry in zip(numbers, entries, strict=True):
        if isinstance(entry, SummaryEntry) and entry.covers.from_seq not in seqs:
            detail = "sums up messages that are not in this file; `sessiond export` writes all of them"
            raise ImportProblem([Problem(number, detail)])
    said = [_draft(e) for e in conversation(_each_once(entries)) if not isinstance(e, SummaryEntry)]
    key = header.get("key")
    return ImportedSession(
        entries=tuple(said),
        key=key if isinstance(key, str) and key else None,
        left_out=sum(isinstance(entry, UnknownEntry) for entry in entries),
    )


def _draft(entry: Entry) -> Entry:
    """The entry without what ties it to where it was: its turn, its request, its person, and files, which a name alone
    must not open."""
    loose = dataclasses.replace(entry, seq=0, id="", turn=None)
    match loose:
        case UserEntry():
            return dataclasses.replace(
                loose,
                text=_with_files(loose.text, loose.attachments),
                attachments=(),
                user=None,
                request_id=None,
                request_sha256=None,
            )
        case AssistantEntry():
            return dataclasses.replace(loose, also=(), request_id=None, request_sha256=None)
        case ToolResultEntry():
            return dataclasses.replace(loose, request_id=None, request_sha256=None)
        case _:
            return loose


# --- in: OpenAI -------------------------------------------------------------------------------------------------------


def _openai_messages(messages: list[Any], title: str | None) -> ImportedSession:
    found = _each(enumerate(messages, 1), _openai_message)
    return _imported(found, title)


def _imported(found: Sequence[Entry | None], title: str | None) -> ImportedSession:
    entries = tuple(entry for entry in found if entry is not None)
    return ImportedSession(
        entries=entries, title=None if title is None else _clean(title), left_out=len(found) - len(entries)
    )


def _openai_message(raw: Any) -> Entry | None:
    message = _object(raw, "the message")
    text = _content(message.get("content"))
    match message.get("role"):
        case "user":
            return UserEntry(text=text, sender_name=_optional_text(message, "name"))
        case "assistant":
            calls = tuple(_openai_call(call) for call in _list(message.get("tool_calls"), "tool_calls"))
            text = text or _optional_text(message, "refusal") or ""
            return AssistantEntry(text=text, calls=calls, finish="client_tools" if calls else "stop")
        case "tool":
            return ToolResultEntry(
                call_id=_text(message, "tool_call_id"), name=_optional_text(message, "name") or "tool", text=text
            )
        case "system" | "developer":
            return None
        case role:
            raise ValueError(f"role is {role!r:.40}; it must be user, assistant, tool, system or developer")


def _openai_call(raw: Any) -> ToolCall:
    call = _object(raw, "a tool call")
    function = _object(call.get("function"), "function of a tool call")
    return ToolCall(id=_text(call, "id"), name=_text(function, "name"), arguments=_text(function, "arguments"))


# --- in: pi, OpenClaw -------------------------------------------------------------------------------------------------

_PI_FINISH: dict[str, Finish] = {"length": "length", "aborted": "stopped", "error": "incomplete"}


def _pi(lines: list[tuple[int, str]]) -> ImportedSession:
    """A tree of records by `parentId`; the branch of the last one is what was said. Old files are lists without ids."""
    nodes = [(number, node) for (number, _), node in zip(lines, _each(lines, _pi_node), strict=True)]
    titles = [node.title for _, node in nodes if node.title]
    tree = {node.id: (number, node) for number, node in nodes if node.id is not None}
    if tree:
        leaf = next(reversed(tree))
        parents = {name: node.parent for name, (_, node) in tree.items()}
        (way,) = _each([(tree[leaf][0], leaf)], lambda at: _branch(parents, at))
        nodes = [tree[name] for name in way]
    found = _each(((number, node.record) for number, node in nodes if node.said), _pi_record)
    return _imported(found, titles[-1] if titles else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One line of a pi session. `title` is set by the line that names the session."""

    record: JsonObject
    id: str | None
    parent: str | None
    title: str | None

    @property
    def said(self) -> bool:
        return self.record.get("type") in ("message", "custom_message", "branch_summary")


def _pi_node(line: str) -> _Node:
    record = _object(_json_or_none(line), "the line")
    return _Node(
        record=record,
        id=_optional_text(record, "id"),
        parent=_optional_text(record, "parentId"),
        title=_optional_text(record, "name") if record.get("type") == "session_info" else None,
    )


def _branch(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """The names from the root of a tree to the leaf. Raises ValueError when there is no way."""
    way: dict[str, None] = {}
    at: str | None = leaf
    while at is not None:
        if at not in parents:
            raise ValueError(f"the branch that ends here goes through {at!r:.60}, which is not in the file")
        if at in way:
            raise ValueError(f"the branch that ends here goes through {at!r:.60} twice")
        way[at] = None
        at = parents[at]
    return list(reversed(way))


def _pi_record(record: JsonObject) -> Entry | None:
    if record.get("type") != "message":
        return None
    message = _object(record.get("message"), "message")
    at = _time(record.get("timestamp"))
    content = message.get("content")
    match message.get("role"):
        case "user":
            return UserEntry(text=_content(content), at=at)
        case "assistant":
            parts = (
                [] if isinstance(content, str) else [_object(p, "a part of content") for p in _list(content, "content")]
            )
            calls = tuple(_pi_call(part) for part in parts if part.get("type") == "toolCall")
            return AssistantEntry(
                text=_content(content, apart=("toolCall", "thinking")),
                calls=calls,
                model=_optional_text(message, "model"),
                finish="client_tools" if calls else _PI_FINISH.get(str(message.get("stopReason")), "stop"),
                at=at,
            )
        case "toolResult":
            return ToolResultEntry(
                call_id=_text(message, "toolCallId"),
                name=_optional_text(message, "toolName") or "tool",
                text=_content(content),
                is_error=message.get("isError") is True,
                at=at,
            )
        case _:
            return None


def _pi_call(part: JsonObject) -> ToolCall:
    arguments = part.get("arguments")
    return ToolCall(
        id=_text(part, "id"),
        name=_text(part, "name"),
        arguments=_clean(arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)),
    )


# --- in: ChatGPT ------------------------------------------------------------------------------------------------------


def _all_of_chatgpt(records: list[Any]) -> list[ImportedSession]:
    return _each(enumerate(records, 1), _chatgpt)


def _chatgpt(raw: Any) -> ImportedSession:
    """ChatGPT keeps a tree; the branch that ends at `current_node` is what was said."""
    record = _object(raw, "the conversation")
    mapping = _object(record.get("mapping"), "mapping")
    nodes = {name: _object(node, f"node {name!r:.60}") for name, node in mapping.items()}
    leaf = _optional_text(record, "current_node") or next(reversed(nodes), None)
    if leaf is None:
        return ImportedSession(entries=())
    parents = {name: _optional_text(node, "parent") for name, node in nodes.items()}
    found: list[Entry | None] = []
    for name in _branch(parents, leaf):
        message = nodes[name].get("message")
        if message is None:
            continue
        try:
            read = _chatgpt_message(_object(message, "message"))
        except ValueError as error:
            raise ValueError(f"node {name!r:.60}: {error}") from error
        found.extend(read)
    return _imported(found, _optional_text(record, "title"))


def _chatgpt_message(message: JsonObject) -> list[Entry | None]:
    """What a person or the model said; None for what they did not see as a message; nothing for what is empty."""
    content = _object(message.get("content") or {}, "content")
    author = _object(message.get("author"), "author")
    metadata = _object(message.get("metadata") or {}, "metadata")
    text = _content(_list(content.get("parts"), "parts"), kind="content_type")
    at = _time(message.get("create_time"))
    if author.get("role") not in ("user", "assistant", "tool") or metadata.get("is_visually_hidden_from_conversation"):
        return []
    if author.get("role") == "tool" or message.get("recipient") not in (None, "all"):
        return [None]
    if not text.strip():
        return [None] if content.get("text") or content.get("thoughts") else []
    if author.get("role") == "user":
        return [UserEntry(text=text, at=at)]
    return [AssistantEntry(text=text, at=at, model=_optional_text(metadata, "model_slug"))]


# --- in: values -------------------------------------------------------------------------------------------------------


def _content(content: Any, *, apart: Sequence[str] = (), kind: str = "type") -> str:
    """The text of a `content`: a text, or parts. What is no text is named in its place, but for the kinds `apart`."""
    if content is None:
        return ""
    if isinstance(content, str):
        return _clean(content)
    texts: list[str] = []
    for part in _list(content, "content"):
        fields: JsonObject = {"text": part} if isinstance(part, str) else _object(part, "a part of content")
        if fields.get(kind) in apart:
            continue
        text = fields.get("text")
        texts.append(text if isinstance(text, str) else f"[{str(fields.get(kind) or 'part')[:40]}: not imported]")
    return _clean("\n".join(texts))


def _object(value: Any, what: str) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return cast("JsonObject", value)


def _list(value: Any, what: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{what} is neither a text nor a list" if what == "content" else f"{what} is not a list")
    return cast("list[Any]", value or [])


def _text(record: JsonObject, name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is missing" if value is None else f"{name} is {value!r:.40}, which is no text")
    return _clean(value)


def _optional_text(record: JsonObject, name: str) -> str | None:
    return None if record.get(name) is None else _text(record, name)


def _time(value: Any) -> datetime:
    """A time as text, or in seconds since 1970; EPOCH when there is none."""
    try:
        if isinstance(value, str):
            return parse_time(value)
        return EPOCH if value is None else datetime.fromtimestamp(value, UTC)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise ValueError(f"{value!r:.40} is no time") from error


def _clean(text: str) -> str:
    """Halves of characters joined, and U+FFFD for those without the other half."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
