"""From entries to the messages a model may be shown: order, pairs of calls and results, what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessions.entries import (
    AssistantEntry,
    Attachment,
    CarriedEntry,
    CommandEntry,
    Entry,
    RetractedEntry,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    TurnFailedEntry,
    UserEntry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LOST_RESULT = "No result: the call was cut off before it finished."


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What a person said. `seq` is the entry it stands for; 0 when there is none."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    name: str | None = None
    seq: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    text: str
    calls: tuple[ToolCall, ...] = ()
    seq: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The result of one call. Stands directly after the assistant message that made it."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    seq: int = 0
    tokens: int = 0


Message = UserMessage | AssistantMessage | ToolMessage


def uncarried(entries: Iterable[Entry]) -> list[Entry]:
    """The entries with carried ones replaced by what they carry."""
    return [e.entry if isinstance(e, CarriedEntry) else e for e in entries]


def answered_turns(entries: Iterable[Entry]) -> set[str]:
    """Ids of the turns that have come to their end: a final reply, a failure, or a command's answer."""
    done: set[str] = set()
    for entry in entries:
        match entry:
            case AssistantEntry(finish="tool_calls"):
                done.update(entry.also)
            case AssistantEntry() | TurnFailedEntry():
                done.update(entry.also)
                if entry.turn:
                    done.add(entry.turn)
            case CommandEntry() if entry.turn and entry.reply is not None:
                done.add(entry.turn)
            case _:
                pass
    return done


def open_turns(entries: Sequence[Entry]) -> list[str]:
    """Turns that wait for a reply, in the order their messages came."""
    done = answered_turns(entries)
    gone = _retracted(entries)
    waiting: dict[str, None] = {}
    for entry in entries:
        if isinstance(entry, UserEntry) and entry.turn and entry.turn not in done and entry.seq not in gone:
            waiting[entry.turn] = None
    return list(waiting)


def failed_attempt(entries: Sequence[Entry], again: UserEntry) -> UserEntry | None:
    """The same message as `again`, when its turn has failed and nothing was said since; None when there is none."""
    failed: set[str] = set()
    gone: set[int] = set()
    for entry in reversed(entries):
        match entry:
            case TurnFailedEntry():
                failed.update(turn for turn in (entry.turn, *entry.also) if turn)
            case RetractedEntry():
                gone.update(entry.seqs)
            case UserEntry() if entry.turn not in failed:
                return None
            case UserEntry() if entry.seq not in gone and _says_the_same(entry, again):
                return entry
            case AssistantEntry() | ToolResultEntry() | SummaryEntry():
                return None
            case _:
                pass
    return None


def _says_the_same(one: UserEntry, other: UserEntry) -> bool:
    return (one.text, one.attachments, one.sender, one.user, one.source) == (
        other.text,
        other.attachments,
        other.sender,
        other.user,
        other.source,
    )


def _retracted(entries: Iterable[Entry]) -> set[int]:
    return {seq for e in entries if isinstance(e, RetractedEntry) for seq in e.seqs}


def conversation(entries: Sequence[Entry], *, turns: frozenset[str] | None = None) -> list[Entry]:
    """User, assistant, tool-result and summary entries in the order a model sees them.

    A message is written when it arrives, perhaps while an earlier turn still runs; it stands where it was first shown
    to the model: directly before the first entry that answers it. Messages nobody has answered yet stand at the end,
    only those of `turns` when given. Entries that were retracted are left out.
    """
    flat = uncarried(entries)
    gone = _retracted(flat)
    users: dict[str, list[UserEntry]] = {}
    for entry in flat:
        if isinstance(entry, UserEntry) and entry.seq not in gone:
            users.setdefault(entry.turn or f"seq {entry.seq}", []).append(entry)
    out: list[Entry] = []
    for entry in flat:
        match entry:
            case SummaryEntry():
                out.append(entry)
            case UserEntry() if entry.turn is None and entry.seq not in gone:
                out.extend(users.pop(f"seq {entry.seq}", ()))
            case AssistantEntry() | ToolResultEntry() | TurnFailedEntry():
                answers = [t for t in (entry.turn, *(() if isinstance(entry, ToolResultEntry) else entry.also)) if t]
                shown = [user for t in answers for user in users.pop(t, ())]
                out.extend(sorted(shown, key=lambda user: user.seq))
                if not isinstance(entry, TurnFailedEntry) and entry.seq not in gone:
                    out.append(entry)
            case _:
                pass
    rest = [u for turn, waiting in users.items() if turns is None or turn in turns for u in waiting]
    out.extend(sorted(rest, key=lambda user: user.seq))
    return out


def render_messages(entries: Sequence[Entry], *, turns: frozenset[str] | None = None) -> list[Message]:
    """Messages for a prompt, with every tool call answered directly behind it.

    A call without a result gets LOST_RESULT, a result without a call is left out, on every provider (spec sessions.md,
    "Transcript"). Pairs are made by occurrence, so the same call id may be used again later.
    """
    ordered = [e for e in conversation(entries, turns=turns) if not isinstance(e, SummaryEntry)]
    out: list[Message] = []
    for position, entry in enumerate(ordered):
        match entry:
            case UserEntry():
                out.append(
                    UserMessage(
                        text=entry.text,
                        attachments=entry.attachments,
                        name=entry.sender_name or entry.sender,
                        seq=entry.seq,
                        tokens=entry.tokens,
                    )
                )
            case AssistantEntry() if entry.text or entry.calls:
                out.append(AssistantMessage(text=entry.text, calls=entry.calls, seq=entry.seq, tokens=entry.tokens))
                out.extend(_results_of(entry, ordered, position + 1))
            case _:
                pass
    return out


def _results_of(entry: AssistantEntry, ordered: Sequence[Entry], start: int) -> list[Message]:
    """One result for each call of `entry`, from the results between `start` and the next assistant message."""
    if not entry.calls:
        return []
    found: dict[str, list[ToolResultEntry]] = {}
    for position in range(start, len(ordered)):
        other = ordered[position]
        if isinstance(other, AssistantEntry) and (other.turn != entry.turn or other.calls or other.text):
            break
        if isinstance(other, ToolResultEntry):
            found.setdefault(other.call_id, []).append(other)
    results: list[Message] = []
    for call in entry.calls:
        waiting = found.get(call.id)
        if waiting:
            r = waiting.pop(0)
            results.append(
                ToolMessage(
                    call_id=call.id, name=call.name, text=r.text, is_error=r.is_error, seq=r.seq, tokens=r.tokens
                )
            )
        else:
            results.append(ToolMessage(call_id=call.id, name=call.name, text=LOST_RESULT, is_error=True))
    return results
