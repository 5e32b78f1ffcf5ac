"""The loop that delivers: at least once, with a stable id, in order for each session and target."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import structlog

from gateway.jobs.decisions import LONGEST_WAIT, delivery_wait_s
from gateway.jobs.store import JobsClosed, line_of
from gateway.turns import Stopping
from sessions.entries import AssistantEntry, format_time
from sessions.files import StorageError
from sessions.keys import parse_key
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from gateway.clock import Clock
    from gateway.jobs.policy import DeliverPolicy, DeliverTo
    from gateway.jobs.sender import Outcome
    from gateway.jobs.store import JobStore
    from gateway.jobs.values import Delivery
    from gateway.turns import Turns
    from sessions.store import SessionStore

log = structlog.get_logger()

PARALLEL = 16
RETRY_S = 5.0


class Sends(Protocol):
    """Posts one delivery."""

    async def send(self, target: DeliverTo, message_id: str, timestamp: int, body: bytes) -> Outcome: ...


class TextGone(Exception):
    """What was to be delivered has been deleted."""


class Outbox:
    """What is in `state.db` to be delivered. `run` sends until it is cancelled."""

    name = "outbox"

    def __init__(
        self,
        *,
        store: JobStore,
        sender: Sends,
        turns: Turns,
        sessions: SessionStore,
        clock: Clock,
        policy: DeliverPolicy,
        count: Callable[[str], int],
        jitter: Callable[[], float],
    ) -> None:
        self._store = store
        self._sender = sender
        self._turns = turns
        self._sessions = sessions
        self._clock = clock
        self._policy = policy
        self._count = count
        self._jitter = jitter
        self._wake = asyncio.Event()
        self._busy: set[str] = set()
        self._next_at: datetime | None = None
        self.retimed: Callable[[], None] = lambda: None

    def draft(self, target: DeliverTo, *, key: str, kind: str, facts: dict[str, Any], **more: Any) -> Delivery:
        """A new delivery, to be saved together with what causes it; then `wake`."""
        from gateway.jobs.values import Delivery

        now = self._clock.now()
        return Delivery(
            id=self._clock.new_id(),
            target=target,
            key=key,
            created_at=now,
            next_at=now,
            give_up_at=now + timedelta(hours=self._policy.give_up_hours),
            kind=kind,
            facts=facts,
            **more,
        )

    def wake(self) -> None:
        """There is something new."""
        self._wake.set()

    async def again(self, delivery: Delivery) -> Delivery:
        """Puts a dead delivery back in its line."""
        now = self._clock.now()
        revived = dataclasses.replace(
            delivery,
            status="pending",
            next_at=now,
            give_up_at=now + timedelta(hours=self._policy.give_up_hours),
            ended_at=None,
            attempts=0,
        )
        await self._store.save(deliveries=[revived])
        self.wake()
        return revived

    async def run(self) -> None:
        """A locked or full database delays deliveries."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                try:
                    self._next_at = await self._start_due(group)
                except JobsClosed as error:
                    log.warning("outbox.not_read", error=str(error), retry_s=RETRY_S)
                    self._next_at = self._clock.now() + timedelta(seconds=RETRY_S)
                self.retimed()
                await self._wake.wait()

    def next_due(self, now: datetime) -> datetime | None:
        """When the next attempt is due; after a clock was set back, no later than after the longest wait."""
        if self._next_at is not None:
            self._next_at = min(self._next_at, now + LONGEST_WAIT)
        return self._next_at

    async def run_due(self, now: datetime) -> None:
        self._next_at = None
        self._wake.set()

    async def _start_due(self, group: asyncio.TaskGroup) -> datetime | None:
        """Starts what is due; when something else is."""
        now = self._clock.now()
        later: list[datetime] = []
        busy = set(self._busy)  # one that ends while this is read may have sent what is read as pending
        for head in await self._store.heads():
            line = line_of(head)
            if line in busy:
                continue
            if now < head.next_at <= now + LONGEST_WAIT:  # further ahead: the clock was, when that was decided
                later.append(head.next_at)
            elif len(self._busy) < PARALLEL:
                self._busy.add(line)
                group.create_task(self._deliver(head, line), name=f"deliver {head.id}")
        return min(later, default=None)

    async def _deliver(self, delivery: Delivery, line: str) -> None:
        """One attempt, and its outcome on disk before the next delivery of the line."""
        try:
            changed = await self._attempt(delivery)
            await self._store.save(deliveries=[changed])
        except JobsClosed as error:
            log.warning("delivery.not_noted", delivery=delivery.id, error=str(error), retry_s=RETRY_S)
            await self._clock.sleep(RETRY_S)
        finally:
            self._busy.discard(line)
            self.wake()

    async def _attempt(self, delivery: Delivery) -> Delivery:
        from gateway.jobs.sender import Outcome

        try:
            text = await self._text_of(delivery)
            if delivery.target.session is not None:
                outcome = await self._into_session(delivery, text)
            else:
                body = render_payload(delivery, text)
                timestamp = int(self._clock.now().timestamp())
                outcome = await self._sender.send(delivery.target, delivery.id, timestamp, body)
        except TextGone as error:
            outcome = Outcome(str(error), refused=True)
        except (StorageError, Stopping, SessionGone) as error:
            outcome = Outcome(str(error) or "the session is gone")
        return self._after(delivery, outcome)

    def _after(self, delivery: Delivery, outcome: Outcome) -> Delivery:
        now = self._clock.now()
        attempts = delivery.attempts + 1
        if outcome.sent:
            log.info("delivery.sent", delivery=delivery.id, attempts=attempts)
            return dataclasses.replace(delivery, status="delivered", attempts=attempts, ended_at=now, error=None)
        wait_s = delivery_wait_s(attempts, outcome.retry_after_s, self._jitter())
        give_up_at = min(delivery.give_up_at, now + timedelta(hours=self._policy.give_up_hours))
        dead = outcome.refused or now + timedelta(seconds=wait_s) > give_up_at
        log.warning("delivery.failed", delivery=delivery.id, attempts=attempts, error=outcome.error, dead=dead)
        return dataclasses.replace(
            delivery,
            status="dead" if dead else "pending",
            attempts=attempts,
            error=outcome.error,
            next_at=now + timedelta(seconds=wait_s),
            give_up_at=give_up_at,
            ended_at=now if dead else None,
        )

    async def _text_of(self, delivery: Delivery) -> str:
        """Raises TextGone."""
        if delivery.turn is None:
            return delivery.notice or ""
        turn = await self._turns.find(delivery.turn)
        if turn is None or turn.result is None:
            raise TextGone("The conversation was deleted; there is nothing to deliver any more.")
        return turn.result.text

    async def _into_session(self, delivery: Delivery, text: str) -> Outcome:
        """The reply appears in another session, once: what is there already is not written again after a crash."""
        from gateway.jobs.sender import Outcome

        assert delivery.target.session is not None  # noqa: S101
        key = parse_key(delivery.target.session)
        mark = f"delivery-{delivery.id}"
        known = self._sessions.sessions_of(key)[:2]
        for record in known:
            session = await self._sessions.open(record.session)
            if any(entry.turn == mark for entry in session.entries):
                return Outcome()
        entry = AssistantEntry(text=text, turn=mark, tokens=self._count(text))
        await self._turns.record(key, known[0].owner if known else None, [entry])
        return Outcome()


def render_payload(delivery: Delivery, text: str) -> bytes:
    """The body a receiver gets; the same at every attempt."""
    return orjson.dumps(
        {
            "type": delivery.kind,
            "id": delivery.id,
            "timestamp": format_time(delivery.created_at),
            "data": {**delivery.facts, "key": delivery.key, "turn": delivery.turn, "text": text},
        }
    )
