"""Bytes as text: by their mark, as UTF-8, or as they declare; nothing is guessed."""

from __future__ import annotations

import codecs
import re

from memory.errors import InvalidMemory

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, which begins the same
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(
    rb"""(?:<meta[^<>]{0,200}\bcharset\s*=|<\?xml[^<>]{0,200}\bencoding\s*=)\s*["']?([\w.:-]{1,40})"""
)
_DECLARED_WITHIN = 4096
_OF_PAGES = re.compile(r"ascii|iso8859-\d+|cp\d+|koi8-[rtu]|gb\w+|big5\w*|euc_\w+|shift_jis\w*|tis-620|mac-\w+")


def decoded(content: bytes, declared: str | None = None) -> str:
    """The text: what is no UTF-8, and not marked, is read as declared. Raises InvalidMemory."""
    encoding = marked(content) or "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if declared is not None and marked(content) is None:
            return _as_declared(content, declared)
        raise _not_of(encoding, error) from error
    if "\0" in text:
        raise InvalidMemory("document", "it is no text")
    return text


def readable_part(content: bytes) -> tuple[str, int]:
    """The text, and how many places of it could not be read: each is U+FFFD there."""
    encoding = marked(content) or "utf-8"
    try:
        return content.decode(encoding), 0
    except UnicodeDecodeError:
        text = content.decode(encoding, "replace")
    return text, text.count("\ufffd")


def marked(content: bytes) -> str | None:
    """The encoding whose mark the bytes begin with."""
    return next((encoding for mark, encoding in _MARKS if content.startswith(mark)), None)


def declared_encoding(page: bytes) -> str | None:
    """What a page of HTML says of itself; None where it says nothing that is known here."""
    found = _DECLARED.search(page[:_DECLARED_WITHIN].lower())
    if found is None:
        return None
    try:
        name = codecs.lookup(found[1].decode("ascii")).name
    except (LookupError, UnicodeDecodeError):
        return None
    if name in ("ascii", "iso8859-1"):
        return "cp1252"  # https://encoding.spec.whatwg.org/#names-and-labels
    return name if _OF_PAGES.fullmatch(name) else None


def _as_declared(content: bytes, declared: str) -> str:
    if b"\0" in content:
        raise InvalidMemory("document", "it is no text")
    try:
        return content.decode(declared)
    except UnicodeDecodeError as error:
        raise _not_of(declared, error) from error


def _not_of(encoding: str, error: UnicodeDecodeError) -> InvalidMemory:
    named = encoding.removesuffix("-sig").upper()
    return InvalidMemory("document", f"byte {error.start + 1} is no {named}; save it as UTF-8 and add it again")


def whole_text(text: str) -> str:
    """Without halves of letters, which JSON can hold and no file."""
    return text.encode("utf-8", "replace").decode()
