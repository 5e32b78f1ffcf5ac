"""The composition root: builds every part, starts them in order, stops them in the opposite order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from aiohttp import web

from gateway.announce import announce, announce_progress
from gateway.bus import EventBus
from gateway.calls import CallWatch
from gateway.cleanup import Cleanup
from gateway.clock import SystemClock
from gateway.compactor import Compactor
from gateway.counting import LazyCounter
from gateway.dispatch import CommandAnswers
from gateway.ending import SessionTimer, log_ended, session_ended
from gateway.gauge import Gauge
from gateway.housekeeping import housekeeping
from gateway.http.app import build_app
from gateway.http.runner import ProblemRunner
from gateway.jobs.wiring import build_jobs
from gateway.learnt import LearntModels
from gateway.ledger import UsageLedger
from gateway.memories import MemoryPart
from gateway.memory_tools import memory_tools
from gateway.memory_wiring import build_learning, build_memory_work
from gateway.models.discovery import probe_ollama
from gateway.models.pool import ModelPool
from gateway.models.prices import price
from gateway.parts import Parts
from gateway.personal import PersonalSettings
from gateway.prompts import PromptBuilder
from gateway.recall import Recall
from gateway.recall_sources import former_session
from gateway.refill import refill
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
from sessions.files import DirectoryLock, OsFiles, load_boot_id
from sessions.store import SessionStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.clock import Clock
    from gateway.config import Config
    from sessions.files import Files
    from sessions.session import Session

log = structlog.get_logger()


def build_parts(
    config: Config,
    data_dir: Path,
    *,
    environ: Mapping[str, str],
    clock: Clock | None = None,
    files: Files | None = None,
) -> Parts:
    """All parts, connected; nothing runs and nothing is read yet."""
    clock = clock or SystemClock()
    files = files or OsFiles()
    tokens = LazyCounter(data_dir / "cache")
    blobs = Blobs(files, data_dir)
    models = ModelPool(
        policies=config.models,
        roles=config.roles,
        agents=config.agents,
        environ=environ,
        monotonic=clock.monotonic,
        count=tokens.count,
        load_blob=blobs.load,
        probe=probe_ollama,
    )
    ledger = UsageLedger(
        data_dir / "state.db", clock, lambda name, model, usage: price(models.policy(name), model, usage)
    )
    memory = MemoryPart(data_dir / "state.db", clock, config.memory, config.agents)
    store = SessionStore(data_dir, config.sessions, files, clock, blobs)
    bus = EventBus(clock.new_id())
    store.after_append.append(announce(store, bus))
    store.after_append.append(session_ended([log_ended]))
    archive = Archive(data_dir, files, store, clock, cut)
    vectors = VectorPart(
        name=config.roles.embedding,
        models=config.models,
        policy=config.memory,
        environ=environ,
        data_dir=data_dir,
        memory=memory,
        clock=clock,
    )
    said = SaidVectors(archive=archive, vectors=vectors, policy=config.memory, data_dir=data_dir, clock=clock)
    search = ArchiveSearch(
        archive,
        store,
        [ByWords(archive, clock), ByMeaning(archive, said, config.memory.search.vectors_wait_s)][: 1 + said.configured],
        relevance=config.memory.search.relevance,
    )
    workspaces = Workspaces(data_dir, config.memory, tokens, vectors, clock)
    tools = ToolRegistry(
        [
            CurrentTime(),
            TranscriptSearch(search, store),
            *memory_tools(memory, config.agents, workspaces),
            MemoryFileRead(workspaces),
        ],
        timeout_s=config.turn.tool_timeout_s,
    )
    zone = machine_zone(environ.get("TZ"), Path("/etc/localtime"))
    prompts = PromptBuilder(
        agents=config.agents,
        tools=tools,
        room_for_tools=room_for_tools(models, config.turn.tools_share),
        clock=clock,
        tokens=tokens,
        zone=zone,
        layout=config.compaction.cache_layout,
    )
    learnt = LearntModels(data_dir / "models.json", models, files)
    calls = CallWatch(models, learnt)
    gauge = Gauge(models=models, prompts=prompts, calls=calls, learnt=learnt, policy=config.compaction)
    compactor = Compactor(
        store=store,
        models=models,
        ledger=ledger,
        count=tokens.count,
        gauge=gauge,
        prompts=prompts,
        clock=clock,
        policy=config.compaction,
    )
    personal = PersonalSettings(memory, config.memory)
    recall = Recall(
        memory=memory,
        agents=config.agents,
        settings=personal.recall,
        configured=config.memory.recall,
        clock=clock,
        files=workspaces,
        previous=former_session(store),
        thaw=prompts.thaw,
    )
    prompts.always.append(recall.prefix)
    prompts.changing.insert(0, recall.block)
    slots = asyncio.Semaphore(config.turn.max_parallel)
    replies = Replies(
        store=store,
        models=models,
        prompts=prompts,
        tools=tools,
        ledger=ledger,
        gauge=gauge,
        calls=calls,
        room=compactor,
        clock=clock,
        policy=config.turn,
        slots=slots,
        recall=recall,
    )
    turns = Turns(
        store=store,
        models=models,
        prompts=prompts,
        replies=replies,
        clock=clock,
        sessions=config.sessions,
        queue=config.queue,
        policy=config.turn,
        commands=config.commands,
        machine_zone=zone,
        bus=bus,
    )
    turns.after_accept.append(compactor.consider)
    compactor.listeners.append(announce_progress(lambda session: turns.lane_state(session)[0], bus))
    turns.commands = CommandAnswers(
        store=store,
        turns=turns,
        models=models,
        prompts=prompts,
        compactor=compactor,
        gauge=gauge,
        calls=calls,
        ledger=ledger,
        memory=memory,
        agents=config.agents,
        clock=clock,
    )
    scheduler = Scheduler(clock)
    jobs = build_jobs(
        config,
        data_dir,
        environ=environ,
        clock=clock,
        sessions=store,
        turns=turns,
        models=models,
        ledger=ledger,
        count=tokens.count,
        scheduler=scheduler,
        machine_zone=zone,
        bus=bus,
    )
    timer = SessionTimer(store=store, turns=turns, policy=config.sessions.reset, machine_zone=zone, wake=scheduler.wake)
    turns.after_turn.append(timer.turn_done)
    scheduler.add(timer)
    cleanup = Cleanup(
        store=store,
        turns=turns,
        files=files,
        data_dir=data_dir,
        clock=clock,
        policy=config.cleanup,
        zone=config.sessions.reset.zone(zone),
    )
    scheduler.add(cleanup)
    scheduler.add(Retention(memory, config.memory.retention, config.sessions.reset.zone(zone)))
    work = build_memory_work(
        memory=memory, vectors=vectors, models=models, ledger=ledger, clock=clock, policy=config.memory
    )
    store.after_append.append(work.gates.spoken)
    scheduler.add(work.gates)
    learner, remember = build_learning(
        config,
        store=store,
        turns=turns,
        memory=memory,
        jobs=work.jobs,
        models=models,
        ledger=ledger,
        scheduler=scheduler,
        zone=config.sessions.reset.zone(zone),
        clock=clock,
    )
    engram_book = EngramBook(data_dir / "state.db")
    engram = EngramWrites(memory, engram_book, config.engram, clock)
    parts = Parts(
        config=config,
        data_dir=data_dir,
        clock=clock,
        files=files,
        environ=environ,
        store=store,
        archive=archive,
        search=search,
        blobs=blobs,
        models=models,
        tokens=tokens,
        ledger=ledger,
        memory=memory,
        memory_jobs=work.jobs,
        learner=learner,
        remember=remember,
        classifier=work.classifier,
        vectors=vectors,
        said=said,
        workspaces=workspaces,
        personal=personal,
        recall=recall,
        prompts=prompts,
        tools=tools,
        slots=slots,
        turns=turns,
        compactor=compactor,
        scheduler=scheduler,
        timer=timer,
        cleanup=cleanup,
        jobs=jobs,
        gauge=gauge,
        calls=calls,
        learnt=learnt,
        engram=engram,
        engram_learning=EngramLearning(memory, learner, engram_book, engram, clock),
        engram_book=engram_book,
        bus=bus,
    )
    for thing in housekeeping(parts):
        scheduler.add(thing)
    return parts


def room_for_tools(models: ModelPool, share: float) -> Callable[[Session], int | None]:
    """Tokens the built-in tools may take, by the window of a session's model; None where nobody knows it."""

    def room(session: Session) -> int | None:
        window = models.choose(session.record.agent, session.record.settings.model).window
        return None if window is None else int(share * window)

    return room


def machine_zone(name: str | None, localtime: Path) -> ZoneInfo:
    """The zone of this machine: `TZ`, else what /etc/localtime links to, else UTC."""
    resolved = str(localtime.resolve()) if localtime.is_symlink() else ""
    for candidate in (name, resolved.partition("/zoneinfo/")[2]):
        if candidate:
            with contextlib.suppress(ZoneInfoNotFoundError, ValueError, OSError):
                return ZoneInfo(candidate.lstrip(":"))
    return ZoneInfo("UTC")


class CannotListen(OSError):
    """The address is taken, or not one of this machine."""


class Daemon:
    """A running sessiond. `run` returns when `stop` was asked for and everything is on disk."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.url = ""
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ends the daemon: no new turns, running ones get `shutdown.grace_s`."""
        self._stop.set()

    async def run(self) -> None:
        """Serves until stopped. A loop that dies ends the daemon. Raises AlreadyRunning, CannotListen, StorageError."""
        parts = self.parts
        parts.files.make_folder(parts.data_dir)
        lock = DirectoryLock.acquire(
            parts.data_dir / "lock", pid=os.getpid(), boot_id=load_boot_id(), started_at=parts.clock.now()
        )
        try:
            await parts.learnt.load()
            report = await parts.store.start()
            log.info("store.started", sessions=report.sessions, clean=report.clean, reread=len(report.reread))
            await self._serve()
        except ExceptionGroup as group:
            refused = group.subgroup(CannotListen)
            if refused is None:
                raise
            raise refused.exceptions[0] from None
        finally:
            lock.release()

    async def _serve(self) -> None:
        parts = self.parts
        turns_stop = asyncio.Event()
        async with asyncio.TaskGroup() as loops:
            background = [
                loops.create_task(parts.store.run(), name="index"),
                loops.create_task(parts.compactor.run(), name="compactor"),
                loops.create_task(parts.recall.run(), name="recall"),
            ]
            turns = loops.create_task(parts.turns.run(turns_stop, grace_s=parts.config.shutdown.grace_s), name="turns")
            await asyncio.sleep(0)
            runner = ProblemRunner(build_app(parts), access_log=None, shutdown_timeout=1)
            await runner.setup()
            try:
                resumed = await parts.turns.resume_open()
                await self._listen(runner)
                log.info("ready", url=self.url, resumed=resumed)
                self.ready.set()
                # what imports large packages comes last: in their threads they would slow down everything above
                background += [
                    loops.create_task(parts.tokens.load(), name="tokens"),
                    loops.create_task(parts.memory.run(), name="memory"),
                    loops.create_task(parts.classifier.run(), name="classifier"),
                    loops.create_task(parts.memory_jobs.run(), name="memory jobs"),
                    loops.create_task(parts.remember.run(), name="learning"),
                    loops.create_task(parts.engram_learning.run(), name="engram"),
                    loops.create_task(parts.vectors.run(), name="vectors"),
                    loops.create_task(parts.said.run(), name="vectors of messages"),
                    loops.create_task(parts.workspaces.run(), name="workspace files"),
                    loops.create_task(parts.models.warm(), name="model"),
                    loops.create_task(parts.ledger.run(), name="ledger"),
                    loops.create_task(refill(parts), name="ledger refill"),
                    loops.create_task(parts.archive.run(), name="archive"),
                    loops.create_task(parts.scheduler.run(), name="scheduler"),
                    loops.create_task(parts.jobs.run(), name="jobs"),
                ]
                await self._stop.wait()
            finally:
                log.info("stopping")
                turns_stop.set()
                await turns
                parts.bus.close()
                await runner.cleanup()
                for task in background:
                    task.cancel()
        await parts.jobs.close()
        await parts.said.stop()
        await parts.vectors.stop()
        await parts.workspaces.stop()
        await parts.engram_book.stop()
        await parts.memory.stop()
        await parts.ledger.stop()
        await parts.learnt.save()
        await parts.archive.stop()
        await parts.store.stop()
        await parts.models.close()

    async def _listen(self, runner: web.AppRunner) -> None:
        server = self.parts.config.server
        site = web.TCPSite(runner, server.host, server.port, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            raise CannotListen(error.errno, os.strerror(error.errno or 0).lower()) from error
        host, port = runner.addresses[0][:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(config: Config, data_dir: Path) -> int:
    """Runs a daemon until SIGTERM or SIGINT. Returns the exit code."""
    os.umask(0o077)  # Chroma makes its files itself
    daemon = Daemon(build_parts(config, data_dir, environ=os.environ))
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, daemon.stop)
    await daemon.run()
    return 0
