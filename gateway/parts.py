"""The composition root: every part of a daemon, built when it is first asked for from those it needs."""

from __future__ import annotations

import asyncio
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.announce import announce, announce_progress
from gateway.background import Background
from gateway.bus import EventBus
from gateway.calls import CallWatch
from gateway.cleanup import Cleanup
from gateway.clock import SystemClock, machine_zone
from gateway.compactor import Compactor
from gateway.counting import LazyCounter
from gateway.dispatch import CommandAnswers
from gateway.ending import SessionTimer, log_ended, session_ended
from gateway.gauge import Gauge
from gateway.housekeeping import housekeeping
from gateway.jobs.wiring import build_jobs
from gateway.kept_prefixes import KeptPrefixes
from gateway.learnt import LearntModels
from gateway.ledger import UsageLedger
from gateway.memories import MemoryPart
from gateway.memory_tools import memory_tools
from gateway.memory_wiring import build_learning, build_memory_work
from gateway.models.discovery import probe_ollama
from gateway.models.pool import ModelPool
from gateway.models.prices import price
from gateway.personal import PersonalSettings
from gateway.prompts import PromptBuilder
from gateway.recall import Recall
from gateway.recall_prefix import Prefixes
from gateway.recall_sources import former_session
from gateway.replies import Replies
from gateway.retention import Retention
from gateway.said_vectors import ByMeaning, SaidVectors
from gateway.scheduler import Scheduler
from gateway.search import ArchiveSearch, ByWords
from gateway.surfaces.engram_book import EngramBook
from gateway.surfaces.engram_learning import EngramLearning
from gateway.surfaces.engram_writes import EngramWrites
from gateway.tools import CurrentTime, ToolRegistry
from gateway.transcript_search import TranscriptSearch
from gateway.turns import Turns
from gateway.vectors import VectorPart
from gateway.workspaces import MemoryFileRead, Workspaces
from memory.text import cut
from sessions.archive import Archive
from sessions.blobs import Blobs
from sessions.files import OsFiles
from sessions.store import SessionStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from zoneinfo import ZoneInfo

    from gateway.classifier import Classifier
    from gateway.clock import Clock
    from gateway.config import Config
    from gateway.jobs.wiring import JobParts
    from gateway.learning import Learner
    from gateway.memory_jobs import MemoryJobs
    from gateway.memory_wiring import MemoryWork
    from gateway.remember import Remember
    from gateway.search import Scorer
    from sessions.files import Files
    from sessions.session import Session


class Parts:
    """The parts, as the resources and surfaces see them. Nothing runs and nothing is read by building them.

    What one part tells another is said in `_connect`, in the order in which it is told.
    """

    def __init__(
        self,
        config: Config,
        data_dir: Path,
        *,
        environ: Mapping[str, str],
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> None:
        """Raises MissingHookSecret."""
        self.config = config
        self.data_dir = data_dir
        self.environ = environ
        self.clock: Clock = clock or SystemClock()
        self.files: Files = files or OsFiles()
        self._connect()

    def _connect(self) -> None:
        store, turns, prompts, scheduler = self.store, self.turns, self.prompts, self.scheduler
        store.after_append += [announce(store, self.bus), session_ended([log_ended])]
        prompts.always.append(self.recall.prefix)
        prompts.changing.insert(0, self.recall.block)
        self.memory.when_opened += [self.recall.follow, self.vectors.follow]
        turns.after_accept.append(self.compactor.consider)
        self.compactor.listeners.append(announce_progress(lambda session: turns.lane_state(session)[0], self.bus))
        turns.commands = self.commands
        turns.after_turn += [self.jobs.followed.turn_done, self.timer.turn_done, self.remember.turn_done]
        turns.after_accept.append(self.jobs.runs.spoken)
        gates = self.memory_work.gates
        store.after_append += [self.timer.appended, gates.spoken, self.remember.appended]
        store.after_append += [session_ended([self.remember.ended]), self.recall.appended]
        for thing in (self.timer, self.cleanup, self.retention, gates, *housekeeping(self)):
            scheduler.add(thing)

    # --- what everything stands on ----------------------------------------------------------------------------------

    @cached_property
    def zone(self) -> ZoneInfo:
        return machine_zone(self.environ.get("TZ"), Path("/etc/localtime"))

    @cached_property
    def reset_zone(self) -> ZoneInfo:
        """In which days begin and end."""
        return self.config.sessions.reset.zone(self.zone)

    @cached_property
    def bus(self) -> EventBus:
        return EventBus(self.clock.new_id())

    @cached_property
    def background(self) -> Background:
        return Background(self.clock)

    @cached_property
    def scheduler(self) -> Scheduler:
        return Scheduler(self.clock)

    @cached_property
    def tokens(self) -> LazyCounter:
        return LazyCounter(self.data_dir / "cache")

    @cached_property
    def models(self) -> ModelPool:
        return ModelPool(
            policies=self.config.models,
            roles=self.config.roles,
            agents=self.config.agents,
            environ=self.environ,
            monotonic=self.clock.monotonic,
            count=self.tokens.count,
            load_blob=self.blobs.load,
            probe=probe_ollama,
        )

    @cached_property
    def ledger(self) -> UsageLedger:
        policy = self.models.policy
        return UsageLedger(
            self.data_dir / "state.db", self.clock, lambda name, model, usage: price(policy(name), model, usage)
        )

    # --- what was said ----------------------------------------------------------------------------------------------

    @cached_property
    def blobs(self) -> Blobs:
        return Blobs(self.files, self.data_dir)

    @cached_property
    def store(self) -> SessionStore:
        return SessionStore(self.data_dir, self.config.sessions, self.files, self.clock, self.blobs)

    @cached_property
    def archive(self) -> Archive:
        return Archive(self.data_dir, self.files, self.store, self.clock, cut)

    @cached_property
    def search(self) -> ArchiveSearch:
        """By words at once, and by meaning where there is an embedding model."""
        scorers: list[Scorer] = [ByWords(self.archive, self.clock)]
        policy = self.config.memory.search
        if self.said.configured:
            scorers.append(ByMeaning(self.archive, self.said, policy.vectors_wait_s))
        return ArchiveSearch(self.archive, self.store, scorers, relevance=policy.relevance)

    # --- memory -----------------------------------------------------------------------------------------------------

    @cached_property
    def memory(self) -> MemoryPart:
        settings = self.config
        return MemoryPart(
            self.data_dir / "state.db",
            self.clock,
            settings.memory,
            settings.agents,
            settings.sessions.identities,
            self.reset_zone,
        )

    @cached_property
    def vectors(self) -> VectorPart:
        return VectorPart(
            name=self.config.roles.embedding,
            models=self.config.models,
            policy=self.config.memory,
            environ=self.environ,
            data_dir=self.data_dir,
            memory=self.memory,
            clock=self.clock,
        )

    @cached_property
    def said(self) -> SaidVectors:
        return SaidVectors(
            archive=self.archive,
            vectors=self.vectors,
            policy=self.config.memory,
            data_dir=self.data_dir,
            clock=self.clock,
        )

    @cached_property
    def workspaces(self) -> Workspaces:
        return Workspaces(self.data_dir, self.config.memory, self.tokens, self.vectors, self.clock)

    @cached_property
    def personal(self) -> PersonalSettings:
        return PersonalSettings(self.memory, self.config.memory, self.clock)

    @cached_property
    def kept_prefixes(self) -> KeptPrefixes:
        return KeptPrefixes(self.data_dir / "cache" / "prefixes.db")

    @cached_property
    def recall(self) -> Recall:
        return Recall(
            memory=self.memory,
            agents=self.config.agents,
            settings=self.personal,
            configured=self.config.memory.recall,
            clock=self.clock,
            prefixes=Prefixes(
                memory=self.memory,
                agents=self.config.agents,
                files=self.workspaces,
                kept=self.kept_prefixes,
                goes_on=self.store.goes_on,
            ),
            files=self.workspaces,
            previous=former_session(self.store),
            thaw=self.prompts.thaw,
            is_small_talk=self.vectors.is_small_talk,
        )

    @cached_property
    def retention(self) -> Retention:
        return Retention(self.memory, self.config.memory.retention, self.reset_zone)

    @cached_property
    def memory_work(self) -> MemoryWork:
        return build_memory_work(
            memory=self.memory,
            vectors=self.vectors,
            models=self.models,
            ledger=self.ledger,
            clock=self.clock,
            policy=self.config.memory,
        )

    @cached_property
    def _learning(self) -> tuple[Learner, Remember]:
        return build_learning(
            self.config,
            store=self.store,
            memory=self.memory,
            jobs=self.memory_jobs,
            models=self.models,
            ledger=self.ledger,
            scheduler=self.scheduler,
            zone=self.reset_zone,
            clock=self.clock,
        )

    @property
    def memory_jobs(self) -> MemoryJobs:
        return self.memory_work.jobs

    @property
    def classifier(self) -> Classifier:
        return self.memory_work.classifier

    @property
    def learner(self) -> Learner:
        return self._learning[0]

    @property
    def remember(self) -> Remember:
        return self._learning[1]

    @cached_property
    def engram_book(self) -> EngramBook:
        return EngramBook(self.data_dir / "state.db")

    @cached_property
    def engram(self) -> EngramWrites:
        return EngramWrites(self.memory, self.engram_book, self.config.engram, self.clock)

    @cached_property
    def engram_learning(self) -> EngramLearning:
        return EngramLearning(self.memory, self.learner, self.engram_book, self.engram, self.clock)

    # --- the path of a message --------------------------------------------------------------------------------------

    @cached_property
    def tools(self) -> ToolRegistry:
        return ToolRegistry(
            [
                CurrentTime(),
                TranscriptSearch(self.search, self.store),
                *memory_tools(self.memory, self.config.agents, self.reset_zone, self.workspaces),
                MemoryFileRead(self.workspaces, self.memory, self.config.agents),
            ],
            timeout_s=self.config.turn.tool_timeout_s,
        )

    @cached_property
    def prompts(self) -> PromptBuilder:
        return PromptBuilder(
            agents=self.config.agents,
            tools=self.tools,
            room_for_tools=self._room_for_tools,
            clock=self.clock,
            tokens=self.tokens,
            zone=self.zone,
            layout=self.config.compaction.cache_layout,
        )

    def _room_for_tools(self, session: Session) -> int | None:
        """Tokens the built-in tools may take, by the window of a session's model; None where nobody knows it."""
        window = self.models.choose(session.record.agent, session.record.settings.model).window
        return None if window is None else int(self.config.turn.tools_share * window)

    @cached_property
    def learnt(self) -> LearntModels:
        return LearntModels(self.data_dir / "models.json", self.models, self.files)

    @cached_property
    def calls(self) -> CallWatch:
        return CallWatch(self.models, self.learnt)

    @cached_property
    def gauge(self) -> Gauge:
        return Gauge(
            models=self.models,
            prompts=self.prompts,
            calls=self.calls,
            learnt=self.learnt,
            policy=self.config.compaction,
        )

    @cached_property
    def compactor(self) -> Compactor:
        return Compactor(
            store=self.store,
            models=self.models,
            ledger=self.ledger,
            count=self.tokens.count,
            gauge=self.gauge,
            prompts=self.prompts,
            clock=self.clock,
            policy=self.config.compaction,
        )

    @cached_property
    def slots(self) -> asyncio.Semaphore:
        """For calls of models that somebody waits for."""
        return asyncio.Semaphore(self.config.turn.max_parallel)

    @cached_property
    def replies(self) -> Replies:
        return Replies(
            store=self.store,
            models=self.models,
            prompts=self.prompts,
            tools=self.tools,
            ledger=self.ledger,
            gauge=self.gauge,
            calls=self.calls,
            room=self.compactor,
            clock=self.clock,
            policy=self.config.turn,
            slots=self.slots,
            recall=self.recall,
        )

    @cached_property
    def turns(self) -> Turns:
        return Turns(
            store=self.store,
            models=self.models,
            prompts=self.prompts,
            replies=self.replies,
            clock=self.clock,
            sessions=self.config.sessions,
            queue=self.config.queue,
            policy=self.config.turn,
            commands=self.config.commands,
            machine_zone=self.zone,
            bus=self.bus,
        )

    @cached_property
    def commands(self) -> CommandAnswers:
        return CommandAnswers(
            store=self.store,
            turns=self.turns,
            models=self.models,
            prompts=self.prompts,
            compactor=self.compactor,
            gauge=self.gauge,
            calls=self.calls,
            ledger=self.ledger,
            memory=self.memory,
            agents=self.config.agents,
            allow_secrets=self.config.memory.allow_secrets,
            clock=self.clock,
        )

    # --- the calendar -----------------------------------------------------------------------------------------------

    @cached_property
    def timer(self) -> SessionTimer:
        return SessionTimer(
            store=self.store,
            turns=self.turns,
            policy=self.config.sessions.reset,
            machine_zone=self.zone,
            wake=self.scheduler.wake,
        )

    @cached_property
    def cleanup(self) -> Cleanup:
        return Cleanup(
            store=self.store,
            turns=self.turns,
            files=self.files,
            data_dir=self.data_dir,
            clock=self.clock,
            policy=self.config.cleanup,
            zone=self.reset_zone,
        )

    @cached_property
    def jobs(self) -> JobParts:
        return build_jobs(
            self.config,
            self.data_dir,
            environ=self.environ,
            clock=self.clock,
            sessions=self.store,
            turns=self.turns,
            models=self.models,
            ledger=self.ledger,
            count=self.tokens.count,
            scheduler=self.scheduler,
            machine_zone=self.zone,
            bus=self.bus,
        )
