from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.cli.chat import Told, follow, status_line
from gateway.cli.client import Daemon
from tests.journeys.daemon import KEY

if TYPE_CHECKING:
    from tests.gateway.cli.conftest import CommandLine
    from tests.journeys.daemon import Client


async def test_a_message_is_sent_and_its_reply_printed(line: CommandLine) -> None:
    assert await line.run("send", KEY, "hello") == "echo: hello\n"
    assert await line.run("send", KEY, "-", typed="two\nlines") == "echo: two\nlines\n"


async def test_chat_without_a_terminal_answers_line_by_line_and_prints_replies_only(line: CommandLine) -> None:
    assert await line.run("chat", "--key", KEY, typed="one\n\ntwo\n") == "echo: one\necho: two\n"


async def test_commands_work_in_chat(line: CommandLine) -> None:
    assert "/compact" in await line.run("chat", "--key", KEY, typed="/help\n")


async def test_a_failed_turn_ends_with_1_and_says_why(line: CommandLine) -> None:
    sent = await line.end("send", KEY, "fault:401")
    talked = await line.end("chat", "--key", KEY, typed="fault:401\n")
    assert (sent.exit_code, talked.exit_code) == (1, 1)
    assert "Traceback" not in sent.output + talked.output
    assert "key" in sent.stderr
    assert "key" in talked.stderr


async def test_a_refusal_ends_with_4_and_the_problem_in_words(line: CommandLine) -> None:
    refused = await line.end("send", "agent:main:nowhere", "hello")
    assert refused.exit_code == 4
    assert ": " in refused.stderr
    assert "Traceback" not in refused.output


async def test_without_a_daemon_a_command_ends_with_3_and_says_how_to_start_one(alone: CommandLine) -> None:
    for words in (["send", KEY, "hello"], ["sessions", "list"], ["export", KEY]):
        result = await alone.end(*words)
        assert result.exit_code == 3
        assert "sessiond serve" in result.stderr
    assert (await alone.end("chat", typed="hello\n")).exit_code == 3


async def test_wrong_use_ends_with_2(alone: CommandLine) -> None:
    assert (await alone.end("send", KEY)).exit_code == 2
    assert (await alone.end("nonsense")).exit_code == 2


async def test_a_token_comes_from_the_environment_only(alone: CommandLine) -> None:
    assert (await alone.end("send", KEY, "hello", "--token", "secret")).exit_code == 2


class Unsteady:
    """An API whose streams break in the middle of a reply, `breaks` times."""

    def __init__(self, breaks: int) -> None:
        self.breaks = breaks
        self.asked_after: list[str | None] = []

    async def start(self) -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_post("/v1/sessions/{key}/messages", self._first)
        app.router.add_get("/v1/turns/t1/events", self._again)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def _first(self, request: web.Request) -> web.StreamResponse:
        return await self._send(
            request, ['id: 1.0\nevent: accepted\ndata: {"turn": "t1"}', 'id: 1.3\nevent: delta\ndata: {"text": "one"}']
        )

    async def _again(self, request: web.Request) -> web.StreamResponse:
        self.asked_after.append(request.headers.get("Last-Event-ID"))
        return await self._send(
            request, ['id: 1.7\nevent: delta\ndata: {"text": "one two"}', 'id: 2.0\nevent: done\ndata: {"turn": "t1"}']
        )

    async def _send(self, request: web.Request, events: list[str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        cut = len(self.asked_after) < self.breaks
        for event in events[: 1 if cut and self.asked_after else None]:
            await response.write(f"{event}\n\n".encode())
        if cut and request.transport is not None:
            request.transport.close()
        return response


async def read(url: str) -> tuple[list[str], list[float]]:
    waited: list[float] = []
    found = await asyncio.to_thread(lambda: list(follow(Daemon(url), KEY, "hello", pause=waited.append)))
    return [str(fields.get("text", name)) for name, fields in found], waited


async def test_a_stream_that_breaks_is_taken_up_where_it_broke() -> None:
    unsteady = Unsteady(breaks=1)
    runner, url = await unsteady.start()
    try:
        assert await read(url) == (["accepted", "one", " two", "done"], [0.0])
    finally:
        await runner.cleanup()
    assert unsteady.asked_after == [None]


async def test_each_further_break_is_waited_for_longer() -> None:
    unsteady = Unsteady(breaks=3)
    runner, url = await unsteady.start()
    try:
        _, waited = await read(url)
    finally:
        await runner.cleanup()
    assert waited == [0.0, 0.5, 1.0]
    assert unsteady.asked_after == [None, None, None]


async def test_the_status_line_tells_session_model_fill_and_tokens(client: Client) -> None:
    turn = (await client.say("hello"))["turn"]
    told = status_line(await client.get(f"/v1/turns/{turn}"))
    assert told.startswith("[session …")
    assert "chat-model" in told
    assert "of 100000" in told
    assert "tokens in" in told


def test_the_status_line_leaves_out_what_is_not_known() -> None:
    turn = {"session": "01J0000000000000000000ABCD", "entries": [], "context": {"share": None}, "finish": "stopped"}
    assert status_line(turn) == "[session …00ABCD · stopped]"


def test_what_was_told_is_not_told_again_and_another_reply_is_not_mixed_with_it() -> None:
    told = Told()

    def read(*pieces: str) -> list[str]:
        told.rewind()
        new = [told.new("accepted", {}), *(told.new("delta", {"text": piece}) for piece in pieces)]
        return [fields.get("text", name) for events in new for name, fields in events]

    assert read("one ", "two ") == ["accepted", "one ", "two "]
    assert read("one two three ") == ["three "]
    assert read("one ", "two three ", "four") == ["four"]
    assert read("one other", " words") == ["again", "one other", " words"]
    assert [name for name, _ in told.new("done", {})] == ["done"]
