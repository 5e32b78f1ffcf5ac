"""Learning from a piece of a conversation: what is known is looked up, a helper model asked, what may be is written."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from compaction.layout import build_prompt
from gateway.clock import within
from gateway.models.base import ContextOverflow, ModelBroken, ModelError, ModelRequest, ModelUnavailable, complete
from gateway.replies import CallNote
from memory.errors import MemoryConflict, MemoryProblem
from memory.judge import Learnable, judge
from memory.learn import (
    REPAIR,
    SYSTEM,
    Said,
    answer_schema,
    clean_said,
    in_scope,
    learnable_topics,
    parse_answer,
    render_question,
)
from memory.learning import TRIES, LearnRun, Lesson
from memory.records import DELIBERATE, Filters, ListQuery, Pool, Source, Topic, Viewer
from memory.text import cut
from memory.topics import checked_draft, checked_properties
from sessions.context import AssistantMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compaction.layout import Prompt
    from gateway.clock import Clock
    from gateway.models.base import ChatModel, Finished
    from gateway.replies import Ledger
    from gateway.vectors import Opener
    from memory.judge import Judged, Step
    from memory.learn import Proposal
    from memory.memory import Memories
    from memory.policy import LearnPolicy
    from memory.records import Memory, TopicDraft

log = structlog.get_logger()

OFFLINE = "offline"
MAX_OUTPUT = 4000
SHOWN = 30
NEWEST = 10
BOUNDED = 50
NEAR = 5
COMPARED = 20
TRASH = 200
QUERY_CHARACTERS = 4000
NO_HELPER = "There is no helper model: name one under roles.helper."
UNREADABLE = "The helper model's answer could not be read, and neither its second one."
PASSED_OVER = "This piece of the conversation was passed over after {tries} such answers."


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a topic would take from sentences, and why not the rest that was proposed."""

    taken: tuple[Step, ...]
    refused: tuple[str, ...]
    redacted: int
    model: str


class _Unreadable(Exception):
    """No JSON came, twice."""


class Helpers(Protocol):
    """The models of roles; None where the configuration names none."""

    def for_role(self, role: str) -> ChatModel | None: ...


class Learner:
    """Whatever learns, learns here: conversations, and what other surfaces bring."""

    def __init__(self, memory: Opener, models: Helpers, ledger: Ledger, clock: Clock, policy: LearnPolicy) -> None:
        self._memory = memory
        self._models = models
        self._ledger = ledger
        self._clock = clock
        self._policy = policy

    def helper(self) -> ChatModel | None:
        """The model that learns; the built-in one cannot."""
        model = self._models.for_role("helper")
        return None if model is None or model.model == OFFLINE else model

    async def learn(self, lesson: Lesson) -> LearnRun:
        """What came of it, as it is kept. Whatever goes wrong is a failed run, never an exception.

        What is not in the words of the conversation, was deleted, or would overwrite what a person has written since,
        is refused, whatever the model proposes.
        """
        viewer = lesson.viewer
        if viewer.origin in DELIBERATE:
            lesson = dataclasses.replace(lesson, viewer=dataclasses.replace(viewer, origin=lesson.source.origin))
        asking = _Asking(self._blank(lesson))
        memories: Memories | None = None
        try:
            memories = await self._memory.open()
            return await self._learn(memories, lesson, asking)
        except _Unreadable:
            return await self._failed(memories, lesson, asking, UNREADABLE, unreadable=True)
        except ContextOverflow as error:
            return await self._failed(memories, lesson, asking, str(error), unreadable=True)
        except (ModelError, MemoryProblem) as error:
            return await self._failed(memories, lesson, asking, str(error))
        except Exception as error:
            log.exception("learning.failed", session=lesson.source.session)
            why = f"Learning failed inside ({type(error).__name__}); the log says more."
            return await self._failed(memories, lesson, asking, why)

    def _blank(self, lesson: Lesson) -> LearnRun:
        now = self._clock.now()
        return LearnRun(
            id=lesson.run or self._clock.new_id(),
            pool=lesson.pool,
            trigger=lesson.trigger,
            state="nothing",
            started_at=now,
            ended_at=now,
            session=lesson.source.session,
            first_seq=lesson.source.first_seq,
            last_seq=lesson.source.last_seq,
        )

    async def _learn(self, memories: Memories, lesson: Lesson, asking: _Asking) -> LearnRun:
        said, asking.redacted = clean_said(lesson.said, allow_secrets=memories.policy.allow_secrets)
        properties = checked_properties(lesson.properties)
        lesson = dataclasses.replace(lesson, said=said, properties=properties)
        topics = await self._topics(memories, lesson)
        if not said or not topics or lesson.most == 0:
            return await memories.learn(lesson, [], self._ended(asking))
        model = self.helper()
        if model is None:
            return await self._failed(memories, lesson, asking, NO_HELPER)
        known = await self._known(memories, lesson, topics)
        proposals = await self._ask(model, lesson, topics, known, asking)
        judged = await self._judge(memories, lesson, topics, known, proposals)
        asking.redacted += judged.redacted
        asking.run = dataclasses.replace(asking.run, refused=tuple(judged.refused))
        run = await memories.learn(lesson, judged.steps, self._ended(asking))
        log.info(
            "learning.done",
            session=run.session,
            trigger=run.trigger,
            created=len(run.created),
            updated=len(run.updated),
            deleted=len(run.deleted),
            refused=len(run.refused),
        )
        return run

    async def _topics(self, memories: Memories, lesson: Lesson) -> list[Topic]:
        topics = lesson.topics
        if topics is None:
            topics = await memories.topics.topics(lesson.viewer, lesson.pool)
        return learnable_topics(topics, lesson.project, lesson.properties)

    async def try_topic(self, draft: TopicDraft, sentences: Sequence[str]) -> Tried:
        """What a description would take from sentences, if a person said them; nothing is written, and no memory is
        looked at. Raises InvalidMemory, MemoryConflict without a helper model, and ModelError."""
        model, now = self.helper(), self._clock.now()
        if model is None:
            raise MemoryConflict(NO_HELPER)
        fields = {field.name: getattr(draft := checked_draft(draft), field.name) for field in dataclasses.fields(draft)}
        topic = Topic(id="tried", owner=None, created_at=now, updated_at=now, **fields)
        said = [Said(seq=n, who="user", text=text, at=now) for n, text in enumerate(sentences, 1)]
        said, redacted = clean_said(said)
        pool = Pool("user", "nobody")
        viewer = Viewer(user=None, author="nobody", origin="learning")
        lesson = Lesson(viewer=viewer, pool=pool, said=said, source=Source(origin="learning"), now=now)
        asking = _Asking(self._blank(lesson))
        try:
            proposals = await self._ask(model, lesson, [topic], [], asking)
        except _Unreadable as error:
            raise ModelBroken(UNREADABLE) from error
        properties = dict.fromkeys(topic.scope_properties, "any")
        given = Learnable(said=said, known=[], topics=[topic], deleted=[], terms=cut, most=None, properties=properties)
        judged = judge(proposals, given)
        redacted += judged.redacted
        return Tried(taken=tuple(judged.steps), refused=tuple(judged.refused), redacted=redacted, model=model.name)

    # --- what is known already ------------------------------------------------------------------------------------

    async def _known(self, memories: Memories, lesson: Lesson, topics: Sequence[Topic]) -> list[Memory]:
        """What the model is shown: what the words bring to mind, the summaries, and the newest."""
        viewer, mine = lesson.viewer, Filters(pools=(lesson.pool,))
        found: list[Memory] = []
        bounded = tuple(topic.id for topic in topics if topic.bounded)
        if bounded:
            of_topics = dataclasses.replace(mine, topics=bounded, properties={})
            found += (await memories.page(viewer, of_topics, ListQuery(limit=BOUNDED)))[0]
        words = " ".join(one.text for one in lesson.said if one.who == "user")[:QUERY_CHARACTERS]
        if words.strip():
            found += [hit.memory for hit in (await memories.search(viewer, words, limit=SHOWN, filters=mine)).hits]
        found += (await memories.page(viewer, mine, ListQuery(limit=NEWEST)))[0]
        unique = {memory.id: memory for memory in found if in_scope(memory, topics, lesson.properties)}
        return list(unique.values())[:SHOWN]

    async def _judge(
        self,
        memories: Memories,
        lesson: Lesson,
        topics: Sequence[Topic],
        known: Sequence[Memory],
        proposals: Sequence[Proposal],
    ) -> Judged:
        """Compared with what is like the proposals, too, whether the model was shown it or not."""
        viewer, mine = lesson.viewer, Filters(pools=(lesson.pool,))
        near: list[Memory] = []
        for proposal in proposals[:COMPARED]:
            if proposal.op == "add" and proposal.text.strip():
                text = proposal.text[:QUERY_CHARACTERS]
                hits = (await memories.search(viewer, text, limit=NEAR, filters=mine)).hits
                near += [hit.memory for hit in hits if in_scope(hit.memory, topics, lesson.properties)]
        trashed, _ = await memories.page(viewer, mine, ListQuery(state="trashed", limit=TRASH))
        given = Learnable(
            said=lesson.said,
            known=list({memory.id: memory for memory in [*near, *known]}.values()),
            shown=frozenset(memory.id for memory in known),
            topics=topics,
            deleted=[memory.text for memory in trashed],
            terms=memories.terms,
            most=lesson.most,
            properties=lesson.properties,
            sorted_only=lesson.topics is not None,
            similar=memories.policy.similar,
            allow_secrets=memories.policy.allow_secrets,
        )
        return judge(proposals, given)

    # --- the model ------------------------------------------------------------------------------------------------

    async def _ask(
        self, model: ChatModel, lesson: Lesson, topics: Sequence[Topic], known: Sequence[Memory], asking: _Asking
    ) -> list[Proposal]:
        """One question, and once more when the answer is no JSON. Raises ModelError and _Unreadable."""
        question = UserMessage(text=render_question(lesson.said, known, topics, most=lesson.most, now=lesson.now))
        schema = answer_schema(topics)
        reply = await self._call(model, build_prompt(system=SYSTEM, messages=[question]), schema, lesson, asking)
        proposals = parse_answer(reply.text)
        if proposals is None:
            again = [question, AssistantMessage(text=reply.text or "-"), UserMessage(text=REPAIR)]
            reply = await self._call(model, build_prompt(system=SYSTEM, messages=again), schema, lesson, asking)
            proposals = parse_answer(reply.text)
        if proposals is None:
            raise _Unreadable
        return proposals

    async def _call(
        self, model: ChatModel, prompt: Prompt, schema: Mapping[str, Any], lesson: Lesson, asking: _Asking
    ) -> Finished:
        started = self._clock.monotonic()
        request = ModelRequest(prompt=prompt, schema=schema, max_output=MAX_OUTPUT)
        asking.model(model.name)
        try:
            reply = await within(self._clock, self._policy.timeout_s, complete(model, request))
        except TimeoutError as error:
            limit_s = f"{self._policy.timeout_s:g}"
            raise ModelUnavailable(f"The helper model gave no answer in {limit_s} s.") from error
        asking.answered(reply)
        self._note(model, lesson, reply, self._clock.monotonic() - started)
        return reply

    def _note(self, model: ChatModel, lesson: Lesson, reply: Finished, duration_s: float) -> None:
        if reply.usage is None:
            return
        name = reply.name or model.name
        self._ledger.note(
            CallNote(
                id=self._clock.new_id(),
                session=lesson.source.session or "",
                key="memory:learning",
                user=lesson.pool.id if lesson.pool.kind == "user" else lesson.viewer.user,
                agent="",
                role="helper",
                model_name=name,
                model=reply.model,
                usage=reply.usage,
                cost=self._ledger.cost(name, reply.model, reply.usage),
                duration_s=duration_s,
            )
        )

    # --- the end --------------------------------------------------------------------------------------------------

    def _ended(self, asking: _Asking) -> LearnRun:
        return dataclasses.replace(asking.run, ended_at=self._clock.now(), redacted=asking.redacted)

    async def _failed(
        self, memories: Memories | None, lesson: Lesson, asking: _Asking, why: str, *, unreadable: bool = False
    ) -> LearnRun:
        """Kept where it can be. An outage leaves the watermark where it is; after some unreadable answers to the same
        piece it is passed over."""
        before, moved = lesson.before, None
        if unreadable and before is not None:
            given_up = before.failures + 1 >= TRIES
            moved = lesson.mark if given_up else dataclasses.replace(before, failures=before.failures + 1)
            why = f"{why} {PASSED_OVER.format(tries=TRIES)}" if given_up else why
        run = dataclasses.replace(self._ended(asking), state="failed", problem=why)
        log.warning("learning.failed", session=run.session, trigger=run.trigger, problem=why)
        if memories is not None:
            try:
                return await memories.learn(dataclasses.replace(lesson, mark=moved), [], run)
            except MemoryProblem as error:
                log.warning("learning.not_kept", session=run.session, error=str(error))
        return run


class _Asking:
    """A run while it goes on."""

    def __init__(self, run: LearnRun) -> None:
        self.run = run
        self.redacted = 0

    def model(self, name: str) -> None:
        self.run = dataclasses.replace(self.run, model=name, calls=self.run.calls + 1)

    def answered(self, reply: Finished) -> None:
        usage = reply.usage
        if usage is not None:
            self.run = dataclasses.replace(
                self.run,
                model=reply.name or self.run.model,
                input_tokens=self.run.input_tokens + usage.input_total,
                output_tokens=self.run.output_tokens + usage.output,
            )
