"""The entries of a transcript: a closed set of frozen values, and their JSON form."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JsonObject = dict[str, Any]

FORMAT = 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Finish = Literal[
    "stop",  # the model ended its reply
    "tool_calls",  # the model wants results; the turn goes on
    "client_tools",  # calls to tools of the client; the turn ends, the next request brings the results
    "length",  # cut at the output limit
    "filter",  # withheld by the provider
    "stopped",  # a person stopped it; what came is kept
    "interrupted",  # a newer message took over (queue mode interrupt)
    "incomplete",  # the stream broke after something was shown
]
EndReason = Literal["new", "reset", "daily", "idle", "deleted", "resume"]


class DamagedEntry(ValueError):
    """A line that is JSON but not an entry; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call the model made. `arguments` is the JSON text as the model wrote it, possibly broken."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that came with a message; the bytes are in `blobs/` under `sha256`. `width`, `height`: pixels."""

    sha256: str
    media_type: str
    size_bytes: int
    name: str | None = None
    width: int | None = None
    height: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What all entries share. `seq` 0 marks a draft: the store stamps seq, id and time when it appends.

    `turn` is the id of the turn the entry belongs to, `tokens` the count of its text.
    """

    seq: int = 0
    id: str = ""
    at: datetime = EPOCH
    turn: str | None = None
    tokens: int = 0

    def stamped(self, *, seq: int, id: str, at: datetime, turn: str | None) -> Entry:  # noqa: A002
        return dataclasses.replace(self, seq=seq, id=id, at=at, turn=turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEntry(Entry):
    """A message from outside. `request_sha256` is the hash of the body that carried `request_id`."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    sender: str | None = None
    sender_name: str | None = None
    user: str | None = None
    request_id: str | None = None
    request_sha256: str | None = None
    model: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantEntry(Entry):
    """One reply of the model. `also` names further turns whose messages this call has shown the model
    (queue modes `collect` and `steer`). `request_id`: the request with which a frontend stored it."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    model: str | None = None
    usage: Usage | None = None
    finish: Finish = "stop"
    also: tuple[str, ...] = ()
    request_id: str | None = None
    request_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultEntry(Entry):
    call_id: str
    name: str
    text: str
    is_error: bool = False
    request_id: str | None = None
    request_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Covers:
    """The stretch of a session inside a summary: seqs, both inclusive, and the hash of its lines."""

    from_seq: int
    to_seq: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEntry(Entry):
    """Opens a generation. `covers.to_seq` is the anchor; `replay_from` the first seq kept word for word."""

    summary: JsonObject
    covers: Covers
    replay_from: int
    by: Literal["model", "rules"] = "model"
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedEntry(Entry):
    """An entry of an earlier generation, kept word for word with its own seq inside."""

    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallEntry(Entry):
    """Which memories were shown in this turn; never part of a later prompt."""

    shown: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry(Entry):
    """A command and its answer. `request_id` as for a message."""

    name: str
    argument: str = ""
    reply: str | None = None
    sender: str | None = None
    request_id: str | None = None
    request_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStartedEntry(Entry):
    reason: str
    anchor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFailedEntry(Entry):
    error: str
    failures: int
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEntry(Entry):
    """Last line of a generation: the session goes on in `generation`."""

    generation: int
    anchor: int
    replay_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailedEntry(Entry):
    """The end of a turn without a reply. `code` is stable, `error` is for the person."""

    code: str
    error: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEntry(Entry):
    """A turn cut by a crash or a stop is generated again; `number` counts from 2."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetractedEntry(Entry):
    """The named entries are no longer part of the conversation; they stay in the file."""

    seqs: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedEntry(Entry):
    of: int
    pinned: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEntry(Entry):
    reason: EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedEntry(Entry):
    """An ended session is the active one of its key again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEntry(Entry):
    """An entry of a newer version: kept, counted, not interpreted."""

    raw: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """First line of a transcript. `previous` is the file name of the generation or the id of the session before;
    `owner` the person the session belongs to, whom a rebuilt index must know (None: nobody, or an older transcript)."""

    session: str
    generation: int
    key: str
    agent: str
    at: datetime
    previous: str | None = None
    owner: str | None = None
    format: int = FORMAT


_TYPES: dict[str, type[Entry]] = {
    "user": UserEntry,
    "assistant": AssistantEntry,
    "tool_result": ToolResultEntry,
    "summary": SummaryEntry,
    "carried": CarriedEntry,
    "recall": RecallEntry,
    "command": CommandEntry,
    "compaction_started": CompactionStartedEntry,
    "compaction_failed": CompactionFailedEntry,
    "compaction": CompactionEntry,
    "turn_failed": TurnFailedEntry,
    "attempt": AttemptEntry,
    "retracted": RetractedEntry,
    "pinned": PinnedEntry,
    "ended": EndedEntry,
    "resumed": ResumedEntry,
}
_NAMES: dict[type[Entry], str] = {kind: name for name, kind in _TYPES.items()}
_FIELDS: dict[type[Entry], tuple[dataclasses.Field[Any], ...]] = {
    kind: tuple(f for f in dataclasses.fields(kind) if f.name not in {"seq", "id", "at", "turn", "tokens"})
    for kind in _NAMES
}


def format_time(at: datetime) -> str:
    """RFC 3339, UTC, milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(raw: object) -> datetime:
    """An aware datetime. Raises ValueError for anything else."""
    at = datetime.fromisoformat(str(raw))
    if at.tzinfo is None:
        raise ValueError(f"{raw!r} has no time zone")
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{raw!r} is before the year 1 or after 9999 in UTC") from error


def entry_to_json(entry: Entry) -> JsonObject:
    """The object of one line, without its checksum. Fields at their default are left out."""
    if isinstance(entry, UnknownEntry):
        return entry.raw
    out: JsonObject = {
        "seq": entry.seq,
        "id": entry.id,
        "type": _NAMES[type(entry)],
        "at": format_time(entry.at),
        "turn": entry.turn,
        "tokens": entry.tokens,
    }
    for field in _FIELDS[type(entry)]:
        value: Any = getattr(entry, field.name)
        if value != field.default:
            out[field.name] = _value_to_json(value)
    return out


def _value_to_json(value: Any) -> Any:
    match value:
        case Entry():
            return entry_to_json(value)
        case Usage():
            return value.to_json()
        case datetime():
            return format_time(value)
        case tuple():
            return [_value_to_json(item) for item in cast("tuple[Any, ...]", value)]
        case ToolCall() | Attachment():
            return {f.name: v for f in dataclasses.fields(value) if (v := getattr(value, f.name)) is not None}
        case Covers():
            return {"from": value.from_seq, "to": value.to_seq, "sha256": value.sha256}
        case _:
            return value


def entry_from_json(raw: Mapping[str, Any]) -> Entry:
    """The entry of one line's object. Unknown types come back as UnknownEntry; raises DamagedEntry."""
    try:
        seq, name = raw["seq"], raw["type"]
        if not isinstance(seq, int) or isinstance(seq, bool) or seq < 1:
            raise DamagedEntry(f"seq is {seq!r}")
        kind = _TYPES.get(str(name), UnknownEntry)
        readers = _READERS[kind]
        given: JsonObject = {name: readers[name](value) for name, value in raw.items() if name in readers}
        if kind is UnknownEntry:
            given["raw"] = dict(raw)
        return kind(seq=seq, at=parse_time(raw["at"]), **given)
    except DamagedEntry:
        raise
    except KeyError as error:
        raise DamagedEntry(f"{error.args[0]} is missing") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedEntry(str(error)) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise DamagedEntry(f"{value!r:.40} is not a text")
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DamagedEntry(f"{value!r:.40} is not a whole number")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise DamagedEntry(f"{value!r:.40} is neither true nor false")
    return value


def _calls(value: Any) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(id=_text(v["id"]), name=_text(v["name"]), arguments=_text(v["arguments"])) for v in value)


def _attachments(value: Any) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(
            sha256=_text(item["sha256"]),
            media_type=_text(item["media_type"]),
            size_bytes=_number(item["size_bytes"]),
            name=None if item.get("name") is None else _text(item["name"]),
            width=None if item.get("width") is None else _number(item["width"]),
            height=None if item.get("height") is None else _number(item["height"]),
        )
        for item in value
    )


def _covers(value: Any) -> Covers:
    return Covers(from_seq=_number(value["from"]), to_seq=_number(value["to"]), sha256=_text(value["sha256"]))


def _object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise DamagedEntry(f"{value!r:.40} is not an object")
    return cast("JsonObject", value)


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "attachments": _attachments,
    "calls": _calls,
    "usage": lambda value: Usage.from_json(_object(value)),
    "also": lambda value: tuple(_text(item) for item in value),
    "seqs": lambda value: tuple(_number(item) for item in value),
    "covers": _covers,
    "retry_at": parse_time,
    "entry": entry_from_json,
    "summary": _object,
    "shown": _object,
    "is_error": _flag,
    "pinned": _flag,
}
_NUMBERS = frozenset("anchor failures generation replay_from of number".split())


_COMMON: dict[str, Callable[[Any], Any]] = {
    "id": lambda value: _optional_text(value) or "",
    "turn": _optional_text,
    "tokens": lambda value: 0 if value is None else _number(value),
}


def _reader(field: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    """How the value of one field is read; null only where None is the default."""
    optional = field.default is None
    if field.name in _NUMBERS:
        return _number
    if field.name not in _SPECIAL:
        return _optional_text if optional else _text
    read = _SPECIAL[field.name]
    return (lambda value: None if value is None else read(value)) if optional else read


_READERS: dict[type[Entry], dict[str, Callable[[Any], Any]]] = {
    kind: {**_COMMON, **{field.name: _reader(field) for field in fields}} for kind, fields in _FIELDS.items()
}
_READERS[UnknownEntry] = {**_COMMON}


def header_to_json(header: Header) -> JsonObject:
    return {
        "type": "session",
        "format": header.format,
        "session": header.session,
        "generation": header.generation,
        "key": header.key,
        "agent": header.agent,
        "at": format_time(header.at),
        "previous": header.previous,
        **({} if header.owner is None else {"owner": header.owner}),
    }


def header_from_json(raw: Mapping[str, Any]) -> Header:
    """Raises DamagedEntry."""
    try:
        previous, owner = raw.get("previous"), raw.get("owner")
        return Header(
            session=str(raw["session"]),
            generation=int(raw["generation"]),
            key=str(raw["key"]),
            agent=str(raw["agent"]),
            at=parse_time(raw["at"]),
            previous=None if previous is None else str(previous),
            owner=None if owner is None else str(owner),
            format=int(raw["format"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedEntry(f"header: {error}") from error


def turn_id(session: str, seq: int) -> str:
    """The id of the turn that a session's entry `seq` opens; the session can be read back from it."""
    return f"{session}-{seq}"


def session_of_turn(turn: str) -> tuple[str, int] | None:
    """(session id, seq of its first entry), or None when the text is no turn id."""
    session, _, seq = turn.rpartition("-")
    if len(session) != 26 or not session.isalnum() or not seq.isascii() or not seq.isdigit() or len(seq) > 15:
        return None
    return session, int(seq)
