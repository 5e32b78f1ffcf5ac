"""Files that come with messages: as data URLs, or uploaded ahead and named by a reference."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import io
import re
import struct
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal, Self

import imagesize
import structlog
from aiohttp import BodyPartReader
from pydantic import BaseModel, Field

from gateway.http.json import clean_text
from gateway.http.problems import Problem
from gateway.http.routes import Body, Call, Route, json_answer, read_payload
from gateway.scheduler import NotNow
from sessions.entries import Attachment
from sessions.files import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from aiohttp import web

    from gateway.http.auth import Caller
    from gateway.parts import Parts
    from sessions.blobs import Blobs
    from sessions.policy import SessionsPolicy

log = structlog.get_logger()

REFERENCE = "attachment:"
UPLOADS_KEPT = timedelta(hours=24)
_MEDIA_TYPE = r"[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}"
_DATA_URL = re.compile(rf"data:(?P<type>{_MEDIA_TYPE})(?:;[a-z]+=[^;,]{{1,60}}){{0,3}};base64,")


class TextPart(Body):
    type: Literal["text"]
    text: str


class FilePart(Body):
    """An image or another file: a data URL (`data:image/png;base64,...`), or `attachment:` and the id of an upload."""

    type: Literal["image", "file"]
    url: str = Field(description="data: URL with base64 content, or attachment:<id> of POST /v1/attachments")
    name: str | None = Field(default=None, max_length=255)


Part = TextPart | FilePart


class UploadQuery(Body):
    name: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="The file's name; a multipart body may bring its own"
    )


class UploadView(BaseModel):
    """An uploaded file. Name it in messages as `url`; unused it is kept for 24 hours."""

    id: str
    url: str
    media_type: str
    size_bytes: int
    name: str | None


@dataclass(frozen=True, slots=True)
class FileReader:
    """Turns what a message says of a file into a stored attachment, for one caller. Blocking.

    As a context it ends by letting go of what it has stored: what no session has taken by then is removed.
    """

    blobs: Blobs
    policy: SessionsPolicy
    owner: str
    _held: list[str] = field(default_factory=list[str])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._held:
            await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        while self._held:
            try:
                self.blobs.let_go(self._held.pop())
            except StorageError as error:
                log.warning("attachment.not_removed", error=str(error))

    def read(self, url: str, place: str, name: str | None = None) -> Attachment:
        """Raises Problem with the place, and StorageError."""
        if not url.startswith(REFERENCE):
            media_type, content = decode_data_url(url, place, self.policy)
            self._held.append(self.blobs.hold(content))
            return attachment_of(self._held[-1], media_type, content, name)
        reference = url[len(REFERENCE) :]
        found = self.blobs.upload(reference, self.owner)
        if found is None:
            detail = "There is no such upload of yours; unused ones are kept for 24 hours. Upload the file again."
            raise Problem(422, "Invalid attachment", detail, [(place, detail)])
        return attachment_of(found.sha256, found.media_type, self.blobs.load(found.sha256), name or found.name)

    def parts(self, parts: Sequence[Part]) -> tuple[str, tuple[Attachment, ...]]:
        """The text of a message, and its attachments, stored. Raises Problem with the part's place; StorageError."""
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        files = [(n, part) for n, part in enumerate(parts) if isinstance(part, FilePart)]
        if len(files) > self.policy.max_attachments:
            detail = f"A message may have {self.policy.max_attachments} attachments; this one has {len(files)}."
            raise Problem(413, "Too many attachments", detail, [("content", detail)])
        return "\n".join(texts), tuple(self.read(part.url, f"content.{n}.url", part.name) for n, part in files)


def attachment_of(sha256: str, media_type: str, content: bytes, name: str | None) -> Attachment:
    """The attachment, with the size of an image as its first bytes tell it."""
    width = height = -1
    if media_type.startswith("image/"):
        with contextlib.suppress(ValueError, ArithmeticError, LookupError, struct.error):
            width, height = imagesize.get(io.BytesIO(content))  # pyright: ignore[reportUnknownMemberType]
    known = 0 < width < 2**31 and 0 < height < 2**31
    return Attachment(
        sha256=sha256,
        media_type=media_type,
        size_bytes=len(content),
        name=name,
        width=int(width) if known else None,
        height=int(height) if known else None,
    )


def file_reader(parts: Parts, caller: Caller) -> FileReader:
    return FileReader(parts.blobs, parts.config.sessions, owner_name(caller))


def owner_name(caller: Caller) -> str:
    """Whose uploads a caller may use: those of the same person, or of the same token."""
    return f"{caller.role}:{caller.user or caller.name}"


async def note_used(parts: Parts, urls: Iterable[str]) -> None:
    """Uploads that a message, which is on disk, has brought into its session go with it from now on."""
    for url in urls:
        if url.startswith(REFERENCE):
            try:
                await asyncio.to_thread(parts.blobs.use, url[len(REFERENCE) :])
            except StorageError as error:
                log.warning("upload.not_noted", error=str(error))


def routes(parts: Parts) -> list[Route]:
    async def upload(call: Call) -> web.Response:
        query: UploadQuery = call.query
        name, media_type, content = await read_upload(call.request, parts.config.sessions)
        name = query.name or name
        reference = await asyncio.to_thread(
            parts.blobs.put_upload,
            content,
            parts.clock.new_id(),
            owner=owner_name(call.caller),
            media_type=media_type,
            name=name,
        )
        view = UploadView(
            id=reference, url=f"{REFERENCE}{reference}", media_type=media_type, size_bytes=len(content), name=name
        )
        return json_answer(view, 201)

    return [
        Route(
            method="POST",
            path="/v1/attachments",
            endpoint=upload,
            summary="Upload a file for a later message: its bytes as the body, or the first part of a multipart one",
            tag="messages",
            query=UploadQuery,
            answers={201: UploadView},
        )
    ]


async def read_upload(request: web.Request, policy: SessionsPolicy) -> tuple[str | None, str, bytes]:
    """(name, media type, bytes) of an uploaded file. Raises Problem."""
    if not request.content_type.startswith("multipart/"):
        content = await read_payload(request)
        return None, checked_type(request.content_type), checked_size(content, policy, "body")
    try:
        part = await (await request.multipart()).next()
        if not isinstance(part, BodyPartReader):
            raise ValueError("it has no part")
        content = b""
        while chunk := await part.read_chunk(1024 * 1024):
            content = checked_size(content + chunk, policy, "body")
    except ValueError as error:
        detail = f"The multipart body cannot be read: {clean_text(str(error))[:200]}."
        raise Problem(400, "Unreadable body", detail, [("body", detail)], headers={"Connection": "close"}) from error
    name = None if part.filename is None else clean_text(part.filename)[:255]
    media_type = part.headers.get("Content-Type", "application/octet-stream").partition(";")[0].strip()
    return name, checked_type(media_type), checked_size(content, policy, "body")


def checked_type(media_type: str) -> str:
    if re.fullmatch(_MEDIA_TYPE, media_type) is None:
        detail = "Say what the file is in Content-Type, as in image/png."
        raise Problem(415, "Unknown media type", detail, [("Content-Type", detail)])
    return media_type.lower()


def checked_size(content: bytes, policy: SessionsPolicy, place: str) -> bytes:
    """Raises Problem for what is too large, or nothing."""
    if not content:
        raise Problem(422, "Invalid attachment", "The file is empty.", [(place, "is empty")])
    if len(content) > policy.max_attachment_bytes:
        detail = f"An attachment may have {policy.max_attachment_bytes} bytes (sessions.max_attachment_bytes)."
        raise Problem(413, "Attachment too large", detail, [(place, detail)])
    return content


def decode_data_url(url: str, place: str, policy: SessionsPolicy) -> tuple[str, bytes]:
    """(media type, bytes). Raises Problem."""
    match = _DATA_URL.match(url)
    if match is None:
        detail = (
            "Send the file as a data URL (data:<media type>;base64,<content>), or upload it with POST /v1/attachments. "
            "Other addresses are not fetched."
        )
        raise Problem(422, "Invalid attachment", detail, [(place, detail)])
    try:
        content = base64.b64decode(url[match.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem(422, "Invalid attachment", "The data URL is not base64.", [(place, "not base64")]) from error
    if len(content) > policy.max_attachment_bytes:
        detail = f"An attachment may have {policy.max_attachment_bytes} bytes; this one has {len(content)}."
        raise Problem(413, "Attachment too large", detail, [(place, detail)])
    return match["type"], content


async def expire_uploads(blobs: Blobs, now: datetime) -> None:
    """Removes uploads nobody used within a day. Raises NotNow."""
    try:
        expired = await asyncio.to_thread(blobs.expire_uploads, now, UPLOADS_KEPT)
    except StorageError as error:
        raise NotNow(str(error)) from error
    if expired:
        log.info("uploads.expired", uploads=expired)
