"""Messages and turns: a message goes in, its turn can be followed, read and stopped."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from gateway.events import START
from gateway.http.attachments import FilePart, Part, file_reader, note_used
from gateway.http.auth import Caller, may_post, may_see, owner_of, speaker_of
from gateway.http.problems import TURN_STATUS, Problem, not_found, retry_after
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.sse import follow, wants_events
from gateway.http.views import TurnView, turn_view
from gateway.turn import Incoming
from sessions.keys import ChatContext, ChatType, SessionKey, derive_key
from sessions.policy import Composed, QueueMode

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.http.attachments import FileReader
    from gateway.parts import Parts
    from gateway.turn import Turn

MAX_REQUEST_ID = 256
RequestId = Annotated[str, Field(min_length=1, max_length=MAX_REQUEST_ID)]
Sender = Annotated[Composed, Field(min_length=1, max_length=256)]


class MessageIn(Body):
    """One message: `text`, or `content` parts, or both."""

    text: str | None = None
    content: list[Part] | None = Field(default=None, max_length=200)
    sender: Sender | None = Field(default=None, description="Who wrote it, as the frontend knows them")
    sender_name: Sender | None = Field(default=None, description="How that person is called")
    request_id: RequestId | None = Field(default=None, description="The same id again returns the same turn")
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    stream: bool = False
    queue: QueueMode | None = Field(default=None, description="What happens when a turn runs already")


class InboundMessage(MessageIn):
    """A message with where it came from, instead of a key."""

    agent: str = "main"
    channel: str
    chat_type: ChatType
    chat_id: str | None = None
    thread_id: str | None = None


class WaitQuery(Body):
    wait: Annotated[int, Field(ge=0, le=1)] = Field(default=1, description="0: answer 202 as soon as it is on disk")


class StopView(BaseModel):
    """Whether something was stopped."""

    stopped: bool


TURN_ANSWERS: dict[int, Any] = {200: (TurnView, "text/event-stream"), 202: TurnView}


def routes(parts: Parts) -> list[Route]:
    async def post_message(call: Call) -> web.StreamResponse:
        body: MessageIn = call.body
        return await _answer(parts, call, await start_turn(parts, call, call.key, body))

    async def post_inbound(call: Call) -> web.StreamResponse:
        body: InboundMessage = call.body
        context = ChatContext(
            agent=body.agent,
            channel=body.channel,
            chat_type=body.chat_type,
            chat_id=body.chat_id,
            sender=call.caller.user if call.caller.role == "user" else body.sender,
            thread_id=body.thread_id,
        )
        policy = parts.config.sessions
        key = derive_key(context, policy.direct_scope, policy.identities)
        return await _answer(parts, call, await start_turn(parts, call, key, body))

    async def show_turn(call: Call) -> web.Response:
        return json_answer(turn_view(await find_turn(parts, call)))

    async def turn_events(call: Call) -> web.StreamResponse:
        turn = await find_turn(parts, call)
        return await _follow(parts, call, turn, call.request.headers.get("Last-Event-ID", START))

    async def stop_turn(call: Call) -> web.Response:
        return json_answer(StopView(stopped=await parts.turns.stop(await find_turn(parts, call))))

    return [
        Route(
            method="POST",
            path="/v1/sessions/{key}/messages",
            endpoint=post_message,
            summary="Send a message and get the reply",
            tag="messages",
            body=MessageIn,
            query=WaitQuery,
            answers=TURN_ANSWERS,
        ),
        Route(
            method="POST",
            path="/v1/inbound",
            endpoint=post_inbound,
            summary="Send a message; the key is derived from where it came from",
            tag="messages",
            body=InboundMessage,
            query=WaitQuery,
            answers=TURN_ANSWERS,
        ),
        Route(
            method="GET",
            path="/v1/turns/{id}",
            endpoint=show_turn,
            summary="How a turn stands, or how it ended",
            tag="turns",
            answers={200: TurnView},
        ),
        Route(
            method="GET",
            path="/v1/turns/{id}/events",
            endpoint=turn_events,
            summary="A turn's events, from the beginning or after Last-Event-ID",
            tag="turns",
            answers={200: "text/event-stream"},
        ),
        Route(
            method="POST",
            path="/v1/turns/{id}/stop",
            endpoint=stop_turn,
            summary="Stop a turn; what came so far is kept",
            tag="turns",
            answers={200: StopView},
        ),
    ]


async def start_turn(parts: Parts, call: Call, key: SessionKey, body: MessageIn) -> Turn:
    """Checks who posts, stores attachments, and starts the turn. Raises Problem and what Turns.start raises."""
    async with file_reader(parts, call.caller) as files:
        return await _started(parts, call, key, body, files)


async def _started(parts: Parts, call: Call, key: SessionKey, body: MessageIn, files: FileReader) -> Turn:
    sender = checked_sender(parts, call.caller, key, body.sender)
    text, attachments = body.text or "", ()
    if body.content:
        in_parts, attachments = await asyncio.to_thread(files.parts, body.content)
        text = "\n".join(part for part in (text, in_parts) if part)
    if not text.strip() and not attachments:
        raise Problem(422, "Invalid request", "The message is empty: send text or content.", [("text", "is empty")])
    request_id = body.request_id or idempotency_key(call.request)
    turn = await parts.turns.start(
        key,
        Incoming(
            text=text,
            attachments=attachments,
            sender=sender,
            sender_name=body.sender_name,
            user=owner_of(key, sender, call.caller, parts.config.sessions.identities),
            speaker=speaker_of(key, sender, call.caller, parts.config.sessions.identities),
            role=call.caller.role,
            request_id=request_id,
            request_sha256=fingerprint(body, key) if request_id else None,
            model=body.model,
            queue=body.queue,
        ),
    )
    if attachments:
        await note_used(parts, (part.url for part in body.content or () if isinstance(part, FilePart)))
    return turn


def idempotency_key(request: web.Request) -> str | None:
    """The request id a client gave as a header. Raises Problem for what could not stand in a body either."""
    raw = request.headers.get("Idempotency-Key")
    if raw and (len(raw) > MAX_REQUEST_ID or not raw.isprintable()):
        detail = f"Idempotency-Key must be at most {MAX_REQUEST_ID} printable characters of UTF-8."
        raise Problem(400, "Invalid request", detail, [("Idempotency-Key", detail)])
    return raw or None


def checked_sender(parts: Parts, caller: Caller, key: SessionKey, sender: str | None) -> str | None:
    """Whether the caller may write to the key, and who the sender is. A person's token speaks for that person only."""
    record = parts.store.find(key)
    owner = record.owner if record else None
    if not may_post(caller, key, owner, parts.config.sessions.identities, exists=record is not None):
        if caller.role != "user":
            raise not_found("session")
        own = f"agent:{key.agent}:<channel>:direct:{caller.user}"
        detail = f"There is no such session for this token. It may write to {own}, and to threads of it."
        raise Problem(404, "Not found", detail)
    if caller.role == "user" and sender is not None and sender != caller.user:
        detail = "This token speaks for one person only. Leave out sender."
        raise Problem(422, "Invalid request", detail, [("sender", detail)])
    return caller.user if caller.role == "user" else sender


def fingerprint(body: Body, key: SessionKey) -> str:
    """What a request id stands for: the same id with another one is a conflict."""
    content = body.model_dump_json(exclude={"request_id", "stream"})
    return hashlib.sha256(f"{key}\n{content}".encode()).hexdigest()


async def find_turn(parts: Parts, call: Call) -> Turn:
    """The turn of the path. Raises Problem when there is none, or the caller may not see its session."""
    turn = await parts.turns.find(call.path("id"))
    if turn is None or not may_see(call.caller, turn.record.key, turn.record.owner):
        raise not_found("turn")
    return turn


async def _answer(parts: Parts, call: Call, turn: Turn) -> web.StreamResponse:
    """The reply as JSON when it is done, as events, or at once (`wait=0`)."""
    query: WaitQuery = call.query
    if not query.wait:
        return json_answer(turn_view(turn), 202, Location=f"/v1/turns/{turn.id}")
    if call.body.stream or wants_events(call.request):
        return await _follow(parts, call, turn, START)
    result = await turn.done()
    if result.failed:
        raise Problem(
            TURN_STATUS.get(result.error_code or "", 500),
            "The turn failed",
            result.error or "",
            headers=retry_after(result.retry_after_s),
            extra={"code": result.error_code, "turn": turn.id, "session": result.session},
        )
    return json_answer(turn_view(turn))


async def _follow(parts: Parts, call: Call, turn: Turn, after: str) -> web.StreamResponse:
    return await follow(
        call.request,
        turn.events.follow(after),
        ping_s=parts.config.server.ping_s,
        X_Sessiond_Turn=turn.id,
        X_Sessiond_Session=turn.record.session,
    )
