"""Which words of a session somebody's memory may learn from: theirs, and the replies to them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.learn import Said
from sessions.context import open_turns
from sessions.entries import AssistantEntry, RecallEntry, RetractedEntry, SummaryEntry, ToolResultEntry, UserEntry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, tzinfo

    from sessions.entries import Entry


TELLING_TOOLS = ("Memory", "TranscriptSearch")
"""In the names of the tools that tell what was remembered or said before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a conversation with one person, as much as one question holds; all up to `through_seq` was looked at."""

    said: tuple[Said, ...]
    through_seq: int


def people_in(entries: Sequence[Entry]) -> list[str]:
    """Who has said something and is known, in the order of their first message."""
    return list(dict.fromkeys(e.user for e in entries if isinstance(e, UserEntry) and e.user and not _is_job(e)))


def settled_through(entries: Sequence[Entry]) -> int:
    """The last entry before the first message that waits for its reply; what comes later is not learnt from yet."""
    waiting = set(open_turns(entries))
    first = next((e.seq for e in entries if isinstance(e, UserEntry) and e.turn in waiting), None)
    return first - 1 if first is not None else max((e.seq for e in entries), default=0)


def said_with(
    entries: Sequence[Entry],
    user: str,
    *,
    after_seq: int,
    through_seq: int,
    zone: tzinfo,
    since: datetime | None = None,
) -> list[Said]:
    """What a person said and was told, in the order of the transcript. Never what was recalled, summarised or called by
    tools, sent by jobs, typed as a command or taken back; nor what others said, nor what was said before `since` and
    the replies to that.

    A reply is marked as an echo where it may repeat memories: they were shown for it, or a tool that tells them has
    answered before, or they have stood in the prefix since. It may also repeat what was said before `since`, or a
    summary of that.
    """

    def early(entry: Entry) -> bool:
        return since is not None and entry.at < since

    gone = {seq for e in entries if isinstance(e, RetractedEntry) for seq in e.seqs}
    asked = [e for e in entries if isinstance(e, UserEntry) and e.turn and e.user == user and not _is_job(e)]
    left_out = {e.turn for e in asked if early(e)}
    theirs = {e.turn for e in asked} - left_out

    def answers(entry: AssistantEntry) -> bool:
        turns = {entry.turn, *entry.also}
        return not theirs.isdisjoint(turns) and left_out.isdisjoint(turns)

    shown = {e.turn for e in entries if isinstance(e, RecallEntry)}
    found: list[Said] = []
    speaks = known = False
    for entry in entries:
        known = known or _stays_known(entry) or early(entry) or (since is not None and isinstance(entry, SummaryEntry))
        if isinstance(entry, UserEntry) and entry.turn is None:
            speaks = entry.user == user and not early(entry)
        if early(entry) or not after_seq < entry.seq <= through_seq or entry.seq in gone:
            continue
        at = entry.at.astimezone(zone)
        match entry:
            case UserEntry() if entry.user == user and not _is_job(entry):
                found.append(Said(seq=entry.seq, who="user", text=entry.text, at=at))
            case AssistantEntry() if speaks if entry.turn is None else answers(entry):
                echo = known or entry.turn in shown
                found.append(Said(seq=entry.seq, who="assistant", text=entry.text, at=at, echo=echo))
            case _:
                pass
    return [one for one in found if one.text.strip()]


def pieces_of(said: Sequence[Said], *, through_seq: int, most_messages: int, most_characters: int) -> list[Piece]:
    """Cut before messages of the person, so that a reply stays with what it answers. The last piece reaches to
    `through_seq`."""
    groups: list[list[Said]] = []
    size = 0
    for one in said:
        large = groups and (len(groups[-1]) >= most_messages or size + len(one.text) > most_characters)
        if not groups or (large and one.who == "user"):
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += len(one.text)
    ends = [group[0].seq - 1 for group in groups[1:]] + [through_seq]
    return [Piece(said=tuple(group), through_seq=end) for group, end in zip(groups, ends, strict=True)]


def _stays_known(entry: Entry) -> bool:
    """Whether what it told of memory is seen by all later calls too. Clients call our tools by longer names."""
    match entry:
        case ToolResultEntry():
            return any(tool in entry.name for tool in TELLING_TOOLS)
        case RecallEntry():
            return bool(entry.shown.get("always"))
        case _:
            return False


def _is_job(entry: UserEntry) -> bool:
    """Messages of jobs and webhooks say so: `job:<id>`."""
    return ":" in (entry.source or "")
