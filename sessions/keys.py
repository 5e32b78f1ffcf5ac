"""Session keys: the stable address of a chat (spec sessions.md, "Keys")."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KeyType = Literal["main", "direct", "group", "channel", "sub", "cron", "hook"]
ChatType = Literal["direct", "group", "channel"]
DirectScope = Literal["main", "per_peer", "per_channel_peer"]

MAX_KEY_BYTES = 512
CHAT_TYPES: tuple[ChatType, ...] = ("direct", "group", "channel")
STRUCTURAL = frozenset({"agent", "main", "direct", "group", "channel", "thread", "sub", "cron", "hook"})


class MalformedKey(ValueError):
    """A key that cannot be parsed; `part` names the piece that is wrong."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"session key: {part}: {why}")
        self.part = part
        self.why = why


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A parsed key. `str(key)` is its canonical text; equal chats have equal texts."""

    type: KeyType
    agent: str = "main"
    channel: str | None = None
    peer: str | None = None
    thread: str | None = None

    def __str__(self) -> str:
        match self.type:
            case "cron" | "hook":
                return f"{self.type}:{self.peer}"
            case "main":
                base = f"agent:{self.agent}:main"
            case "sub":
                base = f"agent:{self.agent}:sub:{self.peer}"
            case _:
                base = f"agent:{self.agent}:{self.channel}:{self.type}:{self.peer}"
        return base if self.thread is None else f"{base}:thread:{self.thread}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatContext:
    """Where a message came from, as a frontend knows it (body of /v1/inbound)."""

    channel: str
    chat_type: ChatType
    chat_id: str | None = None
    sender: str | None = None
    thread_id: str | None = None
    agent: str = "main"


def clean_id(part: str, raw: str) -> str:
    """One id of a key, in NFC. Raises MalformedKey when it is empty or holds `:` `/` or a control character."""
    text = unicodedata.normalize("NFC", raw)
    if not text:
        raise MalformedKey(part, "is empty")
    if text != text.strip():
        raise MalformedKey(part, "starts or ends with white space")
    for character in text:
        if character in ":/":
            raise MalformedKey(part, f"holds {character!r}, which ids may not hold")
        if unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn", "Zl", "Zp"):
            raise MalformedKey(part, f"holds the unprintable character U+{ord(character):04X}")
    return text


def parse_key(raw: str) -> SessionKey:
    """The key a text means. Structural words match in any case; ids keep theirs. Raises MalformedKey."""
    key = _parsed(raw.split(":"))
    if len(str(key).encode()) > MAX_KEY_BYTES:  # as it is kept: NFC may be shorter than what was sent, or longer
        raise MalformedKey("whole key", f"is longer than {MAX_KEY_BYTES} bytes")
    return key


def _parsed(parts: list[str]) -> SessionKey:
    head = parts[0].lower()
    if head in ("cron", "hook"):
        if len(parts) != 2:
            raise MalformedKey(head, f"needs exactly one id, as in {head}:<id>")
        return SessionKey(type=head, peer=clean_id(f"{head} id", parts[1]))
    if head != "agent":
        raise MalformedKey("first word", f"is {parts[0]!r}; a key starts with agent:, cron: or hook:")
    if len(parts) < 3:
        raise MalformedKey("whole key", "is too short; the shortest is agent:<agent>:main")
    agent = clean_id("agent", parts[1])
    rest, thread = _split_thread(parts[2:])
    match rest:
        case [word] if word.lower() == "main":
            return SessionKey("main", agent, thread=thread)
        case [word, peer] if word.lower() == "sub":
            if thread is not None:
                raise MalformedKey("thread", "a delegated task has no threads")
            return SessionKey("sub", agent, peer=clean_id("sub id", peer))
        case [channel, kind, peer]:
            kind_word = kind.lower()
            for chat_type in CHAT_TYPES:
                if kind_word == chat_type:
                    channel_id = clean_id("channel", channel)
                    return SessionKey(chat_type, agent, channel_id, clean_id(f"{chat_type} id", peer), thread)
            raise MalformedKey("chat type", f"is {kind!r}; known are direct, group and channel")
        case _:
            raise MalformedKey(
                "after the agent", "expected main, sub:<id> or <channel>:<direct|group|channel>:<id>, then thread:<id>"
            )


def _split_thread(parts: list[str]) -> tuple[list[str], str | None]:
    if len(parts) >= 3 and parts[-2].lower() == "thread":
        return parts[:-2], clean_id("thread id", parts[-1])
    return parts, None


def canonical_user(channel: str, peer: str, identities: Mapping[str, Sequence[str]]) -> str | None:
    """The person whose `channel:peer` is listed in `sessions.identities`, or None."""
    alias = f"{channel}:{peer}"
    return next((user for user, aliases in identities.items() if alias in aliases), None)


def person_of(key: SessionKey, identities: Mapping[str, Sequence[str]]) -> str | None:
    """Whose a private chat is, whoever speaks in it first; None for all other keys."""
    if key.type != "direct" or key.peer is None:
        return None
    return canonical_user(key.channel or "", key.peer, identities) or key.peer


def derive_key(context: ChatContext, scope: DirectScope, identities: Mapping[str, Sequence[str]]) -> SessionKey:
    """The key a frontend's context means. Raises MalformedKey when an id is missing or malformed.

    Under `per_peer` only a person of `sessions.identities` has one session for all channels (under channel `any`):
    equal ids in two channels need not be one person.
    """
    agent = clean_id("agent", context.agent)
    channel = clean_id("channel", context.channel)
    thread = None if context.thread_id is None else clean_id("thread_id", context.thread_id)
    if context.chat_type != "direct":
        if context.chat_id is None:
            raise MalformedKey("chat_id", f"is needed for chat_type {context.chat_type!r}")
        key = SessionKey(context.chat_type, agent, channel, clean_id("chat_id", context.chat_id), thread)
        return _within_limit(key)
    if scope == "main":
        return _within_limit(SessionKey("main", agent, thread=thread))
    raw_peer = context.sender if context.sender is not None else context.chat_id
    if raw_peer is None:
        raise MalformedKey("sender", "is needed for a direct chat (or chat_id, where they are the same)")
    peer = clean_id("sender", raw_peer)
    person = canonical_user(channel, peer, identities)
    if scope == "per_peer" and person is not None:
        return _within_limit(SessionKey("direct", agent, "any", person, thread))
    return _within_limit(SessionKey("direct", agent, channel, person or peer, thread))


def _within_limit(key: SessionKey) -> SessionKey:
    return parse_key(str(key))
