"""Workspace files: found within seconds, gone within seconds, and never a file outside."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.chunk import Chunk
from memory.chunks import ChunkDatabase
from memory.embed import HashEmbedder
from memory.errors import InvalidMemory, NotThere
from memory.files import WorkspaceFiles
from memory.index import ListIndex
from memory.indexing import Indexer
from memory.policy import FilesPolicy, IndexPolicy, SearchPolicy
from memory.workspace import LINK, Scan, checked_path, read, scan
from tests.memory.leftovers import files_with_text
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAIN = "agent:main"
SEARCH = SearchPolicy()


class Shelf:
    """A running index of one agent's folder."""

    def __init__(self, folder: Path, policy: FilesPolicy) -> None:
        self.root = folder / "workspaces" / "main"
        self.database = folder / "index" / "files.db"
        self.woken = 0
        self.files = WorkspaceFiles(
            {"agent": folder / "workspaces"},
            ChunkDatabase(self.database),
            policy,
            count=lambda text: len(text.split()),
            sleep=asyncio.sleep,
            on_change=self._on_change,
        )

    def _on_change(self) -> None:
        self.woken += 1

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    async def find(self, words: str) -> list[str]:
        found = await self.files.find([MAIN], None, words, policy=SEARCH, limit=5)
        return [hit.found.item.where for hit in found.hits]

    async def until(self, words: str, wanted: list[str]) -> None:
        """Fails after three seconds."""
        for _ in range(60):
            if (found := await self.find(words)) == wanted:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{found} instead of {wanted}")


@asynccontextmanager
async def following(folder: Path, **policy: float) -> AsyncIterator[Shelf]:
    shelf = Shelf(folder, FilesPolicy(**policy))  # type: ignore[arg-type]
    task = asyncio.create_task(shelf.files.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await shelf.files.settled()
        yield shelf
    finally:
        task.cancel()
        await asyncio.wait([task])
        await shelf.files.close()


async def test_new_changed_renamed_and_deleted_files_are_found_or_gone_within_seconds(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("MEMORY.md", "# House\n\nThe boiler is in the cellar.\n")
        await shelf.until("boiler", ["MEMORY.md:1-3"])
        shelf.write("memory/garden/trees.md", "The cherry stands at the fence.\n")
        await shelf.until("cherry", ["memory/garden/trees.md:1-1"])
        shelf.write("memory/garden/trees.md", "The plum stands at the fence.\n")
        await shelf.until("plum", ["memory/garden/trees.md:1-1"])
        await shelf.until("cherry", [])
        (shelf.root / "memory/garden").rename(shelf.root / "memory/orchard")
        await shelf.until("plum", ["memory/orchard/trees.md:1-1"])
        (shelf.root / "memory/orchard/trees.md").unlink()
        await shelf.until("plum", [])
        new = shelf.root / "memory/.trees.md.swp"
        new.write_text("The walnut is old.\n", "utf-8")
        new.rename(shelf.root / "memory/orchard/trees.md")
        await shelf.until("walnut", ["memory/orchard/trees.md:1-1"])
        shutil.rmtree(shelf.root)
        await shelf.until("walnut", [])
        await shelf.until("boiler", [])


async def test_without_a_watcher_the_comparison_finds_it(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        shutil.rmtree(tmp_path / "workspaces")
        shelf.write("memory/a.md", "The boiler is in the cellar.")
        shelf.files.check()
        await shelf.until("boiler", ["memory/a.md:1-1"])


async def test_what_changed_while_the_daemon_was_down_is_taken_over_and_a_damaged_index_made_anew(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", "alpha")
        shelf.write("memory/b.md", "beta")
        await shelf.until("alpha", ["memory/a.md:1-1"])
    shelf.write("memory/a.md", "gamma")
    (shelf.root / "memory/b.md").unlink()
    async with following(tmp_path) as shelf:
        assert await shelf.find("gamma") == ["memory/a.md:1-1"]
        assert await shelf.find("alpha beta") == []
    shelf.database.write_bytes(b"no database" * 500)
    async with following(tmp_path) as shelf:
        assert await shelf.find("gamma") == ["memory/a.md:1-1"]


async def test_files_are_read_anew_when_texts_are_cut_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("memory.chunks.cut", str.split)
        async with following(tmp_path) as shelf:
            shelf.write("memory/a.md", "zebras 0042")
            await shelf.until("0042", ["memory/a.md:1-1"])
            assert await shelf.find("zebra") == []
    async with following(tmp_path) as shelf:
        assert await shelf.find("zebra") == ["memory/a.md:1-1"]


async def test_a_piece_that_stays_keeps_its_id_when_lines_are_put_before_it(tmp_path: Path) -> None:
    body = "\n\n".join(f"## Part {number}\n\n" + f"word{number} " * 300 for number in range(3))
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", body)
        await shelf.until("word2", ["memory/a.md:9-11"])
        before = await shelf.files.proposals([MAIN], "word2", 5)
        shelf.write("memory/a.md", f"## New\n\n{'word9 ' * 300}\n\n{body}")
        await shelf.until("word2", ["memory/a.md:13-15"])
        assert [hit.id for hit in await shelf.files.proposals([MAIN], "word2", 5)] == [hit.id for hit in before]


async def test_a_result_of_a_file_that_changed_since_says_so_and_one_of_a_file_that_is_gone_is_none(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", "alpha")
        await shelf.until("alpha", ["memory/a.md:1-1"])
        (hit,) = (await shelf.files.find([MAIN], None, "alpha", policy=SEARCH, limit=5)).hits
        assert await shelf.files.there([hit.found.item]) == {hit.found.id: True}
        shelf.write("memory/a.md", "changed")
        assert await shelf.files.there([hit.found.item]) == {hit.found.id: False}
        (shelf.root / "memory/a.md").unlink()
        assert await shelf.files.there([hit.found.item]) == {}
        assert await shelf.find("alpha") == []


async def test_files_that_cannot_be_indexed_are_reported(tmp_path: Path) -> None:
    async with following(tmp_path, max_bytes=100) as shelf:
        shelf.write("memory/long.md", "x" * 200)
        (shelf.root / "memory/binary.md").write_bytes(b"a\0b")
        shelf.write("memory/fine.md", "fine")
        await shelf.until("fine", ["memory/fine.md:1-1"])
        await shelf.files.settled()
        told = {path: why for _, path, why in (await shelf.files.status()).problems}
        assert told.keys() == {"memory/long.md", "memory/binary.md"}
        assert "at most 100" in told["memory/long.md"]


async def test_files_in_other_encodings_are_read_as_marked_and_what_is_lost_of_others_is_told(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", "fine")
        (shelf.root / "memory/marked.md").write_text("Včela žije v úlu", "utf-16")
        (shelf.root / "memory/unmarked.md").write_text("Královna v zahradě žije", "cp1250")
        await shelf.until("žije úlu", ["memory/marked.md:1-1"])
        await shelf.files.settled()
        ((_, path, why),) = (await shelf.files.status()).problems
        assert (path, why.split(";")[0]) == ("memory/unmarked.md", "3 places are no UTF-8, and stand as \ufffd")


async def test_what_is_left_out_of_a_folder_is_told_and_what_is_hidden_is_not_indexed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with following(tmp_path) as shelf:
        for path in ("memory/UP.MD", "memory/.git/x.md", "memory/.x.md", "memory/a\\b.md", "memory/x.txt"):
            shelf.write(path, "beehive")
        (shelf.root / "memory/link.md").symlink_to(elsewhere)
        (shelf.root.parent / "other").symlink_to(elsewhere)
        await shelf.until("beehive", ["memory/UP.MD:1-1"])
        await shelf.files.settled()
        told = {(shelf, path) for shelf, path, _ in (await shelf.files.status()).problems}
        assert told == {(MAIN, "memory/a\\b.md"), (MAIN, "memory/link.md"), ("agent:other", ".")}
        assert shelf.files.troubled == 3
        assert [path for path, _, _ in await shelf.files.listing(MAIN)] == [
            *("memory/UP.MD", "memory/a\\b.md", "memory/link.md")
        ]
        assert await shelf.files.paths(MAIN) == ["memory/UP.MD"]


async def test_names_that_are_no_utf_8_are_told_and_others_are_followed_on(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", "beehive")
        await shelf.until("beehive", ["memory/a.md:1-1"])
        notes = shelf.root / "memory"
        strange = [os.fsdecode(name) for name in (b"caf\xe9", b"p\xf8le", b"caf\xe9.md")]
        for folder in (shelf.root.parent / strange[0] / "memory", notes / strange[1]):
            folder.mkdir(parents=True)
            (folder / "x.md").write_text("beehive")
        (notes / strange[2]).write_text("beehive")
        await asyncio.sleep(0.5)  # the watcher stumbles
        shelf.write("memory/b.md", "orchard")
        await shelf.until("orchard", ["memory/b.md:1-1"])
        await shelf.files.settled()
        assert await shelf.find("beehive") == ["memory/a.md:1-1"]
        told = {(shelf, path) for shelf, path, _ in (await shelf.files.status()).problems}
        assert told == {("agent:caf?", "."), (MAIN, "memory/caf?.md"), (MAIN, "memory/p?le")}
        assert "a name is no UTF-8" in (shelf.files.problem or "")
        shutil.rmtree(notes / strange[1])
        shutil.rmtree(shelf.root.parent / strange[0])
        await until(lambda: shelf.files.problem is None)
        shelf.write("memory/c.md", "meadow")
        await shelf.until("meadow", ["memory/c.md:1-1"])


async def test_links_nobody_can_follow_hide_nothing_else(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        for number in range(5):
            shelf.write(f"memory/{number}.md", f"beehive{number}")
        (shelf.root / "memory" / "loop").symlink_to(shelf.root / "memory" / "loop")
        await shelf.files.settled()
        told = {(shelf, path): why for shelf, path, why in (await shelf.files.status()).problems}
        assert told == {(MAIN, "memory/loop"): LINK}
        assert await shelf.files.paths(MAIN) == [f"memory/{number}.md" for number in range(5)]
        assert await shelf.find("beehive4") == ["memory/4.md:1-1"]


def test_a_shelf_nobody_may_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    (tmp_path / "locked").mkdir()
    there = tmp_path / "locked" / "memory"
    monkeypatch.setattr(Path, "is_symlink", lambda self: refuse(self) if self == there else False)
    assert scan(tmp_path / "locked").left_out == {".": "The folder cannot be read: Permission denied."}


async def test_what_is_removed_leaves_every_file_of_the_index(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        for number in range(20):
            shelf.write(f"memory/{number}.md", f"common words number{number}\n\nsecretpart{number}x")
        await shelf.files.settled()
        (shelf.root / "memory/3.md").unlink()
        shelf.write("memory/4.md", "common words number4")
        await shelf.files.settled()
        for gone in ("secretpart3x", "secretpart4x"):
            await until(lambda gone=gone: not files_with_text(shelf.database.parent, gone))
        assert files_with_text(shelf.database.parent, "secretpart5x")
        assert await shelf.find("secretpart5x") == ["memory/5.md:1-3"]


async def test_what_a_kill_left_of_removed_texts_leaves_at_the_next_start(tmp_path: Path) -> None:
    database = ChunkDatabase(tmp_path / "index" / "files.db")
    database.put(MAIN, "memory/a.md", "stamp", [Chunk(text="secretpart", first_line=1, last_line=1, heading="")])
    database.remove(MAIN, ["memory/a.md"])
    assert files_with_text(tmp_path, "secretpart")
    shutil.copytree(tmp_path / "index", tmp_path / "next" / "index")
    database.close()
    async with following(tmp_path / "next"):
        await until(lambda: not files_with_text(tmp_path / "next", "secretpart"))


async def test_a_database_somebody_holds_is_waited_for_and_said_and_not_made_anew(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", "alpha")
        await shelf.until("alpha", ["memory/a.md:1-1"])
        number = shelf.database.stat().st_ino
        with closing(sqlite3.connect(shelf.database)) as other:
            other.execute("BEGIN IMMEDIATE")
            shelf.write("memory/b.md", "beta")
            await until(lambda: "locked" in (shelf.files.problem or ""))
            assert await shelf.find("alpha") == ["memory/a.md:1-1"]
            other.rollback()
        await shelf.files.settled()
        assert await shelf.find("beta") == ["memory/b.md:1-1"]
        assert shelf.files.problem is None
        assert shelf.database.stat().st_ino == number


async def test_a_database_that_somebody_holds_at_the_start_is_not_deleted(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", "alpha")
        await shelf.until("alpha", ["memory/a.md:1-1"])
    number = shelf.database.stat().st_ino
    with closing(sqlite3.connect(shelf.database)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        again = ChunkDatabase(shelf.database)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            again.latest()
    assert again.latest() == 1
    again.close()
    assert shelf.database.stat().st_ino == number


async def test_a_database_that_is_damaged_while_it_is_used_is_made_anew(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        for number in range(20):
            shelf.write(f"memory/{number}.md", f"alpha{number} " * 350)
        await shelf.files.settled()
        with closing(sqlite3.connect(shelf.database)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with shelf.database.open("r+b") as file:
            file.seek(4096)
            file.write(b"damage" * 20_000)
        shelf.write("memory/20.md", "alpha20")
        await until(lambda: shelf.files.problem)
        async with asyncio.timeout(PATIENCE_S):
            await shelf.files.settled()
        assert await shelf.find("alpha7") == ["memory/7.md:1-1"]
        assert await shelf.find("alpha20") == ["memory/20.md:1-1"]


async def test_pieces_have_vectors_too_and_other_shelves_are_not_searched(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", "The boiler is in the cellar.")
        await shelf.files.settled()
        indexer = Indexer(
            embedder=HashEmbedder(),
            index=ListIndex(),
            sources=[shelf.files],
            policy=IndexPolicy(),
            sleep=asyncio.sleep,
        )
        task = asyncio.create_task(indexer.run())
        await indexer.caught_up()
        shelf.write("memory/b.md", "The roof is red.")
        await shelf.files.settled()
        await indexer.caught_up()
        for shelves, wanted in (([MAIN], ["memory/b.md:1-1"]), (["agent:other"], [])):
            found = await shelf.files.find(shelves, indexer, "red roof", policy=SEARCH, limit=1, mode="vector")
            assert [hit.found.item.where for hit in found.hits] == wanted
        task.cancel()


async def test_the_prefix_is_the_beginning_of_memory_md_and_says_when_there_is_more(tmp_path: Path) -> None:
    async with following(tmp_path, prefix_chars=10) as shelf:
        assert await shelf.files.prefix(MAIN) is None
        shelf.write("MEMORY.md", "short\n")
        assert (await shelf.files.prefix(MAIN) or "").endswith("\nshort")
        shelf.write("MEMORY.md", "a much longer text")
        told = await shelf.files.prefix(MAIN) or ""
        assert told.endswith("\na much lon")
        assert "the first 10 of 18 characters" in told


async def test_lines_of_a_file_are_read_with_their_numbers(tmp_path: Path) -> None:
    async with following(tmp_path) as shelf:
        shelf.write("memory/a.md", "one\ntwo\nthree\n")
        assert await shelf.files.read(MAIN, "memory/a.md", 2, 3) == "memory/a.md, 3 lines\n2: two\n3: three"
        with pytest.raises(NotThere):
            await shelf.files.read(MAIN, "memory/b.md", 1, 9)


HOSTILE = [
    *("", ".", "..", "/etc/passwd", "../x.md", "memory/../../x.md", "memory//x.md", "memory/./x.md", "memory/x.txt"),
    *("memory/.git/x.md", "memory/.x.md", "memory.md"),
    *("MEMORY.md/x.md", "memory", "memory/", "other.md", "memory\\..\\x.md", "memory/a\0.md", "memory/" * 20 + "x.md"),
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_path_that_could_lead_elsewhere_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidMemory):
        read(tmp_path, path, max_bytes=100)


@given(st.text(max_size=40))
def test_no_checked_path_has_a_part_that_leads_up(path: str) -> None:
    try:
        parts = checked_path(path)
    except InvalidMemory:
        return
    assert all(part not in ("", ".", "..") and "\0" not in part for part in parts)
    assert parts == ("MEMORY.md",) or parts[0] == "memory"


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.md").write_text("secret", "utf-8")
    root = tmp_path / "main"
    (root / "memory").mkdir(parents=True)
    (root / "memory/link.md").symlink_to(outside / "x.md")
    (root / "memory/folder").symlink_to(outside)
    (root / "MEMORY.md").symlink_to(outside / "x.md")
    os.mkfifo(root / "memory/pipe.md")
    assert scan(root) == Scan(
        {}, dict.fromkeys(("MEMORY.md", "memory/link.md", "memory/folder"), LINK), [str(root / "memory")]
    )
    for path in ("memory/link.md", "memory/folder/x.md", "MEMORY.md", "memory/pipe.md"):
        with pytest.raises(NotThere):
            read(root, path, max_bytes=100)
