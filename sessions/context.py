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
LEFT_THE_LINE = frozenset({"stopped", "interrupted"})
"""Codes of turns that have failed while they waited, or were cut by a crash and not asked again; others were asked."""


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
    gone = retracted(entries)
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


def retracted(entries: Iterable[Entry]) -> set[int]:
    """Seqs of the entries that are no longer part of the conversation."""
    return {seq for e in entries if isinstance(e, RetractedEntry) for seq in e.seqs}


class Conversation:
    """Entries taken in one by one, and the order in which a model sees those of them that it sees.

    A message is written when it arrives, perhaps while an earlier turn still runs; it stands where it was first shown
    to the model: directly before the first entry that answers it. What others write while a turn goes on (a delivery,
    a message whose turn ends before it has begun) stands behind all turns that have begun, or before the next message
    shown that is younger: so nothing comes between a call and its results, and what was sent once stays where it was.

    `gone`: seqs of entries that were retracted.
    """

    def __init__(self, gone: set[int]) -> None:
        self.shown: list[Entry] = []
        self.results: dict[int, list[ToolResultEntry]] = {}
        """By the place in `shown` of the entry that made the calls."""
        self._gone = gone
        self._waiting: dict[str, list[UserEntry]] = {}
        self._begun: set[str] = set()
        self._caller: tuple[int, AssistantEntry] | None = None
        self._held: list[Entry] = []

    @property
    def settled(self) -> bool:
        """Whether nothing that comes later can change or move what was taken in."""
        return not (self._busy or self._held)

    @property
    def _busy(self) -> bool:
        return bool(self._waiting or self._begun or self._caller)

    def take(self, entry: Entry) -> None:
        """The next entry, which carries no other."""
        match entry:
            case SummaryEntry():
                self.shown.append(entry)
            case UserEntry() if entry.seq in self._gone:
                pass
            case UserEntry(turn=str(turn)):
                self._waiting.setdefault(turn, []).append(entry)
            case UserEntry():
                if self._belongs(entry):
                    self._show(entry)
                else:
                    self._held.append(entry)
            case AssistantEntry():
                if self._belongs(entry, *entry.also):
                    self._reply(entry)
                elif entry.seq not in self._gone:
                    self._held.append(entry)
            case ToolResultEntry():
                self._result(entry)
            case TurnFailedEntry():
                self._fail(entry)
            case _:
                pass

    def _belongs(self, entry: Entry, *also: str) -> bool:
        """Whether an entry is of the turn that goes on, or none does."""
        if not self._busy or (self._caller is not None and self._caller[1].turn == entry.turn):
            return True
        return any(turn in self._waiting or turn in self._begun for turn in (entry.turn, *also))

    def _reply(self, entry: AssistantEntry) -> None:
        self._show_messages(entry.turn, *entry.also)
        if entry.text or entry.calls or (self._caller is not None and self._caller[1].turn != entry.turn):
            self._caller = (len(self.shown), entry) if entry.calls and entry.seq not in self._gone else None
        if entry.seq not in self._gone:
            self.shown.append(entry)
        self._begun.difference_update(entry.also)
        if entry.finish == "tool_calls" and entry.turn is not None:
            self._begun.add(entry.turn)
        elif entry.finish != "tool_calls":
            self._begun.discard(entry.turn or "")
        if entry.finish != "tool_calls" and not entry.calls:
            self._turn_ended()

    def _result(self, entry: ToolResultEntry) -> None:
        """A client's results come in a turn of their own, or without one."""
        if entry.turn is not None:
            self._begun.add(entry.turn)
        theirs = self._caller is not None and (
            self._caller[1].finish != "tool_calls" or self._caller[1].turn == entry.turn
        )
        if entry.turn is None and self._busy and not theirs:
            self._held.append(entry)
            return
        self._show_messages(entry.turn)
        self._show_result(entry)

    def _show_result(self, entry: ToolResultEntry) -> None:
        if entry.seq in self._gone:
            return
        if self._caller is not None:
            self.results.setdefault(self._caller[0], []).append(entry)
        self.shown.append(entry)

    def _fail(self, entry: TurnFailedEntry) -> None:
        """A turn that was asked stood at the end of its prompt, whatever waited. One that left the line may stand
        anywhere later; another may be asked meanwhile, so nothing is put before that one's message."""
        theirs = {turn for turn in (entry.turn, *entry.also) if turn}
        asked = entry.code not in LEFT_THE_LINE
        begun = bool(theirs & self._begun) or (self._caller is not None and self._caller[1].turn in theirs)
        self._begun -= theirs
        if asked or begun or not (self._begun or self._caller or self._waiting.keys() - theirs):
            self._show_messages(*theirs)
            if asked or not (self._waiting or self._caller):
                self._turn_ended()
        else:
            self._held += [user for turn in theirs for user in self._waiting.pop(turn, ())]

    def _turn_ended(self) -> None:
        """What others wrote waits for the other turns that have begun, too: their next prompt would end with it."""
        if not self._begun:
            self._release()

    def _show_messages(self, *turns: str | None) -> None:
        users = [user for turn in turns if turn for user in self._waiting.pop(turn, ())]
        for user in sorted(users, key=lambda user: user.seq):
            self._show(user)

    def _show(self, user: UserEntry) -> None:
        self._release(before=user.seq)
        self.shown.append(user)

    def _release(self, before: int | None = None) -> None:
        if not self._held:
            return
        held = [entry for entry in self._held if before is None or entry.seq < before]
        self._held = [entry for entry in self._held if not (before is None or entry.seq < before)]
        for entry in sorted(held, key=lambda entry: entry.seq):
            if isinstance(entry, AssistantEntry) and entry.calls and self._caller is None:
                self._caller = (len(self.shown), entry)
            if isinstance(entry, ToolResultEntry):
                self._show_result(entry)
            else:
                self.shown.append(entry)

    def end(self, turns: frozenset[str] | None) -> None:
        """Messages nobody has answered yet stand at the end, only those of `turns` when given: then what stands behind
        those turns is not shown yet."""
        self._show_messages(*(turn for turn in self._waiting if turns is None or turn in turns))
        if turns is None:
            self._release()


def _arranged(entries: Sequence[Entry], turns: frozenset[str] | None) -> Conversation:
    flat = uncarried(entries)
    arranged = Conversation(retracted(flat))
    for entry in flat:
        arranged.take(entry)
    arranged.end(turns)
    return arranged


def conversation(entries: Sequence[Entry], *, turns: frozenset[str] | None = None) -> list[Entry]:
    """User, assistant, tool-result and summary entries in the order a model sees them; of messages nobody has answered
    yet only those of `turns` when given. Entries that were retracted are left out."""
    return _arranged(entries, turns).shown


def render_messages(entries: Sequence[Entry], *, turns: frozenset[str] | None = None) -> list[Message]:
    """Messages for a prompt, with every tool call answered directly behind it.

    A call without a result gets LOST_RESULT, a result without a call is left out, on every provider (spec sessions.md,
    "Transcript"). Pairs are made by occurrence, so the same call id may be used again later.
    """
    arranged = _arranged(entries, turns)
    out: list[Message] = []
    for place, entry in enumerate(arranged.shown):
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
                out.extend(_results_of(entry, arranged.results.get(place, ())))
            case _:
                pass
    return out


def _results_of(entry: AssistantEntry, given: Sequence[ToolResultEntry]) -> list[Message]:
    """One result for each call of `entry`."""
    found: dict[str, list[ToolResultEntry]] = {}
    for result in given:
        found.setdefault(result.call_id, []).append(result)
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
