"""The archive: everything that was said can be found, once, and what was deleted cannot."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gateway.clock import SystemClock
from memory.text import cut, cut_query
from sessions.archive import DATABASE, Archive, _within
from sessions.entries import (
    AssistantEntry,
    CarriedEntry,
    Covers,
    Entry,
    RetractedEntry,
    SummaryEntry,
    ToolResultEntry,
    UserEntry,
)
from sessions.files import OsFiles
from sessions.follow import PIECE_BYTES
from sessions.found import Said, Scope, SearchFailed, SearchTooBroad
from sessions.keys import parse_key
from sessions.policy import SessionsPolicy
from sessions.store import SessionStore
from sessions.transcript import transcript_path
from tests.patience import PATIENCE_S
from tests.sessions.builders import AT, assistant, tool_call, tool_result, user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from sessions.search import SearchIndex
    from sessions.session import Session

ANA = parse_key("agent:main:web:direct:ana")
BOB = parse_key("agent:main:web:direct:bob")
GROUP = parse_key("agent:main:telegram:group:7")


class CountingFiles(OsFiles):
    """Knows which transcripts were read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def read(self, path: Path, offset: int = 0) -> bytes:
        if path.suffix == ".jsonl":
            self.reads.append(path.name)
        return super().read(path, offset)


class Kept:
    """A store with its archive, both running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = CountingFiles()
        self.store = SessionStore(folder, SessionsPolicy(), OsFiles(), SystemClock())
        self.archive = Archive(folder, self.files, self.store, SystemClock(), cut)
        self.loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.store.start()
        self.loops = [asyncio.create_task(self.store.run()), asyncio.create_task(self.archive.run())]

    async def stop(self, *, killed: bool = False) -> None:
        """`killed`: the archive does not get to say that it is complete."""
        for loop in self.loops:
            loop.cancel()
        await asyncio.gather(*self.loops, return_exceptions=True)
        if not killed:
            await self.archive.stop()
        await self.store.stop()

    async def found(self, query: str, scope: Scope | None = None) -> list[Said]:
        def look(index: SearchIndex) -> list[Said]:
            best = index.find(cut_query(query), scope, 100, lambda: False)
            return list(index.messages(list(best)).values())

        return await self.archive.look(look)

    async def texts(self, query: str, scope: Scope | None = None) -> set[str]:
        found = [said.text for said in await self.found(query, scope)]
        assert len(set(found)) == len(found)
        return set(found)

    async def caught_up(self) -> None:
        await self.archive.look(lambda index: None)
        while not self.archive.complete:
            await asyncio.sleep(0.01)

    async def say(self, session: Session, text: str) -> list[Entry]:
        return await self.store.append(session, user(text), assistant(f"reply to {text}"))


@asynccontextmanager
async def kept(folder: Path) -> AsyncIterator[Kept]:
    one = Kept(folder)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


async def compact(one: Kept, session: Session, keep: int) -> None:
    """A new generation that carries the last `keep` entries."""

    def build(entries: Sequence[Entry]) -> list[Entry]:
        last = [e for e in entries if not isinstance(e, SummaryEntry)][-keep:]
        summary = SummaryEntry(summary={}, covers=Covers(from_seq=1, to_seq=last[0].seq, sha256=""), replay_from=1)
        return [summary, *(CarriedEntry(entry=e) for e in last)]

    assert await one.store.move_generation(session, build, anchor=1, replay_from=1, change=lambda record: record)


async def test_what_was_just_said_is_found_with_what_stood_around_it(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(ANA)
        for text in ("Good morning", "The dentist is in Žižkov", "Good night"):
            await one.say(session, text)
        (hit, reply) = sorted(await one.found("zubař Žižkov"), key=lambda said: said.seq)
        assert (hit.session, hit.seq, hit.role, hit.text) == (session.id, 3, "user", "The dentist is in Žižkov")
        assert (reply.seq, reply.role) == (4, "assistant")
        before, after = await one.archive.look(lambda index: index.around(hit, 2, 3))
        assert ([said.seq for said in before], [said.seq for said in after]) == ([1, 2], [4, 5, 6])
        assert await one.archive.look(lambda index: index.neighbours([hit.id])) == {hit.id: [hit.id - 1, hit.id + 1]}


async def test_calls_results_and_speakers_are_found(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(GROUP)
        call = tool_call("c1", "read_file", '{"path": "/srv/ledger-77.csv"}')
        await one.store.append(
            session,
            UserEntry(at=AT, text="look at it", sender_name="Melanie"),
            assistant("", calls=(call,), finish="tool_calls"),
            tool_result("c1", "total 4711"),
            SummaryEntry(summary={"topics": ["zebra"]}, covers=Covers(from_seq=1, to_seq=1, sha256=""), replay_from=1),
        )
        assert [said.role for said in await one.found("ledger")] == ["assistant"]
        assert [said.role for said in await one.found("4711")] == ["tool"]
        assert [said.name for said in await one.found("melanie")] == ["Melanie"]
        assert await one.found("zebra") == []


async def test_generations_and_former_sessions_are_found_once(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(ANA)
        for number in range(10):
            await one.say(session, f"kestrel {number}")
            if number % 3 == 2:
                await compact(one, session, 3)
        following = await one.store.end(session, "new")
        await one.say(following, "kestrel again")
        expected = {f"kestrel {n}" for n in range(10)} | {"kestrel again"}
        assert await one.texts("kestrel") == expected | {f"reply to {text}" for text in expected}


async def test_what_was_retracted_is_not_found(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(ANA)
        (asked, _) = await one.say(session, "osprey one")
        assert await one.texts("osprey") == {"osprey one", "reply to osprey one"}
        await one.store.append(session, RetractedEntry(seqs=(asked.seq, asked.seq + 1)), user("osprey two"))
        await compact(one, session, 4)
        assert await one.texts("osprey") == {"osprey two"}


async def test_only_the_asked_chats_are_searched(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        for key, owner in ((ANA, "ana"), (BOB, "bob"), (GROUP, None)):
            await one.store.append(await one.store.active(key, owner=owner), user(f"falcon {key}"))
        cases = [
            (Scope(keys=(str(ANA),)), {ANA}),
            (Scope(owners=("bob",)), {BOB}),
            (Scope(keys=(str(ANA),), owners=("bob",)), {ANA, BOB}),
            (Scope(prefixes=("agent:main:telegram",)), {GROUP}),
            (Scope(prefixes=("agent:main:tele",)), set()),
            (Scope(owners=("ana",), prefixes=("agent:main:telegram:",)), {ANA, GROUP}),
            (Scope(), set()),
            (None, {ANA, BOB, GROUP}),
        ]
        for scope, keys in cases:
            assert await one.texts("falcon", scope) == {f"falcon {key}" for key in keys}, scope


async def test_no_byte_of_a_deleted_session_stays_in_the_index(tmp_path: Path) -> None:
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(3, 9))) for _ in range(400)]
    async with kept(tmp_path) as one:
        doomed = await one.store.active(BOB, owner="bob")
        others = [await one.store.active(parse_key(f"{ANA}:thread:{n}"), owner="ana") for n in range(12)]
        for number in range(150):
            for session in others:
                await one.store.append(session, user(" ".join(chance.choices(words, k=chance.choice([3, 20, 400])))))
            await one.store.append(doomed, user(f"zzyx{number}qq {'wvut' * chance.choice([1, 300])} yvonne"))
            if number % 50 == 10:
                await compact(one, doomed, 2)
        assert len(await one.found("yvonne")) == 100
        await one.store.delete(doomed.id)
        assert await one.archive.cleared(20)
        assert await one.found("yvonne zzyx7qq") == []
        for path in tmp_path.glob(f"{DATABASE}*"):
            content = path.read_bytes()
            left = [
                text for text in (b"zzyx", b"wvut", b"yvonne", b"vonne", doomed.id.encode(), b"bob") if text in content
            ]
            assert left == [], path.name
        assert await one.found(words[0])


async def test_after_a_kill_everything_is_found_and_after_a_stop_nothing_is_read(tmp_path: Path) -> None:
    first = Kept(tmp_path)
    await first.start()
    ana, bob = await first.store.active(ANA), await first.store.active(BOB)
    await first.say(ana, "heron one")
    assert len(await first.found("heron")) == 2
    first.loops[1].cancel()
    await first.say(ana, "heron two")
    await first.say(bob, "heron three")
    await compact(first, bob, 1)
    await first.stop(killed=True)

    async with kept(tmp_path) as second:
        await second.caught_up()
        assert len(await second.found("heron")) == 6
        assert f"{ana.id}.1.jsonl" in second.files.reads
    async with kept(tmp_path) as third:
        await third.caught_up()
        assert len(await third.found("heron")) == 6
        assert third.files.reads == []
        await third.store.delete(bob.id)
        assert len(await third.found("heron")) == 4


async def test_a_session_that_was_deleted_while_the_archive_was_away_leaves_it(tmp_path: Path) -> None:
    first = Kept(tmp_path)
    await first.start()
    session = await first.store.active(ANA)
    await first.say(session, "bittern")
    assert await first.found("bittern")
    first.loops[1].cancel()
    await first.store.delete(session.id)
    await first.stop(killed=True)
    async with kept(tmp_path) as second:
        await second.caught_up()
        assert await second.found("bittern") == []
        assert await second.archive.cleared(10)
        assert b"bittern" not in (tmp_path / DATABASE).read_bytes()


@pytest.mark.parametrize("harm", ["removed", "overwritten", "emptied"])
async def test_a_harmed_index_is_built_again_while_it_is_in_use(tmp_path: Path, harm: str) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(ANA)
        for number in range(200):
            await one.say(session, f"plover {number}")
        assert len(await one.found("plover")) == 100
        database = tmp_path / DATABASE
        if harm == "removed":
            database.unlink()
        else:
            one.archive.mark(session.id)
            await one.archive.look(lambda index: index.purge())  # what is in the log would mend the file
            size = database.stat().st_size
            database.write_bytes(b"\x55" * size if harm == "overwritten" else b"")
        await one.say(session, "plover last")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if len(await one.found("last")) == 2 and one.archive.complete:
                        break
                except SearchFailed:
                    pass
                await asyncio.sleep(0.01)
        assert len(await one.found("plover")) == 100


@pytest.mark.parametrize("content", [b"not a database" * 100, b""])
async def test_what_is_no_index_at_the_start_is_built_anew(tmp_path: Path, content: bytes) -> None:
    async with kept(tmp_path) as one:
        await one.say(await one.store.active(ANA), "curlew")
    (tmp_path / DATABASE).write_bytes(content)
    async with kept(tmp_path) as one:
        await one.caught_up()
        assert len(await one.found("curlew")) == 2


async def test_another_tokenizer_means_another_index(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        await one.say(await one.store.active(ANA), "godwit curlew")
    other = Kept(tmp_path)
    other.archive = Archive(tmp_path, other.files, other.store, SystemClock(), lambda text: [w[:3] for w in cut(text)])
    await other.start()
    await other.caught_up()
    assert len(await other.archive.look(lambda index: index.find(["god"], None, 10, lambda: False))) == 2
    await other.stop()


async def test_a_transcript_that_was_edited_is_read_again(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(ANA)
        await one.say(session, "avocet before")
        await one.say(session, "something else")
        path = transcript_path(tmp_path, "main", session.id, 1)
        assert len(await one.found("avocet")) == 2
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b"avocet" not in line))
    (tmp_path / "sessions.json").unlink()
    async with kept(tmp_path) as one:
        await one.caught_up()
        assert await one.found("avocet") == []
        assert len(await one.found("something")) == 2


async def test_a_long_transcript_is_taken_in_piece_by_piece(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(ANA)
        texts = [f"stint {number} {'filler ' * 1500}" for number in range(3 * PIECE_BYTES // 10_000)]
        texts.append("stint huge " + "x" * 2 * PIECE_BYTES)
        await one.store.append(session, *(user(text) for text in texts))
        await one.say(session, "stint end")
        assert await one.archive.settled(20)
        assert await one.texts("stint") == {*texts, "stint end", "reply to stint end"}


async def test_a_search_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(ANA)
        await one.store.append(session, *(user("dunlin " * 50) for _ in range(2000)))
        await one.archive.settled(20)
        with pytest.raises(SearchTooBroad):
            await one.archive.look(lambda index: index.find(["dunlin"], Scope(prefixes=("agent",)), 10, lambda: True))


@pytest.mark.parametrize("seed", range(6))
async def test_the_index_holds_what_the_transcripts_hold_whatever_happens(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    keys = [ANA, BOB, GROUP]
    one = Kept(tmp_path)
    await one.start()
    for step in range(60):
        key = chance.choice(keys)
        session = await one.store.active(key)
        match chance.choice(
            ["say", "say", "say", "store", "retract", "compact", "reset", "delete", "restart", "kill", "look"]
        ):
            case "say":
                await one.say(session, f"word{step} {chance.choice(['ถั่วลิสง', 'příliš', '花生', 'plain'])}")
            case "store":
                await one.store.append(session, tool_result(f"c{step}", f"result{step}"))
            case "retract" if session.entries:
                gone = chance.sample(session.entries, min(3, len(session.entries)))
                await one.store.append(session, RetractedEntry(seqs=tuple(e.seq for e in gone)))
            case "compact" if len(session.entries) > 3:
                await compact(one, session, chance.randint(1, 3))
            case "reset":
                await one.store.end(session, "new")
            case "delete" if session.record.entries:
                await one.store.delete(session.id)
            case "restart" | "kill" as how:
                await one.stop(killed=how == "kill")
                one = Kept(tmp_path)
                await one.start()
            case _:
                await one.archive.settled(5)
    await one.caught_up()
    assert await one.archive.settled(10)
    assert await one.archive.look(rows) == await truth(one.store)
    await one.stop()


def rows(index: SearchIndex) -> list[tuple[str, int, str]]:
    held = index.messages(range(1, 1000))
    for said in held.values():
        assert said.id in index.find(cut(said.text), None, 1000, lambda: False), said
    return sorted((said.session, said.seq, said.text) for said in held.values())


async def truth(store: SessionStore) -> list[tuple[str, int, str]]:
    said: list[tuple[str, int, str]] = []
    for record in store.index.all():
        entries = await store.everything(await store.open(record.session))
        gone = {seq for e in entries if isinstance(e, RetractedEntry) for seq in e.seqs}
        said += [
            (record.session, e.seq, e.text)
            for e in entries
            if isinstance(e, UserEntry | AssistantEntry | ToolResultEntry) and e.seq not in gone
        ]
    return sorted(said)


async def test_a_session_that_becomes_another_persons_is_found_by_that_person_only(tmp_path: Path) -> None:
    async with kept(tmp_path) as one:
        session = await one.store.active(GROUP, owner="ana")
        await one.say(session, "the hive is green")
        await one.caught_up()
        assert await one.texts("hive", Scope(owners=("ana",)))
        await one.store.update(session, lambda record: dataclasses.replace(record, owner="bob"))
        await one.say(session, "the hive is blue")
        await one.caught_up()
        assert await one.texts("hive", Scope(owners=("ana",))) == set()
        assert len(await one.texts("hive", Scope(owners=("bob",)))) == 4


@pytest.mark.parametrize("steps", range(4))
async def test_who_is_cancelled_at_the_moment_the_wait_is_over_ends(steps: int) -> None:
    event, after = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        await _within(event, PATIENCE_S)
        await after.wait()

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0.01)
    event.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    waiting.cancel()
    ended, _ = await asyncio.wait([waiting], timeout=1)
    after.set()
    assert ended
