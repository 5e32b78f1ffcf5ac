"""Chroma's files, or its server, as one client sees them: 64 collections per model, by hash of the pool. Blocking."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import re
import shutil
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from memory.chroma_files import clear_files, fill_new_memory, load_numbers, save_numbers
from memory.index import IndexAway, IndexBroken, IndexNotOpen, by_collection
from memory.pool_keys import PoolKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from memory.embed import Vectors
    from memory.index import Point

PAGE = 1000
COPIED = 100
"""Points that are copied at once when a collection is written anew."""
GOOD_PART = 4
FURTHER = 2
DROPPED = -1
"""Stands among the numbers of collections for those that were dropped as a whole."""
Told = tuple[str, str, float]
"""Key, pool and cosine of a point: classes took a twentieth of a search on their way between processes."""
_DATABASE = "chroma.sqlite3"
_OPENING = "opening"
_LOCK = "lock"
_REMOVED = "removed"
_NEW = "-new"


class ChromaStore:
    """One client. `url` None: files under `folder`, which are opened by nobody else. Every method raises IndexBroken,
    and whatever damaged files make Chroma raise.

    Each rebuild begins in a new sub-folder: Chroma remembers, per path, that opening it once failed. `prefix` keeps
    several indexes apart on one server.

    Chroma leaves what was removed in its files. So a file `removed` lists the collections that have lost points, and
    these are written anew: `lossy`, then `begin_copy`, `copy_some`, `end_copy` for each, then `clear`.
    """

    def __init__(self, folder: Path, url: str | None, prefix: str) -> None:
        self._prefix = prefix
        self._folder = folder
        self._url = url
        self._client: Any = None
        self._collections: dict[int, Any] = {}
        self._held: dict[int, PoolKeys] = {}
        self._space = ""
        self._path: Path | None = None
        self._inode = 0
        self._used = 0
        self._removed: set[int] = set()
        self._lock: Any = None

    def open(self, space: str) -> None:
        if self._client is not None and self._space == space:
            self._check_there()
            return
        self._space = space
        self._collections, self._held = {}, {}
        if self._client is None:
            self._client = self._connect() if self._url is None else self._connect_server(self._url)
        for collection in self._client.list_collections():
            number = self._number_of(collection.name)
            if number is not None:
                self._collections[number] = self._client.get_collection(collection.name, embedding_function=None)
        self._try_all()

    def _connect(self) -> Any:
        """A daemon that died while it opened the index may have died of it: then the index begins anew."""
        import chromadb

        if self._folder.exists() and not self._folder.is_dir():
            raise IndexAway(f"A file stands where the folder of the vector index belongs: move {self._folder} away.")
        fill_new_memory()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        marker = self._folder / _OPENING
        if marker.exists():
            self._discard()
        marker.touch(mode=0o600)
        numbers = self._numbers()
        self._used = max([*numbers, self._used]) if numbers else self._used + 1
        self._path = self._folder / str(self._used)
        self._path.mkdir(mode=0o700, exist_ok=True)
        client = chromadb.PersistentClient(str(self._path), settings=_settings())
        self._inode = (self._path / _DATABASE).stat().st_ino
        self._removed = load_numbers(self._path / _REMOVED)
        return client

    def _take_lock(self) -> None:
        """Waits for the client of a daemon that was killed just now: two clients on the same files harm them."""
        if self._lock is not None:
            self._lock.close()
        self._lock = (self._folder / _LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _connect_server(self, url: str) -> Any:
        import chromadb

        parts = urlsplit(url)
        ssl = parts.scheme == "https"
        port = parts.port or (443 if ssl else 8000)
        user, signed_in, _ = parts.netloc.rpartition("@")
        signed = base64.b64encode(unquote(user).encode()).decode()
        headers = {"Authorization": f"Basic {signed}"} if signed_in else {}
        return chromadb.HttpClient(host=parts.hostname or "", port=port, ssl=ssl, headers=headers, settings=_settings())

    def _try_all(self) -> None:
        """Reads from every collection once, so that what is damaged shows now."""
        for collection in self._collections.values():
            some = collection.get(limit=1, include=["embeddings"])
            if some["ids"]:
                collection.query(query_embeddings=some["embeddings"], n_results=1, include=[])
        (self._folder / _OPENING).unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        return [int(entry.name) for entry in self._folder.iterdir() if entry.is_dir() and entry.name.isdecimal()]

    def _check_there(self) -> None:
        if self._client is None:
            raise IndexNotOpen("The vector index is not open; it is opened again.")
        if self._url is not None or self._path is None:
            return
        try:
            there = (self._path / _DATABASE).stat().st_ino == self._inode
        except OSError:
            there = False
        if not there:
            raise IndexBroken("The folder of the vector index was deleted or replaced; it is rebuilt.")

    def _collection(self, number: int) -> Any:
        """Made when a pool first needs it: a small installation has a few."""
        self._check_there()
        if number not in self._collections:
            self._collections[number] = self._make(self._name_of(number))
        return self._collections[number]

    def _make(self, name: str) -> Any:
        return self._client.get_or_create_collection(
            name, embedding_function=None, configuration={"hnsw": {"space": "cosine", "num_threads": 1}}
        )

    def put(self, number: int, points: list[Point], vectors: Vectors) -> None:
        self._collection(number).upsert(
            ids=[point.key for point in points],
            embeddings=vectors,
            metadatas=[{"pool": point.pool} for point in points],
        )
        if number in self._held:
            self._held[number].put(points)

    def remove(self, number: int, points: list[Point]) -> None:
        self._check_there()
        if number in self._collections:
            self._note_removed(number)
            self._collections[number].delete(ids=[point.key for point in points])
            if number in self._held:
                self._held[number].remove(points)

    def _note_removed(self, number: int) -> None:
        """Written before anything is removed, so that a kill in between leaves nothing behind for ever."""
        if number not in self._removed and self._path is not None:
            self._removed.add(number)
            save_numbers(self._path / _REMOVED, self._removed)

    def near(self, pools: Sequence[str] | None, vector: Vectors, limit: int) -> list[Told]:
        self._check_there()
        found: list[Told] = []
        wanted = dict.fromkeys(self._collections, None) if pools is None else by_collection(pools)
        for number, mine in wanted.items():
            if number in self._collections:
                near = self._near_here if self._url is None else self._near_there
                found += near(number, mine, vector, limit)
        return sorted(found, key=lambda told: -told[2])[:limit]

    def _near_there(self, number: int, pools: Sequence[str] | None, vector: Vectors, limit: int) -> list[Told]:
        """On a server, which others may use."""
        answer = self._collections[number].query(
            query_embeddings=[vector], n_results=limit, where=_where(pools), include=["distances", "metadatas"]
        )
        told = zip(answer["ids"][0], answer["metadatas"][0], answer["distances"][0], strict=True)
        return [(key, _pool_of(beside), 1.0 - distance) for key, beside, distance in told]

    def _near_here(self, number: int, pools: Sequence[str] | None, vector: Vectors, limit: int) -> list[Told]:
        """Where the pools have a good part of the collection, all of it is searched, a bit further; else their keys are
        named."""
        held = self._held_in(number)
        mine, everything = held.count(pools), held.count(None)
        if not mine:
            return []
        if mine * GOOD_PART >= everything:
            further = min(everything, limit if mine == everything else FURTHER * limit * everything // mine)
            found = self._asked(number, pools, vector, further, None)
            if len(found) >= min(limit, mine):
                return found[:limit]
        return self._asked(number, pools, vector, limit, held.of(pools))

    def _asked(
        self, number: int, pools: Sequence[str] | None, vector: Vectors, limit: int, keys: list[str] | None
    ) -> list[Told]:
        held = self._held_in(number)
        answer = self._collections[number].query(
            query_embeddings=[vector], n_results=limit, ids=keys, include=["distances"]
        )
        return [
            (key, pool, 1.0 - distance)
            for key, distance in zip(answer["ids"][0], answer["distances"][0], strict=True)
            if (pool := held.pool_of(key, pools)) is not None
        ]

    def _held_in(self, number: int) -> PoolKeys:
        if number not in self._held:
            self._held[number] = PoolKeys(_pages(self._collections[number]))
        return self._held[number]

    def points(self, number: int) -> dict[str, str]:
        self._check_there()
        if number not in self._collections:
            return {}
        points = dict(_pages(self._collections[number]))
        self._held[number] = PoolKeys(points.items())
        return points

    def count(self) -> int:
        self._check_there()
        return sum(collection.count() for collection in self._collections.values())

    def reset(self) -> None:
        if self._url is not None:
            self._client = self._client or self._connect_server(self._url)
            self._delete_collections(self._ours)
            return
        self.close()
        self._discard()
        self._client = self._connect()
        self._try_all()

    def drop_others(self) -> None:
        self._check_there()
        self._delete_collections(lambda name: self._ours(name) and self._number_of(name) is None)

    def _delete_collections(self, wanted: Callable[[str], bool]) -> None:
        for collection in self._client.list_collections():
            if wanted(collection.name):
                self._note_removed(DROPPED)
                self._client.delete_collection(collection.name)
        kept = {collection.name for collection in self._client.list_collections()}
        self._collections = {number: one for number, one in self._collections.items() if one.name in kept}
        self._held = {number: one for number, one in self._held.items() if number in self._collections}

    # --- what was removed leaves the files --------------------------------------------------------------------------

    def lossy(self) -> list[int]:
        """The collections that have lost points since they were written, and DROPPED where whole ones went."""
        self._check_there()
        return sorted(self._removed)

    def begin_copy(self, number: int) -> bool:
        """False: there is nothing to copy from."""
        self._check_there()
        if number not in self._collections:
            return False
        with contextlib.suppress(Exception):  # there is none, as a rule
            self._client.delete_collection(self._name_of(number) + _NEW)
        self._make(self._name_of(number) + _NEW)
        return True

    def copy_some(self, number: int, offset: int) -> bool:
        page = self._collections[number].get(limit=COPIED, offset=offset, include=["embeddings", "metadatas"])
        if page["ids"]:
            self._make(self._name_of(number) + _NEW).upsert(
                ids=page["ids"], embeddings=page["embeddings"], metadatas=page["metadatas"]
            )
        return len(page["ids"]) == COPIED

    def end_copy(self, number: int) -> None:
        """The copy takes the place of what it was made from."""
        copy = self._make(self._name_of(number) + _NEW)
        if copy.count() != self._collections[number].count():
            raise IndexBroken("A copy of the vector index is not whole; it is rebuilt.")
        self._client.delete_collection(self._name_of(number))
        copy.modify(name=self._name_of(number))
        self._collections[number] = self._client.get_collection(self._name_of(number), embedding_function=None)

    def clear(self, numbers: Sequence[int]) -> None:
        assert self._path is not None  # noqa: S101
        self._check_there()
        clear_files(self._path, self._path / _DATABASE)
        self._removed -= set(numbers)
        save_numbers(self._path / _REMOVED, self._removed)

    def _name_of(self, number: int) -> str:
        return f"{self._prefix}-{self._space}-{number:02}"

    def _ours(self, name: str) -> bool:
        return re.fullmatch(rf"{re.escape(self._prefix)}-[0-9a-f]{{16}}-\d\d({_NEW})?", name) is not None

    def _number_of(self, name: str) -> int | None:
        """Which collection of the model's 64 a name stands for; None for another's."""
        found = re.fullmatch(rf"{re.escape(self._prefix)}-{re.escape(self._space)}-(\d\d)", name)
        return int(found[1]) if found else None

    def _discard(self) -> None:
        numbers = self._numbers() if self._folder.exists() else []
        for number in numbers:
            shutil.rmtree(self._folder / str(number), ignore_errors=True)
        self._used = max([*numbers, self._used])

    def close(self) -> None:
        client, self._client = self._client, None
        self._collections, self._held = {}, {}
        if client is not None:
            with contextlib.suppress(Exception):  # of a damaged index: it is left behind anyway
                client.close()


def _where(pools: Sequence[str] | None) -> dict[str, Any] | None:
    if pools is None:
        return None
    return {"pool": pools[0]} if len(pools) == 1 else {"pool": {"$in": list(pools)}}


def _pool_of(told: Any) -> str:
    """What stands beside a point; nothing where there is nothing, so that it fits no pool."""
    try:
        return str(told["pool"])
    except (TypeError, KeyError):
        return ""


def _pages(collection: Any) -> Iterator[tuple[str, str]]:
    at = 0
    while True:
        page = collection.get(limit=PAGE, offset=at, include=["metadatas"])
        yield from ((key, _pool_of(told)) for key, told in zip(page["ids"], page["metadatas"], strict=True))
        if len(page["ids"]) < PAGE:
            return
        at += PAGE


def _settings() -> Any:
    """Nothing is reported to anybody, whatever the environment says."""
    from chromadb.config import Settings

    return Settings(
        anonymized_telemetry=False,
        chroma_otel_collection_endpoint="",
        chroma_otel_granularity=None,
        chroma_server_headers=None,
        is_persistent=False,
    )
