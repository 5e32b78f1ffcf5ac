"""What a model is shown, over random histories of turns, tools, waiting messages and failures."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.context import (
    LOST_RESULT,
    AssistantMessage,
    Message,
    ToolMessage,
    UserMessage,
    failed_attempt,
    open_turns,
    render_messages,
)
from sessions.entries import (
    AssistantEntry,
    Entry,
    RetractedEntry,
    ToolResultEntry,
    TurnFailedEntry,
    UserEntry,
    turn_id,
)
from tests.sessions.builders import AT, SESSION, assistant, tool_call, tool_result, user


@dataclasses.dataclass(frozen=True)
class Round:
    """One model call of a turn: the calls it makes, how many of their results are written, who writes meanwhile."""

    calls: int
    lost: int
    arriving: int
    steer: bool


@dataclasses.dataclass(frozen=True)
class Turn:
    collect: int
    rounds: tuple[Round, ...]
    fails: bool
    retracts: bool


rounds = st.builds(Round, st.integers(1, 3), st.integers(0, 1), st.integers(0, 2), st.booleans())
stories = st.lists(
    st.builds(
        Turn, st.integers(0, 2), st.lists(rounds, max_size=3).map(tuple), st.booleans(), st.sampled_from([0, 0, 0, 1])
    ),
    min_size=1,
    max_size=8,
)


class Chat:
    """A session as the turn loop writes it, and every prompt it would have sent."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.waiting: list[str] = []
        self.prompts: list[list[Message]] = []
        self.retracted: set[int] = set()

    def write(self, draft: Entry) -> Entry:
        seq = len(self.entries) + 1
        turn = turn_id(SESSION, seq) if isinstance(draft, UserEntry) else draft.turn
        self.entries.append(draft.stamped(seq=seq, id=str(seq), at=AT, turn=turn))
        return self.entries[-1]

    def arrive(self) -> None:
        turn = self.write(user(f"message {len(self.entries) + 1}")).turn
        assert turn is not None
        self.waiting.append(turn)

    def take(self, count: int) -> list[str]:
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def ask(self, running: list[str]) -> None:
        self.prompts.append(render_messages(self.entries, turns=frozenset(running)))

    def retract(self) -> None:
        if self.waiting:
            turn = self.waiting.pop()
            seq = next(e.seq for e in self.entries if e.turn == turn)
            self.write(RetractedEntry(seqs=(seq,)))
            self.retracted.add(seq)

    def turn(self, turn: Turn) -> None:
        if not self.waiting:
            self.arrive()
        running = self.take(1 + turn.collect)
        lead, also = running[0], tuple(running[1:])
        for one in turn.rounds:
            self.ask(running)
            ids = [f"c{n}" for n in range(one.calls)]  # the same ids again and again, as some providers give them
            said = assistant("", turn=lead, calls=tuple(tool_call(i) for i in ids), finish="tool_calls")
            self.write(dataclasses.replace(said, also=also))
            for _ in range(one.arriving):
                self.arrive()
            for call in ids[: len(ids) - one.lost]:
                self.write(tool_result(call, turn=lead))
            also = tuple(self.take(len(self.waiting))) if one.steer else ()
            running += also
        if turn.retracts:
            self.retract()
        self.ask(running)
        if turn.fails:
            self.write(TurnFailedEntry(turn=lead, code="model_error", error="no", also=tuple(running[1:])))
        else:
            self.write(dataclasses.replace(assistant("done", turn=lead), also=tuple(running[1:])))


def told(story: list[Turn]) -> Chat:
    chat = Chat()
    for turn in story:
        chat.turn(turn)
    return chat


@settings(max_examples=60, deadline=None)
@given(stories)
def test_every_prompt_is_a_prefix_of_the_next_one(story: list[Turn]) -> None:
    prompts = told(story).prompts
    for earlier, later in itertools.pairwise(prompts):
        assert later[: len(earlier)] == earlier


@settings(max_examples=60, deadline=None)
@given(stories)
def test_every_call_is_followed_by_its_results_and_no_result_stands_alone(story: list[Turn]) -> None:
    for prompt in told(story).prompts:
        expected: list[str] = []
        for message in prompt:
            if isinstance(message, ToolMessage):
                assert message.call_id == expected.pop(0)
            else:
                assert not expected
            if isinstance(message, AssistantMessage):
                expected = [call.id for call in message.calls]
        assert not expected


@settings(max_examples=60, deadline=None)
@given(stories)
def test_no_message_is_lost_or_shown_twice(story: list[Turn]) -> None:
    chat = told(story)
    shown = Counter(m.seq for m in render_messages(chat.entries) if m.seq)
    kinds = (UserEntry, AssistantEntry, ToolResultEntry)
    said = {e.seq for e in chat.entries if isinstance(e, kinds)} - chat.retracted
    assert shown == Counter(said)
    assert set(open_turns(chat.entries)) == set(chat.waiting)


STEPS = [
    "arrive",
    "arrive",
    "deliver",
    "deliver",
    "stop one",
    "store",
    "on",
    "on",
    "on",
    "on",
    "results",
    "results",
    "lost",
]
MOVES = ["final", "final", "calls", "calls", "client", "fail", "again", "cut"]


class Line(Chat):
    """A session with everything that may come between: deliveries, what a frontend stores, messages taken out of the
    line, a turn cut by a crash, calls a client answers."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []
        self.state = "idle"
        self.calls = 0
        self.opened: list[str] = []
        self.deliveries: set[str] = set()

    def note(self, text: str, turn: str | None = None) -> None:
        self.write(assistant(text, turn=turn))
        self.deliveries.add(text)

    def play(self, step: str, move: str, number: int) -> None:
        match step, self.state:
            case "arrive", _:
                self.arrive()
            case "deliver", _:
                self.note(f"delivery {number}", f"delivery-{number}")
            case "store", _ if self.state != "client":
                self.note(f"stored {number}")
            case "stop one", _ if self.waiting:
                self.write(TurnFailedEntry(turn=self.waiting.pop(number % len(self.waiting)), code="stopped", error=""))
            case "on", "idle" if self.waiting:
                self.running = self.take(1 + number % 2)
                self.begin()
            case "on", "asking":
                self.go_on(move)
            case (("results" | "on"), "calling"):
                lead = self.running[0]
                for call in self.opened:
                    self.write(tool_result(call, turn=lead))
                self.running += self.take(number % 2)
                self.begin()
            case "lost", "calling":
                self.begin()
            case "results", "client":
                turn = turn_id(SESSION, len(self.entries) + 1)
                for call in self.opened:
                    self.write(tool_result(call, turn=turn))
                self.waiting.append(turn)
                self.state = "idle"
            case "lost", "client":
                self.state = "idle"
            case _:
                pass

    def begin(self) -> None:
        self.ask(self.running)
        self.state = "asking"

    def go_on(self, move: str) -> None:
        lead, also = self.running[0], tuple(self.running[1:])
        self.state = "idle"
        match move:
            case "calls" | "client":
                self.calls += 1
                self.opened = [f"c{self.calls}", f"d{self.calls}"]
                finish = "tool_calls" if move == "calls" else "client_tools"
                said = assistant("", turn=lead, calls=tuple(tool_call(i) for i in self.opened), finish=finish)
                self.write(dataclasses.replace(said, also=also))
                self.state = "calling" if move == "calls" else "client"
            case "fail":
                self.write(TurnFailedEntry(turn=lead, code="model_error", error="no", also=also))
            case "again":
                self.begin()
            case "cut":
                self.write(dataclasses.replace(assistant("", turn=lead), finish="stopped", also=also))
            case _:
                self.write(dataclasses.replace(assistant("done", turn=lead), also=also))

    def ask(self, running: list[str]) -> None:
        super().ask(running)
        given = {e.call_id for e in self.entries if isinstance(e, ToolResultEntry)}
        shown = {m.call_id for m in self.prompts[-1] if isinstance(m, ToolMessage) and m.text != LOST_RESULT}
        assert shown == given


@pytest.mark.parametrize("moves", [["final"], ["calls", "results", "fail"]])
def test_no_delivery_stands_behind_results_that_wait_for_their_reply(moves: list[str]) -> None:
    line = Line()
    line.arrive()
    line.arrive()
    for number, (step, move) in enumerate(
        [("on", ""), ("on", "client"), ("results", ""), ("on", ""), *(("on", move) for move in moves[:-1])]
    ):
        line.play(step, move, 2 * number)
    line.play("deliver", "", 20)
    line.play("on", moves[-1], 22)
    line.play("on", "", 24)
    assert isinstance(line.prompts[-1][-1], AssistantMessage | ToolMessage)
    assert line.prompts[-1][-1].text not in line.deliveries


def asked_beside_waiting_results() -> Line:
    """Two messages; the client's results of the first one's calls wait, a delivery too, and the second one is asked."""
    line = Line()
    line.arrive()
    line.arrive()
    for step, move in [("on", ""), ("on", "client"), ("deliver", ""), ("results", ""), ("on", "")]:
        line.play(step, move, 2)
    assert [m.text for m in line.prompts[-1]] == ["message 1", "", "noon", "noon", "message 2"]
    return line


def test_a_message_that_failed_while_results_wait_stays_where_it_was_asked() -> None:
    line = asked_beside_waiting_results()
    line.play("on", "fail", 4)
    line.play("on", "", 4)
    assert line.prompts[-1] == line.prompts[-2]


def test_nothing_comes_before_a_message_that_is_asked_while_results_are_stopped() -> None:
    line = asked_beside_waiting_results()
    line.play("stop one", "", 4)
    line.play("on", "again", 4)
    assert line.prompts[-1] == line.prompts[-2]
    line.play("on", "final", 4)
    line.arrive()
    line.play("on", "", 4)
    told = ["message 1", "", "noon", "noon", "message 2", "done", "delivery 2", "message 9"]
    assert [m.text for m in line.prompts[-1]] == told


def test_a_delivery_waits_for_a_clients_results_while_older_results_are_stopped() -> None:
    line = asked_beside_waiting_results()
    line.play("on", "client", 4)
    line.play("stop one", "", 4)
    line.play("results", "", 4)
    line.play("on", "", 4)
    assert [m.text for m in line.prompts[-1]] == ["message 1", "", "noon", "noon", "message 2", "", "noon", "noon"]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(MOVES)), max_size=60))
def test_whatever_comes_between_prompts_only_grow_and_calls_have_their_results(steps: list[tuple[str, str]]) -> None:
    line = Line()
    line.arrive()
    for number, (step, move) in enumerate(steps):
        line.play(step, move, number)
    for earlier, later in itertools.pairwise(line.prompts):
        assert later[: len(earlier)] == earlier
    for prompt in line.prompts:
        assert not (isinstance(prompt[-1], AssistantMessage) and prompt[-1].text in line.deliveries)
        expected: list[str] = []
        for message in prompt:
            if isinstance(message, ToolMessage):
                assert message.call_id == expected.pop(0)
            else:
                assert not expected
            if isinstance(message, AssistantMessage):
                expected = [call.id for call in message.calls]
    shown = Counter(m.seq for m in render_messages(line.entries) if m.seq)
    kinds = (UserEntry, ToolResultEntry)
    said = {
        e.seq for e in line.entries if isinstance(e, kinds) or (isinstance(e, AssistantEntry) and (e.text or e.calls))
    }
    assert shown == Counter(said)


def test_a_delivery_while_a_tool_runs_stands_behind_the_turn_or_before_a_younger_message() -> None:
    one, two = turn_id(SESSION, 1), turn_id(SESSION, 6)
    entries = [
        user("what time is it", 1, one),
        assistant("", 2, one, calls=(tool_call("c1"),), finish="tool_calls"),
        assistant("news", 3, "delivery-1"),
        tool_result("c1", "noon", 4, one),
    ]
    assert [m.text for m in render_messages(entries, turns=frozenset([one]))] == ["what time is it", "", "noon"]
    entries += [assistant("it is noon", 5, one), user("what was new?", 6, two)]
    told = ["what time is it", "", "noon", "it is noon", "news", "what was new?"]
    assert [m.text for m in render_messages(entries, turns=frozenset([two]))] == told
    steered = [*entries[:4], user("what was new?", 5, two)]
    told = ["what time is it", "", "noon", "news", "what was new?"]
    assert [m.text for m in render_messages(steered, turns=frozenset([one, two]))] == told


def test_a_result_that_comes_after_the_next_reply_is_not_replayed() -> None:
    turn = turn_id(SESSION, 1)
    entries = [
        user("what time is it", 1, turn),
        assistant("", 2, turn, calls=(tool_call("c1"),), finish="tool_calls"),
        assistant("I cannot tell", 3, turn),
        tool_result("c1", "noon", 4, turn),
    ]
    shown = [m.text for m in render_messages(entries) if not isinstance(m, UserMessage)]
    assert shown == ["", LOST_RESULT, "I cannot tell"]


@pytest.mark.timeout(60)
def test_a_history_of_many_tool_calls_is_rendered_in_linear_time() -> None:
    entries: list[Entry] = []
    for n in range(40_000):
        turn = turn_id(SESSION, 4 * n + 1)
        entries += [
            user("q", 4 * n + 1, turn),
            assistant("", 4 * n + 2, turn, calls=(tool_call("c"),), finish="tool_calls"),
            tool_result("c", "r", 4 * n + 3, turn),
            assistant("a", 4 * n + 4, turn),
        ]
    assert len(render_messages(entries)) == len(entries)


def test_only_the_same_message_with_nothing_said_since_is_a_failed_attempt() -> None:
    first, second = turn_id(SESSION, 1), turn_id(SESSION, 3)
    asked = user("hello", 1, first)
    failed = TurnFailedEntry(seq=2, turn=first, code="model_unavailable", error="no")
    again = user("hello")
    assert failed_attempt([asked, failed], again) is asked
    assert failed_attempt([asked, user("waits", 2, turn_id(SESSION, 2)), failed], again) is None
    assert failed_attempt([asked, failed, RetractedEntry(seq=3, seqs=(1,))], again) is None
    assert failed_attempt([asked, assistant("half", 2, first), failed], again) is None
    assert failed_attempt([asked, failed, user("next", 3, second), assistant("yes", 4, second)], again) is None
    assert failed_attempt([asked, failed], user("hello!")) is None
    assert failed_attempt([asked, failed], dataclasses.replace(again, sender="bob")) is None
    assert failed_attempt([asked, assistant("hi", 2, first)], again) is None
