"""Connects what works on memory in the background."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gateway.asking import Asker
from gateway.batch import BatchTimer, LearnBatch
from gateway.classifier import Classifier
from gateway.consolidation import Consolidation
from gateway.consolidation_gates import ConsolidationGates
from gateway.learning import Learner
from gateway.memory_jobs import MemoryJobs
from gateway.recategorize import Recategorize, begin_recategorize
from gateway.reindex import Reindex
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
    from gateway.vectors import VectorPart
    from memory.policy import MemoryPolicy
    from sessions.store import SessionStore


@dataclass(frozen=True, slots=True)
class MemoryWork:
    """The jobs, what starts some of them by itself, and what sorts new memories."""

    jobs: MemoryJobs
    gates: ConsolidationGates
    classifier: Classifier


def build_memory_work(
    *,
    memory: MemoryPart,
    vectors: VectorPart,
    models: ModelPool,
    ledger: UsageLedger,
    clock: Clock,
    policy: MemoryPolicy,
) -> MemoryWork:
    """Kinds of jobs that need more than this are added to it."""
    sorter = TopicSorter(Asker(ledger, clock, key="memory:topics"))
    jobs = MemoryJobs(memory, clock)
    gates = ConsolidationGates(memory, jobs, policy.consolidation)
    tidying = Asker(ledger, clock, key="memory:consolidation")
    jobs.add(Recategorize(memory, models, sorter))
    jobs.add(Consolidation(memory, models, tidying, clock, gates.begun))
    jobs.add(Reindex(vectors, clock))
    vectors.on_new = partial(jobs.want, Reindex.name)
    classifier = Classifier(memory, models, sorter, clock, partial(begin_recategorize, jobs))
    return MemoryWork(jobs, gates, classifier)


def build_learning(
    config: Config,
    *,
    store: SessionStore,
    memory: MemoryPart,
    jobs: MemoryJobs,
    models: ModelPool,
    ledger: UsageLedger,
    scheduler: Scheduler,
    zone: ZoneInfo,
    clock: Clock,
) -> tuple[Learner, Remember]:
    """What learns, and what notes from which sessions."""
    policy = config.memory.learn
    learner = Learner(memory, models, ledger, clock, policy)
    remember = Remember(
        store=store, learner=learner, memory=memory, agents=config.agents, policy=policy, zone=zone, clock=clock
    )
    batch = LearnBatch(store=store, memory=memory, remember=remember, policy=policy)
    jobs.add(batch)
    if policy.batch is not None:
        scheduler.add(BatchTimer(batch, jobs, memory, policy.batch, zone))
    return learner, remember
