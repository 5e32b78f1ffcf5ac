"""How large the next prompt of a session is, against what its model can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sessions.entries import SummaryEntry
from sessions.store import MESSAGE_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from compaction.policy import CompactionPolicy
    from gateway.models.base import ChatModel
    from sessions.store import Session


class ChosenModels(Protocol):
    """Which model answers a session. Raises UnknownModel."""

    def choose(self, agent: str, wanted: str | None) -> ChatModel: ...


class Gauge:
    """Measures; decides nothing. `fixed` counts what is in every prompt of an agent: its system text and tools."""

    def __init__(self, *, models: ChosenModels, fixed: Callable[[str], int], policy: CompactionPolicy) -> None:
        self._models = models
        self._fixed = fixed
        self._policy = policy

    def window(self, session: Session) -> int:
        """The session's window in tokens; the assumed one while it is not known."""
        return self.known_window(session) or self._policy.assumed_window

    def known_window(self, session: Session) -> int | None:
        """Tokens the session's model can read; None when nobody knows."""
        return self._models.choose(session.record.agent, session.record.settings.model).window

    def prompt_tokens(self, session: Session) -> int:
        """Size of the next prompt: what the provider reported last, and our count of what came after."""
        if session.record.context_tokens is None:
            return self._counted(session)
        since = 0
        for entry in reversed(session.entries):
            if getattr(entry, "usage", None) is not None:
                break
            since += entry.tokens + MESSAGE_OVERHEAD if entry.tokens else 0
        return session.record.context_tokens + since

    def _counted(self, session: Session) -> int:
        """Size of the next prompt by our own count."""
        return self._fixed(session.record.agent) + session.tokens

    def crowded(self, session: Session) -> bool:
        """Whether the next prompt would be above the hard limit, by the provider's count or by ours.

        Both, because a prompt that had to be shortened tells the provider less than there is.
        """
        limit = self._policy.hard_limit * self.window(session)
        return self.prompt_tokens(session) >= limit or self._counted(session) >= limit

    def budget(self, session: Session) -> int | None:
        """Tokens the messages of a prompt may have; None while the model's window is not known."""
        window = self.known_window(session)
        if window is None:
            return None
        summary = next((e.tokens for e in session.entries if isinstance(e, SummaryEntry)), 0)
        return max(1, int(self._policy.hard_limit * window) - self._fixed(session.record.agent) - summary)
