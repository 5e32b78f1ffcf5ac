"""Content parts of a message: text, and files given as data URLs."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gateway.http.problems import Problem
from gateway.http.routes import Body
from sessions.entries import Attachment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sessions.policy import SessionsPolicy

_DATA_URL = re.compile(r"data:(?P<type>[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60})(?:;[a-z]+=[^;,]{1,60}){0,3};base64,")


class TextPart(Body):
    type: Literal["text"]
    text: str


class FilePart(Body):
    """An image or another file, as a data URL (`data:image/png;base64,...`)."""

    type: Literal["image", "file"]
    url: str = Field(description="data: URL with base64 content")
    name: str | None = Field(default=None, max_length=255)


Part = TextPart | FilePart


def read_parts(
    parts: Sequence[Part], policy: SessionsPolicy, store: Callable[[bytes], str]
) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a message, and its attachments, stored. Raises Problem with the part's place."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    files = [(n, part) for n, part in enumerate(parts) if isinstance(part, FilePart)]
    if len(files) > policy.max_attachments:
        detail = f"A message may have {policy.max_attachments} attachments; this one has {len(files)}."
        raise Problem(413, "Too many attachments", detail, [("content", detail)])
    decoded = [(part, *decode_data_url(part.url, f"content.{n}.url", policy)) for n, part in files]
    attachments = tuple(
        Attachment(sha256=store(content), media_type=media_type, size_bytes=len(content), name=part.name)
        for part, media_type, content in decoded
    )
    return "\n".join(texts), attachments


def decode_data_url(url: str, place: str, policy: SessionsPolicy) -> tuple[str, bytes]:
    """(media type, bytes). Raises Problem."""
    match = _DATA_URL.match(url)
    if match is None:
        detail = "Send the file as a data URL: data:<media type>;base64,<content>. Other addresses are not fetched."
        raise Problem(422, "Invalid attachment", detail, [(place, detail)])
    try:
        content = base64.b64decode(url[match.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem(422, "Invalid attachment", "The data URL is not base64.", [(place, "not base64")]) from error
    if len(content) > policy.max_attachment_bytes:
        detail = f"An attachment may have {policy.max_attachment_bytes} bytes; this one has {len(content)}."
        raise Problem(413, "Attachment too large", detail, [(place, detail)])
    return match["type"], content
