"""Asks a model for the summary of a plan, in bounded calls, and takes only one that holds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from compaction.acceptance import BadSummary, Source, accept_summary
from compaction.extract import extract_summary
from compaction.prompt import (
    LINE_CHARACTERS,
    ask_in_place,
    build_merge_prompt,
    build_summary_prompt,
    chunked,
    data_lines,
    summary_line,
)
from compaction.summary import SCHEMA, completed, render_summary, shortened, texts_of
from compaction.supersede import retired
from compaction.words import sentences
from gateway.clock import within
from gateway.models.base import ContextOverflow, ModelError, ModelRequest, complete
from sessions.entries import UserEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compaction.layout import Prompt
    from compaction.plan import Plan
    from compaction.policy import CompactionPolicy
    from gateway.clock import Clock
    from gateway.models.base import ChatModel, Finished
    from sessions.entries import JsonObject

    Ask = Callable[[str | None], Prompt]
    """The prompt of a call, given why the last reply was not accepted."""

ATTEMPTS = 2
SMALLEST_CHUNK = 200
REPLY_ROOM = 256
COUNT_MARGIN = 1.5
"""A provider may count half as much again as we do."""


class SummaryFailed(Exception):
    """No summary came of it; the message is for people."""


class NothingToGain(SummaryFailed):
    """A summary would be no shorter than what it is of: nobody's failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryJob:
    """What is to be summarised, and who is asked. `generation` is the one it will open.

    `conversation` is the session's own prompt when the model is the session's own and it fits: then it is asked behind
    it, where the provider has most of the prompt in its cache. `noted` gets each finished call with its duration,
    `progress` how many calls of how many are done.
    """

    plan: Plan
    generation: int
    model: ChatModel
    window: int
    conversation: Prompt | None = None
    cache_key: str | None = None
    wish: str | None = None
    noted: Callable[[Finished, float], None] = lambda _reply, _duration_s: None
    progress: Callable[[int, int], None] = lambda _done, _of: None

    @property
    def previous(self) -> JsonObject | None:
        return self.plan.previous.summary if self.plan.previous else None


class Summariser:
    """Every call it makes is bounded in input and in time; whatever a model writes, the checks decide."""

    def __init__(self, *, count: Callable[[str], int], clock: Clock, policy: CompactionPolicy) -> None:
        self._count = count
        self._clock = clock
        self._policy = policy

    async def write(self, job: SummaryJob) -> JsonObject:
        """Raises SummaryFailed."""
        source = await asyncio.to_thread(Source.of, job.plan.fresh, job.previous)
        try:
            if job.conversation is None:
                return await self._separately(job, source, None)
            found = await self._in_place(job, job.conversation, source)
            return await self._separately(job, source, found) if isinstance(found, str) else found
        except BadSummary as error:
            raise SummaryFailed(f"{job.model.name} gave no usable summary: {error}") from error
        except TimeoutError as error:
            raise SummaryFailed(f"{job.model.name} took longer than {self._policy.timeout_s:g} s") from error
        except ModelError as error:
            raise SummaryFailed(str(error)) from error

    def by_rules(self, plan: Plan, generation: int) -> JsonObject:
        """Without a model. Raises NothingToGain when it would be no shorter than what it replaces."""
        previous = plan.previous.summary if plan.previous else None
        try:
            return self._finished(plan, generation, extract_summary(plan.fresh, previous))
        except BadSummary as error:
            raise NothingToGain(f"There is nothing to gain: {error}.") from error

    async def _in_place(self, job: SummaryJob, conversation: Prompt, source: Source) -> JsonObject | str:
        """The summary, or why the reply was none. No schema is sent: providers put it, or the tool that stands for it,
        before everything else, and the cache would be lost."""
        prompt = ask_in_place(conversation, job.plan.summarised_through, job.wish)
        try:
            reply = await self._call(job, prompt, schema=None)
            return self._checked(job, accept_summary(reply, source))
        except BadSummary as error:
            return str(error)
        except ContextOverflow:
            return "the conversation was too long to be shown at once"

    async def _separately(self, job: SummaryJob, source: Source, why: str | None) -> JsonObject:
        size = self._chunk_size(job)
        while True:
            try:
                return await self._in_pieces(job, source, size, why)
            except ContextOverflow:
                size //= 2
                if size < SMALLEST_CHUNK:
                    raise

    def _chunk_size(self, job: SummaryJob) -> int:
        """Tokens of conversation that fit into one call, by our own count."""
        instruction = self._count(build_merge_prompt([], job.wish, "").messages[0].text)
        room = int(0.95 * job.window) - instruction - max(REPLY_ROOM, job.plan.summary_limit)
        return max(SMALLEST_CHUNK, min(self._policy.chunk_tokens, int(room / COUNT_MARGIN)))

    async def _in_pieces(self, job: SummaryJob, source: Source, size: int, why: str | None) -> JsonObject:
        """One call where the conversation fits; else one for each piece, and those that make one of them."""
        lines = data_lines(job.plan.fresh, min(LINE_CHARACTERS, max(40, size // 3)))
        opening = [] if job.previous is None else [summary_line(self._bounded(job.previous, size))]
        pieces = chunked([*opening, *lines], size, self._count)
        if len(pieces) == 1:
            return await self._accepted(job, partial(build_summary_prompt, pieces[0], job.wish), source, why)
        pieces = chunked(lines, size, self._count)
        parts = [] if job.previous is None else [job.previous]
        if len(pieces) > self._policy.max_chunks:
            pieces = pieces[-self._policy.max_chunks :]
            older = [e for e in job.plan.fresh if e.seq < pieces[0][0].seq]
            parts = [await asyncio.to_thread(extract_summary, older, job.previous)]
        for number, piece in enumerate(pieces):
            job.progress(number, len(pieces) + 1)
            parts.append(await self._partial(job, partial(build_summary_prompt, piece, job.wish), source))
        job.progress(len(pieces), len(pieces) + 1)
        return await self._merged(job, parts, source, size)

    async def _merged(self, job: SummaryJob, parts: Sequence[JsonObject], source: Source, size: int) -> JsonObject:
        """Neighbours become one until all are: each is at most a third of a call, so at least two go into one."""
        while True:
            lines = [summary_line(self._bounded(part, size), "piece") for part in parts]
            groups = chunked(lines, size, self._count)
            if len(groups) == 1:
                return await self._accepted(job, partial(build_merge_prompt, lines, job.wish), source, None)
            parts = [await self._partial(job, partial(build_merge_prompt, group, job.wish), source) for group in groups]

    def _bounded(self, summary: JsonObject, size: int) -> JsonObject:
        """As a line of at most a third of a call."""
        envelope = self._count(render_summary({}))
        return shortened(summary, size // 3 + envelope, self._count)

    async def _accepted(self, job: SummaryJob, ask: Ask, source: Source, why: str | None) -> JsonObject:
        """The final summary. A reply that came in vain before counts as the first attempt."""
        for attempt in range(1 if why is None else 2, ATTEMPTS + 1):
            try:
                return self._checked(job, accept_summary(await self._call(job, ask(why), schema=SCHEMA), source))
            except BadSummary as error:
                if attempt == ATTEMPTS:
                    raise
                why = str(error)
        raise AssertionError("the last attempt returns or raises")

    async def _partial(self, job: SummaryJob, ask: Ask, source: Source) -> JsonObject:
        try:
            return accept_summary(await self._call(job, ask(None), schema=SCHEMA), source)
        except BadSummary as error:
            return accept_summary(await self._call(job, ask(str(error)), schema=SCHEMA), source)

    async def _call(self, job: SummaryJob, prompt: Prompt, *, schema: JsonObject | None) -> str:
        """The text of one reply. Raises BadSummary for one that is not only a text, ModelError and TimeoutError."""
        started = self._clock.monotonic()
        request = ModelRequest(prompt=prompt, schema=schema, cache_key=job.cache_key)
        reply = await within(self._clock, self._policy.timeout_s, complete(job.model, request))
        job.noted(reply, self._clock.monotonic() - started)
        if reply.calls or reply.finish != "stop":
            raise BadSummary("the answer called a tool" if reply.calls else f"the answer was cut ({reply.finish})")
        return reply.text

    def _checked(self, job: SummaryJob, summary: JsonObject) -> JsonObject:
        """Raises BadSummary for one as long as what it is to replace: it was copied, not summarised."""
        plan = job.plan
        if self._count(render_summary(summary)) >= max(plan.replaced, plan.summary_limit):
            raise BadSummary(f"it is as long as what it replaces; it may have {plan.summary_limit} tokens")
        said = [s for e in plan.fresh if isinstance(e, UserEntry) for s in sentences(e.text)]
        return self._finished(plan, job.generation, retired(summary, said))

    def _finished(self, plan: Plan, generation: int, summary: JsonObject) -> JsonObject:
        """With what code knows better, within its share of the window. Raises BadSummary when it frees nothing."""
        previous = plan.previous.summary if plan.previous else None
        whole = completed(summary, texts=texts_of(plan.fresh), previous=previous, generation=generation)
        short = shortened(whole, plan.summary_limit, self._count)
        tokens = self._count(render_summary(short))
        if tokens >= plan.replaced:
            raise BadSummary(f"a summary of {tokens} tokens is not shorter than the {plan.replaced} it replaces")
        return short
