"""Which memories a request of Engram's clients means, and what a write is made into."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.problems import Problem
from gateway.surfaces.engram_intake import PART_CHARACTERS, PIECE_CHARACTERS, as_given, pieces
from gateway.surfaces.engram_runs import Spoken
from gateway.surfaces.engram_scope import (
    ScopedTopic,
    build_project,
    known_topics,
    own_id,
    own_ids,
    public_id,
    wanted_parts,
)
from memory.text import cut

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

AT = datetime(2026, 5, 4, tzinfo=UTC)
NAMES = ("a", "b", "c")
PROPERTIES = ("x", "y")
TOPICS = st.lists(
    st.builds(
        lambda name, scoped: ScopedTopic(name=name, description=name, scope_properties=tuple(sorted(scoped))),
        st.sampled_from(NAMES),
        st.sets(st.sampled_from(PROPERTIES)),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda topic: topic.name,
)
VALUES = st.dictionaries(st.sampled_from(PROPERTIES), st.sampled_from(["1", "2"]))
SELECTORS = st.none() | st.lists(
    st.tuples(
        st.sampled_from((*NAMES, "unknown")),
        st.dictionaries(st.sampled_from((*PROPERTIES, "z")), st.none() | st.sampled_from(["1", "2"])),
    ),
    max_size=3,
)


@given(TOPICS, SELECTORS, VALUES)
def test_a_search_never_means_more_than_it_says(
    topics: list[ScopedTopic], selectors: list[tuple[str, Mapping[str, str | None]]] | None, properties: dict[str, str]
) -> None:
    known = {topic.name: topic for topic in topics}
    try:
        parts = wanted_parts(known, selectors, properties)
    except Problem:
        return
    named = set(known) if selectors is None else {name for name, _ in selectors}
    assert {topic.name for part in parts for topic in part.topics} == named <= set(known)
    own = dict(selectors or ())
    for part in parts:
        for topic in part.topics:
            expected = {
                **{n: v for n, v in properties.items() if n in topic.scope_properties},
                **own.get(topic.name, {}),
            }
            assert dict(part.properties) == {n: v for n, v in expected.items() if v is not None}
    scopes = {name for name in named for name in known[name].scope_properties}
    assert set(properties) <= scopes


@given(st.uuids())
def test_an_id_of_engram_is_the_same_number_here(value: uuid.UUID) -> None:
    own = own_id("shop", str(value))
    assert public_id(own) == str(value)
    assert own in own_ids(str(value))
    assert own_id("shop", "mem_1") != own_id("bank", "mem_1")


def test_topics_of_two_groups_may_have_one_name() -> None:
    topics = [ScopedTopic(name="notes", description="x", group=group) for group in ("default", "support")]
    project = build_project("shop", topics)
    assert project.groups == ["default", "support"]
    assert project.shown("notes") == ("notes", "default")
    assert project.shown("support/notes") == ("notes", "support")
    assert [topic.group for topic in known_topics(project, "support", ()).values()] == ["support"]


WORDS = st.lists(st.text(st.sampled_from("abcé "), min_size=1, max_size=30), max_size=2000)


@given(st.lists(WORDS, max_size=4))
def test_all_of_what_was_said_is_shown_in_order_and_in_pieces_that_can_be_read(texts: list[list[str]]) -> None:
    said = [Spoken("user", " ".join(words), AT) for words in texts]
    shown = pieces(said)
    together = "".join(one.text for piece in shown for one in piece)
    assert "".join(together.split()) == "".join("".join(one.text for one in said).split())
    for piece in shown:
        assert [one.seq for one in piece] == list(range(1, len(piece) + 1))
        assert all(0 < len(one.text) <= PART_CHARACTERS for one in piece)
        assert sum(len(one.text) for one in piece) <= PIECE_CHARACTERS


def test_without_a_helper_a_text_goes_where_most_of_its_words_are() -> None:
    known = {
        name: ScopedTopic(name=name, description=about, bounded=name == "summary")
        for name, about in [
            ("summary", "All about trains."),
            ("food", "What people eat."),
            ("travel", "Trains and planes people take."),
        ]
    }
    said = [Spoken("user", "I take trains", AT), Spoken("assistant", "Good.", AT), Spoken("user", "Hm", AT)]
    assert [(topic.name, one.text) for topic, one in as_given(said, known, cut)] == [
        ("travel", "I take trains"),
        ("food", "Hm"),
    ]
    with pytest.raises(Problem, match=r"roles\.helper"):
        as_given(said, {"summary": known["summary"]}, cut)
