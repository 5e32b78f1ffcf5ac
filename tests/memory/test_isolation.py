"""Random operations of several people and projects: nobody reads another's memory, deleted ones never come back."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gateway.clock import ManualClock
from memory.errors import Forgotten, MemoryProblem
from memory.index import Near, point_of
from memory.records import Change, Draft, Filters, ListQuery, Viewer, parse_pool, project_pool
from tests.memory.opened import ROOT, opened, person

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from memory.memory import Memories
    from memory.records import Memory

PEOPLE = ("ana", "bob", "eva")
PROJECTS = ("shop", "house")
POOLS = [f"user:{name}" for name in PEOPLE] + [f"project:{name}" for name in PROJECTS]
WORDS = "tea shop house garden plum green"


class LyingIndex:
    """Proposes everything to everybody, under pools and texts that may be wrong."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def near(self, pools: Sequence[str], text: str, limit: int) -> list[Near]:
        with sqlite3.connect(self._path) as raw:
            rows = raw.execute("SELECT id, pool, text FROM memories").fetchall()
        honest = [Near(point_of(row[0], row[1], row[2]), 0.9) for row in rows]
        claimed = [Near(point_of(row[0], pool, row[2]), 0.8) for row in rows for pool in pools[:1]]
        return [*honest, *claimed, Near(point_of("nothing", "user:ana", "x"), 1.0)]


class Households(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "state.db"
        self.runner = asyncio.Runner()
        self.clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
        self._opening = opened(self.path, self.clock)
        self.memories: Memories = self.run(self._opening.__aenter__())
        self.memories.searcher.vectors = LyingIndex(self.path)
        self.members: dict[str, set[str]] = {name: set() for name in PROJECTS}
        self.said: dict[str, set[str]] = {}
        self.purged: dict[str, str] = {}
        self.operations: list[str] = []
        self.count = 0
        for name in PROJECTS:
            self.run(self.memories.topics.put_project(ROOT, name))

    def teardown(self) -> None:
        self.look(self.viewers())
        self.nobody_loads_what_is_not_theirs()
        self.the_past_knows_no_deleted_memory()
        self.run(self._opening.__aexit__(None, None, None))
        self.runner.close()
        self._folder.cleanup()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def tried(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What came of a write, or the refusal."""
        self.run(self.clock.advance(60))
        try:
            return self.run(work)
        except MemoryProblem as error:
            return error

    def text(self, words: str = WORDS) -> str:
        self.count += 1
        return f"{words} token{self.count}x"

    def rows(self) -> dict[str, dict[str, Any]]:
        with sqlite3.connect(self.path) as raw:
            raw.row_factory = sqlite3.Row
            return {row["id"]: dict(row) for row in raw.execute("SELECT * FROM memories")}

    def allowed(self, viewer: Viewer) -> set[str]:
        """By the rules of the spec, from our own list of members."""
        if viewer.user is None:
            return set()
        own = set() if viewer.delegated else {f"user:{viewer.user}"}
        joined = {f"project:{name}" for name, people in self.members.items() if viewer.user in people}
        if viewer.conversation:
            joined &= {f"project:{viewer.project}"}
        return own | joined

    def chosen(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.rows()) or ["none"]))

    def viewers(self) -> list[Viewer]:
        plain = [person(name) for name in (*PEOPLE, None)]
        chats = [
            dataclasses.replace(viewer, conversation=True, project=project)
            for viewer in plain
            for project in (None, "shop")
        ]
        return [*plain, *chats, person("ana", conversation=True, delegated=True, project="shop")]

    # --- what people do -------------------------------------------------------------------------------------------

    @rule(
        who=st.sampled_from(PEOPLE), pool=st.sampled_from(POOLS), topic=st.sampled_from([None, "profile", "decisions"])
    )
    def add(self, who: str, pool: str, topic: str | None) -> None:
        viewer, text = person(who), self.text()
        done = self.tried(self.memories.add(viewer, Draft(text=text, pool=parse_pool(pool), topic=topic)))
        assert isinstance(done, MemoryProblem) or pool in self.allowed(viewer)
        if not isinstance(done, MemoryProblem):
            self.said.setdefault(done.memory.id, set()).add(text)

    @rule(who=st.sampled_from(PEOPLE), data=st.data())
    def edit(self, who: str, data: st.DataObject) -> None:
        memory, text = self.chosen(data), self.text()
        self._changed(who, memory, self.tried(self.memories.update(person(who), memory, Change(text=text))), text)

    @rule(who=st.sampled_from(PEOPLE), data=st.data())
    def merge(self, who: str, data: st.DataObject) -> None:
        ids, text = [self.chosen(data), self.chosen(data)], self.text()
        self._changed(who, ids[0], self.tried(self.memories.merge(person(who), ids, text)), text)

    @rule(who=st.sampled_from(PEOPLE), data=st.data())
    def supersede(self, who: str, data: st.DataObject) -> None:
        former, text = self.chosen(data), self.text()
        pool = parse_pool(self.rows()[former]["pool"]) if former != "none" else None
        done = self.tried(self.memories.add(person(who), Draft(text=text, supersedes=former, pool=pool)))
        if not isinstance(done, MemoryProblem):
            assert self.rows()[former]["state"] == "superseded"
            self.said.setdefault(done.memory.id, set()).add(text)

    def _changed(self, who: str, memory: str, done: Any, text: str) -> None:
        if not isinstance(done, MemoryProblem):
            assert self.rows()[memory]["pool"] in self.allowed(person(who))
            self.said.setdefault(memory, set()).add(text)

    @rule(who=st.sampled_from(PEOPLE), data=st.data(), what=st.sampled_from(["delete", "restore"]))
    def trash(self, who: str, data: st.DataObject, what: str) -> None:
        memory = self.chosen(data)
        before = self.rows().get(memory)
        done = self.tried(getattr(self.memories, what)(person(who), memory))
        if before is not None and before["pool"] not in self.allowed(person(who)):
            assert isinstance(done, MemoryProblem)
            assert self.rows()[memory] == before

    @rule(who=st.sampled_from(PEOPLE), data=st.data())
    def undo(self, who: str, data: st.DataObject) -> None:
        with sqlite3.connect(self.path) as raw:
            known = [row[0] for row in raw.execute("SELECT DISTINCT operation FROM memory_audit ORDER BY operation")]
        if known:
            before = self.rows()
            self.tried(self.memories.undo(person(who), data.draw(st.sampled_from(known))))
            for memory, row in self.rows().items():
                if row["pool"] not in self.allowed(person(who)):
                    assert before.get(memory) == row

    @rule(who=st.sampled_from(PEOPLE), data=st.data())
    def purge(self, who: str, data: st.DataObject) -> None:
        memory, before = self.chosen(data), self.rows()
        done = self.tried(self.memories.purge(person(who), [memory]))
        if isinstance(done, MemoryProblem):
            return
        assert before[memory]["pool"] in self.allowed(person(who))
        gone = {key for key, row in before.items() if memory in (key, row["current"])}
        texts = {text for key in gone for text in {*self.said.pop(key, ()), before[key]["text"]}}
        tokens = {text.split()[-1] for text in texts if text.startswith(WORDS)}
        content = b"".join(file.read_bytes() for file in self.path.parent.iterdir())
        assert [token for token in tokens if token.encode() in content] == []
        self.purged |= {before[key]["text"]: before[key]["pool"] for key in gone}

    @rule(data=st.data(), origin=st.sampled_from(["import", "learning", "batch", "consolidation"]))
    def resurrect(self, data: st.DataObject, origin: Any) -> None:
        """No other writer brings back what was deleted for good, nor what is in the trash."""
        trashed = {row["text"]: row["pool"] for row in self.rows().values() if row["state"] == "trashed"}
        active = {(row["pool"], row["text"]) for row in self.rows().values() if row["state"] == "active"}
        gone = sorted((pool, text) for text, pool in {**self.purged, **trashed}.items() if (pool, text) not in active)
        if gone:
            pool, text = data.draw(st.sampled_from(gone))
            viewer = dataclasses.replace(ROOT, origin=origin)
            (done,) = self.run(self.memories.add_many(viewer, [Draft(text=text, pool=parse_pool(pool))]))
            assert isinstance(done, Forgotten)

    @rule(project=st.sampled_from(PROJECTS), people=st.sets(st.sampled_from(PEOPLE)))
    def share(self, project: str, people: set[str]) -> None:
        self.run(self.memories.topics.put_project(ROOT, project, with_members=sorted(people)))
        self.members[project] = people

    @rule(who=st.sampled_from(PEOPLE), data=st.data())
    def delete_topic(self, who: str, data: st.DataObject) -> None:
        topics = self.run(self.memories.topics.topics(person(who)))
        if topics:
            self.tried(self.memories.topics.delete_topic(person(who), data.draw(st.sampled_from(topics)).id))

    # --- what holds -----------------------------------------------------------------------------------------------

    @rule(number=st.integers(0, 10))
    def somebody_looks(self, number: int) -> None:
        viewers = self.viewers()
        self.look([viewers[number % len(viewers)]])

    def look(self, viewers: Sequence[Viewer]) -> None:
        """Everybody reads what is theirs, and no more."""
        rows = self.rows()
        active = {key: row for key, row in rows.items() if row["state"] == "active"}
        for viewer in viewers:
            pools = self.allowed(viewer)
            theirs = {key for key, row in active.items() if row["pool"] in pools}
            page = self.run(self.memories.page(viewer, query=ListQuery(limit=500)))[0]
            assert {memory.id for memory in page} == theirs
            assert {memory.text for memory in page} == {active[key]["text"] for key in theirs}
            assert {str(pool) for pool in self.run(self.memories.store.pools(viewer))} == pools
            confirmed = self.run(self.memories.store.confirm(list(rows), viewer))
            assert {memory.id for memory in confirmed} == theirs
            foreign = Filters(pools=tuple(parse_pool(pool) for pool in POOLS if pool not in pools))
            assert self.run(self.memories.page(viewer, foreign)) == ([], None)
            for mode in ("hybrid", "vector", "keyword", "fetch"):
                found = self.run(self._found(viewer, mode, Filters()))
                assert {memory.id for memory in found} <= theirs
                assert all(memory.state == "active" for memory in found)
                assert self.run(self._found(viewer, mode, foreign)) == []
            if theirs:
                assert {memory.id for memory in self.run(self._found(viewer, "keyword", Filters()))} == theirs

    async def _found(self, viewer: Viewer, mode: Any, filters: Filters) -> list[Memory]:
        findings = await self.memories.search(viewer, WORDS, mode=mode, limit=500, filters=filters)
        return [hit.memory for hit in findings.hits]

    def nobody_loads_what_is_not_theirs(self) -> None:
        for viewer in self.viewers()[:4]:
            for memory, row in self.rows().items():
                if row["pool"] not in self.allowed(viewer):
                    for read in (self.memories.load, self.memories.history):
                        assert isinstance(self._refused(read(viewer, memory)), MemoryProblem)

    def _refused(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.run(work)
        except MemoryProblem as error:
            return error

    @invariant()
    def a_bounded_place_holds_one_memory(self) -> None:
        places = [row["place"] for row in self.rows().values() if row["state"] == "active" and row["place"]]
        assert len(places) == len(set(places))

    def the_past_knows_no_deleted_memory(self) -> None:
        rows = self.rows()
        for name in PEOPLE:
            past = Filters(as_of=self.clock.now())
            for memory in self.run(self.memories.page(person(name), past, ListQuery(limit=500)))[0]:
                head = rows[memory.current or memory.id]
                assert head["state"] == "active"
                assert head["pool"] in self.allowed(person(name))


def test_people_and_projects_keep_to_themselves() -> None:
    run_state_machine_as_test(
        Households,
        settings=settings(
            max_examples=8,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking a life takes minutes and says little
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_pool_is_a_value_and_not_a_prefix() -> None:
    assert project_pool("a:b") == parse_pool("project:a:b")
    assert str(parse_pool("user:a")) != str(parse_pool("user:a b"))
