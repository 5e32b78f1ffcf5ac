"""The server's own answers to what is no HTTP request: problems, as everywhere else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from gateway.http.problems import Problem, respond

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

MAX_LINE = 8190


class ProblemRunner(web.AppRunner):
    """Runs an application whose connections answer malformed requests with a problem."""

    @property
    def server(self) -> web.Server | None:
        """What sites call for each connection."""
        server = super().server
        if server is None:
            return None
        loop = asyncio.get_running_loop()
        no_log: Any = None
        return cast("web.Server", lambda: _Connection(server, loop=loop, access_log=no_log))


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The connection is closed after it: where the next request would begin is not known."""
        super().handle_error(request, status, exc, message)
        if status >= 500:
            problem = Problem(status, "Internal error", "sessiond failed inside. Its log has the details.")
        elif isinstance(exc, LineTooLong):
            detail = f"The request line and each header may have {MAX_LINE} bytes. Send long texts in the body."
            problem = Problem(status, "Header too long", detail)
        else:
            detail = "This is no HTTP/1.1 request: a line, a header or the length of the body is malformed."
            problem = Problem(status, "Malformed request", detail)
        response = respond(problem)
        response.force_close()
        return response
