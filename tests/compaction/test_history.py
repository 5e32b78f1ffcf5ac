"""A history that is rendered piece by piece says at every moment what rendering it whole would say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.fingerprints import Chain
from compaction.history import RenderedHistory
from sessions.context import render_messages
from sessions.entries import AssistantEntry, Entry, RetractedEntry, TurnFailedEntry, UserEntry
from tests.sessions.builders import assistant, tool_call, tool_result, user

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "reply", "reply", "call", "result", "fail", "also", "late", "retract", "empty"]),
        st.integers(0, 5),
    ),
    max_size=40,
)


def played(steps: list[tuple[str, int]]) -> list[Entry]:
    """Entries as a session could write them, and some it should not."""
    entries: list[Entry] = []
    turns: list[str] = []
    for seq, (step, pick) in enumerate(steps, 1):
        turn = turns[-1 - pick % len(turns)] if turns else None
        match step:
            case "ask":
                turns.append(f"t{seq}")
                entries.append(user(f"question {seq}", seq, f"t{seq}"))
            case "reply" | "empty":
                entries.append(assistant("" if step == "empty" else f"answer {seq}", seq, turn))
            case "also" if len(turns) > 1:
                both = AssistantEntry(seq=seq, turn=turns[-1], text="both", also=(turns[-2],), tokens=1)
                entries.append(both)
            case "call":
                entries.append(assistant("", seq, turn, calls=(tool_call(f"c{pick}"),), finish="tool_calls"))
            case "result" | "late":
                entries.append(tool_result(f"c{pick}", f"result {seq}", seq, turn))
            case "fail" if turn:
                entries.append(TurnFailedEntry(seq=seq, turn=turn, code="x", error="y"))
            case "retract" if entries:
                entries.append(RetractedEntry(seq=seq, seqs=(entries[-1 - pick % len(entries)].seq,)))
            case _:
                entries.append(user(f"loose {seq}", seq))
    return entries


@given(STEPS, st.integers(1, 4))
@settings(max_examples=400, deadline=None)
def test_piece_by_piece_says_what_the_whole_says(steps: list[tuple[str, int]], stride: int) -> None:
    entries = played(steps)
    history = RenderedHistory(named=False)
    for end in range(0, len(entries) + 1, stride):
        so_far = entries[:end]
        asked = [e.turn for e in so_far if isinstance(e, UserEntry) and e.turn]
        for turns in (frozenset(asked[-1:]), None):
            messages, chain = history.render(so_far, turns)
            whole = render_messages(so_far, turns=turns)
            assert list(messages) == whole
            alone = Chain()
            alone.add(whole)
            assert (len(chain), chain.mark(len(chain))) == (len(whole), alone.mark(len(whole)))


def test_settled_messages_are_not_rendered_again() -> None:
    entries: list[Entry] = []
    history = RenderedHistory(named=True)
    for n in range(1, 200, 2):
        entries += [
            UserEntry(seq=n, turn=f"t{n}", text="hi", sender_name="Ana", tokens=1),
            assistant("hello", n + 1, f"t{n}"),
        ]
        messages, _ = history.render(entries, None)
    again, _ = history.render(entries, None)
    assert all(one is other for one, other in zip(messages, again, strict=True))
    assert again[0].text == "Ana: hi"
