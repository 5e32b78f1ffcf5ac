"""The records: what a write leaves behind, what can be undone, what a purge removes, what the feed tells."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from sqlalchemy import event

from gateway.clock import ManualClock
from memory.errors import Forgotten, InvalidMemory, MemoryConflict, NotThere
from memory.fulltext import FullText
from memory.policy import MemoryPolicy
from memory.records import KEEP, Change, Draft, Filters, ListQuery, TopicChange, TopicDraft, Written, user_pool
from memory.removal import purge_rows
from memory.store import EXPORTS
from memory.text import cut
from tests.memory.leftovers import files_with_text
from tests.memory.opened import ROOT, exported, opened, person, taken_in
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from memory.memory import Memories
    from memory.records import Memory, Origin, Topic

ANA = person("ana")
BOB = person("bob")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 5, 1, 12, tzinfo=UTC))


@pytest.fixture
async def memories(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Memories]:
    async with opened(tmp_path / "state.db", clock) as memories:
        yield memories


async def added(memories: Memories, text: str, **more: object) -> Memory:
    return (await memories.add(ANA, Draft(text=text, **more))).memory  # pyright: ignore[reportArgumentType]


async def texts(memories: Memories, words: str, filters: Filters | None = None) -> list[str]:
    found = await memories.search(ANA, words, mode="keyword", filters=filters or Filters())
    return [hit.memory.text for hit in found.hits]


async def test_a_new_person_has_five_topics_and_one_that_was_deleted_stays_away(memories: Memories) -> None:
    topics = await memories.topics.topics(ANA)
    assert [t.name for t in topics] == ["decisions", "preferences", "profile", "projects", "reference"]
    assert [t.name for t in topics if t.bounded] == ["profile"]
    await memories.topics.delete_topic(ANA, topics[0].id)
    memories.topics._ready.clear()  # as after a restart
    assert len(await memories.topics.topics(ANA)) == 4


async def test_names_are_the_same_however_their_accents_are_written(memories: Memories) -> None:
    composed, apart = "Caf\u00e9", "CAFE\u0301"
    owner = user_pool("ana")
    topic = await memories.topics.add_topic(
        ANA, owner, TopicDraft(name=composed, description="Coffee.", scope_properties=("m\u011bsto",))
    )
    with pytest.raises(MemoryConflict, match="already"):
        await memories.topics.add_topic(ANA, owner, TopicDraft(name=apart, description="Tea."))
    other = await memories.topics.add_topic(ANA, owner, TopicDraft(name="Tea", description="Tea."))
    with pytest.raises(MemoryConflict, match="already"):
        await memories.topics.edit_topic(ANA, other.id, TopicChange(name=apart))
    assert await memories.topics.find(ANA, [apart], [owner]) == [topic]
    properties = {"me\u030csto": "Znojmo Cafe\u0301"}
    fact = await added(memories, "Ana drinks espresso", topic=apart, properties=properties)
    assert (fact.topic, fact.properties) == (topic.id, {"m\u011bsto": "Znojmo Caf\u00e9"})
    for spelt in (properties, fact.properties):
        assert await texts(memories, "espresso", Filters(properties=spelt)) == ["Ana drinks espresso"]
    with pytest.raises(InvalidMemory, match="twice"):
        await added(memories, "Ana drinks tea", properties={**properties, **fact.properties})


async def test_an_import_takes_a_topic_for_the_one_that_is_here_however_its_accents_are_written(
    memories: Memories,
) -> None:
    await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="Caf\u00e9", description="Coffee."))
    await added(memories, "Ana drinks espresso", topic="Caf\u00e9")
    lines = (await exported(memories, ANA)).replace("\u00e9", "e\u0301")
    assert "Cafe\u0301" in lines
    here = await memories.topics.add_topic(BOB, user_pool("bob"), TopicDraft(name="Caf\u00e9", description="Coffee."))
    assert (await taken_in(memories, BOB, lines)).topics == 0
    ((taken,), _) = await memories.page(BOB, Filters())
    assert taken.topic == here.id


async def test_what_a_deleted_topic_said_is_in_no_file(memories: Memories, tmp_path: Path) -> None:
    await memories.start()
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="allotment", description="rhubarb"))
    assert files_with_text(tmp_path, "rhubarb")
    await memories.topics.delete_topic(ANA, topic.id)
    assert files_with_text(tmp_path, "rhubarb") == files_with_text(tmp_path, "allotment") == []


async def test_texts_that_were_cut_in_another_way_are_found_once_they_are_cut_anew(
    memories: Memories, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not await memories.store.cut_anew()  # there is nothing yet
    monkeypatch.setattr("memory.store.CUT_AT_ONCE", 2)
    for number in range(5):
        await added(memories, f"idea {number}")
    gone = await added(memories, "idea of old")
    await memories.delete(ANA, gone.id)
    other_words = FullText(lambda text: [f"{word}x" for word in cut(text)])
    async with opened(tmp_path / "state.db", clock, fulltext=other_words) as later:
        assert await texts(later, "idea") == []
        assert await later.store.cut_anew()
        assert sorted(await texts(later, "idea")) == [f"idea {number}" for number in range(5)]
        assert not await later.store.cut_anew()
        await later.restore(ANA, gone.id)
        assert "idea of old" in await texts(later, "idea")


async def test_a_contradiction_supersedes_and_the_past_can_be_asked(memories: Memories, clock: ManualClock) -> None:
    first = await added(memories, "Ana lives in Prague")
    monday = clock.now()
    await clock.advance(60)
    second = await added(memories, "Ana lives in Brno", supersedes=first.id)
    assert (await memories.load(ANA, first.id)).state == "superseded"
    assert (await memories.load(ANA, first.id)).valid_to == second.valid_from
    assert second.supersedes == first.id
    assert await texts(memories, "lives") == ["Ana lives in Brno"]
    assert await texts(memories, "lives", Filters(as_of=monday)) == ["Ana lives in Prague"]
    await memories.delete(ANA, second.id)
    assert await texts(memories, "lives", Filters(as_of=monday)) == []


async def test_what_will_only_be_true_is_not_found_before_and_what_it_supersedes_holds_until_then(
    memories: Memories, clock: ManualClock
) -> None:
    moving = clock.now() + timedelta(days=10)
    office = await added(memories, "The office is in Prague", topic="reference")
    await clock.advance(1)
    brno = await added(memories, "The office is in Brno", topic="reference", supersedes=office.id, valid_from=moving)
    garden = await added(memories, "The office has a garden", topic="reference", valid_from=moving)
    for filters in (Filters(), Filters(recalled=True)):
        assert await texts(memories, "office", filters) == [office.text]
    fetched = await memories.search(ANA, "", mode="fetch")
    assert [hit.memory.text for hit in fetched.hits] == [office.text]
    assert set(await texts(memories, "office", Filters(as_of=moving))) == {brno.text, garden.text}
    assert {memory.text for memory in (await memories.page(ANA))[0]} == {brno.text, garden.text}
    await clock.advance(10 * 86_400)
    assert set(await texts(memories, "office")) == {brno.text, garden.text}


async def test_what_a_fact_supersedes_held_until_that_fact_did(memories: Memories) -> None:
    def year(number: int) -> datetime:
        return datetime(number, 1, 1, tzinfo=UTC)

    async def held(number: int) -> list[str]:
        return await texts(memories, "office", Filters(as_of=year(number)))

    first = await added(memories, "The office is in Plzen", valid_from=year(2020))
    second = await added(memories, "The office is in Brno", supersedes=first.id, valid_from=year(2022))
    past = [await held(number) for number in (2021, 2022, 2023)]
    assert past == [[first.text], [second.text], [second.text]]
    third = await added(memories, "The office is in Prague", supersedes=second.id, valid_from=year(2021))
    assert [await held(number) for number in (2020, 2021, 2023)] == [[first.text], [third.text], [third.text]]
    await memories.undo_latest(ANA, third.id)
    assert [await held(number) for number in (2021, 2022, 2023)] == past


async def planned_move(memories: Memories, clock: ManualClock) -> tuple[Memory, Memory]:
    """Where the office is, and where it will be; it was somewhere else before."""
    office = await added(memories, "The office is in Plzen", topic="reference")
    await clock.advance(1)
    await memories.update(ANA, office.id, Change(text="The office is in Prague"))
    moving = clock.now() + timedelta(days=10)
    await clock.advance(1)
    later = await added(memories, "The office is in Brno", topic="reference", supersedes=office.id, valid_from=moving)
    return office, later


@pytest.mark.parametrize("way", ["trash", "purge", "both"])
async def test_where_a_plan_is_deleted_the_present_stays(memories: Memories, clock: ManualClock, way: str) -> None:
    office, later = await planned_move(memories, clock)
    before = clock.now()
    await clock.advance(1)
    if way != "purge":
        await memories.delete(ANA, later.id)
    if way != "trash":
        await memories.purge(ANA, [later.id])
    for at in (0, 20):
        await clock.advance(at * 86_400)
        assert await texts(memories, "office", Filters(recalled=True)) == ["The office is in Prague"]
    assert (await memories.load(ANA, office.id)).state == "active"
    assert await texts(memories, "office", Filters(as_of=before)) == ["The office is in Prague"]
    assert await texts(memories, "office", Filters(as_of=before - timedelta(seconds=2))) == ["The office is in Plzen"]
    if way == "trash":
        (undone,) = [one for one in await memories.undo_latest(ANA, later.id) if one.id == later.id]
        assert undone.state == "active"
        assert await texts(memories, "office", Filters(recalled=True)) == ["The office is in Brno"]


@pytest.mark.parametrize("way", ["trash", "purge"])
async def test_a_plan_for_the_one_memory_of_a_topic_is_deleted_and_the_present_one_stays(
    memories: Memories, clock: ManualClock, way: str
) -> None:
    home = await added(memories, "Ana lives in Prague", topic="profile")
    moving = clock.now() + timedelta(days=10)
    await clock.advance(1)
    plan = await added(memories, "Ana lives in Brno", topic="profile", supersedes=home.id, valid_from=moving)
    await (memories.delete(ANA, plan.id) if way == "trash" else memories.purge(ANA, [plan.id]))
    back = await memories.load(ANA, home.id)
    assert (back.state, back.topic, back.place) == ("active", home.topic, home.place)


@pytest.mark.parametrize("way", ["trash", "purge"])
async def test_a_plan_is_deleted_also_where_the_topic_has_no_place_for_the_present_any_more(
    memories: Memories, clock: ManualClock, way: str
) -> None:
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="homes", description="Homes"))
    home = await added(memories, "Ana lives in Prague", topic="homes")
    moving = clock.now() + timedelta(days=10)
    await clock.advance(1)
    plan = await added(
        memories, "Ana lives in Brno", topic="homes", supersedes=home.id, valid_from=moving, properties={"year": "2027"}
    )
    await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=True, scope_properties=("year",)))
    await (memories.delete(ANA, plan.id) if way == "trash" else memories.purge(ANA, [plan.id]))
    back = await memories.load(ANA, home.id)
    assert (back.state, back.topic, back.place) == ("active", None, None)


async def test_a_plan_whose_words_are_corrected_stays_a_plan(memories: Memories, clock: ManualClock) -> None:
    _, later = await planned_move(memories, clock)
    await memories.update(ANA, later.id, Change(text="The office is in Brno, Dlouhá 5"))
    assert await texts(memories, "office") == ["The office is in Prague"]
    assert (await memories.load(ANA, later.id)).valid_from == later.valid_from
    await clock.advance(20 * 86_400)
    assert await texts(memories, "office") == ["The office is in Brno, Dlouhá 5"]


async def test_a_summary_that_will_only_be_true_leaves_the_present_one_until_then(
    memories: Memories, clock: ManualClock
) -> None:
    moving = clock.now() + timedelta(days=10)
    await added(memories, "Ana lives in Prague", topic="profile")
    await clock.advance(1)
    after = await added(memories, "Ana lives in Brno", topic="profile", valid_from=moving)
    assert await texts(memories, "lives", Filters(recalled=True)) == ["Ana lives in Prague"]
    await memories.delete(ANA, after.id)
    assert await texts(memories, "lives", Filters(recalled=True)) == []


async def test_a_clock_that_is_set_back_hides_nothing_that_was_written_before(
    memories: Memories, clock: ManualClock
) -> None:
    first = await added(memories, "Ana drinks tea")
    await clock.advance(60)
    await added(memories, "Ana drinks coffee", supersedes=first.id)
    clock.set(clock.now() - timedelta(seconds=90))
    assert await texts(memories, "drinks") == ["Ana drinks coffee"]


async def test_five_corrections_leave_one_current_fact_and_no_crowd(memories: Memories, clock: ManualClock) -> None:
    fact = await added(memories, "the release is in week 1")
    for week in range(2, 7):
        await clock.advance(1)
        await memories.update(ANA, fact.id, Change(text=f"the release is in week {week}"))
    hits = await memories.store.text_hits("release week", ANA, limit=1)
    assert [hit.id for hit in hits] == [fact.id]
    assert await texts(memories, "release week") == ["the release is in week 6"]


async def test_an_edit_that_read_an_older_revision_changes_nothing(memories: Memories) -> None:
    fact = await added(memories, "one")
    await memories.update(ANA, fact.id, Change(importance=8, revision=1))
    with pytest.raises(MemoryConflict, match="meanwhile"):
        await memories.update(ANA, fact.id, Change(text="two", revision=1))
    assert (await memories.load(ANA, fact.id)).text == "one"


async def test_a_merge_is_undone_as_a_whole_and_only_once(memories: Memories, clock: ManualClock) -> None:
    facts = [await added(memories, f"green plum number {n}", importance=n) for n in (3, 9, 5)]
    await clock.advance(60)
    merged = await memories.merge(ANA, [fact.id for fact in facts], "green plums")
    assert (merged.memory.id, merged.memory.importance) == (facts[0].id, 9)
    assert await texts(memories, "green") == ["green plums"]
    operation = (await memories.history(ANA, facts[0].id))[0].operation
    with pytest.raises(NotThere):
        await memories.undo(BOB, operation)
    await memories.undo(ANA, operation)
    assert set(await texts(memories, "green")) == {fact.text for fact in facts}
    with pytest.raises(MemoryConflict, match="undone already"):
        await memories.undo(ANA, operation)


async def test_undoing_again_and_again_goes_back_step_by_step_and_an_undo_is_undone(memories: Memories) -> None:
    fact = await added(memories, "one")
    await memories.update(ANA, fact.id, Change(text="two"))
    await memories.update(ANA, fact.id, Change(text="three", importance=9))
    await memories.delete(ANA, fact.id)
    second = (await memories.history(ANA, fact.id))[-2].operation

    async def now() -> tuple[str, str]:
        memory = await memories.load(ANA, fact.id)
        return memory.text, memory.state

    with pytest.raises(MemoryConflict, match="newer change first"):
        await memories.undo(ANA, second)
    await memories.undo_latest(ANA, fact.id)
    assert await now() == ("three", "active")
    await memories.undo_latest(ANA, fact.id)
    assert await now() == ("two", "active")
    assert await texts(memories, "one two three") == ["two"]
    forth = (await memories.history(ANA, fact.id))[0].operation
    await memories.undo(ANA, forth)
    assert (await now(), await texts(memories, "one two three")) == (("three", "active"), ["three"])
    with pytest.raises(MemoryConflict, match="newer change first"):
        await memories.undo(ANA, second)
    await memories.undo_latest(ANA, fact.id)
    await memories.undo(ANA, second)
    assert (await now(), await texts(memories, "one two three")) == (("one", "active"), ["one"])
    await memories.update(ANA, fact.id, Change(text="other"))
    await memories.undo_latest(ANA, fact.id)
    assert await now() == ("one", "active")
    await memories.undo_latest(ANA, fact.id)
    assert await now() == ("one", "trashed")
    with pytest.raises(MemoryConflict, match="All changes"):
        await memories.undo_latest(ANA, fact.id)
    with pytest.raises(NotThere):
        await memories.undo_latest(BOB, fact.id)
    versions, _ = await memories.page(ANA, query=ListQuery(state="superseded"))
    assert versions == []


async def test_undoing_what_belongs_to_another_is_answered_as_what_is_not_there(memories: Memories) -> None:
    fact = await added(memories, "Ana drinks tea")
    told: list[str] = []
    for memory_id in (fact.id, "nothing"):
        with pytest.raises(NotThere) as refused:
            await memories.undo_latest(BOB, memory_id)
        told.append(str(refused.value))
    assert told[0] == told[1]


async def test_what_was_changed_since_is_not_undone_over(memories: Memories) -> None:
    fact = await added(memories, "one")
    await memories.update(ANA, fact.id, Change(text="two"))
    operation = (await memories.history(ANA, fact.id))[0].operation
    await memories.update(ANA, fact.id, Change(text="three"))
    with pytest.raises(MemoryConflict, match="changed this memory since"):
        await memories.undo(ANA, operation)
    assert (await memories.load(ANA, fact.id)).text == "three"


async def test_a_purge_that_is_cut_before_the_files_are_wiped_is_finished_later(
    memories: Memories, tmp_path: Path
) -> None:
    fact = await added(memories, "the safe is in zanzibar")
    async with memories.store._operation(ANA) as operation:
        await purge_rows(operation, memories.store._fulltext, [fact])
    await memories.store.scrub()
    assert not [file.name for file in tmp_path.iterdir() if b"zanzibar" in file.read_bytes()]


async def test_a_former_version_can_be_deleted_for_good_alone(memories: Memories, tmp_path: Path) -> None:
    fact = await added(memories, "the safe is in zanzibar")
    changed = (await memories.update(ANA, fact.id, Change(text="the safe is at home"))).memory
    operation = (await memories.history(ANA, fact.id))[0].operation
    await memories.purge(ANA, [changed.supersedes or ""])
    assert not [file.name for file in tmp_path.iterdir() if b"zanzibar" in file.read_bytes()]
    assert (await memories.load(ANA, fact.id)).text == "the safe is at home"
    with pytest.raises(MemoryConflict, match="for good"):
        await memories.undo(ANA, operation)


async def test_deleted_facts_come_back_by_people_only(memories: Memories) -> None:
    fact = await added(memories, "Ana drinks tea")
    await memories.purge(ANA, [fact.id])
    learner = dataclasses.replace(ANA, origin="learning")
    with pytest.raises(Forgotten):
        await memories.add(learner, Draft(text="ana drinks TEA."))
    other = (await memories.add(learner, Draft(text="Ana drinks coffee"))).memory
    with pytest.raises(Forgotten):
        await memories.update(learner, other.id, Change(text="Ana drinks tea"))
    assert (await memories.add(ANA, Draft(text="Ana drinks tea"))).outcome == "added"
    assert (await memories.add(learner, Draft(text="Ana drinks tea"))).outcome == "unchanged"


async def test_a_former_wording_of_what_is_in_the_trash_comes_back_by_people_only(memories: Memories) -> None:
    fact = await added(memories, "Ana has an affair with Petr")
    await memories.update(ANA, fact.id, Change(text="Ana knows Petr from work"))
    await memories.delete(ANA, fact.id)
    for words in ("Ana has an affair with Petr", "Ana knows Petr from work"):
        with pytest.raises(Forgotten):
            await memories.add(person("ana", origin="learning"), Draft(text=words))
    assert (await added(memories, "Ana has an affair with Petr")).state == "active"


async def test_no_edit_and_no_restore_makes_the_same_memory_twice(memories: Memories) -> None:
    former = await added(memories, "Ana keeps an axolotl")
    await memories.delete(ANA, former.id)
    present = await added(memories, "Ana keeps an axolotl!")
    other = await added(memories, "Ana keeps a cat")
    with pytest.raises(MemoryConflict, match=present.id):
        await memories.restore(ANA, former.id)
    with pytest.raises(MemoryConflict, match=present.id):
        await memories.update(ANA, other.id, Change(text="ana keeps an AXOLOTL"))
    assert sorted(await texts(memories, "keeps")) == ["Ana keeps a cat", "Ana keeps an axolotl!"]
    await memories.update(ANA, present.id, Change(text="Ana keeps an axolotl"))


@pytest.mark.parametrize("name", ["tenant", "nájemce", 'a"b', "a\\b", "เมือง", "🙂", "a.b[0]$"])
async def test_memories_are_kept_apart_by_properties_of_any_name(memories: Memories, name: str) -> None:
    north = await added(memories, "The key hangs in the hall", properties={name: "sever"})
    await added(memories, "The key hangs in the kitchen", properties={name: "jih"})
    for mode in ("keyword", "fetch"):
        found = await memories.search(ANA, "key", filters=Filters(properties={name: "sever"}), mode=mode)
        assert [hit.memory.id for hit in found.hits] == [north.id]


async def test_secrets_taken_out_of_properties_are_told(memories: Memories) -> None:
    fact = await added(memories, "The door has a code", properties={"place": "hall"})
    written = await memories.update(ANA, fact.id, Change(properties={"password": "hunter2-Xk9"}))
    assert written.redacted == ("password",)
    assert "hunter2" not in str(written.memory.properties)


async def test_halves_of_letters_are_replaced_wherever_they_come_from(memories: Memories) -> None:
    half = "north\ud800"
    await added(memories, f"The key {half}", properties={"place": half})
    await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="keys", description=half, leave_out=half))
    lines = [{"format": "sessiond-memories", "version": 2}, {"type": "memory", "text": "b", "properties": {"p": half}}]
    await taken_in(memories, ANA, "\n".join(json.dumps(line) for line in lines))
    for memory in (await memories.page(ANA))[0]:
        orjson.dumps([memory.text, memory.properties])
    for topic in await memories.topics.topics(ANA):
        orjson.dumps([topic.name, topic.description, topic.leave_out])


async def test_a_bounded_topic_keeps_one_memory_for_each_scope(memories: Memories) -> None:
    draft = TopicDraft(
        name="setup", description="One summary for each place", bounded=True, scope_properties=("place",)
    )
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), draft)
    home = await added(memories, "home has a lamp", topic="setup", properties={"place": "home"})
    work = await added(memories, "work has a lamp", topic="setup", properties={"place": "work"})
    again = await memories.add(ANA, Draft(text="home is dark", topic="setup", properties={"place": "home"}))
    assert (again.outcome, again.memory.id) == ("updated", home.id)
    assert work.id != home.id
    with pytest.raises(InvalidMemory, match="needs place"):
        await added(memories, "nowhere", topic="setup")
    loose = await added(memories, "a third lamp", properties={"place": "home"})
    with pytest.raises(MemoryConflict, match="one memory already"):
        await memories.update(ANA, loose.id, Change(topic="setup"))
    with pytest.raises(MemoryConflict, match="more than one"):
        await memories.topics.edit_topic(ANA, topic.id, TopicChange(scope_properties=()))
    await memories.delete(ANA, home.id)
    await added(memories, "home is bright", topic="setup", properties={"place": "home"})
    with pytest.raises(MemoryConflict, match="another memory now"):
        await memories.restore(ANA, home.id)


async def test_an_undo_finds_the_place_in_a_topic_that_holds_one_memory_now(memories: Memories) -> None:
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="health", description="Health"))
    fact = await added(memories, "Ana is ill", topic="health")
    await memories.update(ANA, fact.id, Change(text="Ana is well"))
    operation = (await memories.history(ANA, fact.id))[0].operation
    await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=True))
    await memories.undo(ANA, operation)
    again = await memories.add(ANA, Draft(text="Ana has a cold", topic="health"))
    assert (again.outcome, again.memory.id) == ("updated", fact.id)


async def test_an_undo_is_refused_where_its_topic_has_no_place_for_it_any_more(memories: Memories) -> None:
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="health", description="Health"))
    facts = [await added(memories, text, topic="health") for text in ("Ana is ill", "Ana has a cold")]
    await memories.merge(ANA, [fact.id for fact in facts], "Ana is ill with a cold")
    merge = (await memories.history(ANA, facts[0].id))[0].operation
    await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=True))
    with pytest.raises(MemoryConflict, match="one memory only"):
        await memories.undo(ANA, merge)
    await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=False))
    assert len(await memories.undo(ANA, merge)) == 2
    moved = (await memories.update(ANA, facts[0].id, Change(topic=None))).memory
    away = (await memories.history(ANA, moved.id))[0].operation
    await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=True))
    with pytest.raises(MemoryConflict, match="another memory now"):
        await memories.undo(ANA, away)


async def test_a_topic_that_has_no_place_for_a_memory_takes_it_back_neither_from_the_trash_nor_by_an_undo(
    memories: Memories,
) -> None:
    draft = TopicDraft(name="health", description="Health")
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), draft)
    gone = [await added(memories, text, topic="health") for text in ("Ana is ill", "Ana has a cold")]
    kept = await added(memories, "Ana sleeps well", topic="health")
    for fact in gone:
        await memories.delete(ANA, fact.id)
    await memories.update(ANA, kept.id, Change(properties={"year": "2026"}))
    await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=True, scope_properties=("year",)))
    for fact in gone:
        with pytest.raises(MemoryConflict, match="for each year"):
            await memories.restore(ANA, fact.id)
    for fact in (*gone, kept):
        with pytest.raises(MemoryConflict, match="did not have"):
            await memories.undo_latest(ANA, fact.id)
    assert (await memories.load(ANA, kept.id)).properties == {"year": "2026"}
    await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=False))
    assert (await memories.restore(ANA, gone[0].id)).topic == topic.id
    for fact in (gone[1], kept):
        await memories.undo_latest(ANA, fact.id)
        back = await memories.load(ANA, fact.id)
        assert (back.state, back.topic, back.properties) == ("active", topic.id, {})


async def test_the_deletion_of_a_topic_is_not_undone_in_silence_and_older_changes_are(memories: Memories) -> None:
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="health", description="Health"))
    fact = await added(memories, "Ana is ill", topic="health")
    await memories.update(ANA, fact.id, Change(text="Ana is well"))
    edit = (await memories.history(ANA, fact.id))[0].operation
    await memories.topics.delete_topic(ANA, topic.id)
    gone = (await memories.history(ANA, fact.id))[0].operation
    with pytest.raises(MemoryConflict, match="topic was deleted"):
        await memories.undo(ANA, gone)
    await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="health", description="Health"))
    with pytest.raises(MemoryConflict, match="topic was deleted"):
        await memories.undo(ANA, gone)
    with pytest.raises(MemoryConflict, match="topic was deleted"):
        await memories.undo_latest(ANA, fact.id)
    await memories.undo(ANA, edit)
    back = await memories.load(ANA, fact.id)
    assert (back.text, back.topic, back.place) == ("Ana is ill", None, None)


async def test_a_move_out_of_a_topic_that_was_deleted_since_is_not_undone_into_nothing(memories: Memories) -> None:
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="health", description="Health"))
    fact = await added(memories, "Ana is ill", topic="health")
    moved = (await memories.update(ANA, fact.id, Change(topic="reference"))).memory
    await memories.topics.delete_topic(ANA, topic.id)
    with pytest.raises(MemoryConflict, match="topic was deleted"):
        await memories.undo_latest(ANA, fact.id)
    assert (await memories.load(ANA, fact.id)).topic == moved.topic is not None


async def test_twenty_writers_of_one_bounded_topic_leave_one_memory(memories: Memories) -> None:
    outcomes: list[Written] = await asyncio.gather(
        *(memories.add(ANA, Draft(text=f"Ana is {n}", topic="profile")) for n in range(20))
    )
    assert len({outcome.memory.id for outcome in outcomes}) == 1
    page, _ = await memories.page(ANA)
    assert len(page) == 1


async def test_recall_counts_once_a_day_and_changes_nothing_else(memories: Memories, clock: ManualClock) -> None:
    fact = await added(memories, "one")
    last = await memories.store.last_change()
    for _ in range(3):
        await memories.store.note_recalled(ANA, [fact.id])
        await memories.store.note_recalled(BOB, [fact.id])
    await clock.advance(86_400)
    await memories.store.note_recalled(ANA, [fact.id])
    after = await memories.load(ANA, fact.id)
    assert (after.recall_count, after.last_recalled_at) == (2, clock.now())
    assert (after.updated_at, after.revision) == (fact.updated_at, fact.revision)
    assert await memories.store.last_change() == last


async def test_the_feed_tells_of_every_memory_once_and_of_those_that_are_gone(memories: Memories) -> None:
    one, two = await added(memories, "one"), await added(memories, "two")
    seen = await memories.store.last_change()
    await memories.update(ANA, one.id, Change(text="uno"))
    await memories.update(ANA, one.id, Change(importance=9))
    await memories.purge(ANA, [two.id])
    feed = await memories.store.changes_since(seen)
    assert [change.number for change in feed] == sorted({change.number for change in feed})
    told = {change.id: change.memory for change in feed}
    assert told[two.id] is None
    assert told[one.id] is not None
    assert told[one.id].text == "uno"


async def test_a_list_is_read_in_pages_that_hold_each_memory_once(memories: Memories, clock: ManualClock) -> None:
    await memories.add_many(ANA, [Draft(text=f"fact {n}", importance=n % 10 + 1) for n in range(25)])
    for sort in ("updated", "created", "importance"):
        query = ListQuery(sort=sort, limit=7)
        found: list[Memory] = []
        while True:
            page, after = await memories.page(ANA, Filters(), query)
            found += page
            if after is None:
                break
            query = dataclasses.replace(query, after=after)
        assert len({memory.id for memory in found}) == len(found) == 25
    with pytest.raises(InvalidMemory, match="cursor"):
        await memories.page(ANA, Filters(), ListQuery(after="bm9uc2Vuc2U"))


async def test_a_list_is_narrowed_to_how_its_memories_came_about(memories: Memories) -> None:
    learnt = dataclasses.replace(ANA, origin="learning")
    await added(memories, "Ana drinks tea")
    await memories.add(learnt, Draft(text="Ana drinks coffee"))
    found: dict[Origin, list[str]] = {"person": ["Ana drinks tea"], "learning": ["Ana drinks coffee"], "import": []}
    for origin, expected in found.items():
        filters = Filters(origins=(origin,))
        page, _ = await memories.page(ANA, filters)
        assert [memory.text for memory in page] == expected
        assert await texts(memories, "drinks", filters) == expected


async def test_an_export_is_taken_over_once_and_says_where_it_is_broken(memories: Memories) -> None:
    await added(memories, "Ana drinks tea", topic="preferences", importance=7)
    await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="plants", description="Plants, one each"))
    await added(memories, "Ana has a fern", topic="plants")
    lines = await exported(memories, ANA)
    taken = await taken_in(memories, BOB, lines)
    assert (taken.added, taken.topics) == (2, 1)
    assert (await taken_in(memories, BOB, lines)).unchanged == 2
    page, _ = await memories.page(BOB)
    names = await memories.topic_names(BOB, page)
    assert {(m.text, names.get(m.topic or ""), m.importance) for m in page} == {
        ("Ana drinks tea", "preferences", 7),
        ("Ana has a fern", "plants", 5),
    }
    for line in ("{", "[]", '{"type":"memory"}', '{"type":"x"}', '{"type":"memory","text":"a","created_at":"soon"}'):
        with pytest.raises(InvalidMemory, match="line 2"):
            await taken_in(memories, BOB, '{"type":"memory","text":"never"}\n' + line)
    assert len((await memories.page(BOB))[0]) == 2


async def test_an_older_export_makes_nothing_current_that_was_corrected_since(memories: Memories) -> None:
    city = await added(memories, "Ana lives in Brno", topic="preferences")
    me = await added(memories, "Ana in January", topic="profile")
    before = await exported(memories, ANA)
    await memories.update(ANA, city.id, Change(text="Ana lives in Prague"))
    await memories.update(ANA, me.id, Change(text="Ana in May"))
    await memories.update(ANA, me.id, Change(text="Ana in June"))
    taken = await taken_in(memories, ANA, before)
    assert (taken.added, taken.updated, taken.unchanged) == (0, 0, 2)
    other = before.replace("Ana in January", "Ana in another house")
    assert (await taken_in(memories, ANA, other)).unchanged == 2
    page, _ = await memories.page(ANA)
    assert {memory.text for memory in page} == {"Ana lives in Prague", "Ana in June"}
    assert (await memories.add(ANA, Draft(text="Ana lives in Brno"))).outcome == "added", "a person may say so again"


async def test_what_was_true_before_is_history_however_late_it_comes(memories: Memories) -> None:
    async def said(year: int, text: str) -> Written:
        return await memories.add(ANA, Draft(text=text, topic="profile", valid_from=datetime(year, 1, 1, tzinfo=UTC)))

    newest = await said(2025, "Ana in 2025")
    first = await said(2010, "Ana in 2010")
    await said(2020, "Ana in 2020")
    assert (await said(2020, "Ana in 2020")).outcome == "unchanged"
    assert (first.outcome, first.memory.state, first.memory.current) == ("added", "superseded", newest.memory.id)
    assert (await memories.load(ANA, newest.memory.id)).text == "Ana in 2025"
    for year, text in ((2011, "Ana in 2010"), (2021, "Ana in 2020"), (2026, "Ana in 2025")):
        page, _ = await memories.page(ANA, Filters(as_of=datetime(year, 6, 1, tzinfo=UTC)))
        assert [memory.text for memory in page] == [text]
    operation = (await memories.history(ANA, first.memory.id))[0].operation
    await memories.undo(ANA, operation)
    assert (await memories.load(ANA, first.memory.id)).valid_to == datetime(2025, 1, 1, tzinfo=UTC)


async def test_nothing_ends_before_it_begins(memories: Memories, clock: ManualClock) -> None:
    old, later = datetime(2020, 1, 1, tzinfo=UTC), clock.now() + timedelta(days=9)
    fact = await added(memories, "Ana will live in Brno", valid_from=later)
    changed = (await memories.update(ANA, fact.id, Change(text="Ana lives in Prague", valid_from=old))).memory
    assert (await memories.load(ANA, changed.supersedes or "")).valid_to == later
    soon = await added(memories, "Ana will have a dog", valid_from=later)
    await added(memories, "Ana has a cat", supersedes=soon.id)
    assert (await memories.load(ANA, soon.id)).valid_to == later


async def test_who_has_left_a_project_may_still_change_a_topic_bound_to_it(memories: Memories) -> None:
    await memories.topics.put_project(ROOT, "shop", with_members=["ana"])
    draft = TopicDraft(name="orders", description="Orders.", project="shop")
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), draft)
    await memories.topics.put_project(ROOT, "shop", with_members=["bob"])
    renamed = await memories.topics.edit_topic(ANA, topic.id, TopicChange(name="old orders"))
    assert (renamed.name, renamed.project) == ("old orders", "shop")
    kept = await memories.topics.edit_topic(ANA, topic.id, TopicChange(description="What was ordered.", project="shop"))
    assert kept.project == "shop"
    await memories.topics.edit_topic(ANA, topic.id, TopicChange(project=None))
    with pytest.raises(NotThere, match="project 'shop'"):
        await memories.topics.edit_topic(ANA, topic.id, TopicChange(project="shop"))


async def test_topics_bound_to_a_project_and_memories_without_topic_are_not_recalled(memories: Memories) -> None:
    await memories.topics.put_project(ROOT, "shop", with_members=["ana"])
    bound = TopicDraft(name="shop facts", description="About the shop", project="shop")
    await memories.topics.add_topic(ANA, user_pool("ana"), bound)
    await added(memories, "tea in the shop", topic="shop facts")
    await added(memories, "tea at home", topic="preferences")
    await added(memories, "tea without a topic")
    chat = dataclasses.replace(ANA, conversation=True)

    async def recalled(project: str | None) -> set[str]:
        viewer = dataclasses.replace(chat, project=project)
        found = await memories.search(viewer, "tea", mode="keyword", filters=Filters(recalled=True))
        return {hit.memory.text for hit in found.hits}

    assert await recalled(None) == {"tea at home"}
    assert await recalled("shop") == {"tea at home", "tea in the shop"}


async def test_a_secret_stands_in_no_reason_and_in_no_name_of_a_property(memories: Memories, tmp_path: Path) -> None:
    key = "sk-proj-Abcd1234Efgh5678Ijkl9012Mnop3456"
    fact = await memories.add(ANA, Draft(text="Ana likes tea", properties={key: "v", "password": "hunter2"}))
    assert fact.redacted == ("password", "token")
    assert set(fact.memory.properties.values()) == {"v", "[password removed]"}
    said = dataclasses.replace(ANA, why=f"she gave the key {key}")
    await memories.update(said, fact.memory.id, Change(importance=7))
    assert (await memories.history(ANA, fact.memory.id))[0].why.startswith("she gave the key [")
    assert files_with_text(tmp_path, key) == []


EDGES = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]


@pytest.mark.parametrize("edge", EDGES)
async def test_a_time_that_is_none_in_another_zone_is_refused_with_its_field(memories: Memories, edge: str) -> None:
    at = datetime.fromisoformat(edge)
    for draft in (Draft(text="x", valid_from=at), Draft(text="x", created_at=at)):
        with pytest.raises(InvalidMemory, match=r"(valid_from|created_at): must be a time"):
            await memories.add(ANA, draft)
    with pytest.raises(InvalidMemory, match="as_of: must be a time"):
        await memories.page(ANA, Filters(as_of=at))
    fact = await added(memories, "y", valid_from=datetime(1850, 1, 1, tzinfo=UTC))
    assert (await taken_in(memories, BOB, await exported(memories, ANA))).added == 1
    with pytest.raises(InvalidMemory, match="valid_from"):
        await memories.update(ANA, fact.id, Change(text="z", valid_from=at))


async def test_secrets_are_kept_only_where_the_configuration_says_so(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path / "open.db", clock, MemoryPolicy(allow_secrets=True)) as memories:
        assert (await added(memories, "my password is hunter2")).text == "my password is hunter2"


@pytest.mark.parametrize("secret", ["ghp_abcdefghijklmnopqrstuvwxyz0123", "4111 1111 1111 1111.", "[code removed]"])
async def test_what_is_nothing_but_a_secret_is_refused_and_leaves_no_placeholder(
    memories: Memories, secret: str
) -> None:
    with pytest.raises(InvalidMemory, match="nothing but a secret, which is not kept; write what it is for"):
        await added(memories, secret)
    fact = await added(memories, "Ana has a key")
    with pytest.raises(InvalidMemory, match="nothing but a secret"):
        await memories.update(ANA, fact.id, Change(text=secret))
    other = await added(memories, "Ana has a door")
    with pytest.raises(InvalidMemory, match="nothing but a secret"):
        await memories.merge(ANA, [fact.id, other.id], secret, Change())
    assert {one.text for one in (await memories.page(ANA))[0]} == {"Ana has a key", "Ana has a door"}


@pytest.mark.parametrize("text", ["", " \n", "\0", "x" * 8001])
async def test_what_cannot_be_kept_is_refused_with_its_place(memories: Memories, text: str) -> None:
    with pytest.raises(InvalidMemory, match="text"):
        await added(memories, text)
    assert KEEP is Change().text


async def test_a_memory_keeps_the_id_it_is_known_by_elsewhere_and_is_taken_over_once(memories: Memories) -> None:
    taking = dataclasses.replace(person("ana"), origin="import")
    draft = Draft(id="01HZZZZZZZZZZZZZZZZZZZZZZ1", text="Ana prefers trains.")
    (first,) = await memories.add_many(taking, [draft])
    assert isinstance(first, Written)
    assert (first.outcome, first.memory.id) == ("added", draft.id)
    await memories.update(person("ana"), first.memory.id, Change(text="Ana prefers night trains."))
    (again,) = await memories.add_many(taking, [draft])
    assert isinstance(again, Written)
    assert (again.outcome, again.memory.text) == ("unchanged", "Ana prefers night trains.")
    other = dataclasses.replace(person("bob"), origin="import")
    (his,) = await memories.add_many(other, [draft])
    assert isinstance(his, Written)
    assert (his.outcome, his.memory.pool) == ("added", user_pool("bob"))
    assert his.memory.id != draft.id
    await memories.delete(person("ana"), first.memory.id)
    (gone,) = await memories.add_many(taking, [draft])
    assert isinstance(gone, Forgotten)
    await memories.purge(person("ana"), [first.memory.id])
    (never,) = await memories.add_many(taking, [dataclasses.replace(draft, text="Ana prefers night trains.")])
    assert isinstance(never, Forgotten)


class HeldFile(io.BytesIO):
    """A file whose writer waits until it may go on."""

    def __init__(self, going: set[HeldFile], go_on: threading.Event) -> None:
        super().__init__()
        self._going = going
        self._go_on = go_on

    def truncate(self, size: int | None = None, /) -> int:
        self._going.add(self)
        self._go_on.wait(5)
        return super().truncate(size)


async def test_exports_leave_threads_for_searches(memories: Memories) -> None:
    await added(memories, "Ana drinks tea")
    going: set[HeldFile] = set()
    go_on = threading.Event()
    files = [HeldFile(going, go_on) for _ in range(40)]
    exports = [asyncio.create_task(memories.export(ANA, file)) for file in files]
    try:
        await until(lambda: len(going) >= EXPORTS)
        for _ in range(3):
            assert await texts(memories, "tea") == ["Ana drinks tea"]
        assert len(going) == EXPORTS
    finally:
        go_on.set()
        await asyncio.gather(*exports)
    assert all(b"Ana drinks tea" in file.getvalue() for file in files)


@contextmanager
def executed(memories: Memories) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are executed meanwhile, each with its parameters: a list, where it is for many rows."""
    statements: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        statements.append((statement, parameters))

    engine = memories.store._records._engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def full_topic(memories: Memories, count: int, *properties: str) -> Topic:
    draft = TopicDraft(name="rooms", description="what is in a room", scope_properties=properties)
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), draft)
    drafts = [
        Draft(text=f"Room {number} is warm", topic=topic.id, properties=dict.fromkeys(properties, str(number)))
        for number in range(count)
    ]
    await memories.add_many(ANA, drafts)
    return topic


async def test_a_large_topic_is_deleted_page_by_page_and_as_one_change(
    memories: Memories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.topic_store.PAGE", 10)
    topic = await full_topic(memories, 35)
    gone = (await memories.page(ANA, Filters(topics=(topic.id,)), ListQuery(limit=1)))[0][0]
    await memories.delete(ANA, gone.id)
    with executed(memories) as statements:
        assert await memories.topics.delete_topic(ANA, topic.id) == 34
    written = [len(given) for statement, given in statements if statement.startswith("UPDATE memories")]
    assert written == [10, 10, 10, 5]
    assert await memories.store.count(ANA, Filters(no_topic=True)) == 34
    changes = {(await memories.history(ANA, one.id))[0].operation for one in (await memories.page(ANA))[0]}
    assert len(changes) == 1


async def test_a_large_topic_that_becomes_bounded_takes_few_statements(
    memories: Memories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.topic_store.PAGE", 10)
    topic = await full_topic(memories, 35, "room")
    with executed(memories) as statements:
        await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=True))
    assert sum(statement.startswith("UPDATE memories ") for statement, _ in statements) == 4
    found, _ = await memories.page(ANA, Filters(topics=(topic.id,)))
    assert len({memory.place for memory in found} - {None}) == 35
    with pytest.raises(MemoryConflict, match="more than one memory"):
        await memories.topics.edit_topic(ANA, topic.id, TopicChange(scope_properties=()))


async def test_others_have_their_turn_while_long_texts_are_cut(tmp_path: Path, clock: ManualClock) -> None:
    turns = 0
    cut_at: set[int] = set()

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def noting(text: str) -> list[str]:
        cut_at.add(turns)
        return cut(text)

    async with opened(tmp_path / "state.db", clock, fulltext=FullText(noting)) as memories:
        beside = asyncio.create_task(other())
        await memories.add_many(ANA, [Draft(text=f"Day {number}: " + "it rains " * 300) for number in range(10)])
        beside.cancel()
        assert len(cut_at) == 3
        assert len(await texts(memories, "rains")) == 10


async def test_one_revision_of_a_memory_is_read_without_all_the_others(memories: Memories) -> None:
    first = await added(memories, "Ana lives in Prague")
    for number in range(30):
        await memories.update(ANA, first.id, Change(text=f"Ana lives in street {number}"))
    with executed(memories) as statements:
        found = await memories.store.as_they_were(ANA, {(first.id, 1), (first.id, 4), (first.id, 99)})
    assert {place: memory.text for place, memory in found.items()} == {
        (first.id, 1): "Ana lives in Prague",
        (first.id, 4): "Ana lives in street 2",
    }
    async with memories.store._records.reading() as connection:
        read = [len((await connection.exec_driver_sql(*one)).all()) for one in statements]
    assert read == [2]
