"""The addresses of the console: signing in, and its pages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from aiohttp import web
from pydantic import Field

from gateway.console import assets
from gateway.console.charts import bar_chart
from gateway.console.chat_pages import ChatPages
from gateway.console.desk import Desk
from gateway.console.job_pages import JobPages
from gateway.console.logins import LASTS
from gateway.console.memory_pages import MemoryPages
from gateway.console.memory_work import MemoryWork
from gateway.console.rendering import Pages
from gateway.console.settings import settings_of
from gateway.console.troubles import summaries_on, summarised_on, troubles
from gateway.console.views import cost_bars, day_bars, micros_text, share_of, spent_in
from gateway.diagnosis import examine
from gateway.http.health import daemon_checks, readiness
from gateway.http.origins import check_own_page
from gateway.http.pipeline import COOKIE
from gateway.http.problems import Problem
from gateway.http.routes import Body, Call, Route
from sessions.index import SCAN_LIMIT
from sessions.listing import SessionSort

if TYPE_CHECKING:
    from gateway.console.logins import Logins
    from gateway.http.auth import Tokens
    from gateway.ledger import UsageGroup, UsageRow
    from gateway.parts import Parts

SHOWN = 8
USAGE_ROWS = 20


class SessionsQuery(Body):
    q: Annotated[str, Field(max_length=200)] = ""
    agent: Annotated[str, Field(max_length=512)] = ""
    channel: Annotated[str, Field(max_length=512)] = ""
    type: Literal["", "main", "direct", "group", "channel", "sub", "cron", "hook"] = ""
    state: Literal["active", "archived"] = "active"
    sort: SessionSort = "active"
    cursor: Annotated[str, Field(max_length=100)] = ""


class UsageQuery(Body):
    days: Literal["7", "30", "90"] = "30"


class Console:
    """The pages; one method for each route of the table below."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._parts = desk.parts

    # --- signing in -----------------------------------------------------------------------------------------------

    async def login(self, call: Call) -> web.StreamResponse:
        if self._desk.tokens.open:
            raise web.HTTPSeeOther("/console")
        return self._desk.pages.show("login.html", caller=None, csrf="", wrong=False)

    async def sign_in(self, call: Call) -> web.StreamResponse:
        check_own_page(call.request.headers, self._parts.config.server.cors_origins)
        form = await call.request.post()
        secret = form.get("token")
        now = self._parts.clock.now()
        cookie = (
            await asyncio.to_thread(self._desk.logins.sign_in, secret.strip(), now) if isinstance(secret, str) else None
        )
        if cookie is None:
            return self._desk.pages.show("login.html", 401, caller=None, csrf="", wrong=True)
        answer = web.HTTPSeeOther("/console")
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=int(LASTS.total_seconds()),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=call.request.secure,
        )
        raise answer

    async def sign_out(self, call: Call) -> web.StreamResponse:
        form = await call.request.post()
        cookie = call.request.cookies.get(COOKIE, "")
        if not self._desk.logins.is_genuine(cookie, str(form.get("csrf", ""))):
            raise Problem(403, "Not from the console", "Reload the page, then sign out again.")
        await asyncio.to_thread(self._desk.logins.sign_out, cookie)
        answer = web.HTTPSeeOther("/console/login")
        answer.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        raise answer

    # --- pages ----------------------------------------------------------------------------------------------------

    async def overview(self, call: Call) -> web.StreamResponse:
        now = self._parts.clock.now()
        today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        index, mine = self._parts.store.index, self._desk.seen_by(call.caller, limit=SHOWN)
        days = [f"{today - timedelta(days=ago):%Y-%m-%d}" for ago in (0, 1)]
        summarised = await index.fitting(mine, summarised_on(days))
        recent, _ = await index.page_beside(mine)
        fullest, _ = await index.page_beside(replace(mine, sort="context"))
        rows = await self._desk.usage(call.caller, ["day"], today - timedelta(days=1))
        return self._desk.show(
            "overview.html",
            call,
            running=self._parts.turns.running,
            active=await index.used_since(mine, today),
            among=SCAN_LIMIT if index.count() > SCAN_LIMIT else None,
            today=spent_in([row for row in rows if row.group["day"] == f"{today:%Y-%m-%d}"]),
            before=spent_in([row for row in rows if row.group["day"] != f"{today:%Y-%m-%d}"]),
            summaries=[summaries_on(summarised, day) for day in days],
            troubles=await troubles(self._parts, call.caller, summarised),
            fullest=[self._desk.row(record) for record in fullest if share_of(record) is not None],
            recent=[self._desk.row(record) for record in recent],
            parts=readiness(daemon_checks(self._parts)).parts if call.caller.role == "admin" else {},
        )

    async def sessions(self, call: Call) -> web.StreamResponse:
        query: SessionsQuery = call.query
        index = self._parts.store.index
        wanted = self._desk.seen_by(
            call.caller,
            limit=50,
            cursor=query.cursor or None,
            state=query.state,
            agent=query.agent or None,
            channel=query.channel or None,
            type=query.type or None,
            search=query.q.casefold() or None,
            sort=query.sort,
        )
        found, cursor = await index.page_beside(wanted)
        return self._desk.show(
            "sessions.html",
            call,
            query=query,
            orders=get_args(SessionSort),
            rows=[self._desk.row(record) for record in found],
            cursor=cursor,
            among=SCAN_LIMIT if not wanted.by_use and index.count(query.state) > SCAN_LIMIT else None,
        )

    async def usage(self, call: Call) -> web.StreamResponse:
        query: UsageQuery = call.query
        now = self._parts.clock.now().astimezone(UTC)
        since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=int(query.days) - 1)
        days = [f"{since + timedelta(days=n):%Y-%m-%d}" for n in range(int(query.days))]
        tables: dict[str, list[UsageRow]] = {}
        groups: tuple[UsageGroup, ...] = ("model", "agent", "role", "user", "key")
        for name in groups:
            rows = await self._desk.usage(call.caller, [name], since)
            tables[name] = sorted(rows, key=lambda row: row.usage.input_total + row.usage.output, reverse=True)[
                :USAGE_ROWS
            ]
        by_day = await self._desk.usage(call.caller, ["day"], since)
        texts = self._desk.pages.texts["usage"]
        names = (texts["plain"], texts["cached"], texts["written"], texts["output"])
        costs = cost_bars(by_day, days)
        return self._desk.show(
            "usage.html",
            call,
            days=query.days,
            since=since,
            tables={"day": sorted(by_day, key=lambda row: str(row.group["day"]), reverse=True), **tables},
            names=names,
            shown=USAGE_ROWS,
            causes=sorted((await self._desk.causes(call.caller, since)).items(), key=lambda one: -one[1]),
            chart=bar_chart(day_bars(by_day, days), names, texts["tokens_by_day"]),
            costs=bar_chart(costs, [texts["cost"]], texts["cost_by_day"], micros_text) if costs else None,
        )

    async def settings(self, call: Call) -> web.StreamResponse:
        config = self._parts.config
        return self._desk.show(
            "settings.html",
            call,
            findings=await asyncio.to_thread(examine, config, self._parts.data_dir),
            parts=readiness(daemon_checks(self._parts)).parts,
            settings=settings_of(config),
            tokens=config.auth.tokens,
        )


def routes(parts: Parts, tokens: Tokens, logins: Logins) -> list[Route]:
    """The table of addresses under /console."""
    files = assets.load_assets()
    desk = Desk(parts, tokens, logins, Pages(assets.version_of(files)))
    at, page = Console(desk), desk.page
    return [
        page("GET", "", at.overview, "Overview"),
        page("GET", "/login", at.login, "Sign in", public=True),
        page("POST", "/login", at.sign_in, "Sign in", public=True),
        page("POST", "/logout", at.sign_out, "Sign out", public=True),
        page("GET", "/sessions", at.sessions, "Sessions", query=SessionsQuery),
        page("GET", "/usage", at.usage, "Usage", query=UsageQuery),
        page("GET", "/settings", at.settings, "Settings", roles=("admin",)),
        *ChatPages(desk).routes(),
        *MemoryWork(desk).routes(),
        *MemoryPages(desk).routes(),
        *JobPages(desk).routes(),
        *assets.routes(files),
    ]
