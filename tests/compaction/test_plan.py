"""What a compaction covers, over random histories and ten generations."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.plan import NothingToDo, Plan, next_generation, pin_refusal, pinned_seqs, plan_compaction
from compaction.policy import CompactionPolicy
from sessions.context import open_turns, render_messages, uncarried
from sessions.entries import AssistantEntry, Entry, PinnedEntry, SummaryEntry, ToolResultEntry, UserEntry, turn_id
from tests.sessions.builders import AT, SESSION, assistant, tool_call, tool_result, user

if TYPE_CHECKING:
    from collections.abc import Sequence

POLICY = CompactionPolicy(min_messages=1)
WINDOW = 400
STORY_WINDOW = 2000
"""Of the random histories, whose messages are so long that nearly every generation is worth a summary."""


class Chat:
    """A session that grows as a store would let it: entries are stamped in the order they are written."""

    def __init__(self) -> None:
        self.file: list[Entry] = []
        self.said: dict[int, Entry] = {}
        self.pins: set[int] = set()
        self.seq = 0

    def write(self, *drafts: Entry) -> list[Entry]:
        out: list[Entry] = []
        for draft in drafts:
            self.seq += 1
            turn = turn_id(SESSION, self.seq) if isinstance(draft, UserEntry) and draft.turn is None else draft.turn
            out.append(draft.stamped(seq=self.seq, id="", at=AT, turn=turn))
        self.file.extend(out)
        self.said.update({e.seq: e for e in out if isinstance(e, UserEntry | AssistantEntry | ToolResultEntry)})
        return out

    def turn(self, size: int, tools: int, late: bool) -> None:
        (asked,) = self.write(user("q" * size))
        if late:
            self.write(user("waits"))
        for n in range(tools):
            self.write(assistant("", turn=asked.turn, calls=(tool_call(f"c{n}"),), finish="tool_calls"))
            self.write(tool_result(f"c{n}", "r" * size, turn=asked.turn))
        self.write(assistant("a" * size, turn=asked.turn))

    def answer_waiting(self) -> None:
        """As a lane does: what waits for a reply gets one, in order."""
        for turn in open_turns(uncarried(self.file)):
            self.write(assistant("answered", turn=turn))

    def compact(self, plan: Plan) -> None:
        drafts = next_generation(plan, self.file, {"facts": ["x"]}, by="rules", model=None, tokens=5)
        self.file = []
        self.write(*drafts)

    def pin(self, seq: int) -> None:
        if pin_refusal(self.file, seq, POLICY, STORY_WINDOW) is None:
            self.write(PinnedEntry(of=seq))
            self.pins.add(seq)


turns = st.tuples(st.integers(1, 400) | st.integers(400, 2000), st.integers(0, 3), st.booleans())
generations = st.lists(st.lists(turns, min_size=2, max_size=8), min_size=1, max_size=10)


def summary_of(entries: Sequence[Entry]) -> SummaryEntry | None:
    return next((e for e in entries if isinstance(e, SummaryEntry)), None)


@settings(max_examples=80, deadline=None)
@given(generations)
def test_every_message_is_in_the_summary_or_word_for_word_and_nothing_is_summarised_twice(
    story: list[list[tuple[int, int, bool]]],
) -> None:
    chat = Chat()
    covered = 0
    for generation in story:
        chat.answer_waiting()
        for turn in generation:
            chat.turn(*turn)
            chat.pin(chat.seq)
        (newest,) = chat.write(user("newest"))
        plan = plan_compaction(chat.file, POLICY, STORY_WINDOW)
        if isinstance(plan, Plan):
            assert {e.seq for e in plan.fresh} == {s for s in chat.said if covered < s <= plan.summarised_through}
            covered = plan.summarised_through
            (meanwhile,) = chat.write(user("meanwhile"))
            chat.compact(plan)
            assert summary_of(chat.file) is not None
            assert meanwhile.seq in {e.seq for e in uncarried(chat.file)}
            _target_is_met_or_explained(plan)
        there = {e.seq: e for e in uncarried(chat.file)}
        assert all(seq <= covered or there.get(seq) == entry for seq, entry in chat.said.items())
        assert all(_text(there[seq]) == _text(chat.said[seq]) for seq in chat.pins)
        shown = render_messages(chat.file)
        assert newest.seq in {message.seq for message in shown}
        _pairs_are_whole(shown)


def _text(entry: Entry) -> str:
    assert isinstance(entry, UserEntry | AssistantEntry)
    return entry.text


def _target_is_met_or_explained(plan: Plan) -> None:
    """By the plan's own numbers; the summary may be smaller than it may be."""
    target = int(POLICY.target * POLICY.threshold * STORY_WINDOW)
    assert plan.shortfall is not None or plan.tokens_kept + plan.summary_limit <= target


def _pairs_are_whole(messages: Sequence[object]) -> None:
    open_calls: list[str] = []
    for message in messages:
        calls = getattr(message, "calls", None)
        if calls is not None:
            assert not open_calls
            open_calls = [call.id for call in calls]
        elif hasattr(message, "call_id"):
            assert message.call_id == open_calls.pop(0)
            assert message.seq > 0, "a result was cut off from its call"
        else:
            assert not open_calls
    assert not open_calls


def test_the_overlap_is_ten_messages_back_to_a_person_where_the_window_allows_it() -> None:
    chat = Chat()
    for _ in range(20):
        chat.turn(40, 0, False)
    plan = plan_compaction(chat.file, POLICY, 10_000)
    assert isinstance(plan, Plan)
    assert (plan.summarised_through, plan.replay_from) == (40, 31)


def test_a_turn_larger_than_the_overlap_is_cut_where_the_model_spoke_after_a_result() -> None:
    chat = Chat()
    chat.turn(4, 0, False)
    (asked,) = chat.write(user("big"))
    for n in range(20):
        chat.write(assistant("thinking", turn=asked.turn, calls=(tool_call(f"c{n}"),), finish="tool_calls"))
        chat.write(dataclasses.replace(tool_result(f"c{n}", "r" * 100, turn=asked.turn), tokens=20))
    chat.write(assistant("done", turn=asked.turn))
    plan = plan_compaction(chat.file, POLICY, WINDOW)
    assert isinstance(plan, Plan)
    first = next(e for e in chat.file if e.seq == plan.replay_from)
    assert isinstance(first, AssistantEntry)
    assert plan.replay_from > asked.seq


def test_a_message_pinned_while_its_summary_is_written_stays_and_an_unpinned_one_goes() -> None:
    chat = Chat()
    for _ in range(8):
        chat.turn(40, 0, late=False)
    kept, given_up = [seq for seq, entry in chat.said.items() if isinstance(entry, UserEntry)][:2]
    chat.write(PinnedEntry(of=given_up))
    plan = plan_compaction(chat.file, POLICY, WINDOW, overlap=False)
    assert isinstance(plan, Plan)
    chat.write(PinnedEntry(of=kept), PinnedEntry(of=given_up, pinned=False))
    chat.compact(plan)
    assert [e.seq for e in uncarried(chat.file) if isinstance(e, UserEntry)] == [kept]
    assert pinned_seqs(chat.file) == {kept}


def test_a_pinned_message_stays_word_for_word_through_generations() -> None:
    chat = Chat()
    chat.turn(40, 0, False)
    chat.write(PinnedEntry(of=1))
    for _ in range(3):
        for _ in range(20):
            chat.turn(40, 0, False)
        plan = plan_compaction(chat.file, POLICY, WINDOW)
        assert isinstance(plan, Plan)
        chat.compact(plan)
        pinned = chat.said[1]
        assert isinstance(pinned, UserEntry)
        assert pinned.text in [e.text for e in uncarried(chat.file) if isinstance(e, UserEntry)]
        assert open_turns(uncarried(chat.file)) == []


def test_nothing_finished_or_nothing_gained_is_no_plan() -> None:
    chat = Chat()
    assert isinstance(plan_compaction([], POLICY, WINDOW), NothingToDo)
    chat.write(user("waits"))
    assert isinstance(plan_compaction(chat.file, POLICY, WINDOW), NothingToDo)
    chat.turn(4, 0, False)
    plan = plan_compaction(chat.file, POLICY, 100_000)
    assert isinstance(plan, NothingToDo)
    assert dataclasses.asdict(plan)["reason"]


def test_a_target_that_cannot_be_reached_is_explained_and_the_overlap_gives_way() -> None:
    chat = Chat()
    for _ in range(20):
        chat.turn(40, 0, False)
    assert isinstance(plan := plan_compaction(chat.file, POLICY, WINDOW), Plan)
    assert plan.shortfall is None
    chat.write(user("q" * 4000))
    plan = plan_compaction(chat.file, POLICY, WINDOW)
    assert isinstance(plan, Plan)
    assert plan.shortfall is not None
    assert "what has no reply yet take 1001 of them" in plan.shortfall
    assert plan.replay_from == plan.summarised_through + 1


def test_what_stands_in_every_prompt_counts_towards_the_target() -> None:
    chat = Chat()
    for _ in range(20):
        chat.turn(40, 0, False)
    small, large = (plan_compaction(chat.file, POLICY, WINDOW, fixed=fixed) for fixed in (0, 100))
    assert isinstance(small, Plan)
    assert isinstance(large, Plan)
    assert large.tokens_kept < small.tokens_kept
