"""What a model is sent: the agent's text, the tools, the conversation, and what changes with every call."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from compaction.layout import build_prompt
from compaction.shrink import shrink
from compaction.summary import render_summary
from gateway.tools import ToolContext
from sessions.context import UserMessage, render_messages
from sessions.entries import SummaryEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compaction.layout import Prompt, ToolSpec
    from gateway.agents import AgentPolicy
    from gateway.clock import Clock
    from gateway.counting import LazyCounter
    from gateway.tools import ToolRegistry
    from gateway.turn import Incoming
    from sessions.context import Message
    from sessions.store import Session

DEFAULT_SYSTEM = "You are a helpful assistant. Answer in the language of the person who writes to you."


class PromptBuilder:
    """Builds prompts from a session; nothing of them is stored."""

    def __init__(
        self,
        *,
        agents: Mapping[str, AgentPolicy],
        tools: ToolRegistry,
        clock: Clock,
        tokens: LazyCounter,
    ) -> None:
        self._agents = agents
        self._tools = tools
        self._clock = clock
        self._count = tokens.count
        self._fixed: dict[str, int] = {}
        self.ready = tokens.ready

    def count(self, text: str) -> int:
        """Tokens of a text, by our own tokenizer."""
        return self._count(text)

    def system(self, agent: str) -> str:
        """The agent's text. An agent nobody configured speaks with the default one."""
        policy = self._agents.get(agent)
        return DEFAULT_SYSTEM if policy is None or policy.system is None else policy.system

    def tools(self, agent: str) -> list[ToolSpec]:
        policy = self._agents.get(agent)
        return self._tools.specs(None if policy is None else policy.tools)

    def build(
        self, session: Session, turns: frozenset[str], incoming: Incoming, *, tools: bool, budget: int | None = None
    ) -> Prompt:
        """The prompt of the next call for the messages of `turns`; `tools` False: the model must answer now.

        `budget`: tokens its messages may have; beyond it the oldest are left out.
        """
        messages = _named(session, render_messages(session.entries, turns=turns))
        return build_prompt(
            system=self._system_for(session.record.agent, incoming),
            messages=messages if budget is None else shrink(messages, budget, self._count),
            summary=summary_text(session),
            tools=self._offered(session.record.agent, incoming) if tools else (),
        )

    def stateless(self, agent: str, messages: Sequence[Message], incoming: Incoming) -> Prompt:
        """The prompt of a call that belongs to no session: what the client sent, and its own tools."""
        return build_prompt(system=self._system_for(agent, incoming), messages=messages, tools=incoming.client_tools)

    def _system_for(self, agent: str, incoming: Incoming) -> str:
        """The agent's text, then the client's; an agent without a text of its own leaves it to the client."""
        policy = self._agents.get(agent)
        if incoming.extra_system is None:
            return self.system(agent)
        if policy is None or policy.system is None:
            return incoming.extra_system
        return f"{policy.system}\n\n{incoming.extra_system}"

    def _offered(self, agent: str, incoming: Incoming) -> list[ToolSpec]:
        theirs = {tool.name for tool in incoming.client_tools}
        own = [tool for tool in self.tools(agent) if tool.name not in theirs]
        return [*own, *incoming.client_tools]

    def parts(self, session: Session) -> list[tuple[str, int]]:
        """What the next prompt consists of: the name of each part, and its tokens by our own count."""
        tools = self.tools(session.record.agent)
        described = "".join(f"{tool.name} {tool.description} {dict(tool.parameters)}" for tool in tools)
        messages = render_messages(session.entries, turns=frozenset(session.open))
        return [
            ("tools", self._count(described)),
            ("system", self._count(self.system(session.record.agent))),
            ("summary", self._count(summary_text(session) or "")),
            ("history", sum(message.tokens for message in messages)),
        ]

    def fixed_tokens(self, agent: str) -> int:
        """Tokens of what is in every prompt of an agent: its system text and its tools. Counted once."""
        known = self._fixed.get(agent)
        if known is not None:
            return known
        described = "".join(f"{tool.name} {tool.description} {dict(tool.parameters)}" for tool in self.tools(agent))
        self._fixed[agent] = self._count(self.system(agent)) + self._count(described)
        return self._fixed[agent]

    def tool_context(self, session: Session, incoming: Incoming) -> ToolContext:
        return ToolContext(key=session.key, user=incoming.user, now=self._clock.now())


def _named(session: Session, messages: list[Message]) -> list[Message]:
    """In a group the model is told who speaks: the name stands before the text."""
    if session.record.type not in ("group", "channel"):
        return messages
    return [
        dataclasses.replace(m, text=f"{m.name}: {m.text}") if isinstance(m, UserMessage) and m.name else m
        for m in messages
    ]


def summary_text(session: Session) -> str | None:
    """The reference message that stands for what was summarised; None in a first generation."""
    opening = next((e for e in session.entries if isinstance(e, SummaryEntry)), None)
    return None if opening is None else render_summary(opening.summary)
