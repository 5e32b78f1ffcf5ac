"""The published OpenAI client against a daemon."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.bench.standin import Pace, StandIn
from tests.journeys.daemon import Client, config, model_settings, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = "agent:main:web:direct:ana"
NAMED = {"X-Sessiond-Key": KEY}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture
async def api(client: Client) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{client.url}/v1", api_key="none", max_retries=0) as api:
        yield api


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": text}


def asked(standin: StandIn) -> list[tuple[str, str]]:
    """(role, text) of the newest request to the model, without the system text."""
    return [(m["role"], m["content"]) for m in standin.requests[-1].body["messages"] if m["role"] != "system"]


async def test_a_named_session_takes_over_the_history_and_then_the_newest_message_only(
    api: AsyncOpenAI, client: Client, standin: StandIn
) -> None:
    history = [user("my cat is Amálka"), assistant("noted"), user("what is she called?")]
    first = await api.chat.completions.create(model="agent/main", messages=history, extra_headers=NAMED)
    assert asked(standin) == [("user", "my cat is Amálka"), ("assistant", "noted"), ("user", "what is she called?")]
    reply = first.choices[0].message.content
    assert reply
    assert abs(first.created - time.time()) < 60
    assert first.usage is not None
    assert first.usage.prompt_tokens > 0
    again = [*history, assistant(reply), user("thank you")]
    await api.chat.completions.create(model="agent/main", messages=again, extra_headers=NAMED)
    assert [t for r, t in asked(standin) if r == "user"] == ["my cat is Amálka", "what is she called?", "thank you"]
    texts = await client.texts()
    assert texts[:4] == ["my cat is Amálka", "noted", "what is she called?", reply]
    assert len(texts) == 6


async def test_a_stream_gives_the_same_text_and_usage_when_asked_for(api: AsyncOpenAI, client: Client) -> None:
    stream = await api.chat.completions.create(
        model="agent/main",
        messages=[user("one two three four")],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=NAMED,
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == (await client.texts())[-1]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


@pytest.mark.parametrize(
    ("named", "key"),
    [
        ({"extra_headers": {"X-Sessiond-Key": "agent:main:web:group:g"}}, "agent:main:web:group:g"),
        ({"extra_headers": {"X-OpenWebUI-Chat-Id": "c1"}}, "agent:main:openai:direct:c1"),
        (
            {"extra_headers": {"X-OpenWebUI-Chat-Id": "c1", "X-OpenWebUI-User-Id": "ana"}},
            "agent:main:openai:direct:ana:thread:c1",
        ),
        ({"extra_headers": {"X-LibreChat-Conversation-Id": "c2"}}, "agent:main:openai:direct:c2"),
        ({"metadata": {"session_id": "c3"}}, "agent:main:openai:direct:c3"),
        ({"user": "ana"}, "agent:main:openai:direct:ana"),
        ({"user": "ana", "metadata": {"session_id": "c3"}}, "agent:main:openai:direct:ana:thread:c3"),
    ],
)
async def test_the_session_is_named_in_many_ways(
    api: AsyncOpenAI, client: Client, named: dict[str, Any], key: str
) -> None:
    await api.chat.completions.create(model="agent/main", messages=[user("hello")], **named)
    assert (await client.texts(key))[0] == "hello"


async def test_names_that_no_id_can_hold_stay_apart(api: AsyncOpenAI, client: Client) -> None:
    for name in ("a/b", "a:b", "a b ", "a" * 500):
        await api.chat.completions.create(model="agent/main", messages=[user(f"from {name}")], user=name[:512])
    sessions = (await client.get("/v1/sessions"))["sessions"]
    assert len(sessions) == 4
    assert {s["messages"] for s in sessions} == {2}


async def test_without_a_name_nothing_is_kept(api: AsyncOpenAI, client: Client, standin: StandIn) -> None:
    messages = [{"role": "system", "content": "Be brief."}, user("one"), assistant("1"), user("two")]
    answer = await api.chat.completions.create(model="chat", messages=messages)  # pyright: ignore
    assert answer.choices[0].message.content
    assert asked(standin) == [("user", "one"), ("assistant", "1"), ("user", "two")]
    assert standin.requests[-1].body["messages"][0]["content"] == "Be brief."
    assert (await client.get("/v1/sessions"))["sessions"] == []
    stream = await api.chat.completions.create(model="chat", messages=[user("a b c")], stream=True)
    assert "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])


async def test_a_side_call_of_a_frontend_does_not_enter_the_conversation(api: AsyncOpenAI, client: Client) -> None:
    await api.chat.completions.create(model="agent/main", messages=[user("about bees")], extra_headers=NAMED)
    task = "### Task:\nGenerate a concise title for the chat history."
    title = await api.chat.completions.create(model="agent/main", messages=[user(task)], extra_headers=NAMED)
    assert title.choices[0].message.content
    assert len(await client.texts()) == 2


async def test_after_a_reset_the_history_a_client_sends_again_stays_away(
    api: AsyncOpenAI, client: Client, standin: StandIn
) -> None:
    await api.chat.completions.create(model="agent/main", messages=[user("old")], extra_headers=NAMED)
    await client.call("POST", f"/v1/sessions/{KEY}/reset")
    again = [user("old"), assistant("reply"), user("new")]
    await api.chat.completions.create(model="agent/main", messages=again, extra_headers=NAMED)
    assert asked(standin) == [("user", "new")]


async def test_a_call_to_a_tool_of_the_client_ends_the_answer_and_its_result_goes_on(
    api: AsyncOpenAI, client: Client, standin: StandIn
) -> None:
    question = user('call:weather {"city": "Brno"}')
    answer = await api.chat.completions.create(
        model="agent/main", messages=[question], tools=[WEATHER], extra_headers=NAMED
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Brno"}')
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    again: list[Any] = [question, answer.choices[0].message.to_dict(), result]
    final = await api.chat.completions.create(model="agent/main", messages=again, tools=[WEATHER], extra_headers=NAMED)
    assert final.choices[0].finish_reason == "stop"
    assert [role for role, _ in asked(standin)] == ["user", "assistant", "tool"]
    kinds = [e["type"] for e in await client.transcript()]
    assert kinds == ["user", "assistant", "tool_result", "assistant"]


async def test_a_streamed_call_to_a_tool_of_the_client(api: AsyncOpenAI) -> None:
    stream = await api.chat.completions.create(
        model="agent/main",
        messages=[user('call:weather {"city": "Brno"}')],
        tools=[WEATHER],
        stream=True,
        extra_headers=NAMED,
    )
    chunks = [chunk async for chunk in stream]
    calls = [c for chunk in chunks if chunk.choices for c in chunk.choices[0].delta.tool_calls or ()]
    assert calls[0].function is not None
    assert calls[0].function.arguments == '{"city": "Brno"}'
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_errors_are_what_the_client_reads(api: AsyncOpenAI, standin: StandIn) -> None:
    with pytest.raises(openai.NotFoundError, match="no model"):
        await api.chat.completions.create(model="nope", messages=[user("hi")])
    with pytest.raises(openai.BadRequestError, match="logprobs"):
        await api.chat.completions.create(model="agent/main", messages=[user("hi")], logprobs=True)
    with pytest.raises(openai.BadRequestError, match="session key"):
        await api.chat.completions.create(
            model="agent/main", messages=[user("hi")], extra_headers={"X-Sessiond-Key": "nonsense"}
        )
    standin.script("401")
    with pytest.raises(openai.APIStatusError, match="key"):
        await api.chat.completions.create(model="agent/main", messages=[user("hi")], extra_headers=NAMED)


async def test_who_may_not_or_not_now_is_told_in_the_client_s_own_errors(tmp_path: Path) -> None:
    tokens = [{"name": "ana", "token": "ana", "role": "user", "user": "ana"}]
    server = {"rate_limit_per_minute": 12, "max_body_bytes": 2000}
    async with running(tmp_path, config(auth={"tokens": tokens}, server=server)) as client:
        stranger = AsyncOpenAI(base_url=f"{client.url}/v1", api_key="unknown", max_retries=0)
        for asking in (
            stranger.models.list(),
            stranger.chat.completions.create(model="agent/main", messages=[user("hi")]),
        ):
            with pytest.raises(openai.AuthenticationError, match=r"auth\.tokens") as told:
                await asking
            assert (told.value.code, told.value.type) == ("invalid_api_key", "authentication_error")
        known = AsyncOpenAI(base_url=f"{client.url}/v1", api_key="ana", max_retries=0)
        await known.models.list()
        with pytest.raises(openai.APIStatusError, match="max_body_bytes") as large:
            await known.chat.completions.create(model="agent/main", messages=[user("x" * 3000)])
        assert (large.value.status_code, large.value.code) == (413, "request_too_large")
        for asking in (known.models.list(), known.chat.completions.create(model="agent/main", messages=[user("hi")])):
            with pytest.raises(openai.RateLimitError, match="12 requests a minute") as wait:
                await asking
            assert wait.value.code == "rate_limit_exceeded"
            assert int(wait.value.response.headers["Retry-After"]) > 0


async def test_the_models_are_agents_and_configured_models(tmp_path: Path, standin: StandIn) -> None:
    settings = config(agents={"helper": {"system": "Help."}}, **model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        api = AsyncOpenAI(base_url=f"{client.url}/v1", api_key="none")
        names = [model.id async for model in api.models.list()]
        assert names[:2] == ["agent/main", "agent/helper"]
        assert "chat" in names
        await api.chat.completions.create(model="agent/helper", messages=[user("hi")], user="ana")
        assert standin.requests[-1].body["messages"][0]["content"] == "Help."
        assert (await client.texts("agent:helper:openai:direct:ana"))[0] == "hi"
        await api.close()


async def test_two_first_requests_at_once_take_the_history_over_once(api: AsyncOpenAI, client: Client) -> None:
    history = [user("long ago"), assistant("yes")]
    await asyncio.gather(
        *(
            api.chat.completions.create(model="agent/main", messages=[*history, user(text)], extra_headers=NAMED)
            for text in ("one", "two")
        )
    )
    texts = await client.texts()
    assert texts.count("long ago") == 1
    assert {"one", "two"} <= set(texts)


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_without_a_session_are_counted_among_those_that_run_at_once(tmp_path: Path, stream: bool) -> None:
    async with (
        StandIn(Pace(first_token_ms=300)) as slow,
        running(tmp_path, config(**model_settings(slow.base_url), turn={"max_parallel": 1})) as client,
    ):
        await client.say("warm up")
        hello = {"model": "agent/main", "messages": [user("hello")], "stream": stream}
        started = time.monotonic()
        first, second = await asyncio.gather(client.say("hello"), client.call("POST", "/v1/chat/completions", hello))
        assert time.monotonic() - started >= 0.6
        assert (first["state"], second[0]) == ("done", 200)
