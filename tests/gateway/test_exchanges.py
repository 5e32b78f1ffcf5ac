"""Whose words somebody's memory learns from."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.exchanges import people_in, pieces_of, said_with, settled_through
from memory.learn import Said
from sessions.entries import (
    AssistantEntry,
    CommandEntry,
    Covers,
    Entry,
    RecallEntry,
    RetractedEntry,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    UserEntry,
)

AT = datetime(2026, 5, 1, 23, 30, tzinfo=UTC)
PRAGUE = ZoneInfo("Europe/Prague")


def numbered(*drafts: Entry) -> list[Entry]:
    return [draft.stamped(seq=seq, id="", at=AT, turn=draft.turn) for seq, draft in enumerate(drafts, 1)]


def said(entries: list[Entry], user: str = "ana", after: int = 0) -> list[str]:
    found = said_with(entries, user, after_seq=after, through_seq=settled_through(entries), zone=PRAGUE)
    return [f"{one.who}: {one.text}" for one in found]


def test_only_what_a_person_and_the_model_said_to_each_other_is_learnt_from() -> None:
    covers = Covers(from_seq=1, to_seq=1, sha256="")
    entries = numbered(
        SummaryEntry(summary={"facts": ["Ana likes summaries"]}, covers=covers, replay_from=1),
        UserEntry(turn="t1", user="ana", text="hello"),
        RecallEntry(turn="t1", shown={"memories": ["m"]}),
        ToolResultEntry(turn="t1", call_id="c", name="web", text="Ana likes tools"),
        AssistantEntry(turn="t1", text="hi, you like tea"),
        UserEntry(turn="t2", user="bob", text="I am Bob"),
        AssistantEntry(turn="t2", text="hi Bob"),
        CommandEntry(turn="t3", name="status", reply="fine"),
        UserEntry(turn="t4", user="ana", text="report", source="job:1"),
        AssistantEntry(turn="t4", text="all is well"),
        UserEntry(turn="t5", user="ana", text="a slip"),
        RetractedEntry(turn="t5", seqs=(11,)),
        UserEntry(turn="t6", user=None, text="who am I?"),
        AssistantEntry(turn="t6", text="nobody"),
    )
    assert people_in(entries) == ["ana", "bob"]
    assert said(entries) == ["user: hello", "assistant: hi, you like tea"]
    assert said(entries, "bob") == ["user: I am Bob", "assistant: hi Bob"]
    found = said_with(entries, "ana", after_seq=0, through_seq=99, zone=PRAGUE)
    assert [one.echo for one in found] == [False, True]
    assert f"{found[0].at:%Y-%m-%d}" == "2026-05-02"


def test_a_message_that_waits_for_its_reply_is_not_passed_over() -> None:
    entries = numbered(
        UserEntry(turn="t1", user="ana", text="one"),
        UserEntry(turn="t2", user="ana", text="two"),
        AssistantEntry(turn="t1", text="to one"),
    )
    assert settled_through(entries) == 1
    answered = [*entries, *numbered(*[AssistantEntry(turn="t2", text="to two")] * 4)[3:]]
    assert settled_through(answered) == 4
    assert said(answered, after=1) == ["user: two", "assistant: to one", "assistant: to two"]


def test_what_a_frontend_has_stored_belongs_to_who_spoke_last() -> None:
    entries = numbered(
        UserEntry(user="ana", text="one"),
        AssistantEntry(text="to one"),
        UserEntry(user="bob", text="two"),
        AssistantEntry(text="to two"),
    )
    assert said(entries) == ["user: one", "assistant: to one"]


@pytest.mark.parametrize(
    "tool", ["MemorySearch", "MemoryList", "MemoryFileRead", "TranscriptSearch", "mcp__sessiond__MemorySearch"]
)
@pytest.mark.parametrize("turns", [("t1", "t2"), (None, None)])
def test_replies_after_a_tool_has_told_memories_may_repeat_them_and_what_the_person_says_does_not(
    tool: str, turns: tuple[str | None, str | None]
) -> None:
    first, second = turns
    entries = numbered(
        UserEntry(turn=first, user="ana", text="which pills were those?"),
        AssistantEntry(
            turn=first, text="let me look", calls=(ToolCall(id="c", name=tool, arguments="{}"),), finish="tool_calls"
        ),
        ToolResultEntry(turn=first, call_id="c", name=tool, text='{"memories": [{"text": "zolpidem"}]}'),
        AssistantEntry(turn=first, text="zolpidem"),
        UserEntry(turn=second, user="ana", text="ah, zolpidem"),
        AssistantEntry(turn=second, text="yes, zolpidem"),
    )
    found = said_with(entries, "ana", after_seq=0, through_seq=6, zone=PRAGUE)
    assert [one.echo for one in found] == [False, False, True, False, True]
    assert [one.echo for one in said_with(entries, "ana", after_seq=4, through_seq=6, zone=PRAGUE)] == [False, True]


def test_replies_behind_a_prefix_that_holds_memories_may_repeat_them() -> None:
    entries = numbered(
        UserEntry(turn="t1", user="ana", text="one"),
        RecallEntry(turn="t1", shown={"memories": [], "files": [], "always": ["m"]}),
        AssistantEntry(turn="t1", text="to one"),
        UserEntry(turn="t2", user="ana", text="two"),
        AssistantEntry(turn="t2", text="to two"),
    )
    found = said_with(entries, "ana", after_seq=0, through_seq=5, zone=PRAGUE)
    assert [one.echo for one in found] == [False, True, False, True]


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.integers(1, 50)), min_size=1), st.integers(1, 9))
def test_pieces_hold_everything_once_and_in_order(given_: list[tuple[str, int]], most: int) -> None:
    whole = [Said(seq=n, who=who, text="x" * size, at=AT) for n, (who, size) in enumerate(given_, 1)]  # pyright: ignore[reportArgumentType]
    pieces = pieces_of(whole, through_seq=len(whole) + 5, most_messages=most, most_characters=60)
    assert [one for piece in pieces for one in piece.said] == whole
    assert pieces[-1].through_seq == len(whole) + 5
    for piece, following in itertools.pairwise(pieces):
        assert piece.said[-1].seq <= piece.through_seq < following.said[0].seq
        assert following.said[0].who == "user"


def test_what_was_said_before_a_time_is_left_out_and_later_answers_may_repeat_it() -> None:
    later = AT + timedelta(hours=1)
    drafts = (
        UserEntry(turn="t1", user="ana", text="I am ill"),
        UserEntry(turn="t2", user="ana", text="I like tea"),
        AssistantEntry(turn="t1", text="get well"),
        AssistantEntry(turn="t2", also=("t1",), text="ill people drink tea"),
        UserEntry(turn="t3", user="ana", text="what else?"),
        AssistantEntry(turn="t3", text="being ill, rest"),
    )
    entries = numbered(*drafts)
    entries = [entries[0], *(replace(one, at=later) for one in entries[1:])]
    found = said_with(entries, "ana", after_seq=0, through_seq=6, zone=PRAGUE, since=later)
    assert [(one.text, one.echo) for one in found] == [
        ("I like tea", False),
        ("what else?", False),
        ("being ill, rest", True),
    ]
