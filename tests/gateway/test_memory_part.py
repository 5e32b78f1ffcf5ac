"""The memories of a daemon, as its upkeep leaves them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from gateway.clock import ManualClock
from gateway.memories import MemoryPart
from memory.policy import MemoryPolicy
from memory.records import UPKEEP, Draft, user_pool

if TYPE_CHECKING:
    from pathlib import Path


async def test_memories_of_a_peer_that_was_linked_later_are_named_with_the_commands_that_move_them(
    tmp_path: Path,
) -> None:
    clock = ManualClock(datetime(2026, 5, 1, 12, tzinfo=UTC))
    identities = {"ana": ["telegram:1"], "bob": ["telegram:2"]}
    part = MemoryPart(tmp_path / "state.db", clock, MemoryPolicy(), {}, identities, UTC)
    try:
        await part.run()
        memories = await part.open()
        await memories.add(UPKEEP, Draft(text="Likes plums", pool=user_pool("telegram:1")))
        await memories.add(UPKEEP, Draft(text="Likes pears", pool=user_pool("telegram:3")))
        with capture_logs() as logs:
            await part.tidy()
    finally:
        await part.stop()
    assert [
        (line["pool"], line["memories"], line["person"], line["move"])
        for line in logs
        if line["event"] == "memory.left_behind"
    ] == [
        (
            "user:telegram:1",
            1,
            "ana",
            "sessiond memory export --pool user:telegram:1 -o FILE; sessiond memory import FILE --pool user:ana; "
            "then delete them there",
        )
    ]
