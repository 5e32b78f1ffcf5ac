"""What every VectorIndex promises, and what Chroma's becomes when its files are deleted or damaged."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory.chroma import ChromaIndex
from memory.chroma_process import Breeder
from memory.embed import Fingerprint, HashEmbedder
from memory.index import (
    COLLECTIONS,
    IndexAway,
    IndexBroken,
    IndexNotOpen,
    ListIndex,
    Point,
    VectorIndex,
    collection_number,
    point_of,
)
from tests.memory.leftovers import files_with_vector
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memory.embed import Vectors

KINDS = ["list", "chroma"]
ONE = Fingerprint(provider="test", model="one", dimension=256)
TWO = Fingerprint(provider="test", model="two", dimension=256)
TEXTS = {
    "user:ana": ["the dog is called Rex", "the flat has two rooms", "green tea, no sugar"],
    "user:bob": ["the dog is called Bella", "the car is red"],
    "project:house": ["the roof is new"],
}


@pytest.fixture(params=KINDS)
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorIndex]:
    made = ListIndex() if request.param == "list" else ChromaIndex(tmp_path / "index")
    await made.open(ONE)
    yield made
    await made.close()


async def vectors_of(texts: list[str]) -> Vectors:
    return await HashEmbedder().embed_passages(texts)


async def fill(index: VectorIndex) -> dict[str, str]:
    """Puts TEXTS in; the text of each point's key."""
    told: dict[str, str] = {}
    for pool, texts in TEXTS.items():
        points = [point_of(f"{pool}/{at}", pool, text) for at, text in enumerate(texts)]
        await index.put(points, await vectors_of(texts))
        told |= {point.key: text for point, text in zip(points, texts, strict=True)}
    return told


async def found(index: VectorIndex, pools: list[str], text: str, limit: int = 10) -> list[str]:
    (vector,) = await vectors_of([text])
    return [near.point.key for near in await index.near(pools, vector, limit)]


async def test_the_nearest_comes_first_and_only_from_the_pools_asked_for(index: VectorIndex) -> None:
    told = await fill(index)
    keys = await found(index, ["user:ana"], "what is the dog called")
    assert next(told[key] for key in keys) == "the dog is called Rex"
    assert len(keys) == 3
    both = await found(index, ["user:bob", "user:ana"], "the dog is called", 2)
    assert {told[key] for key in both} == {"the dog is called Rex", "the dog is called Bella"}
    assert await found(index, ["user:nobody"], "dog") == []
    assert await found(index, [], "dog") == []


async def test_scores_are_cosines(index: VectorIndex) -> None:
    await fill(index)
    (vector,) = await vectors_of(["the roof is new"])
    (near,) = await index.near(["project:house"], vector, 1)
    assert near.score == pytest.approx(1, abs=1e-3)
    assert near.point.pool == "project:house"
    assert near.point.id == "project:house/0"


async def test_each_point_is_of_its_own_pool_also_where_pools_share_a_collection(index: VectorIndex) -> None:
    first = "user:ana"
    second, third = [
        pool
        for pool in (f"user:u{number}" for number in range(1000))
        if collection_number(pool) == collection_number(first)
    ][:2]
    points = [point_of("text", pool, "the dog is called Rex") for pool in (first, second, third)]
    await index.put(points, await vectors_of(["the dog is called Rex"] * 3))
    (vector,) = await vectors_of(["dog"])
    for pools in ([first], [second], [first, second], None):
        near = await index.near(pools, vector, 10)
        wanted = {point for point in points if pools is None or point.pool in pools}
        assert {one.point for one in near} == wanted


@pytest.mark.parametrize("reopened", [False, True])
async def test_large_and_small_pools_of_one_collection_each_give_their_nearest(tmp_path: Path, reopened: bool) -> None:
    index, exact = ChromaIndex(tmp_path / "index"), ListIndex()
    pools = [pool for pool in (f"user:u{number}" for number in range(1000)) if collection_number(pool) == 7][:4]
    for one in (index, exact):
        await one.open(ONE)
        # 16 points are all linked to each other; the graph of more is approximate, and now and then misses one
        for pool, size in zip(pools, (11, 4, 1, 0), strict=True):
            texts = [f"note {number} of {pool}" for number in range(size)]
            points = [point_of(f"{pool}/{at}", pool, text) for at, text in enumerate(texts)]
            await one.put(points, await vectors_of(texts) if texts else np.zeros((0, 256), np.float32))
            await one.remove(points[3:size:4])
    if reopened:
        await index.close()
        index = ChromaIndex(tmp_path / "index")
        await index.open(ONE)
    (vector,) = await vectors_of(["note 9"])
    for asked in ([pools[0]], [pools[1]], [pools[2]], [pools[3]], pools[:2], pools[1:], pools, None):
        for limit in (1, 3, 20):
            near, wanted = await index.near(asked, vector, limit), await exact.near(asked, vector, limit)
            assert [one.score for one in near] == pytest.approx([one.score for one in wanted], abs=1e-5)
            assert all(asked is None or one.point.pool in asked for one in near)
    await index.close()


async def test_a_point_put_twice_is_there_once_and_a_removed_one_is_gone(index: VectorIndex) -> None:
    told = await fill(index)
    await fill(index)
    assert await index.count() == len(told)
    assert (await index.points()).keys() == told.keys()
    gone = point_of("user:ana/0", "user:ana", "the dog is called Rex")
    await index.remove([gone, Point("never", "there", "user:ana")])
    assert gone.key not in await index.points()
    assert gone.key not in await found(index, ["user:ana"], "dog called Rex")
    assert await index.count() == len(told) - 1


async def test_a_changed_text_is_another_point(index: VectorIndex) -> None:
    await fill(index)
    old = point_of("user:ana/0", "user:ana", "the dog is called Rex")
    assert point_of("user:ana/0", "user:ana", "the dog is called Max").key != old.key
    assert point_of("user:ana/0", "user:bob", "the dog is called Rex").key != old.key


async def test_vectors_of_another_model_are_never_found_and_dropped_when_told(index: VectorIndex) -> None:
    told = await fill(index)
    await index.open(TWO)
    assert await index.count() == 0
    assert await found(index, ["user:ana"], "dog") == []
    await index.open(ONE)
    assert await index.count() == len(told)
    await index.open(TWO)
    await index.put([Point("x", "1", "user:ana")], await vectors_of(["dog"]))
    await index.drop_others()
    assert await index.count() == 1
    await index.open(ONE)
    assert await index.count() == 0


async def test_a_reset_index_is_empty_and_works(index: VectorIndex) -> None:
    told = await fill(index)
    await index.reset()
    assert await index.points() == {}
    await fill(index)
    assert await index.count() == len(told)


async def test_more_than_a_batch_goes_in_and_comes_out(index: VectorIndex) -> None:
    points = [Point(str(number), "v", "user:ana") for number in range(1200)]
    vectors = np.random.default_rng(1).standard_normal((1200, 256)).astype(np.float32)
    await index.put(points, vectors)
    assert (await index.points()) == {point.key: "user:ana" for point in points}
    await index.remove(points[:1100])
    assert await index.count() == 100


async def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    first = ChromaIndex(tmp_path / "index")
    await first.open(ONE)
    told = await fill(first)
    await first.close()
    second = ChromaIndex(tmp_path / "index")
    await second.open(ONE)
    assert (await second.points()).keys() == told.keys()
    await second.close()


@pytest.mark.parametrize("damage", ["deleted", "replaced", "overwritten", "truncated"])
async def test_deleted_or_damaged_files_are_an_error_and_a_reset_mends_it(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "index"
    index = ChromaIndex(folder)
    await index.open(ONE)
    told = await fill(index)
    _damage(folder, damage)
    if damage in ("deleted", "replaced"):
        with pytest.raises(IndexBroken):
            await found(index, ["user:ana"], "dog")
    else:
        await index.close()
        index = ChromaIndex(folder)
        with pytest.raises(IndexBroken):
            await index.open(ONE)
    await index.reset()
    await fill(index)
    assert (await index.points()).keys() == told.keys()
    assert len(await found(index, ["user:ana"], "dog")) == 3
    await index.close()
    again = ChromaIndex(folder)
    await again.open(ONE)
    assert await again.count() == len(told)
    await again.close()


def _damage(folder: Path, how: str) -> None:
    if how == "deleted":
        shutil.rmtree(folder)
    if how == "replaced":
        shutil.copytree(folder, folder.with_name("copy"))
        shutil.rmtree(folder)
        folder.with_name("copy").rename(folder)
    for file in folder.rglob("*"):
        if file.is_file() and how == "overwritten":
            file.write_bytes(os.urandom(file.stat().st_size))
        if file.is_file() and how == "truncated":
            os.truncate(file, 50)


async def test_an_index_that_killed_the_daemon_while_it_was_opened_begins_anew(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path / "index")
    await index.open(ONE)
    await fill(index)
    await index.close()
    (tmp_path / "index" / "opening").touch()
    again = ChromaIndex(tmp_path / "index")
    await again.open(ONE)
    assert await again.count() == 0
    await again.close()


async def test_no_text_and_no_pool_of_nobody_is_in_its_files(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path / "index")
    await index.open(ONE)
    await fill(index)
    await index.close()
    written = b"".join(file.read_bytes() for file in (tmp_path / "index").rglob("*") if file.is_file())
    assert b"user:ana" in written
    assert b"Rex" not in written
    assert b"roof" not in written


RANDOM = Fingerprint(provider="test", model="random", dimension=64)


def random_points(count: int) -> tuple[list[Point], Vectors]:
    rows = np.random.default_rng(7).standard_normal((count, 64)).astype(np.float32)
    return [Point(str(at), "v", "user:ana") for at in range(count)], rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("count", [30, 2500])  # Chroma writes vectors into another file after a thousand
async def test_no_byte_of_a_removed_vector_stays_after_a_wipe(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "index"
    index = ChromaIndex(folder)
    await index.open(RANDOM)
    points, rows = random_points(count)
    await index.put(points, rows)
    await index.near(["user:ana"], rows[0], 3)
    await index.remove(points[7:9])
    assert files_with_vector(folder, rows[7]), "Chroma keeps what was removed; else this test shows nothing"
    await index.wipe(["user:ana"])
    assert [files_with_vector(folder, row) for row in rows[7:9]] == [[], []]
    assert files_with_vector(folder, rows[6])
    left = {point.key: "user:ana" for point in (*points[:7], *points[9:])}
    assert await index.points() == left
    (near,) = await index.near(["user:ana"], rows[6], 1)
    assert near.point == points[6]
    await index.put(points[7:8], rows[7:8])
    await index.close()
    again = ChromaIndex(folder)
    await again.open(RANDOM)
    assert await again.points() == left | {points[7].key: "user:ana"}
    assert files_with_vector(folder, rows[8]) == []
    await again.close()


async def test_what_a_killed_daemon_had_removed_is_wiped_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    index = ChromaIndex(folder)
    await index.open(RANDOM)
    points, rows = random_points(20)
    await index.put(points, rows)
    await index.remove(points[:1])
    await index.close()
    again = ChromaIndex(folder)
    await again.open(RANDOM)
    await again.wipe(["user:somebody in another collection"])
    assert files_with_vector(folder, rows[0])
    await again.wipe(None)
    assert files_with_vector(folder, rows[0]) == []
    await again.close()


async def test_vectors_of_a_dropped_model_leave_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    index = ChromaIndex(folder)
    await index.open(RANDOM)
    points, rows = random_points(20)
    await index.put(points, rows)
    await index.open(ONE)
    await fill(index)
    await index.drop_others()
    await index.wipe(["user:ana"])
    assert files_with_vector(folder, rows[0]) == []
    await index.close()


@pytest.mark.parametrize("step", ["copy_some", "end_copy", "clear"])
async def test_a_wipe_that_was_cut_is_done_by_the_next(tmp_path: Path, step: str) -> None:
    class Cut(ChromaIndex):
        async def _ask(self, name: str, *values: Any) -> Any:
            if name == step:
                raise SystemExit
            return await super()._ask(name, *values)

    folder = tmp_path / "index"
    index = Cut(folder)
    await index.open(RANDOM)
    points, rows = random_points(20)
    await index.put(points, rows)
    await index.remove(points[:1])
    with pytest.raises(SystemExit):
        await index.wipe(None)
    await index.close()
    again = ChromaIndex(folder)
    await again.open(RANDOM)
    await again.drop_others()
    await again.wipe(None)
    assert await again.points() == {point.key: "user:ana" for point in points[1:]}
    assert files_with_vector(folder, rows[0]) == []
    await again.close()


async def test_a_process_of_chroma_that_is_killed_is_an_error_and_what_it_held_is_there_again(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path / "index")
    await index.open(ONE)
    told = await fill(index)
    assert index.pid is not None
    os.kill(index.pid, signal.SIGKILL)
    with pytest.raises(IndexNotOpen, match="has ended"):
        await index.count()
    with pytest.raises(IndexNotOpen, match="not open"):
        await found(index, ["user:ana"], "dog")
    await index.open(ONE)
    assert (await index.points()).keys() == told.keys()
    await index.close()


async def test_a_process_of_chroma_that_hangs_is_ended(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path / "index", operation_s=PATIENCE_S)
    await index.open(ONE)
    assert index.pid is not None
    os.kill(index.pid, signal.SIGSTOP)
    index._operation_s = 0.01
    with pytest.raises(IndexNotOpen, match="did not answer within"):
        await index.count()
    index._operation_s = PATIENCE_S
    await index.reset()
    await index.open(ONE)
    assert await index.count() == 0
    await index.close()


async def test_chroma_that_never_becomes_ready_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = Breeder()
    monkeypatch.setattr("memory.chroma_process._breeder", hangs)
    monkeypatch.setattr("memory.chroma_process.START_S", 0.01)
    index = ChromaIndex(tmp_path / "index")
    with pytest.raises(IndexAway, match="could not be started"):
        await index.open(ONE)
    monkeypatch.setattr("memory.chroma_process.START_S", PATIENCE_S)
    await index.reset()
    await index.open(ONE)
    assert await index.count() == 0
    await index.close()
    hangs.kill()


class Silent(Breeder):
    """What it forks stands still before it says a word, and outlives it."""

    def connect(self) -> Connection:
        ours, self.theirs = socket.socketpair()
        return Connection(ours.detach())


async def test_a_process_of_chroma_that_never_says_a_word_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Silent()
    monkeypatch.setattr("memory.chroma_process._breeder", silent)
    monkeypatch.setattr("memory.chroma_process.START_S", 0.01)
    index = ChromaIndex(tmp_path / "index")
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(IndexAway, match="could not be started"):
            await index.open(ONE)
        await index.close()
    silent.theirs.settimeout(PATIENCE_S)
    while silent.theirs.recv(1000):  # it ends when it wakes
        pass


async def test_a_chroma_that_cannot_be_loaded_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chromadb.py").write_text("raise ImportError('no such wheel')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lacks = Breeder()
    monkeypatch.setattr("memory.chroma_process._breeder", lacks)
    index = ChromaIndex(tmp_path / "index")
    for _ in range(2):
        with pytest.raises(IndexAway, match="ImportError: no such wheel"):
            await index.open(ONE)
    await index.close()
    lacks.kill()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_process_of_chroma_that_stands_still_holds_up_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.chroma.STOP_S", 0.05)
    index = ChromaIndex(tmp_path / "index")
    await index.open(ONE)
    assert index.pid is not None
    os.kill(index.pid, signal.SIGSTOP)
    asked = asyncio.create_task(index.count())
    await asyncio.sleep(0.05)
    asked.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await index.close()


OWNER = """
import asyncio, sys
from pathlib import Path
from memory.chroma import ChromaIndex
from memory.embed import Fingerprint, HashEmbedder
from memory.index import point_of

async def main():
    index = ChromaIndex(Path(sys.argv[1]))
    await index.open(Fingerprint(provider="test", model="one", dimension=256))
    await index.put([point_of("a", "user:ana", "bread")], await HashEmbedder().embed_passages(["bread"]))
    assert "chromadb" not in sys.modules, "its writes would hold up whoever is answered"
    print(index.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_chroma_is_in_a_process_of_its_own_which_ends_with_a_daemon_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert _runs(pid)
        owner.kill()
    await until(lambda: not _runs(pid))
    index = ChromaIndex(tmp_path)
    await index.open(ONE)
    assert await index.count() == 1
    await index.close()


async def test_two_indexes_on_one_server_or_folder_leave_each_other_alone(tmp_path: Path) -> None:
    ours, theirs = ChromaIndex(tmp_path / "index"), ChromaIndex(tmp_path / "index" / "said", prefix="sessiond-said")
    await ours.open(ONE)
    await theirs.open(ONE)
    told = await fill(ours)
    assert await theirs.count() == 0
    await theirs.drop_others()
    await theirs.reset()
    assert (await ours.points()).keys() == told.keys()
    await ours.close()
    await theirs.close()


async def test_everything_is_searched_where_no_pool_is_named(index: VectorIndex) -> None:
    told = await fill(index)
    (vector,) = await vectors_of(["the roof is new"])
    near = await index.near(None, vector, 100)
    assert {one.point.key for one in near} == told.keys()
    assert told[near[0].point.key] == "the roof is new"


async def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path / "index", "http://127.0.0.1:9")
    with pytest.raises(IndexBroken):
        await index.open(ONE)
    await index.close()


async def test_a_server_is_told_the_user_and_password_of_its_address(tmp_path: Path) -> None:
    told = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if not told.done():
            told.set_result(head)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    index = ChromaIndex(tmp_path / "index", f"http://ana:p%40ss@127.0.0.1:{port}")
    with pytest.raises(IndexBroken):
        await index.open(ONE)
    assert f"authorization: basic {b64encode(b'ana:p@ss').decode()}".lower() in told.result().lower()
    await index.close()
    server.close()


def test_pools_spread_over_all_collections() -> None:
    counts = [0] * COLLECTIONS
    for number in range(6400):
        counts[collection_number(f"user:{number}")] += 1
    assert min(counts) > 50
    assert max(counts) < 170


async def test_a_file_in_the_place_of_the_folder_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("x")
    index = ChromaIndex(tmp_path / "index")
    with pytest.raises(IndexAway, match=r"move .*index away"):
        await index.open(ONE)
    (tmp_path / "index").unlink()
    await index.open(ONE)
    assert await index.count() == 0
    await index.close()
