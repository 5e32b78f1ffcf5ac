"""The memories a turn was shown, with the words they have now: for who may see them."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from gateway.console.conversation import Recalled, memories_shown
from gateway.viewers import viewer_of_caller
from memory.errors import MemoryProblem
from sessions.entries import RecallEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.http.auth import Caller
    from gateway.parts import Parts
    from sessions.entries import Entry
    from sessions.session import Session

MOST = 100
OPENING_WAIT_S = 2.0


async def recalled_texts(
    parts: Parts, caller: Caller, session: Session, entries: Sequence[Entry]
) -> Mapping[str, Recalled]:
    """By id. A memory that is gone, or not for the caller, is left out; so are all while memory cannot be read."""
    ids = dict.fromkeys(one for entry in entries if isinstance(entry, RecallEntry) for one in memories_shown(entry))
    viewer = viewer_of_caller(caller, session.record.owner)
    if not ids or viewer.user is None:
        return {}
    try:
        async with asyncio.timeout(OPENING_WAIT_S):
            memories = await parts.memory.open()
        found = await memories.store.confirm(list(ids)[:MOST], dataclasses.replace(viewer, whole=True))
    except (MemoryProblem, TimeoutError):
        return {}
    return {memory.id: Recalled(memory.id, memory.text) for memory in found}
