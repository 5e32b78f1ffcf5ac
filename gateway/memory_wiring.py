"""Connects what works on memory in the background."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gateway.asking import Asker
from gateway.classifier import Classifier
from gateway.memory_jobs import MemoryJobs
from gateway.recategorize import Recategorize, begin_recategorize
from gateway.sorting import TopicSorter

if TYPE_CHECKING:
    from gateway.clock import Clock
    from gateway.ledger import UsageLedger
    from gateway.memories import MemoryPart
    from gateway.models.pool import ModelPool


def build_memory_jobs(
    *, memory: MemoryPart, models: ModelPool, ledger: UsageLedger, clock: Clock
) -> tuple[MemoryJobs, Classifier]:
    """The jobs with all their kinds, and what sorts new memories."""
    sorter = TopicSorter(Asker(ledger, clock, key="memory:topics"))
    jobs = MemoryJobs(memory, clock)
    jobs.add(Recategorize(memory, models, sorter))
    return jobs, Classifier(memory, models, sorter, clock, partial(begin_recategorize, jobs))
