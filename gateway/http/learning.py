"""Learning over HTTP: what was learnt from which conversation, and descriptions tried out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from gateway.http.memories import Id, WhoQuery, viewer_for
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.topics import Title, Words
from memory.learning import RunState, Trigger
from memory.records import TopicDraft

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.parts import Parts
    from memory.learning import LearnRun

Sentence = Annotated[str, Field(min_length=1, max_length=4000)]


class LearningQuery(WhoQuery):
    session: Id | None = Field(default=None, description="Only what was learnt from this session")
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    before: Id | None = Field(default=None, description="Only runs older than this one: the last of the page before")


class LearningRunView(BaseModel):
    """What came of one piece of a conversation. `state`: done (something was written), nothing, or failed.

    `created`, `updated`, `deleted`: ids of memories, as they really changed. `refused`: why proposals of the model were
    not taken. `redacted`: texts in which secrets were replaced. The id is also the operation that undoes all of it.
    """

    id: str
    pool: str
    trigger: Trigger
    state: RunState
    session: str | None
    first_seq: int | None
    last_seq: int | None
    started_at: datetime
    ended_at: datetime
    model: str | None
    created: list[str]
    updated: list[str]
    deleted: list[str]
    refused: list[str]
    redacted: int
    problem: str | None
    calls: int
    input_tokens: int
    output_tokens: int


class LearningRunsView(BaseModel):
    """The newest first. `learns` false: there is no helper model, so nothing is learnt."""

    runs: list[LearningRunView]
    learns: bool


class TryTopicIn(Body):
    """A description of a topic, and sentences that a person might say."""

    description: Words
    sentences: list[Sentence] = Field(min_length=1, max_length=50)
    name: Title = "topic"
    leave_out: Annotated[str, Field(max_length=4000)] | None = None
    bounded: bool = False


class TriedView(BaseModel):
    """One memory the topic would take; `sentences` are the numbers of those it comes from, from 1."""

    text: str
    importance: int | None
    sentences: list[int]


class TryTopicView(BaseModel):
    """What would be remembered; nothing was written. `refused`: why other proposals would not be taken."""

    memories: list[TriedView]
    refused: list[str]
    redacted: int
    model: str


class LearningRoutes:
    """The endpoints, each with a viewer made of its caller."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def runs(self, call: Call) -> web.Response:
        query: LearningQuery = call.query
        memories = await self._parts.memory.open()
        found = await memories.store.learning.runs(
            viewer_for(call), session=query.session, limit=query.limit, before=query.before
        )
        views = [run_view(run) for run in found]
        return json_answer(LearningRunsView(runs=views, learns=self._parts.remember.learns))

    async def try_topic(self, call: Call) -> web.Response:
        body: TryTopicIn = call.body
        draft = TopicDraft(name=body.name, description=body.description, leave_out=body.leave_out, bounded=body.bounded)
        tried = await self._parts.learner.try_topic(draft, body.sentences)
        taken = [
            TriedView(
                text=step.text, importance=step.importance, sentences=list(range(step.first_seq, step.last_seq + 1))
            )
            for step in tried.taken
        ]
        return json_answer(
            TryTopicView(memories=taken, refused=list(tried.refused), redacted=tried.redacted, model=tried.model)
        )


def run_view(run: LearnRun) -> LearningRunView:
    times: dict[str, Any] = {"started_at": run.started_at, "ended_at": run.ended_at}
    return LearningRunView(**run.to_json(), **times, pool=str(run.pool))


def routes(parts: Parts) -> list[Route]:
    """Addresses of learning."""
    r = LearningRoutes(parts)

    def route(method: str, path: str, endpoint: Any, summary: str, answer: Any, **more: Any) -> Route:
        more.setdefault("query", WhoQuery)
        return Route(
            method=method, path=path, endpoint=endpoint, summary=summary, tag="learning", answers={200: answer}, **more
        )

    return [
        route(
            "GET",
            "/v1/learning-runs",
            r.runs,
            "What was learnt from conversations",
            LearningRunsView,
            query=LearningQuery,
        ),
        route(
            "POST",
            "/v1/topics/try",
            r.try_topic,
            "What a description would take from sentences; writes nothing",
            TryTopicView,
            body=TryTopicIn,
        ),
    ]
