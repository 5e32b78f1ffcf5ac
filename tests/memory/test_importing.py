"""A file of memories is taken in as a whole or not at all, and makes nothing known in more places than before."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from gateway.clock import ManualClock
from memory.errors import InvalidMemory, MemoryConflict, MemoryUnavailable, NotThere
from memory.portable import VERSION
from memory.records import Draft, Filters, TopicChange, TopicDraft, project_pool, text_hash, user_pool
from tests.memory.opened import ROOT, exported, opened, person, taken_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memory.memory import Memories
    from memory.records import Memory, Pool, Viewer

ANA, BOB = person("ana"), person("bob")
MEMORY = '{"type":"memory","text":"Ana drinks tea","topic":"plants"}\n'
TOPIC = '{"type":"topic","name":"plants","description":"Plants, one each"}\n'
STONE = json.dumps({"type": "tombstone", "sha256": text_hash("gone")}) + "\n"
DATA = Path(__file__).parent.parent / "data" / "memories"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 5, 1, 12, tzinfo=UTC))


@pytest.fixture
async def memories(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Memories]:
    async with opened(tmp_path / "state.db", clock) as memories:
        yield memories


def many(count: int) -> str:
    return "".join(json.dumps({"type": "memory", "text": f"fact {n}"}) + "\n" for n in range(count))


async def kept(memories: Memories, viewer: Viewer) -> tuple[int, set[str], list[str]]:
    """How many memories, which topics and which tombstones there are."""
    names = {topic.name for topic in await memories.topics.topics(viewer)}
    lines = [json.loads(line) for line in (await exported(memories, viewer)).splitlines()]
    stones = [line["sha256"] for line in lines if line.get("type") == "tombstone"]
    return await memories.store.count(viewer), names, stones


BAD = [
    "{",
    '{"type":"memory","text":" "}',
    '{"type":"memory","text":"x","importance":11}',
    '{"type":"memory","text":"x","importance":true}',
    '{"type":"memory","text":"x","properties":{"tenant":""}}',
    json.dumps({"type": "memory", "text": "x" * 8001}),
    '{"type":"topic","name":"","description":"x"}',
    '{"type":"topic","name":"keys","description":"my password is hunter2"}',
    '{"type":"topic","name":"x","description":"x","project":7}',
    '{"type":"tombstone","sha256":"x"}',
    '{"format":"sessiond-memories","version":99}',
]


@pytest.mark.parametrize("line", BAD)
async def test_nothing_of_a_file_is_kept_whose_last_line_is_bad(memories: Memories, line: str) -> None:
    before = await kept(memories, ANA)
    with pytest.raises(InvalidMemory, match="line 1203"):
        await taken_in(memories, ANA, TOPIC + STONE + many(1200) + line)
    assert await kept(memories, ANA) == before


async def test_a_memory_without_what_its_topic_needs_is_told_with_its_line(memories: Memories) -> None:
    topic = '{"type":"topic","name":"plants","description":"x","scope_properties":["tenant"]}\n'
    before = await kept(memories, ANA)
    with pytest.raises(InvalidMemory, match=r"line 602.*tenant"):
        await taken_in(memories, ANA, topic + many(600) + MEMORY)
    assert await kept(memories, ANA) == before


async def test_nothing_of_a_file_is_kept_where_the_disk_fills_half_way(memories: Memories, tmp_path: Path) -> None:
    await memories.topics.prepare(ANA, None)
    before = await kept(memories, ANA)
    pages = (tmp_path / "state.db").stat().st_size // 4096 + 60

    @event.listens_for(memories.store._records._engine.sync_engine, "begin")
    def small(connection: Any) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    with pytest.raises(MemoryUnavailable, match="full"):
        await taken_in(memories, ANA, TOPIC + STONE + many(3000))
    pages *= 100
    assert await kept(memories, ANA) == before
    assert (await taken_in(memories, ANA, TOPIC + STONE + many(3000))).added == 3000
    count, names, stones = await kept(memories, ANA)
    assert (count, names - before[1], len(stones)) == (3000, {"plants"}, 1)


CHILD = """
import asyncio, io, sys
from pathlib import Path
from gateway.clock import SystemClock
from tests.memory.opened import opened, person

class Halting(io.BytesIO):
    written = 0
    def readline(self, size=-1):
        line = super().readline(size)
        if b'"fact 1400"' in line:
            Halting.written += 1
            if Halting.written == 3:
                print("half", flush=True)
                sys.stdin.read()
        return line

async def main():
    async with opened(Path(sys.argv[1]), SystemClock()) as memories:
        await memories.take_in(person("ana"), Halting(Path(sys.argv[2]).read_bytes()))

asyncio.run(main())
"""


async def test_nothing_of_a_file_is_kept_where_the_process_is_killed_half_way(
    tmp_path: Path, clock: ManualClock
) -> None:
    file = tmp_path / "memories.jsonl"
    file.write_text(TOPIC + STONE + many(1500))
    command = [sys.executable, "-c", CHILD, str(tmp_path / "state.db"), str(file)]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"half\n"
    child.kill()
    await child.wait()
    async with opened(tmp_path / "state.db", clock) as memories:
        count, names, stones = await kept(memories, ANA)
        assert (count, "plants" in names, stones) == (0, False, [])
        assert (await taken_in(memories, ANA, file.read_text())).added == 1500


async def test_everybody_who_listens_hears_of_what_was_taken_in_once_it_is_kept(memories: Memories) -> None:
    told: list[Memory] = []
    memories.after_write.append(told.append)
    with pytest.raises(InvalidMemory):
        await taken_in(memories, ANA, many(600) + "{")
    assert told == []
    await taken_in(memories, ANA, many(1200) + many(3))
    assert {memory.text for memory in told} == {f"fact {n}" for n in range(1200)}
    assert len(told) == 1200


async def test_an_export_is_one_moment_however_much_is_written_meanwhile(memories: Memories) -> None:
    await taken_in(memories, ANA, many(1200))

    class Slow(io.BytesIO):
        """A write falls into the middle of the export."""

        def writelines(self, lines: Any) -> None:
            for n, line in enumerate(lines):
                if n == 700:
                    asyncio.run_coroutine_threadsafe(meanwhile(), loop).result()
                self.write(line)

    async def meanwhile() -> None:
        await memories.add(ANA, Draft(text="came later"))
        page, _ = await memories.page(ANA)
        await memories.delete(ANA, next(one.id for one in page if one.text == "fact 1199"))

    loop = asyncio.get_running_loop()
    file = Slow()
    await memories.export(ANA, file)
    texts = {json.loads(line).get("text") for line in file.readlines()}
    assert {f"fact {n}" for n in range(1200)} <= texts
    assert "came later" not in texts


# --- topics bound to a project ----------------------------------------------------------------------------------------


async def with_bound_topic(memories: Memories) -> str:
    """Ana's export: a fact under a topic that is bound to a project she is a member of."""
    await memories.topics.put_project(ROOT, "shop", with_members=["ana"])
    bound = TopicDraft(name="work", description="About work", project="shop")
    await memories.topics.add_topic(ANA, user_pool("ana"), bound)
    await memories.add(ANA, Draft(text="Ana earns 100", topic="work"))
    return await exported(memories, ANA)


async def recalled(memories: Memories, viewer: Viewer, project: str | None = None) -> list[str]:
    asking = person(viewer.user, conversation=True, project=project)
    found = await memories.search(asking, "earns", mode="keyword", filters=Filters(recalled=True))
    return [hit.memory.text for hit in found.hits]


async def test_a_topic_bound_to_a_project_is_so_after_it_was_taken_along(memories: Memories) -> None:
    lines = await with_bound_topic(memories)
    await memories.topics.put_project(ROOT, "shop", with_members=["ana", "bob"])
    taken = await taken_in(memories, BOB, lines)
    assert (taken.added, taken.notes) == (1, ())
    assert await recalled(memories, BOB) == []
    assert await recalled(memories, BOB, "shop") == ["Ana earns 100"]


async def test_a_topic_of_a_project_one_is_no_member_of_stays_bound_and_that_is_told(memories: Memories) -> None:
    lines = await with_bound_topic(memories)
    taken = await taken_in(memories, BOB, lines)
    assert (taken.added, taken.topics) == (1, 1)
    assert "'work' stays bound to the project 'shop'" in taken.notes[0]
    assert await recalled(memories, BOB) == []
    (work,) = [topic for topic in await memories.topics.topics(BOB) if topic.name == "work"]
    assert work.project == "shop"
    assert (await taken_in(memories, BOB, lines)).notes == ()
    renamed = await memories.topics.edit_topic(BOB, work.id, TopicChange(name="job"))
    assert (renamed.name, renamed.project) == ("job", "shop")
    with pytest.raises(NotThere):
        await memories.topics.edit_topic(BOB, work.id, TopicChange(project="other"))


async def test_a_topic_of_the_same_name_that_is_recalled_everywhere_gets_nothing_that_was_bound(
    memories: Memories,
) -> None:
    lines = await with_bound_topic(memories)
    await memories.topics.add_topic(BOB, user_pool("bob"), TopicDraft(name="Work", description="My work"))
    taken = await taken_in(memories, BOB, lines)
    assert "is under 'work (shop)'" in taken.notes[0]
    assert await recalled(memories, BOB) == []
    again = await taken_in(memories, BOB, lines)
    assert (again.unchanged, again.topics) == (1, 0)
    taken_elsewhere = TopicDraft(name="work (shop)", description="x")
    await memories.topics.put_project(ROOT, "shop", with_members=["ana", "eva"])
    await memories.topics.add_topic(person("eva"), user_pool("eva"), TopicDraft(name="work", description="x"))
    await memories.topics.add_topic(person("eva"), user_pool("eva"), taken_elsewhere)
    with pytest.raises(MemoryConflict, match="Rename it"):
        await taken_in(memories, person("eva"), lines)
    assert await memories.store.count(person("eva")) == 0


async def test_a_member_brings_memories_into_a_project_and_is_told_of_topics_they_may_not_make(
    memories: Memories,
) -> None:
    await memories.topics.put_project(ROOT, "shop", with_members=["ana"])
    shop: Pool = project_pool("shop")
    taken = await taken_in(memories, ANA, TOPIC + MEMORY, shop)
    assert (taken.added, taken.topics) == (1, 0)
    assert "'plants' is an administrator's to make" in taken.notes[0]
    bound = TOPIC.replace("}", ',"project":"other"}')
    with pytest.raises(MemoryConflict, match="only an administrator"):
        await taken_in(memories, ANA, bound + MEMORY.replace("tea", "milk"), shop)
    assert await memories.store.count(ANA) == 1


async def test_memories_whose_topic_is_nowhere_are_counted(memories: Memories) -> None:
    taken = await taken_in(memories, ANA, MEMORY)
    assert taken.added == 1
    assert taken.notes[0].startswith("1 memories have no topic")


@pytest.mark.parametrize("version", range(1, VERSION + 1))
async def test_files_of_every_version_are_taken_in(memories: Memories, version: int) -> None:
    with (DATA / f"version{version}.jsonl").open("rb") as file:
        taken = await memories.take_in(ANA, file)
    assert (taken.added, taken.topics) == (2, 1)
    (work,) = [topic for topic in await memories.topics.topics(ANA) if topic.name == "work"]
    assert work.project == (None if version == 1 else "shop")


async def test_a_write_beside_an_import_is_told_to_come_back_and_what_nobody_waits_for_waits(
    memories: Memories,
) -> None:
    note = (await memories.add(ANA, Draft(text="Ana has a cat"))).memory
    records = memories.store._records
    records._wait_s = 0.01
    async with records.writing():
        noting = asyncio.create_task(memories.store.note_recalled(ANA, [note.id]))
        with pytest.raises(MemoryUnavailable, match="as an import is"):
            await memories.add(BOB, Draft(text="Bob has a dog"))
        with pytest.raises(MemoryUnavailable, match="as an import is"):
            await records.scrub()
    await noting
    assert (await memories.store.load(ANA, note.id)).recall_count == 1
    records._wait_s = 10
    assert (await memories.add(BOB, Draft(text="Bob has a dog"))).outcome == "added"


async def test_what_is_nothing_but_a_secret_is_left_out_of_an_import_and_its_line_is_told(memories: Memories) -> None:
    secrets = [f"ghp_abcdefghijklmnopqrstuvwxyz{n:04}" for n in range(25)]
    lines = [json.dumps({"type": "memory", "text": text}) for text in ("Ana has a cat", *secrets, "Ana has a dog")]
    done = await taken_in(memories, ANA, "\n".join(lines))
    assert done.added == 2
    shown = ", ".join(f"line {n}" for n in range(2, 22))
    assert done.notes == (f"25 memories hold nothing but a secret and were left out: {shown} and 5 more.",)
    assert await memories.store.count(ANA) == 2


async def test_long_memories_keep_their_order_and_lose_their_secrets(memories: Memories) -> None:
    told = [f"{n}: the password is hunter{n}. {'Ana likes long stories. ' * 100}" for n in range(20)]
    lines = "".join(json.dumps({"type": "memory", "text": text}) + "\n" for text in told)
    done = await taken_in(memories, ANA, lines)
    assert (done.added, done.redacted) == (20, 20)
    kept = [json.loads(line) for line in (await exported(memories, ANA)).splitlines()]
    texts = {line["text"] for line in kept if line.get("type") == "memory"}
    assert texts == {text.replace(f"hunter{n}", "[password removed]").strip() for n, text in enumerate(told)}
