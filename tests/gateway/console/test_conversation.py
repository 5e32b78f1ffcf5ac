"""What the pages make of entries, records and usage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.console.conversation import (
    Divider,
    Message,
    Notice,
    Recall,
    Recalled,
    Tool,
    chat_items,
    is_compacting,
    since,
)
from sessions.entries import (
    AssistantEntry,
    CompactionFailedEntry,
    CompactionStartedEntry,
    Covers,
    Entry,
    PinnedEntry,
    RecallEntry,
    RetractedEntry,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    UserEntry,
)

AT = datetime(2026, 12, 1, tzinfo=UTC)


def stamped(*drafts: Entry) -> list[Entry]:
    return [draft.stamped(seq=seq, id=f"e{seq}", at=AT, turn="t") for seq, draft in enumerate(drafts, 1)]


def test_a_call_stands_with_its_result_and_apart_from_the_text() -> None:
    call = ToolCall(id="c1", name="clock", arguments="{}")
    items = chat_items(
        stamped(
            UserEntry(text="What time is it?"),
            AssistantEntry(text="I look.", calls=(call,), finish="tool_calls"),
            ToolResultEntry(call_id="c1", name="clock", text="Noon", is_error=False),
            AssistantEntry(text="Noon."),
        )
    )
    assert [type(item) for item in items] == [Message, Message, Tool, Message]
    assert isinstance(items[2], Tool)
    assert (items[2].name, items[2].result) == ("clock", "Noon")


def test_what_was_retracted_is_not_shown_and_what_is_pinned_says_so() -> None:
    items = chat_items(
        stamped(
            UserEntry(text="secret"),
            UserEntry(text="kept"),
            RetractedEntry(seqs=(1,)),
            PinnedEntry(of=2),
        )
    )
    assert [(item.text, item.pinned) for item in items if isinstance(item, Message)] == [("kept", True)]


def test_a_part_of_a_chat_knows_what_was_pinned_and_retracted_after_it() -> None:
    entries = stamped(UserEntry(text="one"), UserEntry(text="two"), PinnedEntry(of=1), RetractedEntry(seqs=(2,)))
    (item,) = chat_items(entries[:2], known=entries, current=(2, 3, 4))
    assert isinstance(item, Message)
    assert (item.text, item.pinned, item.pinnable) == ("one", True, False)


def test_a_message_can_be_pinned_while_it_is_word_for_word_and_no_part_of_a_call() -> None:
    call = ToolCall(id="c1", name="clock", arguments="{}")
    entries = stamped(
        UserEntry(text="old"), UserEntry(text="new"), AssistantEntry(text="I look.", calls=(call,)), UserEntry(text="x")
    )
    items = [item for item in chat_items(entries, current=(2, 3, 4)) if isinstance(item, Message)]
    assert [item.pinnable for item in items] == [False, True, False, True]


def test_a_summary_is_a_divider_with_what_it_says() -> None:
    covers = Covers(from_seq=1, to_seq=40, sha256="0" * 64)
    entry = SummaryEntry(summary={"facts": ["The port is 8081."], "topics": []}, covers=covers, replay_from=31)
    (divider,) = chat_items(stamped(entry))
    assert isinstance(divider, Divider)
    assert (divider.last, divider.lists) == (40, (("facts", ("The port is 8081.",)),))


def test_a_summary_is_being_written_until_its_end_is_or_ten_minutes_have_passed() -> None:
    started = stamped(CompactionStartedEntry(reason="threshold", anchor=1))
    at = started[-1].at
    assert is_compacting(started, at)
    assert not is_compacting(started, at + timedelta(minutes=11))
    failed = stamped(
        CompactionStartedEntry(reason="threshold", anchor=1), CompactionFailedEntry(error="timeout", failures=1)
    )
    assert not is_compacting(failed, at)
    assert [item.name for item in chat_items(failed) if isinstance(item, Notice)] == ["compaction_failed"]


def test_memories_of_a_turn_are_shown_with_their_present_words_and_what_is_gone_is_counted() -> None:
    (shown,) = chat_items(
        stamped(RecallEntry(shown={"memories": ["m1", "m2"], "files": ["notes.md:1-4"]})),
        recalled={"m1": Recalled("m1", "likes tea")},
    )
    assert isinstance(shown, Recall)
    assert (shown.memories, shown.files, shown.gone) == ((Recalled("m1", "likes tea"),), ("notes.md:1-4",), 1)


def test_what_is_read_anew_after_a_seq_holds_the_calls_whose_results_came() -> None:
    entries = stamped(
        UserEntry(text="hi"),
        AssistantEntry(text="", calls=(ToolCall(id="c1", name="now", arguments="{}"),)),
        ToolResultEntry(call_id="c1", name="now", text="noon"),
    )
    assert [e.seq for e in since(entries, 2)] == [2, 3]
    assert [e.seq for e in since(entries, 1)] == [2, 3]
    assert since(entries, 3) == []
    pinned = [*entries, PinnedEntry(of=1).stamped(seq=4, id="e4", at=AT, turn="t")]
    assert [e.seq for e in since(pinned, 3)] == [1, 4]
