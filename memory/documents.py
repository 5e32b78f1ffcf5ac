"""Documents as Markdown: text, HTML and PDF, so that they are searched like every other file."""

from __future__ import annotations

import io
import re
from collections import Counter
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import nh3

from memory.encodings import declared_encoding, decoded
from memory.errors import InvalidMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pypdf import PdfReader

TEXTS = frozenset({"md", "markdown", "txt", "text", "rst", "log", "csv"})
PAGES = frozenset({"html", "htm", "xhtml"})
MAX_PAGES = 5000
MAX_NESTED = 2000
"""What reads pages takes a second for 15,000 tags inside each other, and four times that for twice as many."""
PDF_S = 60.0
_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "title"})
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "ul", "ol", "table", "tr", "blockquote", "pre", "main", "header"}
)
_HEADING = re.compile(r"h([1-6])")
_SHOWN = {*_BLOCKS, "li", "br", "td", "th", "h1", "h2", "h3", "h4", "h5", "h6"}
_TAG = re.compile(r"<(/?)([a-z][^\s/>]*)")
_SELDOM_ENDED = frozenset(
    "p li dt dd td th tr tbody thead tfoot option br img input meta link hr col wbr area base embed source track param"
    " rp rt html head body".split()
)


def to_markdown(ending: str, content: bytes, *, max_bytes: int, elapsed_s: Callable[[], float] = lambda: 0.0) -> str:
    """The text of a document; `ending` is that of its name, without the dot. Raises InvalidMemory."""
    ending = ending.lower()
    if ending == "pdf":
        return _pdf(content, max_bytes, elapsed_s)
    if ending not in TEXTS | PAGES:
        known = ", ".join(sorted({*TEXTS, *PAGES, "pdf", "json and yaml of OpenAPI"}))
        raise InvalidMemory("document", f"files ending in .{ending:.20} are not known; known are {known}")
    text = decoded(content) if ending in TEXTS else _html(decoded(content, declared_encoding(content)))
    if not text.strip():
        raise InvalidMemory("document", "it holds no text")
    return bounded([text], max_bytes)


def bounded(pieces: Iterable[str], max_bytes: int) -> str:
    """The pieces as one text, which no file is indexed without. Raises InvalidMemory as soon as it is too long."""
    found: list[str] = []
    size = 0
    for piece in pieces:
        size += _size(piece)
        if size > max_bytes:
            why = f"its text has more than {max_bytes} bytes, the limit of memory.files.max_bytes; divide it"
            raise InvalidMemory("document", why)
        found.append(piece)
    return "".join(found)


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMemory("document", f"it holds half a character, {text[error.start]!a}") from error


def _pdf(content: bytes, max_bytes: int, elapsed_s: Callable[[], float]) -> str:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        text = bounded(_pages(PdfReader(io.BytesIO(content)), elapsed_s), max_bytes).rstrip()
    except InvalidMemory:
        raise
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError, NotImplementedError) as error:
        raise InvalidMemory("document", f"the PDF cannot be read ({type(error).__name__})") from error
    if not text:
        raise InvalidMemory("document", "the PDF holds no text; scanned pages need text recognition first")
    return text


def _pages(reader: PdfReader, elapsed_s: Callable[[], float]) -> Iterator[str]:
    for number, page in enumerate(reader.pages, 1):
        if number > MAX_PAGES:
            raise InvalidMemory("document", f"the PDF has more than {MAX_PAGES} pages; divide it")
        if elapsed_s() > PDF_S:
            raise InvalidMemory("document", f"the PDF takes longer than {PDF_S:g} s to be read; divide it")
        if text := page.extract_text().strip():
            whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            yield f"## Page {number}\n\n{whole}\n\n"


class _Page(HTMLParser):
    """Headings, paragraphs and list items."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
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
        if tag in _BLOCKS or _HEADING.fullmatch(tag):
            self.pieces.append("\n\n")

    def handle_data(self, data: str) -> None:
        self.pieces.append(re.sub(r"\s+", " ", data))


def _html(text: str) -> str:
    if _nesting(text) > MAX_NESTED:
        raise InvalidMemory("document", f"it has more than {MAX_NESTED} tags inside each other")
    page = _Page()
    # well formed, and so without what the reader takes a time for that grows with the square of its length
    page.feed(nh3.clean(text, tags=_SHOWN, clean_content_tags=set(_SILENT), attributes={}, link_rel=None))
    page.close()
    lines = [line.strip() for line in "".join(page.pieces).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _nesting(text: str) -> int:
    """How deep tags may be inside each other, at most; those that are ended by what follows are not counted."""
    open_tags: Counter[str] = Counter()
    depth = deepest = 0
    for ended, name in _TAG.findall(text.lower()):
        if name in _SELDOM_ENDED or (ended and not open_tags[name]):
            continue
        step = -1 if ended else 1
        open_tags[name] += step
        depth += step
        deepest = max(deepest, depth)
    return deepest
