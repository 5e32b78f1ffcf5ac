"""Chats of many: what a memory tool found stands in their transcript by id only. Pure.

The words are shown in the trailing block of the turn of the person whose memories they are, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import orjson

from memory.workspace import OF_PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TYPES = frozenset({"group", "channel"})
FOUND = ("memories", "similar")
FILES = "files"
ONE = "memory"
PERSONAL = "topics"
WHERE = "Others read here, so the words of these memories stand in the reference data after the newest message only."

MEMBERS = "Others read here, who may not be members of the project; it is read in a private chat."


def without_words(result: Mapping[str, Any]) -> dict[str, Any]:
    """A memory tool's result as all may read it."""
    told = {name: value for name, value in result.items() if name != PERSONAL}
    told |= {name: [{"id": row["id"]} for row in result[name]] for name in FOUND if name in result}
    if FILES in result:
        told[FILES] = [_without_text(row) for row in result[FILES]]
    if ONE in result:
        told[ONE] = {"id": result[ONE]["id"]}
    return {**told, "words": WHERE} if _ids(told) else told


def _without_text(row: Mapping[str, str]) -> Mapping[str, str]:
    """A piece of a file: an agent's is for all who speak with it, a project's for its members."""
    if not row["file"].startswith(OF_PROJECT):
        return row
    return {**{name: value for name, value in row.items() if name != "text"}, "note": MEMBERS}


def ids_told(results: Iterable[str]) -> list[str]:
    """The memories such results name, each once."""
    ids: list[str] = []
    for text in results:
        try:
            told = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        if isinstance(told, dict):
            ids += _ids(cast("dict[str, Any]", told))
    return list(dict.fromkeys(ids))


def _ids(told: Mapping[str, Any]) -> list[str]:
    rows = [row for name in FOUND for row in told.get(name) or ()]
    return [row["id"] for row in (*([told[ONE]] if ONE in told else ()), *rows)]
