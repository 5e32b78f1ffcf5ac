"""Documents of agents and projects: Markdown files in their folders, which are found as every other file there."""

from __future__ import annotations

import contextlib
import json
import time
import unicodedata
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from memory.documents import bounded, to_markdown
from memory.encodings import decoded
from memory.errors import InvalidMemory
from memory.openapi import is_openapi, openapi_text
from sessions.folders import agent_folder

if TYPE_CHECKING:
    from pathlib import Path

    import yaml

ENDING = ".md"
MAX_NAME_BYTES = 240
"""A file's name has 255 at most, with the ending, and while it is written with another one."""
MAX_YAML_NODES = 1_000_000


def shelf_folder(data_dir: Path, agent: str | None, project: str | None) -> Path:
    """Where the documents of an agent, or else of a project, are."""
    shelf = (
        data_dir / "workspaces" / agent_folder(agent) if agent else data_dir / "documents" / agent_folder(project or "")
    )
    return shelf / "memory" / "documents"


def converted(name: str, content: bytes, *, max_bytes: int) -> str:
    """A document as Markdown; the ending of its name says what it is. Raises InvalidMemory."""
    ending = name.rpartition(".")[2].lower()
    if ending in ("json", "yaml", "yml"):
        return _openapi(content, max_bytes)
    started = time.monotonic()
    return to_markdown(ending, content, max_bytes=max_bytes, elapsed_s=lambda: time.monotonic() - started)


def kept_name(name: str) -> str:
    """The name of the file a document is kept in, another one for each name. Raises InvalidMemory."""
    name = unicodedata.normalize("NFC", name)
    if name.startswith(".") or not name.strip():
        raise InvalidMemory("name", "a name that begins with a dot, or says nothing, is not indexed; rename it")
    if any(one in "/\\" or unicodedata.category(one) in ("Cc", "Cs") for one in name):
        raise InvalidMemory("name", "it has a slash or a character that cannot be written; give the name alone")
    size = len(name.encode())
    if size > MAX_NAME_BYTES:
        raise InvalidMemory("name", f"it has {size} bytes; a file's name may have {MAX_NAME_BYTES}")
    return name + ENDING


def put_document(folder: Path, name: str, text: str) -> str:
    """Keeps a document; one with the same name is replaced. Returns the name it is kept under. Raises InvalidMemory."""
    target = folder / kept_name(name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f".{uuid4().hex}.new"
    try:
        fresh.touch(mode=0o600)
        fresh.write_text(text, "utf-8")
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    return target.name


def list_documents(folder: Path) -> list[tuple[str, int]]:
    """Names and bytes."""
    found: list[tuple[str, int]] = []
    for file in sorted(folder.glob(f"*{ENDING}")):
        with contextlib.suppress(FileNotFoundError):
            found.append((file.name, file.stat().st_size))
    return found


def remove_document(folder: Path, name: str) -> bool:
    """By the name it is kept under, or else the one it was given with. False: there is none."""
    there = {known for known, _ in list_documents(folder)}
    if name not in there:
        with contextlib.suppress(InvalidMemory):
            name = kept_name(name)
    if name not in there:
        return False
    (folder / name).unlink(missing_ok=True)
    return True


def _openapi(content: bytes, max_bytes: int) -> str:
    import yaml

    text = decoded(content)
    try:
        value: Any = _json(text) or _yaml(text)
    except InvalidMemory:
        raise
    except RecursionError as error:
        raise InvalidMemory("document", "it is nested too deep") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        raise InvalidMemory("document", "it is neither JSON nor YAML") from error
    if not is_openapi(value):
        raise InvalidMemory("document", "it is no OpenAPI description; other JSON and YAML is not taken")
    return bounded(openapi_text(value), max_bytes)


def _json(text: str) -> object:
    """None: it is no JSON. YAML has no pairs of surrogates, and no tabs, which JSON may be written with."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _yaml(text: str) -> object:
    """Raises InvalidMemory for aliases that repeat each other until nothing could hold them."""
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _written_out(node, {}) > MAX_YAML_NODES:
            raise InvalidMemory("document", f"written out, its aliases make more than {MAX_YAML_NODES} values of it")
        return cast("object", loader.construct_document(node))  # pyright: ignore[reportUnknownMemberType]
    finally:
        loader.dispose()  # pyright: ignore[reportUnknownMemberType]


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node has, with what its aliases stand for; one inside itself has no end."""
    import yaml

    if id(node) not in known:
        known[id(node)] = MAX_YAML_NODES + 1
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inner = [one for pair in node.value for one in pair]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        known[id(node)] = 1 + sum(_written_out(one, known) for one in inner)
    return known[id(node)]
