"""What a search of the transcripts is asked, and what it answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

Role = Literal["user", "assistant", "tool"]


class DamagedIndex(Exception):
    """`search.db` cannot be used: it is to be removed and built again. The message says why."""


class SearchFailed(Exception):
    """The index cannot be read or written now; the message says what to do."""


class SearchTooBroad(SearchFailed):
    """The words are in too much of what was said to be searched in time."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a session is in the index: bytes of one generation's transcript."""

    generation: int
    position: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The session an entry is of, its key, and the person it belongs to (None: nobody)."""

    session: str
    key: str
    owner: str | None

    @property
    def scope(self) -> str:
        """As words, for the full-text table."""
        return " ".join([scope_word("k", self.key), *([scope_word("o", self.owner)] if self.owner else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where to search: in chats with one of these keys, or owners, or under one of these prefixes of keys."""

    keys: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def holds(self, key: str, owner: str | None) -> bool:
        """Whether a chat is in it."""
        under = (f"{prefix.rstrip(':')}:" for prefix in self.prefixes)
        return key in self.keys or owner in self.owners or any(f"{key}:".startswith(one) for one in under)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message in the index."""

    id: int
    session: str
    seq: int
    at: datetime
    role: Role
    name: str | None
    text: str


def scope_word(kind: str, value: str) -> str:
    """A key or an owner as one word that says nothing."""
    return kind + hashlib.sha256(value.encode()).hexdigest()[:20]
