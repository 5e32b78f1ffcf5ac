"""The values of learning: a piece of a conversation to learn from, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from memory.learn import Said
    from memory.records import Pool, Source, Topic, Viewer

RunState = Literal["done", "nothing", "failed"]
Trigger = Literal["reply", "end", "compaction", "batch", "surface"]

TRIES = 3
"""How often answers that cannot be read are asked for again, before a piece of a conversation is passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a pool has learnt from a session; `failures` counts the unreadable answers about what comes next."""

    session: str
    pool: Pool
    through_seq: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnChoices:
    """What holds for one person: whether there is learning after every reply, and the most changes for an exchange.
    Of what was said before `since` nothing is learnt; None: there is no such time."""

    after_reply: bool
    max_changes: int
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What is to be learnt from, by whom, and for which pool.

    `topics` None: those of the pool that fit `project` and `properties`. `most`: changes at most, None without limit.
    `source` is kept with what is written. `before` is how far learning went, `mark` how far it is then: that is kept in
    the same transaction. `created_at`: when what is written counts as made, where that is not now. `run`: the id of the
    run, where it is known already. `is_there`: whether what was said still is; asked when something is written.
    """

    viewer: Viewer
    pool: Pool
    said: Sequence[Said]
    source: Source
    now: datetime
    trigger: Trigger = "surface"
    topics: Sequence[Topic] | None = None
    project: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    most: int | None = None
    before: Mark | None = None
    mark: Mark | None = None
    created_at: datetime | None = None
    run: str | None = None
    is_there: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnRun:
    """What came of a lesson: `done` when something was written, `nothing` when nothing had to be, or `failed`.

    `created`, `updated` and `deleted` are ids of memories, as the store really changed them. `refused` are the reasons
    why proposals were not taken, without their text. `id` is also the operation by which all of it can be undone.
    """

    id: str
    pool: Pool
    trigger: Trigger
    state: RunState
    started_at: datetime
    ended_at: datetime
    session: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    model: str | None = None
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    redacted: int = 0
    problem: str | None = None
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def changes(self) -> int:
        return len(self.created) + len(self.updated) + len(self.deleted)

    def to_json(self) -> dict[str, Any]:
        """As it is kept and shown, but for pool and times."""
        return {name: getattr(self, name) for name in PLAIN} | {name: list(getattr(self, name)) for name in LISTS}


PLAIN = "id trigger state session first_seq last_seq model redacted problem calls input_tokens output_tokens".split()
LISTS = "created updated deleted refused".split()
