"""Descriptions of APIs as Markdown: one section for each operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from memory.errors import InvalidMemory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
MAX_HOPS = 16
MAX_DEPTH = 5
MAX_FIELDS = 300
MAX_LOOKED_AT = 500_000
_PARTS = ("allOf", "oneOf", "anyOf")


def is_openapi(value: object) -> bool:
    return isinstance(value, dict) and ("openapi" in value or "swagger" in value) and "paths" in value


def openapi_text(value: Mapping[str, Any]) -> Iterator[str]:
    """Pieces of text: for each operation what it does, what it takes, what it answers. Raises InvalidMemory."""
    yield from _Description(value).text()


class _Description:
    """References inside of the description are followed; to other files they are named."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._looked_at = 0

    def text(self) -> Iterator[str]:
        info = _fields(self._whole.get("info"))
        yield f"# {_words(info.get('title')) or 'API'} {_words(info.get('version'))}".strip()
        if said := _words(info.get("description")):
            yield f"\n\n{said}"
        for path, item in _fields(self._whole.get("paths")).items():
            shared = self._follow(item)
            for method in METHODS:
                if operation := self._follow(shared.get(method)):
                    yield f"\n\n## {method.upper()} {path}"
                    yield from (f"\n{line}" for line in self._operation(shared, operation))

    def _operation(self, shared: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
        for told in (shared, operation):
            yield from (_words(told[key]) for key in ("summary", "description") if _words(told.get(key)))
        yield from self._parameters(shared, operation)
        body = self._follow(operation.get("requestBody"))
        if said := _words(body.get("description")):
            yield f"- body: {said}"
        for content in _fields(body.get("content")).values():
            yield from self._fields_of("body", _fields(content).get("schema"))
        for status, answer in _fields(operation.get("responses")).items():
            yield _line(f"answers {status}", self._follow(answer))

    def _parameters(self, shared: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
        """Those of the path count for each of its operations, which may say them anew."""
        named: dict[tuple[str, str], dict[str, Any]] = {}
        for one in (*_items(shared.get("parameters")), *_items(operation.get("parameters"))):
            told = self._follow(one)
            named[_words(told.get("name")) or _words(told.get("$ref")), _words(told.get("in"))] = told
        for (name, place), told in named.items():
            yield _line(f"{name} ({place})" if place else name, told)
            if place == "body":
                yield from self._fields_of("body", told.get("schema"))

    def _fields_of(self, label: str, schema: object) -> Iterator[str]:
        left = MAX_FIELDS
        for name, told in self._properties(schema, "", ()):
            yield _line(f"{label} {name}", told)
            left -= 1
            if left == 0:
                yield f"- {label}: there are more fields"
                return

    def _properties(self, schema: object, prefix: str, above: tuple[int, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        told = self._follow(schema)
        mark = id(told.get("properties") or told)
        if mark in above or len(above) > MAX_DEPTH:
            return
        above = (*above, mark)
        for part in (one for key in _PARTS for one in _items(told.get(key))):
            yield from self._properties(part, prefix, above)
        if "items" in told:
            yield from self._properties(told["items"], prefix, above)
        for name, inner in _fields(told.get("properties")).items():
            field = self._follow(inner)
            yield f"{prefix}{name}", field
            yield from self._properties(field, f"{prefix}{name}.", above)

    def _follow(self, value: object) -> dict[str, Any]:
        """The fields a value has, or what it refers to. One that leads nowhere stays as it is."""
        told = _fields(value)
        for _ in range(MAX_HOPS):
            self._looked_at += 1
            if self._looked_at > MAX_LOOKED_AT:
                raise InvalidMemory("document", "its parts refer to each other too often")
            found = self._target(told.get("$ref"))
            if found is None:
                return told
            said = {key: told[key] for key in ("summary", "description") if key in told}
            told = {**found, **said} if said else found
        return {}

    def _target(self, reference: object) -> dict[str, Any] | None:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        at: object = self._whole
        for part in reference[2:].split("/"):
            at = _fields(at).get(part.replace("~1", "/").replace("~0", "~"))
        return cast("dict[str, Any]", at) if isinstance(at, dict) else None


def _line(label: str, told: Mapping[str, Any]) -> str:
    said = _words(told.get("description")) or _words(told.get("$ref"))
    return f"- {label}: {said}" if said else f"- {label}"


def _words(value: object) -> str:
    """A text or number as words; lists and the like are none, whatever they would be written as."""
    return str(value) if isinstance(value, str | int | float) else ""


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[dict[str, Any]]:
    return [_fields(one) for one in cast("list[object]", value)] if isinstance(value, list) else []
