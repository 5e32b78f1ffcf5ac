"""The parts of a daemon, as the resources and surfaces see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.bus import EventBus
    from gateway.calls import CallWatch
    from gateway.classifier import Classifier
    from gateway.cleanup import Cleanup
    from gateway.clock import Clock
    from gateway.compactor import Compactor
    from gateway.config import Config
    from gateway.counting import LazyCounter
    from gateway.ending import SessionTimer
    from gateway.gauge import Gauge
    from gateway.jobs.wiring import JobParts
    from gateway.learning import Learner
    from gateway.learnt import LearntModels
    from gateway.ledger import UsageLedger
    from gateway.memories import MemoryPart
    from gateway.memory_jobs import MemoryJobs
    from gateway.models.pool import ModelPool
    from gateway.personal import PersonalSettings
    from gateway.prompts import PromptBuilder
    from gateway.recall import Recall
    from gateway.remember import Remember
    from gateway.said_vectors import SaidVectors
    from gateway.scheduler import Scheduler
    from gateway.search import ArchiveSearch
    from gateway.surfaces.engram_book import EngramBook
    from gateway.surfaces.engram_learning import EngramLearning
    from gateway.surfaces.engram_writes import EngramWrites
    from gateway.tools import ToolRegistry
    from gateway.turns import Turns
    from gateway.vectors import VectorPart
    from gateway.workspaces import Workspaces
    from sessions.archive import Archive
    from sessions.blobs import Blobs
    from sessions.files import Files
    from sessions.store import SessionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything connected; made by gateway.daemon.build_parts."""

    config: Config
    data_dir: Path
    clock: Clock
    files: Files
    environ: Mapping[str, str]
    store: SessionStore
    archive: Archive
    search: ArchiveSearch
    blobs: Blobs
    models: ModelPool
    tokens: LazyCounter
    ledger: UsageLedger
    memory: MemoryPart
    memory_jobs: MemoryJobs
    learner: Learner
    remember: Remember
    classifier: Classifier
    vectors: VectorPart
    said: SaidVectors
    workspaces: Workspaces
    personal: PersonalSettings
    recall: Recall
    prompts: PromptBuilder
    tools: ToolRegistry
    slots: asyncio.Semaphore
    turns: Turns
    compactor: Compactor
    scheduler: Scheduler
    timer: SessionTimer
    cleanup: Cleanup
    jobs: JobParts
    gauge: Gauge
    calls: CallWatch
    learnt: LearntModels
    engram: EngramWrites
    engram_learning: EngramLearning
    engram_book: EngramBook
    bus: EventBus
