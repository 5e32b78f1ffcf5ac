"""What of the memories found is shown, and how."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.recall import Recalled, fit, query_of_messages, query_of_tools, render
from memory.records import text_hash

FOUND = st.lists(st.builds(Recalled, id=st.sampled_from("abcdefgh"), text=st.text("ab.", max_size=3)), max_size=12)


@given(FOUND, FOUND, st.integers(0, 8), st.integers(0, 100))
def test_what_is_shown_fits_is_new_and_is_there_once(
    found: list[Recalled], seen: list[Recalled], limit: int, room: int
) -> None:
    chosen = fit(found, seen=seen, limit=limit, max_bytes=room)
    assert len(chosen) <= limit
    assert sum(one.size_bytes for one in chosen) <= room
    for same in (lambda one: one.id, lambda one: text_hash(one.text)):
        assert len({same(one) for one in chosen}) == len(chosen)
        assert not {same(one) for one in chosen} & {same(one) for one in seen}
    assert [found.index(one) for one in chosen] == sorted(found.index(one) for one in chosen)


@given(st.text())
def test_nothing_in_a_memory_ends_the_string_it_stands_in(text: str) -> None:
    block = render([Recalled(id="a", text=text, topic="home", at=datetime(2026, 3, 1, tzinfo=UTC))])
    assert block is not None
    _, _, data = block.partition("\n")
    assert json.loads(json.loads(data)) == [{"id": "a", "topic": "home", "date": "2026-03-01", "text": text}]
    assert "\n" not in data


def test_a_piece_of_a_file_says_where_it_stands_and_that_it_is_stale() -> None:
    block = render([Recalled(id="f1", kind="file", text="x", where="MEMORY.md:3-5", stale=True)])
    assert block is not None
    assert "MEMORY.md:3-5" in block
    assert "has changed since" in block
    assert render([]) is None


@pytest.mark.parametrize("letter", ["a", "č", "ก", "𝄞"])
def test_a_memory_of_any_length_and_script_has_its_beginning_shown(letter: str) -> None:
    long = Recalled(id="long", text=letter * 100_000)
    assert fit([long], seen=(), limit=10, max_bytes=20_000) == [long]
    (told,) = json.loads(json.loads((render([long]) or "").partition("\n")[2]))
    assert letter * 100_000 != told["text"] == letter * len(told["text"])
    assert 16_000 - 4 < len(told["text"].encode()) <= long.size_bytes == 16_000
    assert told["note"] == "only its beginning is shown here"


def test_a_memory_that_has_room_is_shown_whole() -> None:
    whole = Recalled(id="whole", text="ก" * 5_333)
    (told,) = json.loads(json.loads((render([whole]) or "").partition("\n")[2]))
    assert told == {"id": "whole", "text": whole.text}


def test_queries_are_the_words_of_people_and_tools_and_have_a_limit() -> None:
    assert query_of_messages(["one", " ", "two"]) == "one\ntwo"
    assert query_of_messages(["x" * 9000 + " the question?"]).endswith("the question?")
    assert query_of_tools([("read", '{"path": "roof.md", "line": 3}')], ["no such file"]) == (
        "read\nroof.md\n3\nno such file"
    )
    assert query_of_tools([("read", "{broken"), ("x", "[1]")], []) == "read\n{broken\nx\n[1]"
    assert len(query_of_tools([("x", '{"a": "' + "y" * 9000 + '"}')], ["z" * 9000] * 9)) <= 2000
