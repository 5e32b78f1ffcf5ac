"""What a helper model proposes, and what comes of it in a store."""

from __future__ import annotations

import dataclasses
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.clock import ManualClock
from gateway.learning import Learner
from gateway.ledger import UsageLedger
from gateway.models.base import Finished, ModelUnavailable, TextDelta
from gateway.models.policy import ModelPolicy, RolesPolicy
from gateway.models.pool import ModelPool
from memory.learn import Said
from memory.learning import Lesson, Mark
from memory.policy import LearnPolicy
from memory.records import Change, Draft, Filters, ListQuery, Source, TopicDraft, Viewer, user_pool
from tests.gateway.test_memory_tools import Opened
from tests.memory.leftovers import files_with_text
from tests.memory.opened import opened, person

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from gateway.models.base import ModelEvent, ModelRequest
    from memory.learning import LearnRun
    from memory.memory import Memories

ANA = person("ana")
POOL = user_pool("ana")
LEARNS = Viewer(user="ana", author="learning", origin="learning", conversation=True)
START = datetime(2026, 5, 4, 12, tzinfo=UTC)
SESSION = "01SESSION00000000000000000"

Reply = "str | dict[str, Any] | list[dict[str, Any]] | Callable[[dict[str, Any]], Any]"


class Helper:
    """Answers with what it was given: changes, a text, or what a function makes of the question."""

    name = model = "helper"
    window = None

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.asked: list[dict[str, Any]] = []
        self.prompts: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.prompts.append(request.prompt.messages[-1].text)
        question = orjson.loads(request.prompt.messages[0].text)
        self.asked.append(question)
        reply = self.replies.pop(0) if self.replies else []
        if callable(reply):
            reply = reply(question)
        if isinstance(reply, Exception):
            raise reply
        text = reply if isinstance(reply, str) else orjson.dumps({"changes": reply}).decode()
        yield TextDelta(text)
        yield Finished(text=text, calls=(), finish="stop", usage=None, model="helper")

    async def close(self) -> None:
        """Nothing is open."""


class Taught:
    """A store, a helper, and a person who says things."""

    def __init__(self, memories: Memories, clock: ManualClock, learner: Learner, helper: Helper) -> None:
        self.memories = memories
        self.clock = clock
        self.learner = learner
        self.helper = helper
        self.seq = 0

    def lesson(self, *texts: str, **more: Any) -> Lesson:
        said: list[Said] = []
        for text in texts:
            self.seq += 1
            who, _, words = text.partition(": ")
            known = who in ("user", "assistant")
            said.append(
                Said(seq=self.seq, who=who if known else "user", text=words if known else text, at=self.clock.now())  # pyright: ignore[reportArgumentType]
            )
        source = Source(origin="learning", session=SESSION, first_seq=said[0].seq, last_seq=said[-1].seq)
        given: dict[str, Any] = {"viewer": LEARNS, "pool": POOL, "most": 2} | more
        return Lesson(said=said, source=source, now=self.clock.now(), **given)

    async def says(self, text: str, *changes: Any, **more: Any) -> LearnRun:
        """One message, a minute later, and what the helper answers to it."""
        await self.clock.advance(60)
        self.helper.replies = [list(changes)]
        return await self.learner.learn(self.lesson(text, **more))

    async def texts(self, state: str = "active") -> list[str]:
        found, _ = await self.memories.page(ANA, Filters(), ListQuery(state=state, limit=100))  # pyright: ignore[reportArgumentType]
        return sorted(memory.text for memory in found)


@asynccontextmanager
async def taught(path: Path, *, helper: bool = True, policy: LearnPolicy | None = None) -> AsyncIterator[Taught]:
    clock, model = ManualClock(START), Helper()
    async with opened(path / "state.db", clock) as memories:
        pool = ModelPool(
            policies={"helper": ModelPolicy(provider="offline", model="helper")},
            roles=RolesPolicy(helper="helper") if helper else RolesPolicy(),
            agents={},
            environ={},
            monotonic=clock.monotonic,
            count=len,
            load_blob=lambda _: b"",
        )
        pool.put(model)
        ledger = UsageLedger(path / "ledger.db", clock, lambda *_: None)
        learner = Learner(Opened(path, memories), pool, ledger, clock, policy or LearnPolicy())
        yield Taught(memories, clock, learner, model)


def add(text: str, topic: str | None = "preferences", **more: Any) -> dict[str, Any]:
    return {"op": "add", "text": text, "topic": topic} | more


async def test_a_fact_is_kept_with_where_it_comes_from(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        run = await t.says("I drink oat milk in my coffee", add("Ana drinks oat milk in her coffee", importance=4))
        assert (run.state, len(run.created), run.refused) == ("done", 1, ())
        memory = await t.memories.load(ANA, run.created[0])
        assert memory.source == Source(origin="learning", session=SESSION, first_seq=1, last_seq=1, said_by="user")
        assert memory.importance == 4
        assert memory.valid_from == t.clock.now()
        assert (await t.memories.topic_names(ANA, [memory]))[memory.topic or ""] == "preferences"
        assert [r.id for r in await t.memories.store.learning.runs(ANA)] == [run.id]
        assert await t.memories.store.learning.runs(person("bob")) == []


async def test_the_same_lesson_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        said = t.lesson("I live in Prague", "I have moved, I live in Brno now")
        proposals = [add("Ana lives in Prague", "projects", **{"from": [1]})]
        t.helper.replies = [proposals]
        await t.learner.learn(said)
        prague = (await t.memories.page(ANA))[0][0]
        t.helper.replies = [[{"op": "update", "id": prague.id, "text": "Ana lives in Brno", "from": [2]}]]
        later = dataclasses.replace(
            said, said=[said.said[0], dataclasses.replace(said.said[1], at=START + timedelta(hours=1))]
        )
        await t.clock.advance(7200)
        assert (await t.learner.learn(later)).updated == (prague.id,)
        before = (await t.texts(), await t.texts("superseded"))
        assert before == (["Ana lives in Brno"], ["Ana lives in Prague"])
        t.helper.replies = [proposals, [{"op": "update", "id": prague.id, "text": "Ana lives in Prague", "from": [1]}]]
        for _ in range(2):
            run = await t.learner.learn(later)
            assert run.state == "nothing"
        assert before == (await t.texts(), await t.texts("superseded"))


async def test_a_bounded_topic_holds_one_memory_after_five_corrections(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        for number, place in enumerate(("Prague", "Brno", "Plzeň", "Olomouc", "Opava", "Liberec")):
            run = await t.says(f"I live in {place}", add(f"Ana lives in {place} and is a nurse.", "profile"), most=None)
            assert run.state == "done", (number, run)
            t.helper.replies = []
        assert await t.texts() == ["Ana lives in Liberec and is a nurse."]
        assert len(await t.texts("superseded")) == 5


async def test_an_unbounded_topic_gets_no_duplicates_by_corrections(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        first = await t.says("I take the tram to work", add("Ana takes the tram to work"))
        for means in ("bus", "train", "bike", "car", "ferry"):
            change = {"op": "update", "id": first.created[0], "text": f"Ana takes the {means} to work"}
            assert (await t.says(f"I take the {means} to work now", change)).state == "done"
        again = await t.says(
            "As I said, the ferry to work", add("Ana takes the ferry to work."), add("ANA takes the ferry to work")
        )
        assert (again.state, again.refused) == ("nothing", ("is known already", "is known already"))
        assert await t.texts() == ["Ana takes the ferry to work"]
        assert len(await t.texts("superseded")) == 5


async def test_one_step_that_fails_leaves_the_others(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        tea = (await t.says("I like tea", add("Ana likes tea"))).created[0]
        milk = (await t.says("I like milk", add("Ana likes milk"))).created[0]

        def meanwhile(_question: dict[str, Any]) -> list[dict[str, Any]]:
            return [
                {"op": "merge", "ids": [tea, milk], "text": "Ana likes tea and milk"},
                add("Ana likes long walks"),
            ]

        lesson = t.lesson("I like tea and milk and long walks")
        t.helper.replies = [meanwhile]
        run = await t.learner.learn(lesson)
        assert (run.updated, run.deleted) == ((tea,), (milk,))
        assert await t.texts() == ["Ana likes long walks", "Ana likes tea and milk"]
        await t.memories.undo(ANA, run.id)
        assert await t.texts() == ["Ana likes milk", "Ana likes tea"]


async def test_what_a_person_changes_while_the_helper_thinks_is_left_alone(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        tea = (await t.says("I like green tea", add("Ana likes green tea"))).created[0]
        original = t.memories.learn

        async def edited_first(*given: Any) -> LearnRun:
            await t.memories.update(ANA, tea, Change(text="Ana likes green tea, only in winter"))
            return await original(*given)

        t.memories.learn = edited_first
        change = {"op": "update", "id": tea, "text": "Ana likes black tea"}
        run = await t.says("I like black tea and crosswords", change, add("Ana likes crosswords"))
        assert run.refused == ("somebody has changed it meanwhile",)
        assert await t.texts() == ["Ana likes crosswords", "Ana likes green tea, only in winter"]


async def test_a_deleted_fact_does_not_come_back(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        for purged in (False, True):
            tea = (await t.memories.add(ANA, Draft(text="Ana likes tea", topic="preferences"))).memory
            await t.memories.delete(ANA, tea.id)
            if purged:
                await t.memories.purge(ANA, [tea.id])
            run = await t.says("I like tea", add("Ana likes tea."))
            assert (run.state, run.refused) == ("nothing", ("was deleted before",))
            assert await t.texts() == []


async def test_what_was_undone_is_not_done_again_for_earlier_words(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        home = (await t.says("I live in Prague", add("Ana lives in Prague"))).created[0]
        brno = {"op": "update", "id": home, "text": "Ana lives in Brno now"}
        earlier = t.lesson("I live in Brno now")
        await t.says("I live in Brno", brno | {"text": "Ana lives in Brno"})
        await t.clock.advance(60)
        await t.memories.undo_latest(ANA, home)
        t.helper.replies = [[brno]]
        assert (await t.learner.learn(earlier)).refused == ("was undone since it was said",)
        assert await t.texts() == ["Ana lives in Prague"]
        assert (await t.says("I live in Brno now", brno)).updated == (home,)


async def test_an_answer_in_prose_is_repaired_once_and_then_the_run_has_failed(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        t.helper.replies = ["I think so.", '```json\n{"changes": [{"op": "add", "text": "Ana likes tea"}]}\n``` Good?']
        assert (await t.learner.learn(t.lesson("I like tea"))).state == "done"
        assert t.helper.prompts[1].startswith("That was not the JSON object")
        before = Mark(session=SESSION, pool=POOL, through_seq=1)
        for failures in (1, 2, 3):
            t.helper.replies = ["Yes.", '{"changes": [']
            lesson = t.lesson("I like milk", before=before, mark=dataclasses.replace(before, through_seq=2, failures=0))
            run = await t.learner.learn(lesson)
            assert run.state == "failed"
            assert "could not be read" in (run.problem or "")
            before = await t.memories.store.learning.mark(SESSION, POOL)
            assert (before.through_seq, before.failures) == ((1, failures) if failures < 3 else (2, 0))
        assert await t.texts() == ["Ana likes tea"]
        assert [r.state for r in await t.memories.store.learning.runs(ANA)] == ["failed"] * 3 + ["done"]


async def test_an_outage_is_a_failed_run_and_leaves_the_watermark(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        t.helper.replies = [ModelUnavailable("The helper is away.")]
        before = Mark(session=SESSION, pool=POOL)
        run = await t.learner.learn(
            t.lesson("I like tea", before=before, mark=dataclasses.replace(before, through_seq=1))
        )
        assert (run.state, run.problem) == ("failed", "The helper is away.")
        assert await t.memories.store.learning.mark(SESSION, POOL) == before


async def test_without_a_helper_a_lesson_has_failed_and_says_so(tmp_path: Path) -> None:
    async with taught(tmp_path, helper=False) as t:
        assert t.learner.helper() is None
        run = await t.learner.learn(t.lesson("I like tea"))
        assert run.state == "failed"
        assert "roles.helper" in (run.problem or "")


async def test_secrets_reach_neither_the_helper_nor_the_store(tmp_path: Path) -> None:
    secret = "sk-" + "a1B2" * 8
    async with taught(tmp_path) as t:
        run = await t.says(f"My key for the shop is {secret}", add(f"Ana's key for the shop is {secret}"))
        assert secret not in str(t.helper.asked)
        assert run.redacted == 2
        assert secret not in str(await t.texts())
        assert files_with_text(tmp_path, secret) == []


async def test_topics_with_scopes_are_learnt_into_their_scope(tmp_path: Path) -> None:
    async with taught(tmp_path) as t:
        draft = TopicDraft(name="trip", description="The plan of a trip.", bounded=True, scope_properties=("trip",))
        topic = await t.memories.topics.add_topic(ANA, POOL, draft)
        for trip, place in (("1", "Rome"), ("2", "Oslo"), ("1", "Rome and Naples")):
            scope = {"properties": {"trip": trip, "other": "x"}, "topics": [topic]}
            run = await t.says(f"We go to {place}", add(f"Ana travels to {place}", "trip"), **scope)
            assert run.state == "done", run
        found, _ = await t.memories.page(ANA)
        assert {m.properties["trip"]: m.text for m in found} == {
            "1": "Ana travels to Rome and Naples",
            "2": "Ana travels to Oslo",
        }
        assert all(m.properties.keys() == {"trip"} for m in found)
        nowhere = await t.says("We go to Rome again", add("Ana travels to Rome", "trip"), topics=[topic])
        assert nowhere.state == "nothing"
        assert len(t.helper.asked) == 3


async def test_what_the_assistant_says_is_marked_and_what_it_may_repeat_from_memory_is_no_source(
    tmp_path: Path,
) -> None:
    async with taught(tmp_path) as t:
        t.helper.replies = [[add("The museum opens at noon", "reference", importance=9)]]
        run = await t.learner.learn(t.lesson("user: when can I come?", "assistant: The museum opens at noon."))
        memory = await t.memories.load(ANA, run.created[0])
        assert (memory.source.said_by, memory.importance) == ("assistant", 5)
        lesson = t.lesson("user: what do I like?", "assistant: You like rowing boats.")
        echo = [lesson.said[0], dataclasses.replace(lesson.said[1], echo=True)]
        t.helper.replies = [[add("Ana likes rowing boats")]]
        assert (await t.learner.learn(dataclasses.replace(lesson, said=echo))).state == "nothing"


@pytest.mark.parametrize("there", [[False, False], [True, False, False]])
async def test_what_is_gone_before_the_write_ends_is_not_learnt_and_its_run_is_not_kept(
    tmp_path: Path, there: list[bool]
) -> None:
    async with taught(tmp_path) as t:
        await t.says("I drink oat milk", add("Ana drinks oat milk"))
        mark = Mark(session=SESSION, pool=POOL, through_seq=2)
        answers = iter(there)
        run = await t.says("I play the cello", add("Ana plays the cello"), mark=mark, is_there=lambda: next(answers))
        assert (run.state, run.created) == ("nothing", ())
        assert await t.texts() == ["Ana drinks oat milk"]
        assert [one.session for one in await t.memories.store.learning.runs(ANA)] == [None]
        assert await t.memories.store.learning.marks() == {}
