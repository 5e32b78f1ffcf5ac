"""Webhooks: calls from outside, how their runs stand, and what is configured."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from gateway.clock import within
from gateway.http.auth import may_see
from gateway.http.json import BadJson, dump, parse_json
from gateway.http.problems import Problem, not_found
from gateway.http.routes import Call, Route, json_answer
from gateway.http.run_views import PageQuery, RunPageView, RunView, id_of, run_page, run_view
from gateway.jobs.hooks import KeyRefused
from gateway.jobs.signatures import BadSignature

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.jobs.hooks import Hook, HookDesk
    from gateway.jobs.values import Run
    from gateway.parts import Parts


class CallView(BaseModel):
    """A call that was taken: it is on disk and will run. `location` tells how it stands."""

    run: str
    hook: str
    key: str
    location: str


class ReplyView(BaseModel):
    """The reply to a call, of a webhook that waits."""

    run: str
    hook: str
    key: str
    location: str
    status: str
    text: str | None


class HookView(BaseModel):
    """A webhook as it is configured; its secret is shown nowhere."""

    name: str
    path: str
    scheme: str
    template: str
    instruction: str | None
    agent: str
    model: str | None
    session: str | None
    wait: bool
    timeout_s: float
    max_bytes: int
    deliver: str | None
    example_secret: bool


class HooksView(BaseModel):
    """All webhooks."""

    hooks: list[HookView]


class ExampleView(BaseModel):
    """A call that is taken now, and for five minutes: what to send, and the same as a line for a shell."""

    path: str
    headers: dict[str, str]
    body: str
    note: str | None = None


def routes(parts: Parts) -> list[Route]:
    at = _Hooks(parts)
    return [
        Route(
            method="POST",
            path="/hooks/{name}",
            endpoint=at.take,
            summary="Call a webhook; the sender signs the body",
            tag="hooks",
            answers={200: ReplyView, 202: CallView},
            signed=True,
        ),
        Route(
            method="GET",
            path="/hooks/runs/{id}",
            endpoint=at.show_run,
            summary="How the run of a call stands, and its reply",
            tag="hooks",
            answers={200: RunView},
            roles=("admin", "frontend"),
        ),
        Route(
            method="GET",
            path="/v1/hooks",
            endpoint=at.list_all,
            summary="The webhooks",
            tag="hooks",
            answers={200: HooksView},
            roles=("admin",),
        ),
        Route(
            method="GET",
            path="/v1/hooks/{name}",
            endpoint=at.show,
            summary="One webhook",
            tag="hooks",
            answers={200: HookView},
            roles=("admin",),
        ),
        Route(
            method="GET",
            path="/v1/hooks/{name}/example",
            endpoint=at.example,
            summary="A signed call to try it with",
            tag="hooks",
            answers={200: ExampleView},
            roles=("admin",),
        ),
        Route(
            method="GET",
            path="/v1/hooks/{name}/runs",
            endpoint=at.list_runs,
            summary="The runs of a webhook, newest first",
            tag="hooks",
            query=PageQuery,
            answers={200: RunPageView},
            roles=("admin",),
        ),
    ]


class _Hooks:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def _hook(self, call: Call) -> Hook:
        hook = self._parts.jobs.hooks.hooks.get(call.path("name"))
        if hook is None:
            raise not_found("webhook")
        return hook

    async def take(self, call: Call) -> web.Response:
        """Size, signature, JSON, template, in this order: a stranger is told nothing of the later ones.

        Who waits does so for `timeout_s` from the call on, however many runs are before it; the run goes on.
        """
        desk, clock = self._parts.jobs.hooks, self._parts.clock
        called_at = clock.monotonic()
        hook = self._hook(call)
        if self._parts.turns.stopping:
            raise Problem(503, "Not available", "The daemon is stopping. Call again.", headers={"Retry-After": "5"})
        body = await read_bounded(call.request, hook.policy.max_bytes)
        try:
            desk.check(hook, call.request.headers, body)
        except BadSignature as error:
            raise Problem(401, "Bad signature", str(error)) from error
        try:
            payload = parse_json(body)
        except BadJson as error:
            raise Problem(400, "Malformed JSON", str(error), [("body", str(error))]) from error
        run = await self._opened(hook, call, payload)
        taken = CallView(run=run.id, hook=run.name, key=run.key, location=f"/hooks/runs/{run.id}")
        left_s = called_at + hook.policy.timeout_s - clock.monotonic() if hook.policy.wait else 0.0
        if left_s > 0:
            with suppress(TimeoutError):
                await within(clock, left_s, self._parts.jobs.runs.ended(run.id))
                return await self._reply(taken)
        return json_answer(taken, 202, Location=taken.location)

    async def _opened(self, hook: Hook, call: Call, payload: Any) -> Run:
        from gateway.jobs.templates import BadTemplate

        try:
            return await self._parts.jobs.hooks.open(hook, call.request.headers, payload)
        except BadTemplate as error:
            detail = f"The template of the webhook does not fit the payload: {error}."
            raise Problem(422, "Template error", detail, [(f"template {error.place}", error.why)]) from error
        except KeyRefused as error:
            raise Problem(422, "Session key refused", str(error), [("session", str(error))]) from error

    async def _reply(self, taken: CallView) -> web.Response:
        """The end of the run, read from the disk: the same for the first call and for every repeat."""
        run = await self._parts.jobs.store.run(taken.run)
        assert run is not None  # noqa: S101
        if run.status != "ok":
            status = 504 if run.status == "timeout" else 502
            extra = {"run": run.id, "location": taken.location}
            raise Problem(status, "The run failed", run.error or run.status, extra=extra)
        text = await self._text(run)
        return json_answer(ReplyView(**taken.model_dump(), status=run.status, text=text))

    async def _text(self, run: Run) -> str | None:
        turn = None if run.turn is None else await self._parts.turns.find(run.turn)
        return None if turn is None or turn.result is None else turn.result.text

    async def show_run(self, call: Call) -> web.Response:
        run = await self._parts.jobs.store.run(id_of(call))
        if run is None or run.kind != "hook" or not may_see(call.caller, run.key, None):
            raise not_found("run")
        states = await self._parts.jobs.store.delivery_states([run.id])
        text = await self._text(run) if run.status == "ok" else None
        return json_answer(run_view(run, states.get(run.id, "none"), text=text))

    async def list_all(self, call: Call) -> web.Response:
        return json_answer(HooksView(hooks=[hook_view(hook) for hook in self._parts.jobs.hooks.hooks.values()]))

    async def show(self, call: Call) -> web.Response:
        return json_answer(hook_view(self._hook(call)))

    async def example(self, call: Call) -> web.Response:
        return json_answer(example_of(self._parts.jobs.hooks, self._hook(call)))

    async def list_runs(self, call: Call) -> web.Response:
        return await run_page(self._parts.jobs.store, "hook", self._hook(call).policy.name, call.query)


def example_of(desk: HookDesk, hook: Hook) -> ExampleView:
    """A signed call whose payload has the names that the templates of the webhook use."""
    from gateway.jobs.templates import example_body

    sources = [hook.policy.template, *([hook.policy.session] if hook.policy.session else [])]
    payload: dict[str, Any] = {}
    for source in sources:
        payload |= example_body(source)
    body = dump(payload or {"text": "example"})
    note = None
    if hook.policy.scheme == "bearer":
        note = "Put the secret of the webhook into the variable first."
    return ExampleView(
        path=f"/hooks/{hook.policy.name}",
        headers={"Content-Type": "application/json", **desk.example_headers(hook, body)},
        body=body.decode(),
        note=note,
    )


async def read_bounded(request: web.Request, max_bytes: int) -> bytes:
    """The body, not read further than it may be. Raises Problem."""
    too_large = Problem(413, "Body too large", f"This webhook takes at most {max_bytes} bytes (max_bytes).")
    if (request.content_length or 0) > max_bytes:
        raise too_large
    pieces: list[bytes] = []
    size = 0
    async for piece in request.content.iter_any():
        size += len(piece)
        if size > max_bytes:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)


def hook_view(hook: Hook) -> HookView:
    policy = hook.policy
    return HookView(
        name=policy.name,
        path=f"/hooks/{policy.name}",
        scheme=policy.scheme,
        template=policy.template,
        instruction=policy.instruction,
        agent=policy.agent,
        model=policy.model,
        session=policy.session,
        wait=policy.wait,
        timeout_s=policy.timeout_s,
        max_bytes=policy.max_bytes,
        deliver=None if policy.deliver is None else policy.deliver.shown,
        example_secret=hook.has_example_secret,
    )
