"""Conversations in and out: what goes out comes back, and what cannot be taken is named with its place."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.context import LOST_RESULT
from sessions.entries import (
    AssistantEntry,
    Attachment,
    CarriedEntry,
    Covers,
    EndedEntry,
    Entry,
    Header,
    RetractedEntry,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    UserEntry,
)
from sessions.lines import encode_line
from sessions.portable import ImportedSession, ImportProblem, parse_import, render_export
from sessions.usage import Usage
from tests.sessions.builders import AT, SESSION, assistant, tool_call, tool_result, user

SAMPLES = Path(__file__).parent.parent / "data" / "import"
HEADER = Header(session=SESSION, generation=1, key="agent:main:web:direct:5", agent="main", at=AT)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
TIMES = st.datetimes(datetime(2001, 1, 1), datetime(2040, 1, 1)).map(
    lambda at: at.replace(tzinfo=UTC, microsecond=at.microsecond // 1000 * 1000)
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def exported(*entries: Entry) -> bytes:
    return render_export("jsonl", HEADER, None, entries)


def openai(*entries: Entry) -> list[dict[str, Any]]:
    return json.loads(render_export("openai", HEADER, None, entries))["messages"]


def problems(payload: bytes | str) -> list[tuple[int, str]]:
    with pytest.raises(ImportProblem) as caught:
        parse_import(payload.encode() if isinstance(payload, str) else payload)
    return [(problem.record, problem.detail) for problem in caught.value.problems]


def only(payload: bytes) -> ImportedSession:
    (session,) = parse_import(payload)
    return session


# --- there and back ---------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Turns with rounds of tool calls, every one answered; stamped as a store does."""
    entries: list[Entry] = []
    for _ in range(draw(st.integers(1, 4))):
        turn = f"{SESSION}-{len(entries) + 1}"
        drafts: list[Entry] = [UserEntry(text=draw(TEXTS), sender=draw(st.none() | TEXTS), user="ana", request_id="r")]
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                ToolCall(id=f"c{n}", name=draw(TEXTS), arguments=draw(TEXTS)) for n in range(draw(st.integers(1, 3)))
            ]
            drafts.append(AssistantEntry(text=draw(TEXTS), calls=tuple(calls), finish="tool_calls"))
            drafts.extend(
                ToolResultEntry(call_id=c.id, name=c.name, text=draw(TEXTS), is_error=draw(st.booleans()))
                for c in calls
            )
        drafts.append(AssistantEntry(text=draw(TEXTS.filter(bool)), usage=Usage(input_total=3, output=1), model="m"))
        for draft in drafts:
            entries.append(draft.stamped(seq=len(entries) + 1, id="i", at=draw(TIMES), turn=turn))
    return entries


@given(histories())
def test_exported_jsonl_comes_back_equal_but_for_what_ties_it_to_its_place(entries: list[Entry]) -> None:
    session = only(exported(*entries))
    loose = [dataclasses.replace(entry, seq=0, id="", turn=None) for entry in entries]
    assert list(session.entries) == [
        dataclasses.replace(e, user=None, request_id=None) if isinstance(e, UserEntry) else e for e in loose
    ]
    assert (session.key, session.left_out) == (HEADER.key, 0)


@given(histories())
def test_openai_messages_come_back_with_every_call_and_its_result(entries: list[Entry]) -> None:
    back = only(render_export("openai", HEADER, None, entries)).entries
    assert [type(e) for e in back] == [type(e) for e in entries]
    for was, now in zip(entries, back, strict=True):
        match was, now:
            case (UserEntry(), UserEntry()):
                assert (now.text, now.sender_name) == (was.text, was.sender or None)
            case (AssistantEntry(), AssistantEntry()):
                assert (now.text, now.calls) == (was.text, was.calls)
            case (ToolResultEntry(), ToolResultEntry()):
                assert (now.text, now.call_id) == (was.text, was.call_id)
            case _:
                raise AssertionError


def test_openai_messages_answer_a_call_whose_result_was_lost() -> None:
    entries = [user("hi", 1), assistant("", 2, calls=(tool_call("c1"), tool_call("c2"))), tool_result("c2", "noon", 3)]
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in openai(*entries)] == [
        ("user", None, "hi"),
        ("assistant", None, None),
        ("tool", "c1", LOST_RESULT),
        ("tool", "c2", "noon"),
    ]


def compacted() -> list[Entry]:
    """All entries of two generations, the second of which carries one message over."""
    kept = user("second", 3)
    return [
        user("first", 1),
        assistant("one", 2),
        kept,
        SummaryEntry(
            seq=5, at=AT, summary={"topics": ["x"]}, covers=Covers(from_seq=1, to_seq=3, sha256="f"), replay_from=3
        ),
        CarriedEntry(seq=6, at=AT, entry=kept),
        assistant("two", 7),
    ]


def test_a_message_carried_into_the_next_generation_is_exported_and_imported_once() -> None:
    assert [m["content"] for m in openai(*compacted())] == ["first", "one", "second", "two"]
    assert render_export("markdown", HEADER, None, compacted()).count(b"second") == 1
    texts = [e.text for e in only(exported(*compacted())).entries if isinstance(e, UserEntry | AssistantEntry)]
    assert texts == ["first", "one", "second", "two"]


def test_a_file_of_one_generation_is_refused_because_its_beginning_is_elsewhere() -> None:
    ((record, detail),) = problems(exported(*compacted()[3:]))
    assert record == 2
    assert "sessiond export" in detail


def test_what_was_retracted_does_not_come_back() -> None:
    entries = [
        user("secret", 1),
        user("hi", 2),
        RetractedEntry(seq=3, at=AT, seqs=(1,)),
        EndedEntry(seq=4, at=AT, reason="new"),
    ]
    assert [e.text for e in only(exported(*entries)).entries if isinstance(e, UserEntry)] == ["hi"]
    assert [m["content"] for m in openai(*entries)] == ["hi"]


def test_a_file_that_names_an_attachment_does_not_open_it() -> None:
    file = Attachment(sha256="0" * 64, media_type="image/png", size_bytes=12, name="a.png")
    (entry,) = only(exported(UserEntry(seq=1, at=AT, text="look", attachments=(file,), user="eva"))).entries
    assert entry == UserEntry(at=AT, text="look\n[attached: a.png, image/png, 12 bytes]")


@given(st.text())
def test_any_text_can_be_exported_and_imported(text: str) -> None:
    for form in ("jsonl", "openai"):
        payload = render_export(form, HEADER, text, [user(text, 1)])
        (entry,) = only(payload).entries
        assert isinstance(entry, UserEntry)
        assert entry.text == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    render_export("markdown", HEADER, text, [user(text, 1)]).decode()


def test_markdown_reads_like_a_conversation() -> None:
    entries = [
        UserEntry(seq=1, at=AT, text="When?", sender_name="Ana"),
        assistant("", 2, calls=(tool_call("c1"),)),
        tool_result("c1", "it is\nnoon", 3),
        assistant("Now.", 4),
    ]
    assert (
        render_export("markdown", HEADER, "Time", entries).decode()
        == f"""# Time

{HEADER.key}, session {SESSION}, since 2026-03-01T12:00:00.000Z

## Ana · 2026-03-01T12:00:00.000Z

When?

## Assistant · 2026-03-01T12:00:00.000Z



- calls `current_time`: `{{}}`

> it is
> noon

## Assistant · 2026-03-01T12:00:00.000Z

Now.
"""
    )


# --- files of others --------------------------------------------------------------------------------------------------


def test_openai_messages_are_taken_over_and_what_is_left_out_is_counted() -> None:
    payload = (SAMPLES / "openai.json").read_bytes()
    session = only(payload)
    assert session.entries == (
        UserEntry(text="What is on the picture?", sender_name="ana"),
        UserEntry(text="And what time is it?\n[image_url: not imported]"),
        AssistantEntry(
            text="",
            calls=(
                ToolCall(id="call_1", name="current_time", arguments='{"zone": "Europe/Prague"}'),
                ToolCall(id="call_2", name="look", arguments="{}"),
            ),
            finish="client_tools",
        ),
        ToolResultEntry(call_id="call_1", name="current_time", text="12:00"),
        ToolResultEntry(call_id="call_2", name="tool", text="růže"),
        AssistantEntry(text="A rose, at noon."),
        AssistantEntry(text="I would rather not."),
    )
    assert session.left_out == 1
    assert only(json.dumps(json.loads(payload)["messages"]).encode()) == session


def test_a_pi_session_is_the_branch_of_its_last_record() -> None:
    session = only((SAMPLES / "pi.jsonl").read_bytes())
    assert session.entries == (
        UserEntry(text="Count the beds", at=at("2026-03-01T12:00:01Z")),
        AssistantEntry(
            text="I look.",
            calls=(ToolCall(id="t1", name="bash", arguments='{"command": "ls žito"}'),),
            model="m-1",
            finish="client_tools",
            at=at("2026-03-01T12:01:00Z"),
        ),
        ToolResultEntry(
            call_id="t1",
            name="bash",
            text="no such bed\n[image: not imported]",
            is_error=True,
            at=at("2026-03-01T12:01:01Z"),
        ),
        AssistantEntry(text="There are", model="m-2", finish="stopped", at=at("2026-03-01T12:01:05Z")),
    )
    assert (session.title, session.left_out) == ("Garden beds", 1)


def test_a_pi_session_from_before_ids_is_read_in_order() -> None:
    entries = only((SAMPLES / "pi-without-ids.jsonl").read_bytes()).entries
    assert [e.text for e in entries if isinstance(e, UserEntry | AssistantEntry)] == ["Hello", "Hi!"]


def test_chatgpt_conversations_are_the_branches_of_their_current_nodes() -> None:
    session = only((SAMPLES / "chatgpt.json").read_bytes())
    assert session == ImportedSession(
        title="Roses",
        entries=(
            UserEntry(
                text="[image_asset_pointer: not imported]\nWhich rose is this?", at=at("2026-03-01T12:00:01.250+00:00")
            ),
            AssistantEntry(text="A dog rose.", model="gpt-x", at=at("2026-03-01T12:00:04Z")),
        ),
        left_out=1,
    )


# --- what cannot be taken ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("", (1, "neither")),
        ("hello", (1, "neither")),
        ("7", (1, "neither")),
        ('{"type":"message"}', (1, "neither")),
        ("[" * 100_000, (1, "neither")),
        (b"\xff\xfe{}", (1, "not UTF-8 (byte 0)")),
        ("[]", (1, "no message")),
        ('{"messages": {}}', (1, "messages is not a list")),
        ('[{"role": "system", "content": "x"}]', (1, "no message")),
        ("[7]", (1, "the message is not an object")),
        ('[{"role": "user", "content": 7}]', (1, "content is neither a text nor a list")),
        ('[{"role": "user", "content": [7]}]', (1, "a part of content is not an object")),
        ('[{"role": "user", "content": "a", "name": 7}]', (1, "name is 7")),
        ('[{"role": "user", "content": "a"}, {"role": "odd"}]', (2, "role is 'odd'")),
        ('[{"role": "tool", "content": "a"}]', (1, "tool_call_id is missing")),
        ('[{"role": "assistant", "tool_calls": [{"id": "a"}]}]', (1, "function of a tool call")),
        ('[{"role": "assistant", "tool_calls": {}}]', (1, "tool_calls is not a list")),
        ('[{"mapping": {}, "current_node": "x"}]', (1, "'x', which is not in the file")),
        ('[{"mapping": {"a": {"parent": "b"}, "b": {"parent": "a"}}}]', (1, "twice")),
        ('[{"mapping": []}]', (1, "mapping is not an object")),
        ('[{"mapping": {"a": 1}}]', (1, "node 'a' is not an object")),
        ('[{"mapping": {"a": {"message": {"author": {"role": "user"}, "create_time": 1e300}}}}]', (1, "1e+300 is no")),
        ('[{"mapping": {"a": {"message": {"author": {"role": "user"}, "create_time": NaN}}}}]', (1, "node 'a': nan")),
        ('[{"mapping": {"a": {"parent": ["a"]}}}]', (1, "parent is ['a']")),
        ('{"type":"session","id":"x"}\n{"type":"message","id":"a","parentId":"z"}', (2, "'z', which is not in")),
        ('{"type":"session","id":"x"}\n\n{"type":"message","id":"a","message":[]}', (3, "message is not an object")),
        ('{"type":"session","id":"x"}\n{"type":"message"', (2, "the line is not an object")),
        (
            '{"type":"session","id":"x"}\n'
            '{"type":"message","timestamp":"0001-01-01T00:00:00+14:00","message":{"role":"user","content":"a"}}',
            (2, "is no time"),
        ),
        ('{"type":"session","generation":1,"format":2}\n{}', (1, "reads format 1")),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(payload: str | bytes, expected: tuple[int, str]) -> None:
    ((record, detail),) = problems(payload)
    assert record == expected[0]
    assert expected[1] in detail


def test_every_bad_line_is_named_and_nothing_is_taken() -> None:
    lines = exported(user("one", 1), user("two", 2), user("three", 3)).splitlines(keepends=True)
    lines[1] = lines[1].replace(b"one", b"eno")
    lines[3] = encode_line({"seq": 3, "type": "user", "at": "2026-03-01T12:00:00Z", "text": 7})
    found = problems(b"".join([*lines, b'{"seq":\n']))
    assert [record for record, _ in found] == [2, 5]
    assert "checksum" in found[0][1]
    del lines[1]
    assert problems(b"".join(lines)) == [(3, "7 is not a text")]


def test_a_file_made_by_hand_needs_no_checksums() -> None:
    payload = (
        '\ufeff{"type":"session","format":1,"generation":1,"key":"agent:main:main"}\r\n'
        '{"seq":1,"type":"user","at":"2026-03-01T13:00:00+01:00","text":"a\u2028b"}\r\n'
        '{"seq":2,"type":"from_the_future","at":"2026-03-01T12:00:00Z"}\r\n'
    )
    session = only(payload.encode())
    assert session == ImportedSession(entries=(UserEntry(text="a\u2028b", at=AT),), key="agent:main:main", left_out=1)


NAMES = st.sampled_from(
    "role content mapping messages message author parts type id parentId tool_calls current_node parent create_time "
    "name title timestamp text generation format".split()
)
WORDS = st.sampled_from("user assistant tool session message".split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_no_json_breaks_the_import(value: Any) -> None:
    for payload in (json.dumps(value), json.dumps([value]), '{"type":"session"}\n' + json.dumps(value)):
        try:
            sessions = parse_import(payload.encode())
        except ImportProblem:
            continue
        for session in sessions:
            exported(*(dataclasses.replace(entry, seq=n) for n, entry in enumerate(session.entries, 1)))
