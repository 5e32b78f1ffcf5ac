"""Connects what works on memory in the background."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gateway.asking import Asker
from gateway.batch import BatchTimer, LearnBatch
from gateway.classifier import Classifier
from gateway.ending import session_ended
from gateway.learning import Learner
from gateway.memory_jobs import MemoryJobs
from gateway.recategorize import Recategorize, begin_recategorize
from gateway.remember import Remember
from gateway.sorting import TopicSorter

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from gateway.clock import Clock
    from gateway.config import Config
    from gateway.ledger import UsageLedger
    from gateway.memories import MemoryPart
    from gateway.models.pool import ModelPool
    from gateway.scheduler import Scheduler
    from gateway.turns import Turns
    from sessions.store import SessionStore


def build_memory_jobs(
    *, memory: MemoryPart, models: ModelPool, ledger: UsageLedger, clock: Clock
) -> tuple[MemoryJobs, Classifier]:
    """The jobs with all their kinds, and what sorts new memories."""
    sorter = TopicSorter(Asker(ledger, clock, key="memory:topics"))
    jobs = MemoryJobs(memory, clock)
    jobs.add(Recategorize(memory, models, sorter))
    return jobs, Classifier(memory, models, sorter, clock, partial(begin_recategorize, jobs))


def build_learning(
    config: Config,
    *,
    store: SessionStore,
    turns: Turns,
    memory: MemoryPart,
    jobs: MemoryJobs,
    models: ModelPool,
    ledger: UsageLedger,
    scheduler: Scheduler,
    zone: ZoneInfo,
    clock: Clock,
) -> tuple[Learner, Remember]:
    """What learns, and what notes from which sessions; told of turns and of what is written to transcripts."""
    policy = config.memory.learn
    learner = Learner(memory, models, ledger, clock, policy)
    remember = Remember(
        store=store, learner=learner, memory=memory, agents=config.agents, policy=policy, zone=zone, clock=clock
    )
    turns.after_turn.append(remember.turn_done)
    store.after_append.append(remember.appended)
    store.after_append.append(session_ended([remember.ended]))
    batch = LearnBatch(store=store, memory=memory, remember=remember, policy=policy)
    jobs.add(batch)
    if policy.batch is not None:
        scheduler.add(BatchTimer(batch, jobs, memory, policy.batch, zone))
    return learner, remember
