"""Workspaces inside the daemon: the files of agents and the documents of projects, for recall and for tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from compaction.layout import ToolSpec
from gateway import shared_chats
from gateway.shelves import agent_shelf, project_shelf, shared_project
from gateway.tools import ToolFailed
from gateway.viewers import viewer_of_chat
from memory.chunks import ChunkDatabase
from memory.errors import MemoryProblem, NotThere
from memory.files import WorkspaceFiles, recalled_piece
from memory.indexing import SourceFailed
from memory.workspace import OF_PROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gateway.agents import AgentPolicy
    from gateway.clock import Clock
    from gateway.counting import LazyCounter
    from gateway.tools import ToolContext
    from gateway.vectors import Opener, VectorPart
    from memory.chunks import FileChunk
    from memory.policy import MemoryPolicy
    from memory.recall import Recalled
    from memory.records import Viewer
    from memory.search import SearchMode

log = structlog.get_logger()

READ_LINES = 200
MAX_LINES = 1000
MAX_CHARS = 40_000


class Workspaces:
    """`workspaces/<agent>/` and `documents/<project>/` under the data directory."""

    def __init__(
        self, data_dir: Path, policy: MemoryPolicy, tokens: LazyCounter, vectors: VectorPart, clock: Clock
    ) -> None:
        self._policy = policy
        self._tokens = tokens
        self._vectors = vectors
        self._clock = clock
        self.files = WorkspaceFiles(
            {"agent": data_dir / "workspaces", "project": data_dir / "documents"},
            ChunkDatabase(data_dir / "cache" / "files.db"),
            policy.files,
            count=tokens.count,
            sleep=clock.sleep,
            on_change=vectors.wake,
            on_removed=vectors.removed,
            on_renewed=vectors.rebuild,
        )
        vectors.sources.append(self.files)

    @property
    def problem(self) -> str | None:
        return self.files.problem

    @property
    def told(self) -> str:
        """What should be known of the files although all is well."""
        where = "GET /v1/agents/<agent>/files, or /v1/projects/<id>/files, says why"
        return f"{self.files.troubled} files cannot be used wholly; {where}" * bool(self.files.troubled)

    async def run(self) -> None:
        await self._tokens.ready()
        await self.files.run()

    async def stop(self) -> None:
        await self.files.close()

    async def prefix(self, agent: str) -> str | None:
        return await self.files.prefix(agent_shelf(agent))

    async def find(
        self, agent: str, project: str | None, words: str, limit: int, mode: SearchMode = "hybrid"
    ) -> list[tuple[float, Recalled]]:
        shelves = [agent_shelf(agent), *([] if project is None else [project_shelf(project)])]
        found, _ = await self.search(shelves, words, limit=limit, mode=mode)
        return [(one.score, recalled_piece(one.piece, stale=one.stale)) for one in found]

    async def present(self, shown: Sequence[Recalled], project: str | None) -> set[str]:
        try:
            pieces = await self.files.load([one.id for one in shown])
        except SourceFailed:
            return set()
        allowed = None if project is None else project_shelf(project)
        return set(
            await self.files.there([one for one in pieces if one.shelf.startswith("agent:") or one.shelf == allowed])
        )

    async def search(
        self, shelves: Sequence[str], words: str, *, limit: int, mode: SearchMode = "hybrid"
    ) -> tuple[list[FoundPiece], str | None]:
        """Pieces of these shelves, by words, and by vectors where there are some; and why files could not be searched.

        Whoever asks has to know that these shelves may be read (gateway/shelves.py).
        """
        vectors = self._vectors if self._vectors.configured else None
        try:
            result = await self.files.find(shelves, vectors, words, policy=self._policy.search, limit=limit, mode=mode)
        except SourceFailed as error:
            log.warning("files.not_searched", error=str(error))
            return [], str(error)
        pieces = [hit.found.item for hit in result.hits]
        there = await self.files.there(pieces)
        return [
            FoundPiece(piece, hit.score, stale=not there[piece.id])
            for hit, piece in zip(result.hits, pieces, strict=True)
            if piece.id in there
        ], None


@dataclass(frozen=True, slots=True)
class FoundPiece:
    """A piece that was found; `stale`: its file has changed since."""

    piece: FileChunk
    score: float
    stale: bool


class MemoryFileRead:
    """Reads notes of the agent it is called from and documents of its project; it cannot leave their folders."""

    spec = ToolSpec(
        name="MemoryFileRead",
        description=(
            "Reads lines of this agent's memory files and of its project's documents: MEMORY.md, memory/….md and "
            f"{OF_PROJECT}memory/….md, as search results name them. Without a path it lists the files."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Such as memory/garden/trees.md."},
                "first_line": {"type": "integer", "description": "1 if left out."},
                "lines": {
                    "type": "integer",
                    "description": f"How many, at most {MAX_LINES}; {READ_LINES} if left out.",
                },
            },
            "additionalProperties": False,
        },
    )

    def __init__(self, workspaces: Workspaces, part: Opener, agents: Mapping[str, AgentPolicy]) -> None:
        self._workspaces = workspaces
        self._part = part
        self._agents = agents

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        viewer = viewer_of_chat(context.key, context.user, self._agents)
        many_read = context.key.type in shared_chats.TYPES
        if many_read and str(arguments.get("path") or "").startswith(OF_PROJECT):
            raise ToolFailed("Others read here, who may not be members of the project; ask in a private chat.")
        return await self.run_for(context.key.agent, arguments, None if many_read else viewer)

    async def run_for(self, agent: str, arguments: Mapping[str, Any], viewer: Viewer | None) -> str:
        """Lines of this agent's notes, or of the documents of the viewer's project. Raises ToolFailed."""
        path = arguments.get("path")
        if not path:
            return "\n".join(await self._paths(agent, viewer)) or "There are no memory files."
        first = _number(arguments, "first_line", 1)
        count = min(_number(arguments, "lines", READ_LINES), MAX_LINES)
        try:
            text = await self._read(agent, viewer, str(path), first, first + count - 1)
        except MemoryProblem as error:
            raise ToolFailed(str(error)) from error
        return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}\n[cut; ask for fewer lines]"

    async def _paths(self, agent: str, viewer: Viewer | None) -> list[str]:
        files = self._workspaces.files
        found = await files.paths(agent_shelf(agent))
        try:
            project = await self._project(viewer)
        except MemoryProblem:
            return found
        documents = [] if project is None else await files.paths(project_shelf(project))
        return found + [f"{OF_PROJECT}{path}" for path in documents]

    async def _read(self, agent: str, viewer: Viewer | None, path: str, first: int, last: int) -> str:
        """Raises MemoryProblem."""
        if not path.startswith(OF_PROJECT):
            return await self._workspaces.files.read(agent_shelf(agent), path, first, last)
        project = await self._project(viewer)
        if project is None:
            raise NotThere("project whose documents you may read")
        text = await self._workspaces.files.read(project_shelf(project), path.removeprefix(OF_PROJECT), first, last)
        return f"{OF_PROJECT}{text}"

    async def _project(self, viewer: Viewer | None) -> str | None:
        if viewer is None or viewer.project is None:
            return None
        return await shared_project(await self._part.open(), viewer)


def _number(arguments: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = arguments.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ToolFailed(f"{name} must be a whole number from 1.")
    return value
