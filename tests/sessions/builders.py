"""Small builders of entries for tests."""

from __future__ import annotations

from datetime import UTC, datetime

from sessions.entries import (
    AssistantEntry,
    Attachment,
    CarriedEntry,
    Covers,
    Entry,
    Finish,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    UserEntry,
)
from sessions.usage import Usage

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SESSION = "01HSESSION0000000000000000"


def user(text: str, seq: int = 0, turn: str | None = None) -> UserEntry:
    return UserEntry(seq=seq, at=AT, turn=turn, text=text, tokens=len(text) // 4 + 1)


def assistant(
    text: str, seq: int = 0, turn: str | None = None, *, calls: tuple[ToolCall, ...] = (), finish: Finish = "stop"
) -> AssistantEntry:
    return AssistantEntry(seq=seq, at=AT, turn=turn, text=text, calls=calls, finish=finish, tokens=len(text) // 4 + 1)


def tool_call(call_id: str, name: str = "current_time", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def tool_result(call_id: str, text: str = "noon", seq: int = 0, turn: str | None = None) -> ToolResultEntry:
    return ToolResultEntry(seq=seq, at=AT, turn=turn, call_id=call_id, name="current_time", text=text)


def one_of_each() -> list[Entry]:
    """A history with most kinds of entries, seq 1 to 6."""
    return [
        UserEntry(
            seq=1,
            id="a",
            at=AT,
            turn=f"{SESSION}-1",
            tokens=3,
            text='žluťoučký kůň, "ไทย" \u2028 end',
            attachments=(Attachment(sha256="0" * 64, media_type="image/png", size_bytes=12, name="a.png"),),
            request_id="r1",
        ),
        assistant("", 2, f"{SESSION}-1", calls=(tool_call("c1"), tool_call("c2")), finish="tool_calls"),
        tool_result("c1", seq=3, turn=f"{SESSION}-1"),
        tool_result("c2", seq=4, turn=f"{SESSION}-1"),
        AssistantEntry(
            seq=5, id="b", at=AT, turn=f"{SESSION}-1", text="done", usage=Usage(input_total=9, output=2), model="m"
        ),
        CarriedEntry(seq=6, at=AT, entry=user("kept", 1)),
        SummaryEntry(
            seq=7, at=AT, summary={"topics": ["x"]}, covers=Covers(from_seq=1, to_seq=5, sha256="f"), replay_from=3
        ),
    ]
