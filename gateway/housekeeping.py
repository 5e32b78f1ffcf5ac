"""What is done at a steady pace beside the replies; the scheduler says when."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from gateway.http.attachments import expire_uploads
from gateway.scheduler import Periodic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from gateway.parts import Parts

MODELS_S = 60.0
MEMORY_S = 600.0
DELETED_S = 60.0
UPLOADS_S = 3600.0
ARCHIVE_S = 30.0
ENGRAM_S = 86_400.0


def housekeeping(parts: Parts) -> Iterator[Periodic]:
    """Things for the scheduler. Those that only look after an index wake its loop, which knows what to do."""
    memory, now = parts.config.memory, parts.clock.now()

    def every(name: str, seconds: float, work: Callable[[], Awaitable[object] | None]) -> Periodic:
        return Periodic(name, seconds, work, first_at=now + timedelta(seconds=seconds))

    yield Periodic("uploads", UPLOADS_S, lambda: expire_uploads(parts.blobs, parts.clock.now()), first_at=now)
    yield every("learnt models", MODELS_S, parts.learnt.save)
    yield every("deleted sessions", DELETED_S, parts.store.clear_deleted)
    yield every("memory", MEMORY_S, parts.memory.tidy)
    yield every("search index", ARCHIVE_S, parts.archive.check)
    yield every("workspace files", memory.files.compare_s, parts.workspaces.files.check)
    if parts.vectors.configured:
        yield every("vectors", memory.index.check_s, parts.vectors.wake)
        yield every("vectors of messages", memory.index.check_s, parts.said.check)
    if parts.config.engram.projects:
        yield every("engram runs", ENGRAM_S, lambda: parts.engram_book.forget_old(parts.clock.now()))
