"""Both wires: the same prompt gives the same bytes, and what was sent once is sent the same way again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.layout import Prompt, ToolSpec, build_prompt
from gateway.models import anthropic_wire, openai_wire
from sessions.context import AssistantMessage, Message, ToolMessage, UserMessage
from sessions.entries import Attachment, ToolCall
from sessions.files import StorageFailed

PICTURE = Attachment(sha256="0" * 64, media_type="image/png", size_bytes=3, name="cat.png")
PAPER = Attachment(sha256="1" * 64, media_type="application/pdf", size_bytes=9, name="a.pdf")
GONE = Attachment(sha256="2" * 64, media_type="image/png", size_bytes=5)


def load_blob(sha256: str) -> bytes:
    if sha256 == GONE.sha256:
        raise StorageFailed("gone")
    return b"png"


def openai(prompt: Prompt) -> dict[str, Any]:
    return openai_wire.render(prompt, model="m", load_blob=load_blob)


def anthropic(prompt: Prompt) -> dict[str, Any]:
    return anthropic_wire.render(prompt, model="m", load_blob=load_blob)


text = st.text(max_size=20)
call = st.builds(
    ToolCall,
    id=st.sampled_from(["call_0", "call_1", "odd:id 1"]),
    name=st.just("current_time"),
    arguments=st.sampled_from(["", "{}", '{"a": 1}', '{"broken', "[1]"]),
)


@st.composite
def turn(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = [
        UserMessage(
            text=draw(text), attachments=tuple(draw(st.lists(st.sampled_from([PICTURE, PAPER, GONE]), max_size=2)))
        )
    ]
    for _ in range(draw(st.integers(0, 2))):
        calls = tuple(draw(st.lists(call, min_size=1, max_size=2)))
        messages.append(AssistantMessage(text=draw(text), calls=calls))
        messages.extend(ToolMessage(call_id=c.id, name=c.name, text=draw(text)) for c in calls)
    return [*messages, AssistantMessage(text=draw(text) or "ok")]


turns = st.lists(turn(), min_size=1, max_size=4)


def blocks_of(request: dict[str, Any]) -> list[bytes]:
    """What the provider's cache compares: block by block, without the marks."""
    blocks: list[bytes] = []
    for message in request["messages"]:
        content = message["content"] if isinstance(message["content"], list) else [message]
        blocks += [orjson.dumps({k: v for k, v in b.items() if k != "cache_control"}) for b in content]
    return blocks


@pytest.mark.parametrize("render", [openai, anthropic])
@given(history=turns, trailing=text, summary=st.none() | text)
def test_what_changes_with_every_call_stands_behind_a_prefix_that_never_does(
    render: Any, history: list[list[Message]], trailing: str, summary: str | None
) -> None:
    flat = [message for one in history for message in one]
    tools = [ToolSpec(name="b", description=""), ToolSpec(name="a", description="")]
    prompt = build_prompt(system="s", messages=[*flat, UserMessage(text="new")], tools=tools, summary=summary)
    first = render(replace(prompt, trailing=trailing + "12:00"))
    later = [*prompt.messages, AssistantMessage(text="reply"), UserMessage(text="newer")]
    second = render(replace(prompt, messages=tuple(later), trailing=trailing + "12:01", tools=tuple(prompt.tools)))
    assert orjson.dumps(first) == orjson.dumps(render(replace(prompt, trailing=trailing + "12:00")))
    assert (first["tools"], first.get("system")) == (second["tools"], second.get("system"))
    assert blocks_of(second)[: len(blocks_of(first)) - 1] == blocks_of(first)[:-1]


@given(history=turns, summary=st.none() | text, trailing=st.none() | text)
def test_anthropic_gets_what_it_accepts(
    history: list[list[Message]], summary: str | None, trailing: str | None
) -> None:
    messages = [message for one in history for message in one][:-1]
    request = anthropic(build_prompt(system=" ", messages=messages, summary=summary, trailing=trailing))
    roles = [message["role"] for message in request["messages"]]
    assert roles[:1] in ([], ["user"])
    assert all(a != b for a, b in pairwise(roles))
    assert "system" not in request
    marks = 0
    uses: list[str] = []
    for message in request["messages"]:
        kinds = [block["type"] for block in message["content"]]
        assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result"), "results stand first in their message"
        for block in message["content"]:
            marks += "cache_control" in block
            assert block["type"] != "text" or block["text"].strip()
            if block["type"] == "tool_use":
                uses.append(block["id"])
            if block["type"] == "tool_result":
                assert block["tool_use_id"] in uses
    assert marks <= 3
    assert len(uses) == len(set(uses))
    assert all(id_.replace("_", "").replace("-", "").isalnum() for id_ in uses)


def test_anthropic_breakpoints_are_system_summary_and_newest_message_with_the_trailing_block_behind() -> None:
    messages = [UserMessage(text="old"), AssistantMessage(text="ok"), UserMessage(text="new")]
    request = anthropic(build_prompt(system="s", messages=messages, summary="before", trailing="12:00"))
    mark = {"type": "ephemeral"}
    assert request["system"] == [{"type": "text", "text": "s", "cache_control": mark}]
    assert request["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "before", "cache_control": mark},
                {"type": "text", "text": "old"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "new", "cache_control": mark},
                {"type": "text", "text": "12:00"},
            ],
        },
    ]


def test_openai_gets_the_trailing_block_as_a_message_of_its_own() -> None:
    request = openai(build_prompt(system="s", messages=[UserMessage(text="hi")], summary="before", trailing="12:00"))
    assert request["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "before"},
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "12:00"},
    ]


def test_anthropic_without_a_system_text_marks_the_last_tool() -> None:
    tools = [ToolSpec(name="b", description=""), ToolSpec(name="a", description="")]
    request = anthropic(build_prompt(system="", messages=[UserMessage(text="hi")], tools=tools))
    assert ["cache_control" in tool for tool in request["tools"]] == [False, True]


@given(history=turns, trailing=text, summary=st.none() | text)
def test_openai_breakpoints_stay_where_they_were_and_leave_out_what_changes(
    history: list[list[Message]], trailing: str, summary: str | None
) -> None:
    flat = [message for one in history for message in one]
    prompt = build_prompt(system="s", messages=flat, summary=summary, trailing=f"{trailing}12:00")
    later = replace(prompt, messages=(*flat, AssistantMessage(text="reply"), UserMessage(text="newer")))
    first, second = (
        openai_wire.render(one, model="m", load_blob=load_blob, breakpoints=True)["messages"] for one in (prompt, later)
    )
    assert second[: len(first) - 1] == first[:-1]
    assert first[-1] == {"role": "user", "content": f"{trailing}12:00"}
    marked = [m for m in first[:-1] if isinstance(m["content"], list) and "prompt_cache_breakpoint" in m["content"][-1]]
    assert [m for m in first[:-1] if m["role"] != "assistant" and m["content"]] == marked


def test_files_are_shown_or_named() -> None:
    prompt = build_prompt(system="", messages=[UserMessage(text="look", attachments=(PICTURE, PAPER, GONE))])
    none = build_prompt(system="", messages=[UserMessage(text="read", attachments=(PAPER,))])
    assert openai(none)["messages"][0]["content"].startswith("read\n[attached: a.pdf"), "no parts without a picture"
    parts = openai(prompt)["messages"][0]["content"]
    assert parts[0] == {"type": "text", "text": "look"}
    assert parts[1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}
    assert "a.pdf" in parts[2]["text"]
    assert "content is not shown" in parts[3]["text"]
    image, paper, gone, said = anthropic(prompt)["messages"][0]["content"]
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": "cG5n"}
    assert "a.pdf" in paper["text"]
    assert "content is not shown" in gone["text"]
    assert said["text"] == "look"


def test_arguments_of_a_call_go_back_as_the_model_wrote_them_unless_they_are_no_object() -> None:
    written = ['{"b": 1, "a": 12345678901234567890123}', '{"broken', "[1]", ""]
    calls = tuple(ToolCall(id=str(n), name="t", arguments=a) for n, a in enumerate(written))
    prompt = build_prompt(system="", messages=[AssistantMessage(text="", calls=calls)])
    sent = [c["function"]["arguments"] for c in openai(prompt)["messages"][0]["tool_calls"]]
    assert sent == [written[0], '{"unreadable": "{\\"broken"}', '{"unreadable": "[1]"}', "{}"]
    inputs = [block["input"] for block in anthropic(prompt)["messages"][1]["content"]]
    assert inputs == [
        {"b": 1, "a": 12345678901234567890123},
        {"unreadable": '{"broken'},
        {"unreadable": "[1]"},
        {},
    ]
