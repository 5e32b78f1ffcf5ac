"""The addresses of the console: signing in, and its pages."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from aiohttp import web
from pydantic import Field

from gateway.console import assets
from gateway.console.charts import bar_chart
from gateway.console.logins import LASTS, csrf_of
from gateway.console.rendering import Pages
from gateway.console.views import chat_items, day_bars, session_row, share_of, spent_in
from gateway.http.auth import Caller, may_post, may_see
from gateway.http.health import daemon_checks, readiness
from gateway.http.pipeline import COOKIE
from gateway.http.problems import Problem, not_found
from gateway.http.routes import Body, Call, Route
from gateway.http.usage import usage_of_caller
from gateway.ledger import LedgerClosed
from sessions.index import PageQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from gateway.console.logins import Logins
    from gateway.http.auth import Tokens
    from gateway.ledger import UsageGroup, UsageRow
    from gateway.parts import Parts
    from sessions.entries import Entry
    from sessions.record import SessionRecord, SessionState
    from sessions.store import Session

LOOKED_AT = 500
SHOWN = 40
USAGE_DAYS = 30


class SessionsQuery(Body):
    q: Annotated[str, Field(max_length=200)] = ""
    agent: Annotated[str, Field(max_length=512)] = ""
    channel: Annotated[str, Field(max_length=512)] = ""
    type: Literal["", "main", "direct", "group", "channel", "sub", "cron", "hook"] = ""
    state: Literal["active", "archived"] = "active"
    cursor: Annotated[str, Field(max_length=100)] = ""


class OlderQuery(Body):
    before: Annotated[int, Field(ge=1, le=2**53)] | None = None
    after: Annotated[int, Field(ge=0, le=2**53)] | None = None


class UsageQuery(Body):
    days: Literal["7", "30", "90"] = "30"


class Console:
    """The pages; one method for each route of the table below."""

    def __init__(self, parts: Parts, tokens: Tokens, logins: Logins, pages: Pages) -> None:
        self._parts = parts
        self._tokens = tokens
        self._logins = logins
        self._pages = pages

    # --- signing in -----------------------------------------------------------------------------------------------

    async def login(self, call: Call) -> web.StreamResponse:
        if self._tokens.open:
            raise web.HTTPSeeOther("/console")
        return self._pages.show("login.html", caller=None, csrf="", wrong=False)

    async def sign_in(self, call: Call) -> web.StreamResponse:
        form = await call.request.post()
        secret = form.get("token")
        now = self._parts.clock.now()
        cookie = await asyncio.to_thread(self._logins.sign_in, secret.strip(), now) if isinstance(secret, str) else None
        if cookie is None:
            return self._pages.show("login.html", 401, caller=None, csrf="", wrong=True)
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
        if not self._logins.is_genuine(cookie, str(form.get("csrf", ""))):
            raise Problem(403, "Not from the console", "Reload the page, then sign out again.")
        await asyncio.to_thread(self._logins.sign_out, cookie)
        answer = web.HTTPSeeOther("/console/login")
        answer.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        raise answer

    # --- pages ----------------------------------------------------------------------------------------------------

    async def overview(self, call: Call) -> web.StreamResponse:
        now = self._parts.clock.now()
        today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        recent = self._records(call.caller, "active", LOOKED_AT)
        rows = await self._usage(call.caller, ["day"], today - timedelta(days=1))
        measured = sorted((r for r in recent if share_of(r) is not None), key=lambda r: share_of(r) or 0, reverse=True)
        return self._show(
            "overview.html",
            call,
            running=self._parts.turns.running,
            active=sum(1 for record in recent if record.active_at >= today),
            more=len(recent) == LOOKED_AT,
            today=spent_in([row for row in rows if row.group["day"] == f"{today:%Y-%m-%d}"]),
            before=spent_in([row for row in rows if row.group["day"] != f"{today:%Y-%m-%d}"]),
            fullest=[self._row(record) for record in measured[:8]],
            recent=[self._row(record) for record in recent[:8]],
            parts=readiness(daemon_checks(self._parts)).parts if call.caller.role == "admin" else {},
            url=str(call.request.url.origin()),
        )

    async def sessions(self, call: Call) -> web.StreamResponse:
        query: SessionsQuery = call.query
        found, cursor = self._parts.store.index.page(
            PageQuery(
                limit=50,
                cursor=query.cursor or None,
                state=query.state,
                agent=query.agent or None,
                channel=query.channel or None,
                type=query.type or None,
                search=query.q.casefold() or None,
                allowed=_allowed(call.caller),
            )
        )
        return self._show(
            "sessions.html", call, query=query, rows=[self._row(record) for record in found], cursor=cursor
        )

    async def session(self, call: Call) -> web.StreamResponse:
        """The chat of a key, also of one in which nothing has been said yet."""
        record = self._visible(call)
        if record is None:
            return self._show("session.html", call, key=str(call.key), record=None, items=[], before=None)
        session = await self._parts.store.open(record.session)
        items, before = await self._items(session, None)
        return self._show(
            "session.html",
            call,
            key=str(call.key),
            record=session.record,
            items=items,
            before=before,
            former=[one for one in self._parts.store.sessions_of(call.key) if one.session != session.id],
            parts=self._parts.prompts.parts(session),
            model=self._parts.models.choose(session.record.agent, session.record.settings.model),
            damaged=bool(session.problems),
        )

    def _visible(self, call: Call) -> SessionRecord | None:
        """The newest session of the path's key in which something was said. Raises Problem for a chat of others."""
        key, found = call.key, self._parts.store.find(call.key)
        identities = self._parts.config.sessions.identities
        if not may_post(call.caller, key, found and found.owner, identities, exists=found is not None):
            raise not_found("session")
        return next(iter(self._parts.store.sessions_of(key)), None)

    async def entries(self, call: Call) -> web.StreamResponse:
        """The part of a chat before a message, or after one: what a page puts in while it is open.

        `X-Running` names the turns that have no reply yet.
        """
        query: OlderQuery = call.query
        record = self._visible(call)
        if record is None:
            return self._show("items.html", call, key=str(call.key), items=[], before=None)
        session = await self._parts.store.open(record.session)
        if query.after is not None:
            items, before = chat_items([e for e in session.entries if e.seq > query.after], session.open), None
        else:
            items, before = await self._items(session, query.before)
        answer = self._show("items.html", call, key=str(call.key), items=items, before=before)
        running, waiting = self._parts.turns.lane_state(session.id)
        answer.headers["X-Running"] = " ".join(turn.id for turn in (*running, *waiting))
        return answer

    async def usage(self, call: Call) -> web.StreamResponse:
        query: UsageQuery = call.query
        now = self._parts.clock.now().astimezone(UTC)
        since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=int(query.days) - 1)
        days = [f"{since + timedelta(days=n):%Y-%m-%d}" for n in range(int(query.days))]
        tables: dict[str, list[UsageRow]] = {}
        groups: tuple[UsageGroup, ...] = ("model", "agent", "role", "user", "key")
        for name in groups:
            rows = await self._usage(call.caller, [name], since)
            tables[name] = sorted(rows, key=lambda row: row.usage.input_total + row.usage.output, reverse=True)[:20]
        by_day = await self._usage(call.caller, ["day"], since)
        texts = self._pages.texts["usage"]
        names = (texts["input"], texts["cached"], texts["written"], texts["output"])
        return self._show(
            "usage.html",
            call,
            days=query.days,
            since=since,
            by_day=by_day,
            tables=tables,
            names=names,
            chart=bar_chart(day_bars(by_day, days), names, texts["by_day"]),
        )

    async def settings(self, call: Call) -> web.StreamResponse:
        config = self._parts.config
        return self._show(
            "settings.html",
            call,
            settings=list(_flat(config.model_dump(mode="json", exclude={"auth"}))),
            tokens=config.auth.tokens,
        )

    # --- what pages share -----------------------------------------------------------------------------------------

    def _show(self, template: str, call: Call, **values: Any) -> web.Response:
        cookie = call.request.cookies.get(COOKIE, "")
        return self._pages.show(
            template,
            caller=call.caller,
            csrf=csrf_of(cookie) if cookie else "",
            now=self._parts.clock.now(),
            signed_in=not self._tokens.open,
            **values,
        )

    def refuse(self, problem: Problem) -> web.Response:
        """A problem as a page; who is not signed in is sent to the form."""
        if problem.status == 401:
            return web.Response(status=303, headers={"Location": "/console/login"})
        return self._pages.show("error.html", problem.status, caller=None, csrf="", problem=problem)

    def _records(self, caller: Caller, state: SessionState, limit: int) -> list[SessionRecord]:
        found, _ = self._parts.store.index.page(PageQuery(limit=limit, state=state, allowed=_allowed(caller)))
        return found

    def _row(self, record: SessionRecord) -> Any:
        running, waiting = self._parts.turns.lane_state(record.session)
        return session_row(record, running=bool(running or waiting))

    async def _items(self, session: Session, before: int | None) -> tuple[list[Any], int | None]:
        """(the last messages before a seq, where older ones go on)."""
        entries: list[Entry] = session.entries
        if session.record.generation > 1 and (before is not None or len(entries) <= SHOWN):
            entries = await self._parts.store.everything(session)
        older = [e for e in entries if before is None or e.seq < before]
        shown = older[-SHOWN:]
        return chat_items(shown, session.open), shown[0].seq if len(older) > len(shown) else None

    async def _usage(self, caller: Caller, by: list[UsageGroup], since: datetime) -> list[UsageRow]:
        """Empty while the ledger cannot be read: the page says of the parts what is wrong."""
        try:
            return await self._parts.ledger.report(by, usage_of_caller(caller, since, None))
        except LedgerClosed:
            return []


def _allowed(caller: Caller) -> Callable[[str, str | None], bool] | None:
    return None if caller.role == "admin" else partial(may_see, caller)


def _flat(fields: dict[str, Any], place: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their path."""
    for name, value in fields.items():
        path = f"{place}.{name}" if place else name
        if isinstance(value, dict) and value:
            yield from _flat(cast("dict[str, Any]", value), path)
        else:
            yield path, "" if value is None else str(cast("object", value))


def routes(parts: Parts, tokens: Tokens, logins: Logins) -> list[Route]:
    """The table of addresses under /console."""
    files = assets.load_assets()
    at = Console(parts, tokens, logins, Pages(assets.version_of(files)))

    def page(method: str, path: str, endpoint: Any, summary: str, **more: Any) -> Route:
        return Route(
            method=method,
            path=f"/console{path}",
            endpoint=endpoint,
            summary=summary,
            tag="console",
            answers={200: "text/html"},
            refuse=at.refuse,
            **more,
        )

    return [
        page("GET", "", at.overview, "Overview"),
        page("GET", "/login", at.login, "Sign in", public=True),
        page("POST", "/login", at.sign_in, "Sign in", public=True),
        page("POST", "/logout", at.sign_out, "Sign out", public=True),
        page("GET", "/sessions", at.sessions, "Sessions", query=SessionsQuery),
        page("GET", "/sessions/{key}", at.session, "One chat"),
        page("GET", "/sessions/{key}/entries", at.entries, "A part of a chat", query=OlderQuery),
        page("GET", "/usage", at.usage, "Usage", query=UsageQuery),
        page("GET", "/settings", at.settings, "Settings", roles=("admin",)),
        *assets.routes(files),
    ]
