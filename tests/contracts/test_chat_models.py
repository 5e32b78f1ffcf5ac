"""What every ChatModel promises, and what each fault of a provider becomes."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from compaction.layout import Prompt, ToolSpec, build_prompt
from gateway.models.anthropic import AnthropicModel
from gateway.models.base import (
    ChatModel,
    ContextOverflow,
    Finished,
    ModelBroken,
    ModelError,
    ModelRejected,
    ModelRequest,
    ModelUnavailable,
    TextDelta,
    complete,
)
from gateway.models.offline import OfflineModel
from gateway.models.openai import OpenAIModel
from gateway.models.policy import ModelPolicy, TimeoutPolicy
from sessions.context import AssistantMessage, ToolMessage, UserMessage
from sessions.entries import Attachment, ToolCall
from tests.bench.standin import BAD_ARGUMENTS, StandIn
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

QUICK = TimeoutPolicy(connect_s=0.5, first_token_s=0.2, between_tokens_s=0.2, total_s=5)
PATIENT = TimeoutPolicy(connect_s=PATIENCE_S, first_token_s=PATIENCE_S, between_tokens_s=PATIENCE_S, total_s=PATIENCE_S)
TIME = ToolSpec(name="current_time", description="The time now.")
REMOTE = ("openai", "anthropic")


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    async with StandIn(slow_s=0.05) as running:
        yield running


@pytest.fixture
async def make(stand_in: StandIn) -> AsyncIterator[Callable[[str], ChatModel]]:
    made: list[ChatModel] = []

    def build(kind: str, timeouts: TimeoutPolicy | None = None, port: int | None = None) -> ChatModel:
        made.append(_model(kind, stand_in if port is None else None, port, timeouts or TimeoutPolicy()))
        return made[-1]

    yield build  # type: ignore[misc]
    for model in made:
        await model.close()


def _model(kind: str, stand_in: StandIn | None, port: int | None, timeouts: TimeoutPolicy) -> ChatModel:
    if kind == "offline":
        return OfflineModel()
    base_url = stand_in.base_url if stand_in else f"http://127.0.0.1:{port}/v1"
    adapter = OpenAIModel if kind == "openai" else AnthropicModel
    policy = ModelPolicy(
        provider="openai" if kind == "openai" else "anthropic", model="m", base_url=base_url, timeouts=timeouts
    )
    return adapter("chat", policy, api_key="key", window=4000, count=len, load_blob=lambda _: b"")


def said(*texts: str, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(
        prompt=build_prompt(system="Be kind.", messages=[UserMessage(text=t) for t in texts], tools=tools)
    )


async def all_of(model: ChatModel, request: ModelRequest) -> tuple[list[str], Finished]:
    events = [event async for event in model.stream(request)]
    last = events.pop()
    assert isinstance(last, Finished)
    assert all(isinstance(event, TextDelta) for event in events)
    return [event.text for event in events if isinstance(event, TextDelta)], last


@pytest.mark.parametrize("kind", [*REMOTE, "offline"])
async def test_a_reply_is_its_deltas_and_finished_comes_once_and_last(
    make: Callable[..., ChatModel], kind: str
) -> None:
    pieces, finished = await all_of(make(kind), said("hello there"))
    assert "".join(pieces) == finished.text
    assert finished.text
    assert finished.finish == "stop"
    assert finished.calls == ()
    assert finished.usage is not None
    assert finished.usage.input_total > 0
    assert finished.usage.output > 0


@pytest.mark.parametrize("kind", [*REMOTE, "offline"])
async def test_a_tool_is_called_and_its_result_answers(make: Callable[..., ChatModel], kind: str) -> None:
    model = make(kind)
    asks = UserMessage(text="what time is it?" if kind == "offline" else 'call:current_time {"timezone": "UTC"}')
    prompt = build_prompt(system="", messages=[asks], tools=[TIME])
    first = await complete(model, ModelRequest(prompt=prompt))
    assert first.finish == "tool_calls"
    (call,) = first.calls
    assert call.id
    assert call.name == "current_time"
    result = ToolMessage(call_id=call.id, name=call.name, text="12:34 UTC")
    messages = [asks, AssistantMessage(text=first.text, calls=first.calls), result]
    second = await complete(model, ModelRequest(prompt=build_prompt(system="", messages=messages, tools=[TIME])))
    assert "12:34 UTC" in second.text
    assert second.finish == "stop"


@pytest.mark.parametrize("kind", [*REMOTE, "offline"])
async def test_a_reader_that_leaves_ends_the_call_and_the_next_one_works(
    make: Callable[..., ChatModel], kind: str
) -> None:
    model = make(kind)
    stream = model.stream(said("fault:hang_middle"))
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert (await complete(model, said("hello"))).text


@dataclass(frozen=True)
class Expected:
    """What a fault becomes: an error of this kind, or a finished reply that fits."""

    error: type[ModelError] | None = None
    text: str | None = None
    partial: bool = False
    finish: str = "stop"
    reported: bool = True


TABLE: dict[str, Expected] = {
    "slow": Expected(),
    "hang": Expected(ModelUnavailable),
    "hang_middle": Expected(ModelUnavailable, partial=True),
    "disconnect": Expected(ModelUnavailable),
    "html": Expected(ModelBroken),
    "html_502": Expected(ModelUnavailable),
    "malformed": Expected(ModelBroken, partial=True),
    "malformed_body": Expected(ModelBroken),
    "cut": Expected(ModelBroken, partial=True),
    "cut_clean": Expected(ModelBroken, partial=True),
    "cut_utf8": Expected(ModelBroken, text="Příliš žluťoučký kůň ", partial=True),
    "empty_choices": Expected(ModelBroken),
    "empty": Expected(ModelBroken),
    "error_in_stream": Expected(ModelUnavailable),
    "error_late": Expected(ModelUnavailable, partial=True),
    "400": Expected(ModelRejected),
    "401": Expected(ModelRejected),
    "404": Expected(ModelRejected),
    "429": Expected(ModelUnavailable),
    "500": Expected(ModelUnavailable),
    "503": Expected(ModelUnavailable),
    "overflow": Expected(ContextOverflow),
    "no_usage": Expected(reported=False),
    "no_done": Expected(),
    "no_stream_options": Expected(reported=False),
    "json_reply": Expected(),
    "length": Expected(finish="length"),
    "filter": Expected(finish="filter"),
    "one_byte": Expected(text="Příliš žluťoučký kůň สวัสดี 你好 🙂"),
    "crlf": Expected(),
    "comments": Expected(),
    "usage_everywhere": Expected(),
    "nulls": Expected(),
}


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize("fault", TABLE)
async def test_a_fault_is_an_answer_or_a_clear_error_and_the_next_turn_works(
    make: Callable[..., ChatModel], kind: str, fault: str
) -> None:
    expected = TABLE[fault]
    model = make(kind, QUICK if fault.startswith("hang") else PATIENT)
    shown: list[str] = []
    finished: Finished | None = None
    error: ModelError | None = None
    try:
        async for event in model.stream(said(f"fault:{fault}")):
            if isinstance(event, TextDelta):
                shown.append(event.text)
            else:
                finished = event
    except ModelError as raised:
        error = raised
    if expected.error is not None:
        assert error is not None, finished
        assert type(error) is expected.error, error
        assert "chat" in str(error)
        assert error.partial == "".join(shown)
        assert bool(shown) == expected.partial
        assert expected.text in (None, error.partial)
    else:
        assert error is None
        assert finished is not None
        assert finished.text == "".join(shown)
        assert finished.text == (expected.text or f"echo: fault:{fault}")
        assert finished.finish == expected.finish
        assert finished.usage is not None
        assert finished.usage.reported or kind == "anthropic" or not expected.reported
    assert (await complete(model, said("still there?"))).text == "echo: still there?"


async def test_the_table_covers_every_fault_of_the_stand_in() -> None:
    from tests.bench.standin import FAULTS

    assert set(FAULTS) - set(TABLE) == {*("long", "broken_args", "object_args", "no_images", "no_tool_choice")}


@pytest.mark.parametrize("kind", REMOTE)
async def test_a_refused_connection_says_where(make: Callable[..., ChatModel], kind: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ModelUnavailable, match=f"chat cannot be reached at http://127.0.0.1:{port}/v1/"):
        await complete(make(kind, port=port), said("hello"))


@pytest.mark.parametrize("kind", REMOTE)
async def test_a_connection_dropped_while_idle_is_opened_again(
    make: Callable[..., ChatModel], stand_in: StandIn, kind: str
) -> None:
    stand_in.script("disconnect")
    assert (await complete(make(kind), said("hello"))).text == "echo: hello"
    assert len(stand_in.requests) == 2


@pytest.mark.parametrize("kind", REMOTE)
async def test_a_rate_limit_says_how_long_to_wait(make: Callable[..., ChatModel], kind: str) -> None:
    with pytest.raises(ModelUnavailable, match="rate limited") as raised:
        await complete(make(kind), said("fault:429"))
    assert raised.value.retry_after_s == 7


@pytest.mark.parametrize("kind", REMOTE)
async def test_an_overflow_carries_the_providers_numbers(make: Callable[..., ChatModel], kind: str) -> None:
    with pytest.raises(ContextOverflow) as raised:
        await complete(make(kind), said("fault:overflow"))
    assert (raised.value.tokens, raised.value.window) == (5120, 4000)


@pytest.mark.parametrize("kind", REMOTE)
async def test_broken_arguments_are_passed_on_and_can_be_sent_back(
    make: Callable[..., ChatModel], stand_in: StandIn, kind: str
) -> None:
    model = make(kind)
    first = await complete(model, said("fault:broken_args", tools=(TIME,)))
    assert first.calls[0].arguments == BAD_ARGUMENTS
    result = ToolMessage(call_id=first.calls[0].id, name="current_time", text="Not JSON.", is_error=True)
    messages = [UserMessage(text="time"), AssistantMessage(text="", calls=first.calls), result]
    await complete(model, ModelRequest(prompt=build_prompt(system="", messages=messages, tools=[TIME])))
    assert "Europe/Pra" in str(stand_in.requests[-1].body["messages"][1])


async def test_arguments_that_come_as_an_object_become_text(make: Callable[..., ChatModel]) -> None:
    finished = await complete(make("openai"), said("fault:object_args", tools=(TIME,)))
    assert finished.calls == (ToolCall(id="call_1", name="current_time", arguments='{"timezone":"UTC"}'),)


@pytest.mark.parametrize("kind", REMOTE)
async def test_a_reply_of_200_000_tokens_arrives_whole(make: Callable[..., ChatModel], kind: str) -> None:
    finished = await complete(make(kind), said("fault:long"))
    assert len(finished.text) == 1_000_000
    assert finished.usage is not None
    assert finished.usage.output == 200_000


@pytest.mark.parametrize("kind", REMOTE)
async def test_usage_counts_cached_input_once(make: Callable[..., ChatModel], stand_in: StandIn, kind: str) -> None:
    finished = await complete(make(kind), said("a" * 4000))
    assert finished.usage is not None
    assert finished.usage.input_total >= 1000
    assert finished.usage.cached_read == finished.usage.input_total // 2
    assert finished.usage.reported


async def test_a_server_that_refuses_stream_options_is_not_asked_for_them_again(
    make: Callable[..., ChatModel], stand_in: StandIn
) -> None:
    model = make("openai")
    await complete(model, said("fault:no_stream_options"))
    await complete(model, said("again"))
    assert ["stream_options" in r.body for r in stand_in.requests] == [True, False, False]


async def test_a_model_that_takes_no_images_is_told_about_them_in_words(
    make: Callable[..., ChatModel], stand_in: StandIn
) -> None:
    picture = Attachment(sha256="0" * 64, media_type="image/png", size_bytes=3, name="cat.png")
    prompt = build_prompt(system="", messages=[UserMessage(text="fault:no_images", attachments=(picture,))])
    model = make("openai")
    assert (await complete(model, ModelRequest(prompt=prompt))).text
    assert (await complete(model, ModelRequest(prompt=prompt))).text
    assert len(stand_in.requests) == 3
    assert "cat.png" in stand_in.requests[-1].last_text


@pytest.mark.parametrize("kind", REMOTE)
async def test_the_total_limit_ends_the_call_and_never_the_reader(make: Callable[..., ChatModel], kind: str) -> None:
    """A slow reader is no fault of the model: its time is not counted, and its own awaits are not cancelled."""
    model = make(kind, TimeoutPolicy(first_token_s=5, between_tokens_s=5, total_s=0.2))
    stream = model.stream(said("hello"))
    assert isinstance(await anext(stream), TextDelta)
    await asyncio.sleep(0.3)
    assert isinstance(await anext(stream), Finished)


@pytest.mark.parametrize("kind", REMOTE)
async def test_params_and_limits_reach_the_provider_in_its_own_words(
    make: Callable[..., ChatModel], stand_in: StandIn, kind: str
) -> None:
    params = {"temperature": 0.5, "stop": "END", "tool_choice": "required"}
    prompt = build_prompt(system="", messages=[UserMessage(text="hi")], tools=[TIME])
    await complete(make(kind), ModelRequest(prompt=prompt, max_output=77, params=params))
    body = stand_in.requests[-1].body
    assert body["temperature"] == 0.5
    assert body["max_tokens"] == 77
    assert body["tool_choice"] == ("required" if kind == "openai" else {"type": "any"})
    assert body["stop" if kind == "openai" else "stop_sequences"] == ("END" if kind == "openai" else ["END"])


@pytest.mark.parametrize("kind", REMOTE)
async def test_a_model_that_must_answer_is_shown_its_tools_all_the_same(
    make: Callable[..., ChatModel], stand_in: StandIn, kind: str
) -> None:
    prompt = build_prompt(system="", messages=[UserMessage(text="call:current_time {}")], tools=[TIME])
    model = make(kind)
    assert (await complete(model, ModelRequest(prompt=prompt))).calls
    assert not (await complete(model, ModelRequest(prompt=prompt, may_call=False))).calls
    before, now = (request.body for request in list(stand_in.requests)[-2:])
    assert now["tools"] == before["tools"], "the tools come first: without them nothing is read from the cache"
    assert now["tool_choice"] == ("none" if kind == "openai" else {"type": "none"})


@pytest.mark.parametrize("kind", REMOTE)
async def test_a_server_that_refuses_to_be_told_so_is_shown_no_tools(
    make: Callable[..., ChatModel], stand_in: StandIn, kind: str
) -> None:
    prompt = build_prompt(system="", messages=[UserMessage(text="hello")], tools=[TIME])
    model = make(kind)
    stand_in.script(*["no_tool_choice"] * 4)
    for _ in range(2):
        assert (await complete(model, ModelRequest(prompt=prompt, may_call=False))).text
        assert "tools" not in stand_in.requests[-1].body
    assert (await complete(model, ModelRequest(prompt=prompt))).text
    assert "tools" in stand_in.requests[-1].body
    assert len(stand_in.requests) == 4, "a refusal is learnt, and not asked for again"


@pytest.mark.parametrize("kind", REMOTE)
async def test_the_key_is_sent_and_this_machine_is_not_described(
    make: Callable[..., ChatModel], stand_in: StandIn, kind: str
) -> None:
    await complete(make(kind), said("hi"))
    headers = {name.lower(): value for name, value in stand_in.requests[-1].headers.items()}
    assert "key" in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))
    assert not [name for name in headers if name.startswith("x-stainless")]


@pytest.mark.parametrize("kind", REMOTE)
async def test_text_no_json_can_carry_is_sent_all_the_same(
    make: Callable[..., ChatModel], stand_in: StandIn, kind: str
) -> None:
    prompt = Prompt(system="", messages=(UserMessage(text="half \ud83d of a pair <|endoftext|>"),))
    await complete(make(kind), ModelRequest(prompt=prompt, params={"top_k": 2**70}))
    assert stand_in.requests[-1].last_text == "half \ufffd of a pair <|endoftext|>"
