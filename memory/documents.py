"""Documents as Markdown: text, HTML, PDF and OpenAPI descriptions, so that they are searched like every other file."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, cast

from memory.errors import InvalidMemory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TEXTS = frozenset({"md", "markdown", "txt", "text", "rst", "log", "csv"})
PAGES = frozenset({"html", "htm", "xhtml"})
METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "title"})
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "ul", "ol", "table", "tr", "blockquote", "pre", "main", "header"}
)
_HEADING = re.compile(r"h([1-6])")


def to_markdown(ending: str, content: bytes) -> str:
    """The text of a document; `ending` is that of its name, without the dot. Raises InvalidMemory."""
    ending = ending.lower()
    if ending == "pdf":
        return _pdf(content)
    if ending not in TEXTS | PAGES:
        known = ", ".join(sorted({*TEXTS, *PAGES, "pdf", "json and yaml of OpenAPI"}))
        raise InvalidMemory("document", f"files ending in .{ending:.20} are not known; known are {known}")
    if b"\0" in content:
        raise InvalidMemory("document", "it is no text")
    text = content.decode("utf-8-sig", "replace")
    return _html(text) if ending in PAGES else text


def _pdf(content: bytes) -> str:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        pages = [page.extract_text().strip() for page in PdfReader(io.BytesIO(content)).pages]
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError, NotImplementedError) as error:
        raise InvalidMemory("document", f"the PDF cannot be read ({type(error).__name__})") from error
    if not any(pages):
        raise InvalidMemory("document", "the PDF holds no text; scanned pages need text recognition first")
    return "\n\n".join(f"## Page {number}\n\n{text}" for number, text in enumerate(pages, 1) if text)


class _Page(HTMLParser):
    """Headings, paragraphs and list items; what is not shown on the page is left out."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in _SILENT
        if heading := _HEADING.fullmatch(tag):
            self.pieces.append("\n\n" + "#" * int(heading[1]) + " ")
        elif tag == "li":
            self.pieces.append("\n- ")
        elif tag == "br":
            self.pieces.append("\n")
        elif tag in ("td", "th"):
            self.pieces.append(" | ")
        elif tag in _BLOCKS:
            self.pieces.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        self._silent = max(0, self._silent - (tag in _SILENT))
        if tag in _BLOCKS or _HEADING.fullmatch(tag):
            self.pieces.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.pieces.append(re.sub(r"\s+", " ", data))


def _html(text: str) -> str:
    page = _Page()
    page.feed(text)
    page.close()
    lines = [line.strip() for line in "".join(page.pieces).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def is_openapi(value: object) -> bool:
    return isinstance(value, dict) and ("openapi" in value or "swagger" in value) and "paths" in value


def render_openapi(value: Mapping[str, Any]) -> str:
    """One section for each operation: what it does, what it takes, what it answers."""
    info = _fields(value.get("info"))
    head = [f"# {info.get('title', 'API')} {info.get('version', '')}".strip(), str(info.get("description") or "")]
    return "\n\n".join(part for part in (*head, *_operations(value)) if part)


def _operations(value: Mapping[str, Any]) -> Iterator[str]:
    for path, item in _fields(value.get("paths")).items():
        for method in METHODS:
            operation = _fields(_fields(item).get(method))
            if operation:
                yield _operation(f"{method.upper()} {path}", operation)


def _operation(name: str, operation: Mapping[str, Any]) -> str:
    lines = [f"## {name}", *(str(operation[key]) for key in ("summary", "description") if operation.get(key))]
    for one in _items(operation.get("parameters")):
        lines.append(f"- {one.get('name', '')} ({one.get('in', '')}): {one.get('description') or ''}".rstrip(": "))
    for content in _fields(_fields(operation.get("requestBody")).get("content")).values():
        properties = _fields(_fields(_fields(content).get("schema")).get("properties"))
        lines += [
            f"- body {key}: {_fields(told).get('description') or ''}".rstrip(": ") for key, told in properties.items()
        ]
    for status, answer in _fields(operation.get("responses")).items():
        lines.append(f"- answers {status}: {_fields(answer).get('description') or ''}".rstrip(": "))
    return "\n".join(lines)


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[dict[str, Any]]:
    return [_fields(one) for one in cast("list[object]", value)] if isinstance(value, list) else []
