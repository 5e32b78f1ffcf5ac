"""Documents of agents and projects: Markdown files in their folders, which are found as every other file there."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from memory.documents import is_openapi, render_openapi, to_markdown
from memory.errors import InvalidMemory
from sessions.folders import agent_folder

if TYPE_CHECKING:
    from pathlib import Path

_UNSAFE = re.compile(r"[^\w.-]+")


def shelf_folder(data_dir: Path, agent: str | None, project: str | None) -> Path:
    """Where the documents of an agent, or else of a project, are."""
    shelf = (
        data_dir / "workspaces" / agent_folder(agent) if agent else data_dir / "documents" / agent_folder(project or "")
    )
    return shelf / "memory" / "documents"


def converted(name: str, content: bytes) -> str:
    """A document as Markdown; the ending of its name says what it is. Raises InvalidMemory."""
    ending = name.rpartition(".")[2].lower()
    return _openapi(content) if ending in ("json", "yaml", "yml") else to_markdown(ending, content)


def put_document(folder: Path, name: str, text: str) -> str:
    """Keeps a document; one with the same name is replaced. Returns the name it is kept under."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = folder / f"{_UNSAFE.sub('-', name)[:100].lstrip('.-') or 'document'}.md"
    fresh = target.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(text, "utf-8", "replace")
    fresh.replace(target)
    return target.name


def list_documents(folder: Path) -> list[tuple[str, int]]:
    """Names and bytes."""
    return [(file.name, file.stat().st_size) for file in sorted(folder.glob("*.md"))] if folder.is_dir() else []


def remove_document(folder: Path, name: str) -> bool:
    """False: there is none of this name."""
    if name not in {known for known, _ in list_documents(folder)}:
        return False
    (folder / name).unlink(missing_ok=True)
    return True


def _openapi(content: bytes) -> str:
    import yaml

    try:
        value: Any = _json(content) or yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none, bytes of no text
        raise InvalidMemory("document", "it is neither JSON nor YAML") from error
    if not is_openapi(value):
        raise InvalidMemory("document", "it is no OpenAPI description; other JSON and YAML is not taken")
    return render_openapi(value)


def _json(content: bytes) -> object:
    """None: it is no JSON. YAML has no pairs of surrogates, and no tabs, which JSON may be written with."""
    try:
        return json.loads(content)
    except ValueError:
        return None
