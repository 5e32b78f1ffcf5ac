"""Whether the daemon lives, whether it is ready, and its counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from aiohttp import web
from pydantic import BaseModel

from gateway.http.routes import Call, Route, json_answer
from gateway.masking import masked

if TYPE_CHECKING:
    from gateway.http.metrics import Metrics
    from gateway.parts import Parts


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class PartState(BaseModel):
    """One part: `starting` is on its way, `degraded` works without something, `down` does not work."""

    state: Literal["ok", "starting", "degraded", "down"]
    detail: str = ""


class Readiness(BaseModel):
    """Whether messages are taken, part by part."""

    ready: bool
    parts: dict[str, PartState]


Check = Callable[[], PartState]


def routes(checks: Mapping[str, Check], metrics: Metrics) -> list[Route]:
    """`checks` say how a part is; one that answers `down` makes the daemon not ready."""

    async def alive(call: Call) -> web.Response:
        return json_answer(Alive())

    async def ready(call: Call) -> web.Response:
        content = readiness(checks)
        return json_answer(content, 200 if content.ready else 503)

    async def counters(call: Call) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return [
        Route(
            method="GET",
            path="/healthz",
            endpoint=alive,
            summary="Is the process alive",
            tag="health",
            answers={200: Alive},
            public=True,
        ),
        Route(
            method="GET",
            path="/readyz",
            endpoint=ready,
            summary="Is the daemon ready, part by part",
            tag="health",
            answers={200: Readiness, 503: Readiness},
            public=True,
        ),
        Route(
            method="GET",
            path="/metrics",
            endpoint=counters,
            summary="Counters for Prometheus",
            tag="health",
            answers={200: "text/plain"},
            public=True,
        ),
    ]


def readiness(checks: Mapping[str, Check]) -> Readiness:
    """What each part says of itself."""
    states = {name: _shown(check()) for name, check in checks.items()}
    return Readiness(ready=all(state.state != "down" for state in states.values()), parts=states)


def _shown(state: PartState) -> PartState:
    return PartState(state=state.state, detail=masked(state.detail))


def _well_unless(problem: str | None, detail: str = "") -> PartState:
    return PartState(state="ok", detail=detail) if problem is None else PartState(state="degraded", detail=problem)


def daemon_checks(parts: Parts) -> dict[str, Check]:
    """The parts of a daemon: replies need the store and a model, not the ledger."""

    def turns() -> PartState:
        return PartState(state="down", detail="stopping") if parts.turns.stopping else PartState(state="ok")

    def model() -> PartState:
        chat = parts.models.choose("main", None)
        return PartState(state="ok", detail=f"{chat.name} ({chat.model})")

    def ledger() -> PartState:
        return _well_unless(parts.ledger.problem)

    def archive() -> PartState:
        if parts.archive.problem is not None:
            return PartState(state="degraded", detail=parts.archive.problem)
        if not parts.archive.complete:
            return PartState(state="starting", detail=f"being opened or built; {parts.archive.waiting} sessions wait")
        return PartState(state="ok")

    def memory() -> PartState:
        return _well_unless(parts.memory.problem or parts.classifier.problem or parts.remember.problem)

    def vectors() -> PartState:
        status, problem = parts.vectors.status, parts.vectors.problem
        if not parts.vectors.configured:
            return PartState(state="ok", detail="no embedding model: keywords only")
        if problem is not None:
            return PartState(state="degraded", detail=f"{problem} Keyword search serves.")
        if status is None or status.state != "serving":
            told = "being opened" if status is None else f"{status.done} of {status.total} texts indexed"
            return PartState(state="starting", detail=f"{told}; keyword search serves")
        return PartState(
            state="ok", detail=f"{status.done} texts" + (f", {status.failed} refused" * bool(status.failed))
        )

    def messages() -> PartState:
        status = parts.said.status
        if not parts.said.configured:
            return PartState(state="ok", detail="found by words only")
        if status is None or status.state != "serving":
            told = f"{status.done} of {status.total} have a vector; " if status and status.total else ""
            return PartState(state="starting", detail=f"{told}{parts.said.problem or ''} Words serve.".strip())
        return PartState(state="ok", detail=f"{status.done} have a vector")

    def files() -> PartState:
        return _well_unless(parts.workspaces.problem, parts.workspaces.told)

    def recall() -> PartState:
        return _well_unless(parts.recall.problem)

    def jobs() -> PartState:
        problem = parts.jobs.store.problem
        if problem is not None:
            return PartState(state="degraded", detail=problem)
        if not parts.jobs.taken_up.is_set():
            return PartState(state="starting", detail="being opened; what is due waits")
        if unusable := parts.jobs.unusable:
            return PartState(state="degraded", detail=unusable)
        return PartState(state="ok", detail=f"{parts.jobs.runs.going} runs go on, {parts.jobs.runs.waiting} wait")

    return {
        "store": lambda: PartState(state="ok"),
        "turns": turns,
        "model": model,
        "ledger": ledger,
        "archive": archive,
        "memory": memory,
        "vectors": vectors,
        "messages": messages,
        "recall": recall,
        "files": files,
        "jobs": jobs,
        "background": lambda: _well_unless(parts.background.problem),
    }
