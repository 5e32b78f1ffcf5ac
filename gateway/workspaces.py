"""Workspaces inside the daemon: the files of agents and the documents of projects, for recall and for tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compaction.layout import ToolSpec
from gateway.tools import ToolFailed
from memory.chunks import ChunkDatabase
from memory.errors import MemoryProblem
from memory.files import WorkspaceFiles, recalled_piece
from sessions.folders import agent_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gateway.clock import Clock
    from gateway.counting import LazyCounter
    from gateway.tools import ToolContext
    from gateway.vectors import VectorPart
    from memory.chunks import FileChunk
    from memory.policy import MemoryPolicy
    from memory.recall import Recalled
    from memory.search import SearchMode, SearchResult

READ_LINES = 200
MAX_LINES = 1000
MAX_CHARS = 40_000


def agent_shelf(agent: str) -> str:
    return f"agent:{agent_folder(agent)}"


def project_shelf(project: str) -> str:
    return f"project:{agent_folder(project)}"


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
        return f"{self.files.troubled} files cannot be used wholly; GET /v1/agents/<agent>/files says why" * bool(
            self.files.troubled
        )

    async def run(self) -> None:
        await self._tokens.ready()
        await self.files.run()

    async def stop(self) -> None:
        await self.files.close()

    async def prefix(self, agent: str) -> str | None:
        return await self.files.prefix(agent_shelf(agent))

    async def find(self, agent: str, project: str | None, words: str, limit: int) -> list[tuple[float, Recalled]]:
        shelves = [agent_shelf(agent), *([] if project is None else [project_shelf(project)])]
        result = await self.search(shelves, words, limit=limit)
        pieces = [hit.found.item for hit in result.hits]
        there = await self.files.there(pieces)
        return [
            (hit.score, recalled_piece(piece, stale=not there[piece.id]))
            for hit, piece in zip(result.hits, pieces, strict=True)
            if piece.id in there
        ]

    async def present(self, shown: Sequence[Recalled]) -> set[str]:
        return set(await self.files.there(await self.files.load([one.id for one in shown])))

    async def search(
        self, shelves: Sequence[str], words: str, *, limit: int, mode: SearchMode = "hybrid"
    ) -> SearchResult[FileChunk]:
        """Pieces of these shelves, by words, and by vectors where there are some."""
        vectors = self._vectors if self._vectors.configured else None
        return await self.files.find(shelves, vectors, words, policy=self._policy.search, limit=limit, mode=mode)


class MemoryFileRead:
    """Reads the notes of the agent it is called from; it cannot leave their folder."""

    spec = ToolSpec(
        name="MemoryFileRead",
        description=(
            "Reads lines of this agent's memory files: MEMORY.md and memory/….md, as search results name them. "
            "Without a path it lists the files."
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

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        return await self.run_for(context.key.agent, arguments)

    async def run_for(self, agent: str, arguments: Mapping[str, Any]) -> str:
        """Lines of this agent's notes. Raises ToolFailed."""
        shelf = agent_shelf(agent)
        path = arguments.get("path")
        if not path:
            found = await self._workspaces.files.paths(shelf)
            return "\n".join(found) or "There are no memory files."
        first = _number(arguments, "first_line", 1)
        count = min(_number(arguments, "lines", READ_LINES), MAX_LINES)
        try:
            text = await self._workspaces.files.read(shelf, str(path), first, first + count - 1)
        except MemoryProblem as error:
            raise ToolFailed(str(error)) from error
        return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}\n[cut; ask for fewer lines]"


def _number(arguments: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = arguments.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ToolFailed(f"{name} must be a whole number from 1.")
    return value
