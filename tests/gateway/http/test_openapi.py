from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.http import docs, openapi
from gateway.http.openapi import KEY, build_openapi
from sessions.keys import MAX_KEY_BYTES, parse_key
from tests.gateway.http.conftest import TOKENS
from tests.gateway.http.demo import Count, NoteIn, NoteView, demo_routes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.http.routes import Route
    from tests.gateway.http.conftest import Serve


@pytest.fixture
def description() -> dict[str, Any]:
    return build_openapi(demo_routes(), "1.2.3")


def refs(part: Any) -> Iterator[str]:
    match part:
        case dict():
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for value in part.values():
                yield from refs(value)
        case list():
            for value in part:
                yield from refs(value)
        case _:
            return


def test_every_route_is_described_once(description: dict[str, Any]) -> None:
    described = {(path, method.upper()) for path, methods in description["paths"].items() for method in methods}
    assert described == {(route.path, route.method) for route in demo_routes()}
    operations = [operation for methods in description["paths"].values() for operation in methods.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    assert description["openapi"] == "3.1.0"
    for ref in refs(description):
        part: Any = description
        for name in ref.removeprefix("#/").split("/"):
            part = part[name]


def test_schemas_are_json_schema_and_refuse_unknown_fields(description: dict[str, Any]) -> None:
    schema = description["components"]["schemas"]["NoteIn"]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert schema["properties"].keys() == NoteIn.model_fields.keys()


def test_query_path_and_body_are_described(description: dict[str, Any]) -> None:
    operation = description["paths"]["/v1/notes/{key}"]["post"]
    parameters = {(p["in"], p["name"], p["required"]) for p in operation["parameters"]}
    assert parameters == {("path", "key", True), ("query", "loud", False), ("query", "times", False)}
    assert operation["requestBody"]["required"] is True
    assert description["paths"]["/v1/optional"]["post"]["requestBody"]["required"] is False
    assert "application/problem+json" in operation["responses"]["422"]["content"]
    assert operation["responses"]["201"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/NoteView"
    }


def test_an_address_may_answer_in_several_forms_and_dialects() -> None:
    (described, *_) = demo_routes()
    route = dataclasses.replace(described, answers={200: (NoteView, "text/event-stream")}, errors=Count)
    responses = build_openapi([route], "1")["paths"][route.path]["post"]["responses"]
    assert responses["200"]["content"].keys() == {"application/json", "text/event-stream"}
    assert responses["422"]["content"].keys() == {"application/json", "application/problem+json"}


def test_who_may_call_is_described(description: dict[str, Any]) -> None:
    assert description["paths"]["/hello"]["get"]["security"] == []
    assert description["paths"]["/v1/secret"]["get"]["x-roles"] == ["admin"]
    assert description["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}


@given(st.from_regex(KEY, fullmatch=True))
def test_every_key_the_pattern_names_is_a_key(key: str) -> None:
    assume(len(key.encode()) <= MAX_KEY_BYTES)
    parse_key(key)


async def test_the_description_and_the_page_need_no_token(serve: Serve) -> None:
    routes: list[Route] = [*demo_routes(), *openapi.routes(demo_routes(), "1.2.3"), *docs.routes()]
    client = await serve(routes, auth=TOKENS)
    response = await client.get("/openapi.json")
    assert (await response.json())["info"]["version"] == "1.2.3"
    for path, kind in [("/docs", "text/html"), ("/docs.css", "text/css"), ("/docs.js", "text/javascript")]:
        response = await client.get(path)
        assert response.status == 200
        assert response.content_type == kind


async def test_the_page_uses_nothing_from_outside_and_no_script_inside(serve: Serve) -> None:
    client = await serve(docs.routes())
    response = await client.get("/docs")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    page = await response.text()
    assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", page)
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) <= {"/docs.css", "/docs.js", "/openapi.json"}
    script = await (await client.get("/docs.js")).text()
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", script)
