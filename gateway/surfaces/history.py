"""The history a client resends with every request, and what of it is new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sessions.context import Message, render_messages
from sessions.entries import AssistantEntry, Attachment, Entry, ToolCall, ToolResultEntry, UserEntry

if TYPE_CHECKING:
    from collections.abc import Callable

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMessage:
    """One message as a client sent it, checked."""

    role: Role
    text: str
    attachments: tuple[Attachment, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    name: str | None = None

    def draft(self, count: Callable[[str], int]) -> Entry | None:
        """The entry that keeps it; None for system texts, which are the agent's."""
        tokens = count(self.text)
        match self.role:
            case "user":
                return UserEntry(text=self.text, attachments=self.attachments, sender_name=self.name, tokens=tokens)
            case "assistant":
                finish = "client_tools" if self.calls else "stop"
                return AssistantEntry(text=self.text, calls=self.calls, finish=finish, tokens=tokens)
            case "tool":
                name = self.name or "tool"
                return ToolResultEntry(call_id=self.call_id or "", name=name, text=self.text, tokens=tokens)
            case "system":
                return None


@dataclass(frozen=True, slots=True)
class Newest:
    """What a request brings: a person's message, or the results of tool calls."""

    user: HistoryMessage | None
    results: tuple[HistoryMessage, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The messages of one request, oldest first."""

    messages: tuple[HistoryMessage, ...]

    def system(self) -> str | None:
        """The system texts of the client, joined."""
        texts = [message.text for message in self.messages if message.role == "system" and message.text]
        return "\n\n".join(texts) or None

    def _spoken(self) -> list[HistoryMessage]:
        return [message for message in self.messages if message.role != "system"]

    def _new_count(self) -> int:
        """How many messages at the end are new: the results behind the last call, else one message of a person."""
        spoken = self._spoken()
        results = 0
        while results < len(spoken) and spoken[-1 - results].role == "tool":
            results += 1
        if results:
            return results
        return 1 if spoken and spoken[-1].role == "user" else 0

    def newest(self) -> Newest:
        count = self._new_count()
        new = self._spoken()[-count:] if count else []
        if new and new[0].role == "tool":
            return Newest(None, tuple(new))
        return Newest(new[0] if new else None, ())

    def before_newest(self) -> list[HistoryMessage]:
        spoken = self._spoken()
        return spoken[: len(spoken) - self._new_count()]

    def messages_for_prompt(self) -> list[Message]:
        """All of it for a model; calls without a result and results without a call are mended as in a session."""
        drafts = [draft for message in self._spoken() if (draft := message.draft(lambda _: 0)) is not None]
        stamped = [draft.stamped(seq=n, id="", at=draft.at, turn=None) for n, draft in enumerate(drafts, 1)]
        return render_messages(stamped)
