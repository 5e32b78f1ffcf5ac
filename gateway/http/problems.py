"""Errors as RFC 9457 problems: the one place where an exception becomes an HTTP answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import orjson
import structlog
from aiohttp import web
from pydantic import BaseModel, ValidationError

from gateway.ledger import LedgerClosed
from gateway.models.base import ModelError
from gateway.turns import MessageTooLong, RequestConflict, Stopping, UnknownModel
from sessions.files import StorageError, StorageFull
from sessions.index import BadCursor
from sessions.keys import MalformedKey
from sessions.queues import QueueFull
from sessions.store import SessionGone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = structlog.get_logger()

CONTENT_TYPE = "application/problem+json"


class Place(BaseModel):
    """Where in the request something is wrong."""

    place: str
    detail: str


class ProblemBody(BaseModel):
    """An error: `detail` says what to do about it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[Place] = []
    turn: str | None = None
    session: str | None = None


@dataclass
class Problem(Exception):
    """An answer that is an error."""

    status: int
    title: str
    detail: str
    errors: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


def not_found(what: str) -> Problem:
    """What is not there, and what the caller may not see: the same answer."""
    return Problem(404, "Not found", f"There is no {what} here, or this token may not see it.")


TURN_STATUS = {
    "model_unavailable": 503,
    "model_broken": 502,
    "model_rejected": 502,
    "context_overflow": 413,
    "storage_full": 507,
    "storage_failed": 503,
    "foreign_write": 503,
    "interrupted": 503,
    "stopped": 409,
}


def problem_of(error: Exception) -> Problem | None:
    """The problem an exception means; None when it is a fault of ours."""
    match error:
        case Problem():
            return error
        case ValidationError():
            return _of_validation(error)
        case MalformedKey():
            return Problem(400, "Malformed session key", str(error), [("key", f"{error.part}: {error.why}")])
        case QueueFull():
            return Problem(
                429, "Queue full", str(error), headers={"Retry-After": str(max(1, round(error.retry_after_s)))}
            )
        case RequestConflict():
            return Problem(409, "Request id used before", str(error))
        case MessageTooLong():
            return Problem(413, "Message too long", str(error), extra={"tokens": error.tokens, "window": error.window})
        case UnknownModel():
            return Problem(400, "Unknown model", str(error), [("model", str(error))])
        case BadCursor():
            return Problem(400, "Bad cursor", str(error), [("cursor", str(error))])
        case Stopping() | LedgerClosed():
            return Problem(503, "Not available", str(error), headers={"Retry-After": "5"})
        case SessionGone():
            return not_found("session")
        case StorageFull():
            return Problem(507, "Disk full", str(error))
        case StorageError():
            return Problem(503, "Storage failed", str(error), headers={"Retry-After": "5"})
        case ModelError():
            return Problem(TURN_STATUS.get(error.code, 502), "The model gave no reply", str(error))
        case web.HTTPRequestEntityTooLarge():
            return Problem(413, "Body too large", "The request body is larger than server.max_body_bytes allows.")
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return Problem(405, "Method not allowed", f"This address takes {allowed}.", headers={"Allow": allowed})
        case web.HTTPNotFound():
            return Problem(404, "Not found", "No such address. GET /docs lists them.")
        case web.HTTPClientError():
            return Problem(error.status, error.reason, error.text or error.reason)
        case _:
            return None


def _of_validation(error: ValidationError) -> Problem:
    places = [(".".join(str(part) for part in item["loc"]) or "body", _words(item)) for item in error.errors()]
    return Problem(422, "Invalid request", "; ".join(f"{place}: {what}" for place, what in places[:5]), places)


def _words(item: Any) -> str:
    if item["type"] == "extra_forbidden":
        return "is not a known field; remove it or check its spelling"
    return str(cast("str", item["msg"]))


def respond(problem: Problem) -> web.Response:
    """The problem as an HTTP response."""
    content = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "errors": [{"place": place, "detail": detail} for place, detail in problem.errors],
        **problem.extra,
    }
    return web.Response(
        status=problem.status, body=orjson.dumps(content), content_type=CONTENT_TYPE, headers=dict(problem.headers)
    )
