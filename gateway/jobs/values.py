"""Jobs, runs and deliveries as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (read when a value comes from the disk)
from typing import Any, Literal

from gateway.jobs.policy import DeliverTo, JobPolicy  # noqa: TC001

RunStatus = Literal["waiting", "running", "ok", "error", "timeout", "skipped", "interrupted"]
RunKind = Literal["job", "hook"]
Trigger = Literal["schedule", "missed", "retry", "manual", "again", "call"]
DeliveryStatus = Literal["none", "pending", "delivered", "dead"]
Origin = Literal["config", "api"]

OPEN: tuple[RunStatus, ...] = ("waiting", "running")
FAILED: tuple[RunStatus, ...] = ("error", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job and how it stands. `due_at` is its next due time, `last_due` up to when it is dealt with; `retry_at`
    is set while its last run has failed, and comes before both. `anchor`: from where `every` counts.

    `aside`: its definition cannot be used on this machine, and `disabled` says why. It stays on the disk as it is.
    """

    id: str
    origin: Origin
    policy: JobPolicy
    created_at: datetime
    anchor: datetime
    paused: bool = False
    due_at: datetime | None = None
    last_due: datetime | None = None
    retry_at: datetime | None = None
    failures: int = 0
    disabled: str | None = None
    aside: bool = False

    @property
    def active(self) -> bool:
        """Whether it runs by itself."""
        return self.policy.enabled and not self.paused and self.disabled is None

    @property
    def next_at(self) -> datetime | None:
        """When it runs next by itself."""
        return (self.retry_at or self.due_at) if self.active else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job or webhook. `request` is the request id of its message: a run that takes up an interrupted one
    has the same, so that nothing is said twice. `own_session`: the session is the run's alone, and goes with time.
    `skipped` counts due times that were left out together."""

    id: str
    kind: RunKind
    owner: str
    name: str
    due_at: datetime
    start_at: datetime
    trigger: Trigger
    status: RunStatus = "waiting"
    key: str
    request: str
    agent: str = "main"
    model: str | None = None
    text: str | None = None
    attempt: int = 1
    own_session: bool = False
    timeout_s: float = 600
    started_at: datetime | None = None
    ended_at: datetime | None = None
    session: str | None = None
    turn: str | None = None
    usage: dict[str, Any] | None = None
    cost: str | None = None
    error: str | None = None
    skipped: int = 0
    deliver: DeliverTo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Something to push. The text is not in it: it is read from the transcript of `turn` when it is sent, so that a
    deleted conversation is not sent; `notice` is a text of ours."""

    id: str
    target: DeliverTo
    key: str
    created_at: datetime
    next_at: datetime
    give_up_at: datetime
    run: str | None = None
    turn: str | None = None
    notice: str | None = None
    kind: str = "reply"
    status: DeliveryStatus = "pending"
    attempts: int = 0
    error: str | None = None
    ended_at: datetime | None = None
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
