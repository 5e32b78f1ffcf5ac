"""Errors as RFC 9457 problems: the one place where an exception becomes an HTTP answer."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import BaseModel

from gateway.complaints import complaint
from gateway.http.json import clean_text, dump
from gateway.jobs.book import NameTaken, SetAside
from gateway.jobs.store import JobsClosed
from gateway.ledger import LedgerClosed
from gateway.masking import masked
from gateway.models.base import ModelError, UnknownModel
from gateway.turns import MessageTooLong, RequestConflict, Stopping
from memory.errors import Forgotten, InvalidMemory, MemoryConflict, MemoryUnavailable, NotThere
from sessions.files import StorageError, StorageFull
from sessions.found import SearchFailed, SearchTooBroad
from sessions.keys import MalformedKey
from sessions.listing import BadCursor
from sessions.queues import QueueFull
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic import ValidationError

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:sessiond:problem:"


class Place(BaseModel):
    """Where in the request something is wrong."""

    place: str
    detail: str


class ProblemBody(BaseModel):
    """An error: `type` is the same for all of its kind, `detail` says what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Place] = []
    turn: str | None = None
    session: str | None = None


@dataclass(eq=False)
class Problem(Exception):
    """An answer that is an error. Its type is made from the title, which is therefore the same for all of a kind.

    Passwords in addresses are taken out of what it tells.
    """

    status: int
    title: str
    detail: str
    errors: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.detail = masked(self.detail)
        self.errors = [(place, masked(detail)) for place, detail in self.errors]


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
    "storage": 503,
    "foreign_write": 503,
    "interrupted": 503,
    "stopped": 409,
}


def problem_of(error: Exception) -> Problem | None:
    """The problem an exception means; None when it is a fault of ours."""
    match error:
        case Problem():
            return error
        case MalformedKey():
            return Problem(400, "Malformed session key", str(error), [("key", f"{error.part}: {error.why}")])
        case QueueFull():
            return Problem(429, "Queue full", str(error), headers=retry_after(error.retry_after_s))
        case RequestConflict():
            return Problem(409, "Request id used before", str(error))
        case MessageTooLong():
            return Problem(413, "Message too long", str(error), extra={"tokens": error.tokens, "window": error.window})
        case UnknownModel():
            return Problem(400, "Unknown model", str(error), [("model", str(error))])
        case BadCursor():
            return Problem(400, "Bad cursor", str(error), [("cursor", str(error))])
        case NameTaken():
            return Problem(409, "Name taken", str(error), [("name", str(error))])
        case SetAside():
            return Problem(409, "Job set aside", str(error))
        case Stopping() | LedgerClosed() | JobsClosed():
            return Problem(503, "Not available", str(error), headers={"Retry-After": "5"})
        case SearchTooBroad():
            return Problem(422, "Search too broad", str(error), [("q", str(error))])
        case SearchFailed():
            return Problem(503, "Not available", str(error), headers={"Retry-After": "5"})
        case InvalidMemory():
            return Problem(422, "Invalid request", str(error), [(error.field, error.why)])
        case NotThere():
            return Problem(404, "Not found", str(error))
        case MemoryConflict():
            return Problem(409, "Conflict", str(error))
        case Forgotten():
            return Problem(409, "Deleted before", str(error))
        case MemoryUnavailable():
            return Problem(503, "Not available", str(error), headers={"Retry-After": "5"})
        case SessionGone():
            return not_found("session")
        case StorageFull():
            return Problem(507, "Disk full", str(error))
        case StorageError():
            return Problem(503, "Storage failed", str(error), headers={"Retry-After": "5"})
        case ModelError():
            return model_problem(error)
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


def invalid(error: ValidationError, model: type[BaseModel]) -> Problem:
    """What is wrong with a body or query, place by place, with the nearest known name for an unknown one."""
    places = [(_place(item["loc"]), _words(item, model)) for item in error.errors(include_url=False)]
    return Problem(422, "Invalid request", "; ".join(f"{place}: {what}" for place, what in places[:5]), places)


def _place(loc: Sequence[str | int]) -> str:
    return ".".join(str(part) if isinstance(part, int) else part[:100] for part in loc) or "body"


def _words(item: Any, model: type[BaseModel]) -> str:
    if item["type"] == "extra_forbidden":
        known = list(_known_names(model, nested=len(item["loc"]) > 1))
        near = difflib.get_close_matches(str(item["loc"][-1])[:100], known, n=1)
        return f"is not a known field; did you mean {near[0]!r}?" if near else "is not a known field; remove it"
    return clean_text(complaint(item))


def _known_names(model: type[BaseModel], *, nested: bool) -> Iterator[str]:
    schema = model.model_json_schema()
    for part in schema.get("$defs", {}).values() if nested else [schema]:
        yield from part.get("properties", {})


def model_problem(error: ModelError) -> Problem:
    """What a caller is told of a model that gave no reply."""
    status = TURN_STATUS.get(error.code, 502)
    headers = retry_after(error.retry_after_s)
    return Problem(status, "The model gave no reply", str(error), headers=headers, extra={"code": error.code})


def retry_after(wait_s: float | None) -> dict[str, str]:
    """The header that says when it is worth trying again, where somebody knows."""
    return {} if wait_s is None else {"Retry-After": str(max(1, math.ceil(wait_s)))}


def body_of(problem: Problem) -> dict[str, Any]:
    """The fields of a problem's JSON."""
    return {
        "type": TYPE_PREFIX + re.sub(r"[^a-z0-9]+", "-", problem.title.lower()).strip("-"),
        "title": problem.title,
        "status": problem.status,
        "detail": clean_text(problem.detail),
        "errors": [{"place": clean_text(place), "detail": clean_text(detail)} for place, detail in problem.errors],
        **problem.extra,
    }


def respond(problem: Problem) -> web.Response:
    """The problem as an HTTP response."""
    return web.Response(
        status=problem.status, body=dump(body_of(problem)), content_type=CONTENT_TYPE, headers=dict(problem.headers)
    )
