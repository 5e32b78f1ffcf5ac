"""What all pages of the console share: who looks, how a page is shown, and what is read for it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gateway.console.logins import csrf_of
from gateway.console.views import session_row
from gateway.http.auth import Caller, may_see, only_owner
from gateway.http.pipeline import COOKIE
from gateway.http.routes import CALLER, Call, Route
from gateway.http.usage import usage_of_caller
from gateway.ledger import LedgerClosed
from sessions.listing import PageQuery

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from gateway.console.logins import Logins
    from gateway.console.rendering import Pages
    from gateway.console.views import Row
    from gateway.http.auth import Tokens
    from gateway.http.problems import Problem
    from gateway.ledger import UsageGroup, UsageRow
    from gateway.parts import Parts
    from sessions.record import SessionRecord


class Desk:
    """Every page stands on it."""

    def __init__(self, parts: Parts, tokens: Tokens, logins: Logins, pages: Pages) -> None:
        self.parts = parts
        self.tokens = tokens
        self.logins = logins
        self.pages = pages

    def show(self, template: str, call: Call, *, status: int = 200, **values: Any) -> web.Response:
        cookie = call.request.cookies.get(COOKIE, "")
        return self.pages.show(
            template,
            status,
            caller=call.caller,
            csrf=csrf_of(cookie) if cookie else "",
            own_chat=own_chat(call.caller),
            now=self.parts.clock.now(),
            signed_in=not self.tokens.open,
            url=str(call.request.url.origin()),
            **values,
        )

    def refuse(self, problem: Problem, request: web.Request) -> web.Response:
        """A problem as a page, from which the others can be reached; who is not signed in is sent to the form."""
        if problem.status == 401:
            return web.Response(status=303, headers={"Location": "/console/login"})
        caller = request.get(CALLER)
        if caller is None:
            return self.pages.show("error.html", problem.status, caller=None, csrf="", problem=problem)
        return self.show("error.html", Call(request=request, caller=caller), status=problem.status, problem=problem)

    def page(self, method: str, path: str, endpoint: Any, summary: str, **more: Any) -> Route:
        """A route below /console."""
        return Route(
            method=method,
            path=f"/console{path}",
            endpoint=endpoint,
            summary=summary,
            tag="console",
            answers={200: "text/html"},
            refuse=self.refuse,
            **more,
        )

    def seen_by(self, caller: Caller, **more: Any) -> PageQuery:
        """The sessions a caller may see."""
        return PageQuery(allowed=allowed(caller), owner=only_owner(caller), **more)

    def row(self, record: SessionRecord) -> Row:
        running, waiting = self.parts.turns.lane_state(record.session)
        return session_row(record, running=bool(running or waiting))

    async def usage(self, caller: Caller, by: list[UsageGroup], since: datetime) -> list[UsageRow]:
        """Empty while the ledger cannot be read: the page says of the parts what is wrong."""
        try:
            return await self.parts.ledger.report(by, usage_of_caller(caller, since, None))
        except LedgerClosed:
            return []

    async def causes(self, caller: Caller, since: datetime) -> dict[str, int]:
        """Why the cache broke, as `usage`."""
        try:
            return await self.parts.ledger.causes(usage_of_caller(caller, since, None))
        except LedgerClosed:
            return {}


def own_chat(caller: Caller) -> str:
    """The key of a chat that a caller may begin: those of a person are direct ones, under their own id."""
    agent = caller.agents[0] if caller.agents else "main"
    return f"agent:{agent}:console:direct:{caller.user or 'me'}"


def allowed(caller: Caller) -> Callable[[str, str | None], bool] | None:
    """Which sessions of the index a caller may see; None: all."""
    return None if caller.role == "admin" else partial(may_see, caller)
