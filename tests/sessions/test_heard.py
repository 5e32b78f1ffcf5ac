"""What an index beside the archive is told: every message once, and everything that is gone again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from memory.text import cut
from sessions.entries import AssistantEntry, RetractedEntry, ToolResultEntry, UserEntry
from sessions.found import Origin, Place, Scope, SearchFailed
from sessions.heard import MOST_GONE, Feed, Gone, heard_after, heard_at, heard_before, keys_of, time_of_newest
from sessions.search import SearchIndex
from tests.plans import read_whole, statements

if TYPE_CHECKING:
    from pathlib import Path

    from sessions.entries import Entry

ANA = Origin("s1", "agent:main:web:direct:ana", "ana")
GROUP = Origin("s2", "agent:main:telegram:group:4", None)


def at(second: int) -> datetime:
    return datetime(2026, 5, 1, 12, 0, second, tzinfo=UTC)


def said(seq: int, text: str) -> Entry:
    return UserEntry(seq=seq, at=at(seq), text=text)


@pytest.fixture
def index(tmp_path: Path) -> SearchIndex:
    made, _ = SearchIndex.open(tmp_path / "search.db", cut)
    with made.changing() as change:
        change.add(ANA, [said(1, "one"), AssistantEntry(seq=2, at=at(2), text="two")], Place(1, 10))
        change.add(
            GROUP, [said(1, "three"), ToolResultEntry(seq=2, at=at(2), call_id="c", name="t", text="4")], Place(1, 9)
        )
    return made


def test_people_and_models_are_heard_once_and_in_order_and_tools_are_not(index: SearchIndex) -> None:
    number, gone = index.feed.since(0)
    rows = index.read(lambda tables: heard_after(tables, 0, number, 0, 10))
    assert [(one.said.text, one.key, one.owner) for one in rows] == [
        ("one", ANA.key, "ana"),
        ("two", ANA.key, "ana"),
        ("three", GROUP.key, None),
    ]
    assert gone == []
    assert index.read(lambda tables: heard_after(tables, number, number, 0, 10)) == []
    back = index.read(lambda tables: heard_before(tables, number + 1, 0, 2))
    assert [one.said.text for one in back] == ["three", "two"]
    late = index.read(lambda tables: heard_after(tables, 0, number, round(1000 * at(2).timestamp()), 10))
    assert [one.said.text for one in late] == ["two"]


def test_what_is_retracted_or_forgotten_is_told_with_its_chat(index: SearchIndex) -> None:
    before, _ = index.feed.since(0)
    with index.changing() as change:
        change.add(ANA, [RetractedEntry(seq=3, at=at(3), seqs=(2,))], Place(1, 20))
        change.forget(GROUP.session)
    number, gone = index.feed.since(before)
    assert [(one.session, one.seq, one.key) for one in gone] == [
        ("s1", 2, ANA.key),
        ("s2", 1, GROUP.key),
        ("s2", 2, GROUP.key),
    ]
    assert before < gone[0].number < gone[-1].number <= number
    assert index.feed.since(number) == (number, [])
    there = index.read(lambda tables: heard_at(tables, [("s1", 1), ("s1", 2), ("s2", 1), ("nobody", 1)]))
    assert {place: one.said.text for place, one in there.items()} == {("s1", 1): "one"}


def test_messages_are_found_without_reading_all_that_was_ever_said(index: SearchIndex, tmp_path: Path) -> None:
    number, _ = index.feed.since(0)
    with statements() as asked:
        index.read(lambda tables: heard_at(tables, [("s1", 1), ("s1", 2), ("s2", 1)]))
        index.read(lambda tables: heard_after(tables, 0, number, 0, 10))
        index.read(lambda tables: heard_before(tables, number, 0, 10))
    assert len(asked) >= 3
    assert read_whole(tmp_path / "search.db", asked, "said", "followed") == []


def test_what_came_to_nothing_is_not_told(index: SearchIndex) -> None:
    before = index.feed.since(0)

    def fail() -> None:
        with index.changing() as change:
            change.forget(GROUP.session)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert index.feed.since(0) == before


def test_who_is_too_far_behind_is_told_to_compare_everything() -> None:
    feed = Feed(0)
    feed.commit(MOST_GONE + 2, [Gone(number, "s", number, "k") for number in range(1, MOST_GONE + 2)])
    with pytest.raises(SearchFailed):
        feed.since(0)
    assert len(feed.since(1)[1]) == MOST_GONE


def test_a_scope_names_its_chats_and_holds_them(index: SearchIndex) -> None:
    for scope, keys in (
        (Scope(owners=("ana",)), [ANA.key]),
        (Scope(prefixes=("agent:main:telegram",)), [GROUP.key]),
        (Scope(prefixes=("agent:main:tele",)), []),
        (Scope(keys=("agent:main:x",), owners=("bob",)), ["agent:main:x"]),
    ):
        assert index.read(lambda tables, scope=scope: keys_of(tables, scope, 10)) == keys
        for origin in (ANA, GROUP):
            assert scope.holds(origin.key, origin.owner) == (origin.key in keys)
    assert index.read(lambda tables: keys_of(tables, Scope(prefixes=("agent:main",)), 1)) is None


def test_the_newest_are_counted_by_when_they_were_said(index: SearchIndex) -> None:
    assert index.read(lambda tables: time_of_newest(tables, 2)) == round(1000 * at(2).timestamp())
    assert index.read(lambda tables: time_of_newest(tables, 100)) == 0
