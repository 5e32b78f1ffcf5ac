"""A transcript as a chat: what was said, called, remembered and summarised, in order. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sessions.entries import (
    AssistantEntry,
    AttemptEntry,
    CommandEntry,
    CompactionEntry,
    CompactionFailedEntry,
    CompactionStartedEntry,
    EndedEntry,
    Entry,
    PinnedEntry,
    RecallEntry,
    ResumedEntry,
    RetractedEntry,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    TurnFailedEntry,
    UserEntry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

SUMMARY_LASTS = timedelta(minutes=10)
SUMMARY_LISTS = (
    "topics",
    "decisions",
    "constraints",
    "user_context",
    "facts",
    "open_asks",
    "superseded",
    "identifiers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something said. `mine` is from the person's side, `tokens` what the model's provider reported for the call.
    `pinnable`: it is still word for word before the model."""

    kind: str = field(default="message", init=False)
    seq: int
    at: datetime
    mine: bool
    name: str | None
    text: str
    model: str | None = None
    finish: str = "stop"
    tokens: int | None = None
    files: tuple[str, ...] = ()
    pinned: bool = False
    pinnable: bool = False
    waiting: bool = False
    turn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A call of a tool with its result, which may not be there yet."""

    kind: str = field(default="tool", init=False)
    seq: int
    at: datetime
    call: str
    name: str
    arguments: str
    result: str | None
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Divider:
    """The seam between two generations, with the summary that opens the later one."""

    kind: str = field(default="divider", init=False)
    seq: int
    at: datetime
    first: int
    last: int
    by: str
    model: str | None
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    tokens: int
    covered_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line between messages: `name` is a text of the page `session`, `values` fill it."""

    kind: str = field(default="notice", init=False)
    seq: int
    at: datetime
    name: str
    values: dict[str, Any]
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory as it is now."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What was put before the model in a turn; `gone` counts memories that are no longer there."""

    kind: str = field(default="recall", init=False)
    seq: int
    at: datetime
    memories: tuple[Recalled, ...]
    files: tuple[str, ...]
    gone: int


Item = Message | Tool | Divider | Recall | Notice


def chat_items(
    entries: Sequence[Entry],
    waiting: Iterable[str] = (),
    *,
    known: Sequence[Entry] = (),
    current: Iterable[int] = (),
    recalled: Mapping[str, Recalled] | None = None,
) -> list[Item]:
    """A part of a transcript as a chat, in order; what was retracted is left out. `waiting` names turns without a reply
    yet, `known` are all entries there are when that is more than the part, `current` the seqs that are still word for
    word before the model, and `recalled` the memories by id."""
    whole = known or entries
    gone = {seq for e in whole if isinstance(e, RetractedEntry) for seq in e.seqs}
    pins = {e.of: e.pinned for e in whole if isinstance(e, PinnedEntry)}
    results = {e.call_id: e for e in whole if isinstance(e, ToolResultEntry)}
    open_turns, pinnable = frozenset(waiting), frozenset(current)
    items: list[Item] = []
    for entry in entries:
        match entry:
            case _ if entry.seq in gone:
                pass
            case UserEntry():
                question = _question(entry, pins.get(entry.seq, False), entry.turn in open_turns)
                items.append(replace(question, pinnable=entry.seq in pinnable))
            case AssistantEntry():
                if entry.text or not entry.calls:
                    reply = _reply(entry, pins.get(entry.seq, False))
                    items.append(replace(reply, pinnable=entry.seq in pinnable and not entry.calls))
                items += [_tool(entry, call, results.get(call.id)) for call in entry.calls]
            case SummaryEntry():
                items.append(_divider(entry, known))
            case RecallEntry():
                items.append(_recall(entry, recalled or {}))
            case _:
                items += _notices(entry)
    return items


def _question(entry: UserEntry, pinned: bool, waiting: bool) -> Message:
    return Message(
        seq=entry.seq,
        at=entry.at,
        mine=True,
        name=entry.sender_name or entry.sender,
        text=entry.text,
        files=tuple(a.name or a.media_type for a in entry.attachments),
        pinned=pinned,
        waiting=waiting,
        turn=entry.turn,
    )


def _reply(entry: AssistantEntry, pinned: bool) -> Message:
    return Message(
        seq=entry.seq,
        at=entry.at,
        mine=False,
        name=None,
        text=entry.text,
        model=entry.model,
        finish=entry.finish,
        tokens=None if entry.usage is None else entry.usage.output,
        pinned=pinned,
        turn=entry.turn,
    )


def _tool(entry: AssistantEntry, call: ToolCall, result: ToolResultEntry | None) -> Tool:
    return Tool(
        seq=entry.seq,
        at=entry.at,
        call=call.id,
        name=call.name,
        arguments=call.arguments,
        result=None if result is None else result.text,
        is_error=result is not None and result.is_error,
    )


def memories_shown(entry: RecallEntry) -> list[str]:
    """Ids: of what was found for the turn, and of what is always on since."""
    return [str(one) for name in ("memories", "always") for one in entry.shown.get(name) or ()]


def _recall(entry: RecallEntry, recalled: Mapping[str, Recalled]) -> Recall:
    ids = memories_shown(entry)
    return Recall(
        seq=entry.seq,
        at=entry.at,
        memories=tuple(recalled[one] for one in ids if one in recalled),
        files=tuple(str(one) for one in entry.shown.get("files") or ()),
        gone=sum(one not in recalled for one in ids),
    )


def _divider(entry: SummaryEntry, known: Sequence[Entry]) -> Divider:
    covered = [e.tokens for e in known if entry.covers.from_seq <= e.seq <= entry.covers.to_seq and _is_said(e)]
    lists = tuple(
        (name, tuple(str(item) for item in entry.summary.get(name) or ()))
        for name in SUMMARY_LISTS
        if entry.summary.get(name)
    )
    return Divider(
        seq=entry.seq,
        at=entry.at,
        first=entry.covers.from_seq,
        last=entry.covers.to_seq,
        by=entry.by,
        model=entry.model,
        lists=lists,
        tokens=entry.tokens,
        covered_tokens=sum(covered) or None,
    )


def _is_said(entry: Entry) -> bool:
    return isinstance(entry, UserEntry | AssistantEntry | ToolResultEntry)


def _notices(entry: Entry) -> list[Notice]:
    """At most one: what a person need not see has none."""

    def told(name: str, detail: str | None = None, **values: Any) -> list[Notice]:
        return [Notice(seq=entry.seq, at=entry.at, name=name, values=values, detail=detail)]

    match entry:
        case CommandEntry():
            return told("command", entry.reply, text=f"/{entry.name} {entry.argument}".strip())
        case TurnFailedEntry(code="stopped"):
            return told("taken_out")
        case TurnFailedEntry():
            return told("failed", why=entry.error)
        case CompactionFailedEntry():
            return told("compaction_failed", error=entry.error)
        case EndedEntry():
            return told("ended", reason=entry.reason)
        case ResumedEntry():
            return told("resumed")
        case AttemptEntry():
            return told("retried", number=entry.number)
        case _:
            return []


def since(entries: Sequence[Entry], seq: int) -> list[Entry]:
    """What came after a seq, with what is shown anew because of it: calls whose results came, messages that were pinned
    or are pinned no longer."""
    later = [e for e in entries if e.seq > seq]
    answered = {e.call_id for e in later if isinstance(e, ToolResultEntry)}
    pinned = {e.of for e in later if isinstance(e, PinnedEntry)}
    return [
        e
        for e in entries
        if e.seq > seq
        or e.seq in pinned
        or (isinstance(e, AssistantEntry) and any(call.id in answered for call in e.calls))
    ]


def is_compacting(entries: Sequence[Entry], now: datetime) -> bool:
    """Whether a summary is being written: one that began long ago was cut by a stop of the daemon."""
    last = next(
        (
            e
            for e in reversed(entries)
            if isinstance(e, CompactionStartedEntry | CompactionFailedEntry | CompactionEntry | SummaryEntry)
        ),
        None,
    )
    return isinstance(last, CompactionStartedEntry) and now - last.at < SUMMARY_LASTS
