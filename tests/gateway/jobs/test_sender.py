"""What is not allowed is not connected to, however it is written."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from gateway.jobs.policy import DeliverPolicy, DeliverTo
from gateway.jobs.sender import Outcome, Sender

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

LOOPBACK = ["127.0.0.1", "localhost", "127.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "0x7f.1", "[::ffff:127.0.0.1]"]
SCRIPTS = ["１２７.0.0.1", "127。0。0。1", "①27.0.0.1", "ⓛocalhost"]


@asynccontextmanager
async def listening(hits: list[str], *, location: str | None = None) -> AsyncGenerator[int]:
    """The port of a receiver on this machine."""

    async def take(request: web.Request) -> web.Response:
        hits.append(request.path)
        leads = {} if location is None else {"Location": location}
        return web.Response(status=200 if location is None else 307, headers=leads)

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def sent(url: str, *allow: str) -> Outcome:
    sender = Sender(DeliverPolicy(allow=allow))
    try:
        return await sender.send(DeliverTo(url=url), "m", 1, b"{}")
    finally:
        await sender.close()


@pytest.mark.parametrize("host", LOOPBACK + SCRIPTS)
async def test_this_machine_is_not_reached_under_any_of_its_names(host: str) -> None:
    hits: list[str] = []
    async with listening(hits) as port:
        outcome = await sent(f"http://{host}:{port}/x")
        assert not outcome.sent
        assert hits == []
        assert (await sent(f"http://127.0.0.1:{port}/x", f"127.0.0.1:{port}")).sent


@pytest.mark.parametrize("host", ["127.0.0.1", *SCRIPTS])
async def test_nor_does_a_redirect_lead_there(host: str) -> None:
    inner: list[str] = []
    outer: list[str] = []
    async with (
        listening(inner) as port,
        listening(outer, location=f"http://{host}:{port}/x") as open_port,
    ):
        outcome = await sent(f"http://127.0.0.1:{open_port}/", f"127.0.0.1:{open_port}")
        assert outcome.refused
        assert (outer, inner) == (["/"], [])
