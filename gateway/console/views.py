"""What the pages show, out of what the daemon knows: pure."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    ResumedEntry,
    RetractedEntry,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    TurnFailedEntry,
    UserEntry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from decimal import Decimal

    from gateway.ledger import UsageRow
    from sessions.record import SessionRecord

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
    """Something said. `mine` is from the person's side, `tokens` what the model's provider reported for the call."""

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
    waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A call of a tool with its result, which may not be there yet."""

    kind: str = field(default="tool", init=False)
    seq: int
    at: datetime
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line between messages: `name` is a text of the page `session`, `values` fill it."""

    kind: str = field(default="notice", init=False)
    seq: int
    at: datetime
    name: str
    values: dict[str, Any]
    detail: str | None = None


Item = Message | Tool | Divider | Notice


def chat_items(entries: Sequence[Entry], waiting: Iterable[str] = ()) -> list[Item]:
    """A transcript as a chat, in order; what was retracted is left out. `waiting` names turns without a reply yet."""
    gone = {seq for e in entries if isinstance(e, RetractedEntry) for seq in e.seqs}
    pins = {e.of: e.pinned for e in entries if isinstance(e, PinnedEntry)}
    results = {e.call_id: e for e in entries if isinstance(e, ToolResultEntry)}
    ended = max((e.seq for e in entries if isinstance(e, CompactionEntry | CompactionFailedEntry)), default=0)
    open_turns = frozenset(waiting)
    items: list[Item] = []
    for entry in entries:
        match entry:
            case _ if entry.seq in gone:
                pass
            case UserEntry():
                items.append(_question(entry, pins.get(entry.seq, False), entry.turn in open_turns))
            case AssistantEntry():
                if entry.text or not entry.calls:
                    items.append(_reply(entry, pins.get(entry.seq, False)))
                items += [_tool(entry, call, results.get(call.id)) for call in entry.calls]
            case SummaryEntry():
                items.append(_divider(entry))
            case CompactionStartedEntry() if entry.seq < ended:
                pass
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
    )


def _tool(entry: AssistantEntry, call: ToolCall, result: ToolResultEntry | None) -> Tool:
    return Tool(
        seq=entry.seq,
        at=entry.at,
        name=call.name,
        arguments=call.arguments,
        result=None if result is None else result.text,
        is_error=result is not None and result.is_error,
    )


def _divider(entry: SummaryEntry) -> Divider:
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
    )


def _notices(entry: Entry) -> list[Notice]:
    """At most one: what a person need not see has none."""

    def told(name: str, detail: str | None = None, **values: Any) -> list[Notice]:
        return [Notice(seq=entry.seq, at=entry.at, name=name, values=values, detail=detail)]

    match entry:
        case CommandEntry():
            return told("command", entry.reply, text=f"/{entry.name} {entry.argument}".strip())
        case TurnFailedEntry():
            return told("failed", why=entry.error)
        case CompactionStartedEntry():
            return told("compaction_running")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A session in a table. `share` is the fill of its window, 0 to 1; None while it is not known."""

    record: SessionRecord
    title: str
    share: float | None
    running: bool


def session_row(record: SessionRecord, *, running: bool) -> Row:
    return Row(record=record, title=record.title or record.key, share=share_of(record), running=running)


def share_of(record: SessionRecord) -> float | None:
    if record.context_tokens is None or not record.window:
        return None
    return min(1.0, record.context_tokens / record.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens and cost of some calls. `cost` None: no price is known; `cache_share` None: nothing was read."""

    tokens: int = 0
    cost: Decimal | None = None
    cache_share: float | None = None


def spent_in(rows: Sequence[UsageRow]) -> Spent:
    """The sum of rows of a usage report."""
    read = sum(row.usage.input_total for row in rows)
    priced = [row.cost for row in rows if row.cost is not None]
    return Spent(
        tokens=read + sum(row.usage.output for row in rows),
        cost=sum(priced[1:], priced[0]) if priced else None,
        cache_share=sum(row.usage.cached_read for row in rows) / read if read else None,
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart: a label, and its parts from the bottom up."""

    label: str
    parts: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.parts)


def day_bars(rows: Sequence[UsageRow], days: Sequence[str]) -> list[Bar]:
    """For each day, also one without a call: input that was paid in full, from the cache, written to it, and output."""
    by_day = {row.group["day"]: row.usage for row in rows}
    bars: list[Bar] = []
    for day in days:
        usage = by_day.get(day)
        if usage is None:
            bars.append(Bar(day, (0, 0, 0, 0)))
            continue
        plain = max(0, usage.input_total - usage.cached_read - usage.cache_write)
        bars.append(Bar(day, (plain, usage.cached_read, usage.cache_write, usage.output)))
    return bars


def count_text(number: int) -> str:
    """A count as people read it: 950, 12.3k, 4.5M."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}".removesuffix(".0") + unit
    return str(number)


def money_text(cost: Decimal | str | None) -> str | None:
    """A cost in dollars, with as many places as it takes to see it; None stays unknown."""
    if cost is None:
        return None
    from decimal import Decimal as Exact

    amount = Exact(cost)
    return f"${amount:.2f}" if amount >= Exact("0.1") or not amount else f"${amount:.4f}"
