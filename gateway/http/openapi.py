"""The OpenAPI description, read off the routes."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic.json_schema import models_json_schema

from gateway.http.json import dump
from gateway.http.problems import CONTENT_TYPE, ProblemBody
from gateway.http.routes import Route

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gateway.http.routes import Answer, Call

REF = "#/components/schemas/{model}"
PROBLEMS = {
    400: "Malformed request",
    401: "No or a wrong token",
    403: "A web page or host name that may not use a daemon without tokens",
    404: "Not there, or not visible with this token",
    409: "In conflict with what is there",
    413: "Too large",
    414: "Query too long",
    415: "Content encoding not supported",
    422: "A field is wrong; `errors` says which",
    429: "Too much at once; see Retry-After",
    502: "The model gave no usable reply",
    503: "Not available now; see Retry-After",
    504: "No reply in time",
    507: "The disk is full",
}
# Ids may hold any printable character but `:` and `/`; a pattern cannot say that, so it names the usual ones.
ID = "[!-.0-9;-~¡-ʯΑ-ΡΣ-ωЀ-ѿא-תء-غก-ะぁ-ゖァ-ヺ一-鿿가-힣🌀-🙏]+"
KEY = f"(agent:{ID}:(main|{ID}:(direct|group|channel):{ID})(:thread:{ID})?|agent:{ID}:sub:{ID}|(cron|hook):{ID})"
PARAMETERS = {
    "key": (
        "Session key, percent-encoded, as in agent:main:main. At most 512 bytes; ids may hold any printable character "
        "but : and /, also those the pattern leaves out.",
        {"type": "string", "pattern": f"^{KEY}$", "examples": ["agent:main:main", "agent:main:telegram:direct:42"]},
    ),
    "id": ("Id", {"type": "string", "minLength": 1}),
    "name": ("Name", {"type": "string", "minLength": 1}),
}


def routes(described: list[Route], version: str) -> list[Route]:
    """The address of the description, which is made when it is first asked for: no start waits for it."""

    @cache
    def description() -> bytes:
        return dump(build_openapi(described, version))

    async def show(call: Call) -> web.Response:
        return web.Response(body=await asyncio.to_thread(description), content_type="application/json")

    return [
        Route(
            method="GET",
            path="/openapi.json",
            endpoint=show,
            summary="The description of this API",
            tag="docs",
            answers={200: "application/json"},
            public=True,
        )
    ]


def build_openapi(routes: list[Route], version: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    described: dict[type[BaseModel], None] = {ProblemBody: None}
    for route in routes:
        answers = [answer for status in route.answers for answer in _answers(route, status)]
        for model in (route.body, route.query, route.errors, *answers):
            if isinstance(model, type):
                described[model] = None
    refs, schemas = models_json_schema([(model, "validation") for model in described], ref_template=REF)
    names = _Names({model: refs[model, "validation"]["$ref"] for model in described}, schemas.get("$defs", {}))
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sessiond",
            "version": version,
            "description": "Sessions between chat frontends and a model.",
        },
        "paths": paths,
        "components": {
            "schemas": names.schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


@dataclass(frozen=True, slots=True)
class _Names:
    """Where the schema of each model stands in the document."""

    refs: dict[type[BaseModel], str]
    schemas: dict[str, Any]

    def ref(self, model: type[BaseModel]) -> dict[str, str]:
        return {"$ref": self.refs[model]}

    def schema(self, model: type[BaseModel]) -> dict[str, Any]:
        return self.schemas[self.refs[model].rpartition("/")[2]]


def _operation(route: Route, names: _Names) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{re.sub(r'[^a-z0-9]+', '_', route.path.lower()).strip('_')}",
        "tags": [route.tag],
        "parameters": [*_path_parameters(route.path), *_query_parameters(route, names)],
        "responses": {str(status): _answer(_answers(route, status), names) for status in route.answers},
        "x-roles": ["anyone"] if route.public or route.signed else list(route.roles),
    }
    if route.public or route.signed:
        operation["security"] = []
    operation["responses"] |= {
        str(status): {"description": what, "content": _error_content(route, names)}
        for status, what in PROBLEMS.items()
        if str(status) not in operation["responses"]
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": names.ref(route.body)}},
        }
    return operation


def _answers(route: Route, status: int) -> tuple[Answer, ...]:
    answers = route.answers[status]
    return answers if isinstance(answers, tuple) else (answers,)


def _answer(answers: tuple[Answer, ...], names: _Names) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for answer in answers:
        if isinstance(answer, str):
            content |= {kind.strip(): {} for kind in answer.split(",")}
        else:
            content["application/json"] = {"schema": names.ref(answer)}
    described = next((answer.__doc__ for answer in answers if not isinstance(answer, str)), None)
    return {"description": described or ", ".join(content), "content": content}


def _error_content(route: Route, names: _Names) -> dict[str, Any]:
    content = {CONTENT_TYPE: {"schema": names.ref(ProblemBody)}}
    return content if route.errors is None else content | {"application/json": {"schema": names.ref(route.errors)}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for name in re.findall(r"\{(\w+)", path):
        what, schema = PARAMETERS.get(name, (name, {"type": "string", "minLength": 1}))
        out.append({"name": name, "in": "path", "required": True, "description": what, "schema": schema})
    return out


def _query_parameters(route: Route, names: _Names) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = names.schema(route.query)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", []),
            "description": field.get("description", ""),
            "schema": {part: value for part, value in field.items() if part not in ("description", "title")},
        }
        for name, field in schema.get("properties", {}).items()
    ]
