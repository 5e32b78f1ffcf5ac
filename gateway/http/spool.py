"""Content that is too long to be held: it goes through a file that has no name, and is gone when it is closed."""

from __future__ import annotations

import asyncio
import tempfile
from typing import IO, TYPE_CHECKING

from aiohttp import web

from gateway.http.problems import Problem
from gateway.http.routes import payload_chunks

if TYPE_CHECKING:
    from pathlib import Path

IN_MEMORY = 4 * 1024 * 1024
PIECE = 1024 * 1024


def spool(folder: Path) -> IO[bytes]:
    """An empty file. What is short stays in memory."""
    return tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, dir=str(folder))


async def read_into(file: IO[bytes], request: web.Request, most: int) -> None:
    """Writes the body to a file as it comes. Raises Problem."""
    size, waiting = 0, bytearray()
    async for chunk in payload_chunks(request):
        size += len(chunk)
        if size > most:
            detail = f"The file may have {most} bytes. Split it."
            raise Problem(413, "Body too large", detail, headers={"Connection": "close"})
        waiting += chunk
        if len(waiting) >= PIECE:
            await _written(file, waiting)
            waiting = bytearray()
    await _written(file, waiting)


async def _written(file: IO[bytes], piece: bytearray) -> None:
    try:
        await asyncio.to_thread(file.write, piece)
    except OSError as error:
        raise Problem(507, "Disk full", f"The file could not be kept ({error}). Nothing was taken over.") from error


def file_answer(file: IO[bytes], media_type: str) -> web.Response:
    """Sends a file from where it stands, and closes it."""
    return web.Response(body=file, content_type=media_type, charset="utf-8")
