"""What a model is sent: the agent's text, the tools, the conversation, and what changes with every call."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from compaction.fingerprints import Chain, Fingerprint, Mark, mark_of, text_of_tools
from compaction.history import RenderedHistory
from compaction.layout import Prompt, build_prompt, sorted_tools
from compaction.shrink import shrink
from compaction.summary import render_summary
from gateway.tools import ToolContext, fitting
from gateway.transcript_search import NAME as SEARCH_TOOL
from sessions.entries import SummaryEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from compaction.layout import CacheLayout, ToolSpec
    from gateway.agents import AgentPolicy
    from gateway.clock import Clock
    from gateway.counting import LazyCounter
    from gateway.tools import ToolRegistry
    from gateway.turn import Incoming
    from sessions.context import Message
    from sessions.session import Session

    Always = Callable[[Session], str | None]
    """A text of the system section; asked once per generation of a session, then frozen."""
    Changing = Callable[[Session, Incoming], str | None]
    """A text of the trailing block; asked for every call."""

DEFAULT_SYSTEM = "You are a helpful assistant. Answer in the language of the person who writes to you."
COUNTED_TEXTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A prompt, and what tells it from others. `base`: digest of the agent's own system text and tools."""

    prompt: Prompt
    fingerprint: Fingerprint
    generation: int
    base: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What stands before the history in every prompt of one generation of a session, unless a client adds to it.

    `texts` are those of the agent's system section; none: the default one is used.
    """

    generation: int
    texts: tuple[str, ...]
    system: str
    system_mark: Mark
    tools: tuple[ToolSpec, ...]
    tools_mark: Mark
    summary: str | None
    summary_mark: Mark
    history: RenderedHistory

    @property
    def base(self) -> int:
        return self.system_mark.digest ^ self.tools_mark.digest

    @property
    def head_tokens(self) -> int:
        return self.system_mark.tokens + self.tools_mark.tokens


class PromptBuilder:
    """Builds prompts from a session; nothing of them is stored.

    `always` and `changing` are ports: further parts of the system text and of the trailing block.
    """

    def __init__(
        self,
        *,
        agents: Mapping[str, AgentPolicy],
        tools: ToolRegistry,
        room_for_tools: Callable[[Session], int | None],
        clock: Clock,
        tokens: LazyCounter,
        zone: ZoneInfo,
        layout: CacheLayout = "memories_last",
    ) -> None:
        """`room_for_tools`: tokens that tools no agent has asked for may take; None where the window is not known."""
        self._agents = agents
        self._room_for_tools = room_for_tools
        self._tools = tools
        self._clock = clock
        self._count = tokens.count
        self._zone = zone
        self._layout: CacheLayout = layout
        self._frames: WeakKeyDictionary[Session, Frame] = WeakKeyDictionary()
        self._counted: OrderedDict[int, int] = OrderedDict()
        self.always: list[Always] = []
        self.changing: list[Changing] = [self._time]
        self.ready = tokens.ready

    def count(self, text: str) -> int:
        """Tokens of a text, by our own tokenizer."""
        return self._count(text)

    def build(
        self, session: Session, turns: frozenset[str], incoming: Incoming, *, tools: bool, limit: int | None = None
    ) -> Built:
        """The prompt of the next call for the messages of `turns`; `tools` False: without any.

        `limit`: tokens it may have by our own count; beyond it the oldest messages are left out.
        """
        frame = self.frame(session)
        messages, history = frame.history.render(session.entries, turns)
        prompt = build_prompt(
            system=_system(frame.texts, incoming.extra_system),
            messages=messages,
            summary=frame.summary,
            tools=_offered(frame.tools, incoming) if tools else (),
            trailing="\n\n".join(text for part in self.changing if (text := part(session, incoming))) or None,
            layout=self._layout,
        )
        fingerprint = self._fingerprint(frame, prompt, history)
        if limit is not None and fingerprint.tokens > limit:
            prompt, fingerprint = self._shortened(prompt, fingerprint, limit)
        return Built(
            prompt=prompt,
            fingerprint=fingerprint,
            generation=frame.generation,
            base=frame.base,
            at=self._clock.now(),
        )

    def _shortened(self, prompt: Prompt, known: Fingerprint, limit: int) -> tuple[Prompt, Fingerprint]:
        room = limit - (known.tokens - known.history.mark(len(known.history)).tokens)
        kept = shrink(prompt.messages, max(1, room), self._count)
        history = Chain()
        history.add(kept)
        return replace(prompt, messages=tuple(kept)), replace(known, history=history)

    def _fingerprint(self, frame: Frame, prompt: Prompt, history: Chain) -> Fingerprint:
        same_tools = prompt.tools == frame.tools
        return Fingerprint(
            tools=frame.tools_mark if same_tools else self._mark(text_of_tools(prompt.tools)),
            system=frame.system_mark if prompt.system == frame.system else self._mark(prompt.system),
            summary=frame.summary_mark,
            history=history,
            trailing=self._mark(prompt.trailing),
        )

    def _mark(self, text: str | None) -> Mark:
        """A text is counted once, as long as it comes again before a thousand others."""
        bare = mark_of(text, 0)
        if not text:
            return bare
        tokens = self._counted.pop(bare.digest, None)
        if tokens is None:
            tokens = self._count(text)
        self._counted[bare.digest] = tokens
        if len(self._counted) > COUNTED_TEXTS:
            self._counted.popitem(last=False)
        return Mark(bare.size_bytes, bare.digest, tokens)

    def frame(self, session: Session) -> Frame:
        """Frozen as long as the session is in memory and in this generation: a tool that comes late, or a text that
        is edited, would break the cache in the middle of a conversation. A compaction breaks it anyway."""
        known = self._frames.get(session)
        if known is not None and known.generation == session.record.generation:
            return known
        policy = self._agents.get(session.record.agent)
        own = None if policy is None else policy.system
        texts = tuple(text for text in (own, *(part(session) for part in self.always)) if text)
        system = _system(texts, None)
        tools = sorted_tools(self._own_tools(session))
        opening = next((e for e in session.entries if isinstance(e, SummaryEntry)), None)
        summary = None if opening is None else render_summary(opening.summary, _search_tool(tools))
        frame = self._frames[session] = Frame(
            generation=session.record.generation,
            texts=texts,
            system=system,
            system_mark=self._mark(system),
            tools=tools,
            tools_mark=self._mark(text_of_tools(tools)),
            summary=summary,
            summary_mark=self._mark(summary),
            history=RenderedHistory(named=session.record.type in ("group", "channel")),
        )
        return frame

    def _own_tools(self, session: Session) -> list[ToolSpec]:
        policy = self._agents.get(session.record.agent)
        if policy is not None and policy.tools is not None:
            return self._tools.specs(policy.tools)
        room = self._room_for_tools(session)
        return (
            self._tools.specs()
            if room is None
            else fitting(self._tools.specs(), room, lambda text: self._mark(text).tokens)
        )

    def thaw(self, session: Session) -> None:
        """Makes the frame anew at the next prompt: before the first call of a session nothing is cached yet."""
        self._frames.pop(session, None)

    def history(self, session: Session) -> Chain:
        """All messages of the generation, with those that wait for a reply at the end."""
        return self.frame(session).history.render(session.entries, None)[1]

    def conversation(self, session: Session) -> Prompt:
        """What the model has been shown of a session so far, without what changes with every call."""
        frame = self.frame(session)
        messages, _ = frame.history.render(session.entries, frozenset())
        return Prompt(system=frame.system, messages=messages, tools=frame.tools, summary=frame.summary)

    def head_tokens(self, session: Session) -> int:
        """Tokens, by our own count, of what stands before the conversation in each of its prompts."""
        return self.frame(session).head_tokens

    def stateless(self, agent: str, messages: Sequence[Message], incoming: Incoming) -> Prompt:
        """The prompt of a call that belongs to no session: what the client sent, and its own tools."""
        policy = self._agents.get(agent)
        texts = () if policy is None or policy.system is None else (policy.system,)
        return build_prompt(
            system=_system(texts, incoming.extra_system), messages=messages, tools=incoming.client_tools
        )

    def parts(self, session: Session) -> list[tuple[str, int]]:
        """What the next prompt consists of: the name of each part, and its tokens by our own count."""
        frame, history = self.frame(session), self.history(session)
        return [
            ("tools", frame.tools_mark.tokens),
            ("system", frame.system_mark.tokens),
            ("summary", frame.summary_mark.tokens),
            ("history", history.mark(len(history)).tokens),
        ]

    def tool_context(self, session: Session, incoming: Incoming) -> ToolContext:
        return ToolContext(key=session.key, user=incoming.speaker, now=self._clock.now())

    def _time(self, session: Session, _: Incoming) -> str | None:
        policy = self._agents.get(session.record.agent)
        if policy is None or not policy.tells_time:
            return None
        now = self._clock.now().astimezone(self._zone)
        return f"(It is {now:%A}, {now:%Y-%m-%d %H:%M}, {self._zone.key}.)"


def _system(texts: Sequence[str], extra: str | None) -> str:
    """The agent's texts, then the client's; the default one when there is neither."""
    if extra is None:
        return "\n\n".join(texts) or DEFAULT_SYSTEM
    return "\n\n".join((*texts, extra))


def _search_tool(tools: Sequence[ToolSpec]) -> str | None:
    """The tool that finds what was summarised, when the agent has it."""
    return SEARCH_TOOL if any(tool.name == SEARCH_TOOL for tool in tools) else None


def _offered(own: Sequence[ToolSpec], incoming: Incoming) -> Sequence[ToolSpec]:
    if not incoming.client_tools:
        return own
    theirs = {tool.name for tool in incoming.client_tools}
    return [*(tool for tool in own if tool.name not in theirs), *incoming.client_tools]
