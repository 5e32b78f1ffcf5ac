from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.journeys.daemon import KEY, Client, config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn


async def test_a_message_gets_a_reply_and_both_are_on_disk_before_it_is_told(client: Client) -> None:
    answer = await client.say("hello there")
    assert answer["state"] == "done"
    assert answer["text"]
    assert [e["type"] for e in answer["entries"]] == ["user", "assistant"]
    (file,) = (client.daemon.parts.data_dir / "transcripts" / "main").glob("*.jsonl")
    assert b"hello there" in file.read_bytes()
    assert answer["usage"]["reported"] is True


async def test_the_history_is_sent_and_its_bytes_do_not_change(client: Client, standin: StandIn) -> None:
    for text in ("one", "two", "three"):
        await client.say(text)
    bodies = [request.body["messages"] for request in standin.requests]
    assert [m["content"] for m in bodies[2] if m["role"] == "user"] == ["one", "two", "three"]
    assert bodies[2][: len(bodies[1])] == bodies[1]
    assert bodies[1][: len(bodies[0])] == bodies[0]


async def test_a_stream_tells_acceptance_deltas_usage_and_end(client: Client) -> None:
    events = await client.events("POST", f"/v1/sessions/{KEY}/messages", {"text": "a b c", "stream": True})
    names = [name for _, name, _ in events]
    assert names[0] == "accepted"
    assert names[-2:] == ["usage", "done"]
    text = "".join(fields["text"] for _, name, fields in events if name == "delta")
    assert text == events[-1][2]["text"]


async def test_a_reader_that_comes_back_gets_what_it_has_missed(client: Client) -> None:
    events = await client.events("POST", f"/v1/sessions/{KEY}/messages", {"text": "a b c d", "stream": True})
    turn = events[0][2]["turn"]
    for position, (event_id, _, _) in enumerate(events):
        rest = await client.events("GET", f"/v1/turns/{turn}/events", after=event_id)
        whole = "".join(f["text"] for _, name, f in events[position + 1 :] if name == "delta")
        assert "".join(f["text"] for _, name, f in rest if name == "delta") == whole
        assert position == len(events) - 1 or rest[-1][1] == "done"


async def test_a_reader_that_comes_back_after_a_restart_gets_the_turn_from_its_beginning(
    tmp_path: Path, standin: StandIn
) -> None:
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        events = await client.events("POST", f"/v1/sessions/{KEY}/messages", {"text": "a b c", "stream": True})
        turn, last = events[0][2]["turn"], events[-1][0]
    async with running(tmp_path, settings) as client:
        again = await client.events("GET", f"/v1/turns/{turn}/events", after=last)
        assert [name for _, name, _ in again] == ["accepted", "delta", "usage", "done"]
        assert again[-1][2]["text"] == events[-1][2]["text"]
        assert await client.events("GET", f"/v1/turns/{turn}/events", after=again[-1][0]) == []


async def test_a_message_sent_again_after_its_turn_failed_stands_in_the_conversation_once(
    client: Client, standin: StandIn
) -> None:
    path = f"/v1/sessions/{KEY}/messages"
    await client.say("before")
    for _ in range(2):
        standin.script("500")
        status, problem = await client.call("POST", path, {"text": "hello"})
        assert status == 503, problem
    await client.say("hello")
    sent = [m["content"] for m in standin.requests[-1].body["messages"] if m["role"] == "user"]
    assert sent == ["before", "hello"]
    kinds = [entry["type"] for entry in await client.transcript()]
    retried = ["user", "retracted", "turn_failed", "user", "retracted", "assistant"]
    assert kinds == ["user", "assistant", "user", "turn_failed", *retried]
    await client.say("hello")
    sent = [m["content"] for m in standin.requests[-1].body["messages"] if m["role"] == "user"]
    assert sent == ["before", "hello", "hello"]


async def test_leaving_cancels_nothing(client: Client, standin: StandIn) -> None:
    standin.script("slow")
    events = await client.events("POST", f"/v1/sessions/{KEY}/messages", {"text": "stay", "stream": True}, limit=1)
    turn = events[0][2]["turn"]
    events = await client.events("GET", f"/v1/turns/{turn}/events")
    assert events[-1][1] == "done"
    assert (await client.get(f"/v1/turns/{turn}"))["state"] == "done"


async def test_the_same_request_id_is_the_same_turn_and_another_body_a_conflict(client: Client) -> None:
    first = await client.say("once", request_id="r1")
    assert (await client.say("once", request_id="r1"))["turn"] == first["turn"]
    status, problem = await client.call("POST", f"/v1/sessions/{KEY}/messages", {"text": "other", "request_id": "r1"})
    assert (status, problem["title"]) == (409, "Request id used before")
    assert await client.texts() == ["once", first["text"]]


async def test_a_request_id_is_known_after_a_restart_and_after_a_reset(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        first = await client.say("once", request_id="r1")
    async with running(tmp_path, settings) as client:
        assert (await client.say("once", request_id="r1"))["turn"] == first["turn"]
        await client.say("/new")
        assert (await client.say("once", request_id="r1"))["turn"] == first["turn"]
    assert len(standin.requests) == 1


async def test_a_tool_call_is_run_and_written_and_the_reply_follows(client: Client) -> None:
    answer = await client.say('call:current_time {"timezone": "Europe/Prague"}')
    kinds = [e["type"] for e in answer["entries"]]
    assert kinds == ["user", "assistant", "tool_result", "assistant"]
    assert "Europe/Prague" in answer["entries"][2]["text"]


async def test_broken_arguments_become_an_error_result_and_the_turn_goes_on(client: Client, standin: StandIn) -> None:
    standin.script("broken_args")
    answer = await client.say("call:current_time {}")
    results = [e for e in answer["entries"] if e["type"] == "tool_result"]
    assert [r["is_error"] for r in results] == [True]
    assert answer["state"] == "done"


@pytest.mark.parametrize(
    "fault", ["400", "401", "429", "500", "html", "malformed_body", "empty_choices", "empty", "error_in_stream"]
)
async def test_a_failing_model_is_told_and_the_next_turn_works(client: Client, standin: StandIn, fault: str) -> None:
    standin.script(fault)
    status, problem = await client.call("POST", f"/v1/sessions/{KEY}/messages", {"text": "first"})
    assert status in (502, 503)
    assert problem["detail"]
    assert problem["turn"]
    assert (await client.say("second"))["state"] == "done"
    kinds = [e["type"] for e in await client.transcript()]
    assert kinds == ["user", "turn_failed", "user", "assistant"]
    sent = standin.requests[-1].body["messages"]
    assert [m["content"] for m in sent if m["role"] == "user"] == ["first", "second"]


async def test_when_a_limited_model_may_be_asked_again_is_passed_on(client: Client, standin: StandIn) -> None:
    hello = {"model": "agent/main", "messages": [{"role": "user", "content": "hello"}]}
    for path, body in (
        (f"/v1/sessions/{KEY}/messages", {"text": "hello"}),
        ("/v1/chat/completions", {**hello, "user": "ana"}),
        ("/v1/chat/completions", hello),
    ):
        standin.script("429")
        async with client._session.post(f"{client.url}{path}", json=body) as response:
            assert (response.status, response.headers.get("Retry-After")) == (503, "7"), path
    standin.script("429")
    told = await client.events("POST", f"/v1/sessions/{KEY}/messages", {"text": "hello?"})
    assert told[-1][1] == "error"
    assert told[-1][2]["retry_after_s"] == 7


@pytest.mark.parametrize("fault", ["cut", "cut_utf8", "error_late", "malformed"])
async def test_a_stream_that_breaks_keeps_what_was_shown(client: Client, standin: StandIn, fault: str) -> None:
    standin.script(fault)
    answer = await client.say("one two three four five six seven eight nine ten")
    assert answer["finish"] == "incomplete"
    assert answer["text"]
    assert (await client.say("go on"))["finish"] == "stop"


async def test_text_no_utf8_can_hold_and_special_tokens_are_taken(client: Client) -> None:
    path = f"/v1/sessions/{KEY}/messages"
    status, answer = await client.call("POST", path, b'{"text": "half \\ud83d and <|endoftext|> \\u0000"}')
    assert status == 200, answer
    assert answer["entries"][0]["text"] == "half \ufffd and <|endoftext|> \x00"


async def test_an_image_is_kept_once_shown_to_the_model_and_gone_with_its_session(
    client: Client, standin: StandIn
) -> None:
    pixel = "data:image/png;base64,aGVsbG8="
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image", "url": pixel, "name": "a.png"}]
    for _ in range(2):
        status, _ = await client.call("POST", f"/v1/sessions/{KEY}/messages", {"content": parts})
        assert status == 200
    content = standin.requests[0].body["messages"][-1]["content"]
    assert content[1]["image_url"]["url"] == pixel
    blobs = client.daemon.parts.data_dir / "blobs"
    assert sorted(p.stat().st_size for p in blobs.rglob("*") if p.is_file()) == [0, 5]
    assert (await client.call("DELETE", f"/v1/sessions/{KEY}"))[0] == 200
    assert [p for p in blobs.rglob("*") if p.is_file()] == []


async def test_many_sessions_answer_side_by_side(client: Client) -> None:
    keys = [f"agent:main:web:group:g{n}" for n in range(20)]
    answers = await asyncio.gather(*(client.say(f"text of {key}", key) for key in keys))
    assert [a["key"] for a in answers] == keys
    for key in keys:
        assert (await client.texts(key))[0] == f"text of {key}"


async def test_out_of_the_box_the_offline_model_answers_and_says_what_it_is(offline: Client) -> None:
    await offline.say("My cat is called Amálka.")
    answer = await offline.say("What is my cat called?")
    assert "Amálka" in answer["text"]
    assert "offline model" in answer["text"]


async def test_in_a_group_the_model_is_told_who_speaks(client: Client, standin: StandIn) -> None:
    group = "agent:main:web:group:g"
    await client.say("hi all", group, sender="1", sender_name="Ana")
    await client.say("hi Ana", group, sender="2", sender_name="Bob")
    users = [m["content"] for m in standin.requests[-1].body["messages"] if m["role"] == "user"]
    assert users == ["Ana: hi all", "Bob: hi Ana"]
    assert [e["text"] for e in await client.transcript(group) if e["type"] == "user"] == ["hi all", "hi Ana"]
