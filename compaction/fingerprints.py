"""Prompts by the sizes and hashes of their sections, so that two calls can be compared without keeping their texts."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from sessions.context import AssistantMessage, Message, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compaction.layout import Prompt, ToolSpec

MESSAGE_OVERHEAD = 4
Section = Literal["tools", "system", "summary", "history"]
SECTIONS: tuple[Section, ...] = ("tools", "system", "summary", "history")
"""In the order a provider reads them; what differs first ends what can be read from its cache."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One section of a prompt: its bytes, their hash, and its tokens by our own count."""

    size_bytes: int = 0
    digest: int = 0
    tokens: int = 0

    def to_json(self) -> list[Any]:
        return [self.size_bytes, f"{self.digest:x}", self.tokens]

    @staticmethod
    def from_json(raw: Sequence[Any]) -> Mark:
        """Raises ValueError and TypeError for what is no mark."""
        size_bytes, digest, tokens = raw
        return Mark(int(size_bytes), int(digest, 16), int(tokens))


def mark_of(text: str | None, tokens: int) -> Mark:
    """The mark of a section that is one text; an absent one is the empty mark."""
    if not text:
        return Mark()
    written = text.encode("utf-8", "replace")
    return Mark(len(written), _digest(written), tokens)


class Chain:
    """Running hashes, bytes and tokens over messages: what any number of the first ones come to is known at once.

    `files`: some message brings a file, which our count of tokens knows nothing of.
    """

    __slots__ = ("_digests", "_ends", "_tokens", "files")

    def __init__(self) -> None:
        self.files = False
        self._digests = array("Q")
        self._ends = array("Q")
        self._tokens = array("Q")

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, messages: Iterable[Message]) -> None:
        """Goes on with further messages; each is hashed once."""
        last = self.mark(len(self))
        digest, end, tokens = last.digest, last.size_bytes, last.tokens
        for message in messages:
            written = bytes_of(message)
            digest = _digest(digest.to_bytes(8, "big") + written)
            end += len(written)
            tokens += message.tokens + MESSAGE_OVERHEAD
            self._digests.append(digest)
            self._ends.append(end)
            self._tokens.append(tokens)
            self.files = self.files or (isinstance(message, UserMessage) and bool(message.attachments))

    def followed_by(self, messages: Iterable[Message]) -> Chain:
        """A chain of its own that goes on with further messages."""
        longer = Chain()
        longer.files = self.files
        longer._digests, longer._ends, longer._tokens = self._digests[:], self._ends[:], self._tokens[:]
        longer.add(messages)
        return longer

    def mark(self, length: int) -> Mark:
        """The first `length` messages as one section; no more than there are."""
        if length == 0:
            return Mark()
        return Mark(self._ends[length - 1], self._digests[length - 1], self._tokens[length - 1])

    def in_common(self, other: Chain) -> int:
        """How many messages both begin with. Hashes are running ones, so halving finds it."""
        low, high = 0, min(len(self), len(other))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.mark(middle) == other.mark(middle) else (low, middle - 1)
        return low


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """One prompt. `trailing` stands behind all sections a later prompt can share."""

    tools: Mark
    system: Mark
    summary: Mark
    history: Chain
    trailing: Mark

    @property
    def tokens(self) -> int:
        """The whole prompt by our own count."""
        sections = (self.tools, self.system, self.summary, self.history.mark(len(self.history)), self.trailing)
        return sum(section.tokens for section in sections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A fingerprint in short, as it is kept with a session. `history` is the whole of it, `messages` how many."""

    tools: Mark
    system: Mark
    summary: Mark
    history: Mark
    messages: int

    def to_json(self) -> list[Any]:
        marks = (self.tools, self.system, self.summary, self.history)
        return [*(mark.to_json() for mark in marks), self.messages]

    @staticmethod
    def from_json(raw: Sequence[Any]) -> Outline:
        """Raises ValueError and TypeError for what is none."""
        tools, system, summary, history, messages = raw
        marks = [Mark.from_json(mark) for mark in (tools, system, summary, history)]
        return Outline(tools=marks[0], system=marks[1], summary=marks[2], history=marks[3], messages=int(messages))


def outline_of(print_: Fingerprint) -> Outline:
    length = len(print_.history)
    return Outline(
        tools=print_.tools,
        system=print_.system,
        summary=print_.summary,
        history=print_.history.mark(length),
        messages=length,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a prompt has in common with the one before it, from the start: tokens by our own count, and the first
    section that differs; None: the earlier one is a prefix of the later one, but for its trailing block."""

    tokens: int
    section: Section | None = None
    messages: int = 0


def shared_prefix(earlier: Outline, later: Fingerprint, history: Chain | None = None) -> Shared:
    """Compares by hashes alone. `history`: the earlier one's, where it is still known, to say where inside it."""
    tokens = 0
    before, after = (earlier.tools, earlier.system, earlier.summary), (later.tools, later.system, later.summary)
    for name, old, new in zip(SECTIONS[:3], before, after, strict=True):
        if (old.digest, old.size_bytes) != (new.digest, new.size_bytes):
            return Shared(tokens=tokens, section=name)
        tokens += new.tokens
    length = min(earlier.messages, len(later.history))
    if length == earlier.messages and later.history.mark(length).digest == earlier.history.digest:
        return Shared(tokens=tokens + later.history.mark(length).tokens, messages=length)
    common = 0 if history is None else history.in_common(later.history)
    return Shared(tokens=tokens + later.history.mark(common).tokens, section="history", messages=common)


def first_byte(earlier: Prompt, later: Prompt, shared: Shared, later_history: Chain) -> int:
    """Where, in bytes from the start of the section, two prompts differ first."""
    match shared.section:
        case "tools":
            return _differs_at(text_of_tools(earlier.tools).encode(), text_of_tools(later.tools).encode())
        case "system":
            return _differs_at(earlier.system.encode("utf-8", "replace"), later.system.encode("utf-8", "replace"))
        case "summary":
            return _differs_at((earlier.summary or "").encode(), (later.summary or "").encode())
        case _:
            old, new = earlier.messages[shared.messages :][:1], later.messages[shared.messages :][:1]
            inside = _differs_at(b"".join(map(bytes_of, old)), b"".join(map(bytes_of, new)))
            return later_history.mark(shared.messages).size_bytes + inside


def text_of_tools(tools: Iterable[ToolSpec]) -> str:
    """Tools as one text, in their order."""
    return "\n".join(
        f"{tool.name} {tool.description} {json.dumps(dict(tool.parameters), ensure_ascii=False)}" for tool in tools
    )


def bytes_of(message: Message) -> bytes:
    """A message as bytes: equal for equal messages, whatever a provider's form of them."""
    match message:
        case UserMessage():
            parts = ["user", message.text, *(attachment.sha256 for attachment in message.attachments)]
        case AssistantMessage():
            calls = [part for call in message.calls for part in (call.id, call.name, call.arguments)]
            parts = ["assistant", message.text, *calls]
        case ToolMessage():
            parts = ["error" if message.is_error else "tool", message.call_id, message.name, message.text]
    return "\x1f".join((*parts, "")).encode("utf-8", "replace")


def _digest(written: bytes) -> int:
    return int.from_bytes(blake2b(written, digest_size=8).digest(), "big")


def _differs_at(one: bytes, other: bytes) -> int:
    limit = min(len(one), len(other))
    if one[:limit] == other[:limit]:
        return limit
    return next(n for n in range(limit) if one[n] != other[n])
