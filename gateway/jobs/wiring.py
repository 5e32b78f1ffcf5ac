"""Jobs, webhooks and delivery of one daemon, connected."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import structlog

from gateway.jobs.book import JobBook
from gateway.jobs.followed import FollowedSessions
from gateway.jobs.hooks import HookDesk, open_hooks
from gateway.jobs.outbox import Outbox
from gateway.jobs.runs import Runs
from gateway.jobs.sender import Sender
from gateway.jobs.store import JobsClosed, JobStore
from gateway.jobs.telling import Telling
from gateway.jobs.upkeep import EVERY_S, Upkeep
from gateway.scheduler import Periodic
from sessions.entries import AssistantEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from gateway.bus import EventBus
    from gateway.clock import Clock
    from gateway.config import Config
    from gateway.ledger import UsageLedger
    from gateway.models.pool import ModelPool
    from gateway.scheduler import Scheduler
    from gateway.turn import TurnResult
    from gateway.turns import Turns
    from sessions.store import SessionStore

log = structlog.get_logger()

RETRY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """Everything of jobs, webhooks and delivery."""

    store: JobStore
    sender: Sender
    outbox: Outbox
    runs: Runs
    book: JobBook
    hooks: HookDesk
    followed: FollowedSessions
    upkeep: Upkeep
    telling: Telling
    clock: Clock
    scheduler: Scheduler
    zone: ZoneInfo
    taken_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once what was kept is known again, and is done when it is due."""

    @property
    def unusable(self) -> str | None:
        """What is kept and cannot be used on this machine."""
        aside, unread = self.book.aside, len(self.store.unread)
        told = [f"jobs set aside, with the reason where they are listed: {', '.join(aside)[:500]}"] if aside else []
        told += [f"{unread} rows of runs or deliveries cannot be read; the log names them"] if unread else []
        return "; ".join(told) or None

    async def run(self) -> None:
        """Opens the store, takes up what was open, and runs until it is cancelled; the scheduler says when."""
        await self._opened()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.outbox.run(), name="outbox")
            group.create_task(self.runs.run(), name="runs")
            group.create_task(self.followed.run(), name="followed sessions")
            tidied = Periodic("run sessions", EVERY_S, self.upkeep.run, first_at=self.clock.now())
            for timed in (self.outbox, self.runs, self.book, tidied):
                self.scheduler.add(timed)
            self.taken_up.set()

    async def _opened(self) -> None:
        while True:
            try:
                await self.store.open()
                opened = await self.store.open_runs()
                await self.followed.open()
                await self.book.load()
                await self.book.recover([run for run in opened if run.kind == "job"])
                await self.hooks.recover([run for run in opened if run.kind == "hook"])
            except JobsClosed as error:
                log.warning("jobs.not_opened", error=str(error), retry_s=RETRY_S)
                await self.clock.sleep(RETRY_S)
            else:
                return

    async def close(self) -> None:
        """After the loops have ended."""
        await self.sender.close()
        await self.store.close()


def build_jobs(
    config: Config,
    data_dir: Path,
    *,
    environ: Mapping[str, str],
    clock: Clock,
    sessions: SessionStore,
    turns: Turns,
    models: ModelPool,
    ledger: UsageLedger,
    count: Callable[[str], int],
    scheduler: Scheduler,
    machine_zone: ZoneInfo,
    bus: EventBus,
) -> JobParts:
    """Nothing runs and nothing is read yet. Raises MissingHookSecret."""
    store = JobStore(data_dir / "state.db")
    telling = Telling(bus, sessions)
    store.after_save.append(telling.saved)
    sender = Sender(config.deliver)
    outbox = Outbox(
        store=store,
        sender=sender,
        turns=turns,
        sessions=sessions,
        clock=clock,
        policy=config.deliver,
        count=count,
        jitter=random.SystemRandom().random,
    )
    runs = Runs(store=store, turns=turns, clock=clock, policy=config.jobs, cost=_pricing(models, ledger))
    book = JobBook(
        store=store,
        runs=runs,
        outbox=outbox,
        turns=turns,
        clock=clock,
        policy=config.jobs,
        machine_zone=machine_zone,
    )
    book.retimed = runs.retimed = outbox.retimed = scheduler.wake
    hooks = open_hooks(config.hooks, environ)
    desk = HookDesk(hooks, store=store, runs=runs, outbox=outbox, clock=clock)
    runs.owners.update({"job": book, "hook": desk})
    for hook in hooks.values():
        if hook.has_example_secret:
            log.warning(
                "hook.example_secret", hook=hook.policy.name, do="Everybody knows it: set a secret of your own."
            )
    followed = FollowedSessions(config.deliver.sessions, store=store, outbox=outbox, sessions=sessions, clock=clock)
    hours = config.jobs.run_retention_hours
    upkeep = Upkeep(store=store, turns=turns, clock=clock, retention=None if hours is None else timedelta(hours=hours))
    return JobParts(
        store=store,
        sender=sender,
        outbox=outbox,
        runs=runs,
        book=book,
        hooks=desk,
        followed=followed,
        upkeep=upkeep,
        telling=telling,
        clock=clock,
        scheduler=scheduler,
        zone=machine_zone,
    )


def _pricing(models: ModelPool, ledger: UsageLedger) -> Callable[[TurnResult], Decimal | None]:
    """What a turn has cost; None when the price of one of its calls is not known."""

    def cost(result: TurnResult) -> Decimal | None:
        total = Decimal(0)
        for entry in result.entries:
            if isinstance(entry, AssistantEntry) and entry.usage is not None:
                model = entry.model or ""
                one = ledger.cost(models.name_of(model), model, entry.usage)
                if one is None:
                    return None
                total += one
        return total

    return cost
