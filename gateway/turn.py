"""One turn: what was asked, the events followers read, and how it ended."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gateway.events import EventLog
from sessions.entries import (
    AssistantEntry,
    CommandEntry,
    Entry,
    ToolResultEntry,
    TurnFailedEntry,
    UserEntry,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compaction.layout import ToolSpec
    from compaction.tokens import Reading
    from sessions.entries import Attachment, Finish, ToolCall
    from sessions.policy import QueueMode
    from sessions.record import SessionRecord
    from sessions.session import Session
    from sessions.usage import Usage

TurnState = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message as it enters, already checked. `role` is the caller's, `user` the person whose chat it is,
    `speaker` the one it is known to come from, whose memory it may reach (None: nobody known).

    `client_tools` are offered to the model and run by the client; `results` answer calls to them; `extra_system` is a
    client's own system text; `before` is what a client says was said earlier, taken over by the first session of a key;
    `fresh` begins a new session with the message.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()
    results: tuple[ToolResultEntry, ...] = ()
    sender: str | None = None
    sender_name: str | None = None
    user: str | None = None
    speaker: str | None = None
    role: str = "admin"
    request_id: str | None = None
    request_sha256: str | None = None
    model: str | None = None
    source: str | None = None
    queue: QueueMode | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    extra_system: str | None = None
    before: tuple[Entry, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_output: int | None = None
    commands: bool = True
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The end of a turn. `usage` is the spend of all its calls, `context_tokens` the size of the last prompt and reply
    (`estimated`: the provider reported none).

    A failed turn has `error_code` and `error`, and `retry_after_s` where the provider said when to come again: that is
    told to those who wait, and not kept.
    """

    turn: str
    session: str
    key: str
    text: str
    entries: tuple[Entry, ...]
    finish: Finish | None = None
    usage: Usage | None = None
    context_tokens: int | None = None
    estimated: bool = False
    window: int | None = None
    error_code: str | None = None
    error: str | None = None
    retry_after_s: float | None = None

    @property
    def failed(self) -> bool:
        return self.error_code is not None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the last reply."""
        last = next((e for e in reversed(self.entries) if isinstance(e, AssistantEntry)), None)
        return last.calls if last is not None else ()


class Turn:
    """A turn in progress, or one that ended recently."""

    def __init__(
        self,
        turn_id: str,
        session: Session,
        incoming: Incoming,
        mode: QueueMode,
        tell: Callable[[str, dict[str, Any]], None] | None = None,
        *,
        origin: str = "",
    ) -> None:
        """`origin`: where its events are from, so that an id of theirs is known again."""
        self.id = turn_id
        self._session: Session | None = session
        self._record = session.record
        self.incoming = incoming
        self.mode: QueueMode = mode
        self.resumed = False
        self.state: TurnState = "waiting"
        self.events = EventLog(tell, origin=origin)
        self.stop_as: Finish | None = None
        self.task: asyncio.Task[None] | None = None
        self.shown: list[str] = []
        self._ended = asyncio.Event()
        self._result: TurnResult | None = None

    def stop(self, finish: Finish) -> bool:
        """Ends the running reply; what came so far is kept and marked. False when nothing runs any more."""
        if self.task is None or self.task.done() or self.stop_as is not None:
            return False
        self.stop_as = finish
        self.task.cancel()
        return True

    def end(self, result: TurnResult) -> None:
        """Tells everybody who follows or waits."""
        if self._result is not None:
            return
        self._result = result
        self._record, self._session, self.task, self.shown = self.record, None, None, []
        self.incoming = dataclasses.replace(self.incoming, text="", results=(), before=(), extra_system=None)
        self.state = "failed" if result.failed else "done"
        if result.failed:
            later = {} if result.retry_after_s is None else {"retry_after_s": result.retry_after_s}
            self.events.emit("error", code=result.error_code, detail=result.error, **later)
        else:
            if result.usage is not None:
                self.events.emit("usage", **result.usage.to_json())
            self.events.emit("done", **summary_of(result))
        self.events.close()
        self._ended.set()

    @property
    def speaker(self) -> str | None:
        return self.incoming.speaker

    @property
    def session(self) -> Session:
        """Until the turn ends: what is kept of it afterwards does not keep its session in memory."""
        assert self._session is not None  # noqa: S101
        return self._session

    @property
    def record(self) -> SessionRecord:
        """Of its session; once it has ended, as it was then."""
        return self._record if self._session is None else self._session.record

    @property
    def client_tool_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.incoming.client_tools)

    @property
    def result(self) -> TurnResult | None:
        return self._result

    async def done(self) -> TurnResult:
        """Waits for the end. Cancelling the wait cancels nothing else."""
        await self._ended.wait()
        assert self._result is not None  # noqa: S101
        return self._result


def summary_of(result: TurnResult) -> dict[str, Any]:
    """What `done` tells beside the deltas."""
    return {
        "turn": result.turn,
        "session": result.session,
        "text": result.text,
        "finish": result.finish,
        "context": context_json(result.context_tokens, result.window, estimated=result.estimated),
    }


def context_json(tokens: int | None, window: int | None, *, estimated: bool = False) -> dict[str, Any]:
    """Fill of the window; no share is given while either number is unknown. `estimated`: by our own count."""
    share = round(tokens / window, 4) if tokens is not None and window else None
    return {"tokens": tokens, "window": window, "share": share, "estimated": estimated and tokens is not None}


def reading_json(reading: Reading) -> dict[str, Any]:
    """The same of a prompt that has not been sent yet."""
    return context_json(reading.tokens, reading.window, estimated=reading.estimated)


def result_from_entries(session: Session, turn: str, entries: Sequence[Entry] | None = None) -> TurnResult | None:
    """How a turn ended, read from the transcript; None while it has not, or when the session knows no such turn.

    `entries`: where to look, when not only in the current generation.
    """
    known = session.since(turn) if entries is None else entries
    own = [e for e in known if e.turn == turn]
    lead = next((e.turn for e in known if turn in _also(e)), None)
    if lead is not None and lead != turn:
        led = session.since(lead) if entries is None else entries
        own = own + [e for e in led if e.turn == lead and not isinstance(e, UserEntry)]
    return _result_of(session, turn, own)


def _also(entry: Entry) -> tuple[str, ...]:
    return entry.also if isinstance(entry, AssistantEntry | TurnFailedEntry) else ()


def _result_of(session: Session, turn: str, own: Sequence[Entry]) -> TurnResult | None:
    replies = [e for e in own if isinstance(e, AssistantEntry)]
    spent = [e.usage for e in replies if e.usage is not None]
    known = TurnResult(
        turn=turn,
        session=session.id,
        key=session.record.key,
        text="",
        entries=tuple(own),
        usage=sum(spent[1:], spent[0]) if spent else None,
        context_tokens=spent[-1].context_tokens if spent else session.record.context_tokens,
        estimated=bool(spent) and not spent[-1].reported,
        window=session.record.window,
    )
    for entry in reversed(own):
        match entry:
            case CommandEntry(reply=str(reply)):
                return dataclasses.replace(known, text=reply, finish="stop")
            case TurnFailedEntry():
                return dataclasses.replace(known, error_code=entry.code, error=entry.error)
            case AssistantEntry() if entry.finish != "tool_calls":
                return dataclasses.replace(known, text=entry.text, finish=entry.finish)
            case _:
                pass
    return None
