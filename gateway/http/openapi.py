"""The OpenAPI description, read off the routes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from gateway.http.problems import CONTENT_TYPE, ProblemBody

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gateway.http.routes import Route

REF = "#/components/schemas/{model}"
PROBLEMS = {
    400: "Malformed request",
    401: "No or a wrong token",
    404: "Not there, or not visible with this token",
    409: "In conflict with what is there",
    413: "Too large",
    414: "Query too long",
    415: "Content encoding not supported",
    422: "A field is wrong; `errors` says which",
    429: "Too much at once; see Retry-After",
    502: "The model gave no usable reply",
    503: "Not available now; see Retry-After",
    507: "The disk is full",
}
PARAMETERS = {
    "key": ("Session key, percent-encoded, as in agent:main:main", {"type": "string", "minLength": 1}),
    "id": ("Id", {"type": "string", "minLength": 1}),
}


def build_openapi(routes: list[Route], version: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    models: dict[type[BaseModel], None] = {ProblemBody: None}
    for route in routes:
        for model in (route.body, *route.answers.values()):
            if isinstance(model, type):
                models[model] = None
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sessiond",
            "version": version,
            "description": "Sessions between chat frontends and a model.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{re.sub(r'[^a-z0-9]+', '_', route.path.lower()).strip('_')}",
        "tags": [route.tag],
        "parameters": [*_path_parameters(route.path), *_query_parameters(route)],
        "responses": {str(status): _answer(model) for status, model in route.answers.items()},
    }
    operation["responses"] |= {
        str(status): {
            "description": what,
            "content": {CONTENT_TYPE: {"schema": {"$ref": REF.format(model="ProblemBody")}}},
        }
        for status, what in PROBLEMS.items()
        if str(status) not in operation["responses"]
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": {"$ref": REF.format(model=route.body.__name__)}}},
        }
    return operation


def _answer(model: type[BaseModel] | str) -> dict[str, Any]:
    if isinstance(model, str):
        return {"description": model, "content": {kind.strip(): {} for kind in model.split(",")}}
    content = {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}
    return {"description": model.__doc__ or "", "content": content}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for name in re.findall(r"\{(\w+)", path):
        what, schema = PARAMETERS.get(name, (name, {"type": "string", "minLength": 1}))
        out.append({"name": name, "in": "path", "required": True, "description": what, "schema": schema})
    return out


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = route.query.model_json_schema(ref_template=REF)
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": field.get("description", ""),
            "schema": {part: value for part, value in field.items() if part not in ("description", "title")},
        }
        for name, field in schema.get("properties", {}).items()
    ]
