"""What is believed of a helper model's proposals, and what may be written of them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Literal

from memory.dates import resolve_dates
from memory.records import DELIBERATE, folded_name, text_hash
from memory.redact import only_placeholders, redact
from memory.text import STOP_WORDS, fold, overlap, stem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from memory.learn import Op, Proposal, Said
    from memory.records import Memory, Topic

LONGEST_FACT = 2000
GROUNDED = 0.25
WELL_GROUNDED = 0.5
"""Share of a text's new words that somebody must have said; the larger one where a person's own text would change, and
in scripts without spaces, whose terms are pairs of characters that meet by chance."""
NEAR = 0.8
"""Share of words two facts have in common to be one that was said twice."""
KEPT_OF_LEARNT = 0.25
KEPT_OF_WRITTEN = 0.5
"""Share of a memory's words that a correction leaves, of one that was learnt and one that a person wrote: what has
nothing in common with it is another fact."""
KEPT_OF_SUMMARY = 0.5
LEAST_SUMMARY = 4
"""A running summary of at least so many words keeps that share of them, or most of it would be gone."""
NAMED = 0.5
"""Share of what a change only takes away that must be named for it."""
NEGATIONS = frozenset("not no never none nor nothing without cannot neni nic nikdy nicht kein keine nie".split())
_MODAL = "may might must shall also now still yet".split()
_NEGATED = frozenset(stem(word) for word in NEGATIONS)
_EMPTY = frozenset((*STOP_WORDS, *_MODAL)) - NEGATIONS
_USUAL = "like love prefer want need use go get make say know think user person people name rad rada ma chce uzivatel"
USUAL = frozenset(stem(word) for word in _USUAL.split())
"""Words that stand in facts about anything, so that having them in common says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change that may be made. `revisions` are those the model was shown, in the order of `ids`."""

    op: Op
    text: str = ""
    topic: str | None = None
    importance: int | None = None
    ids: tuple[str, ...] = ()
    revisions: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    said_by: Literal["user", "assistant"] = "user"
    said_at: datetime
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What may be written, and why the rest may not; reasons never hold text."""

    steps: list[Step] = field(default_factory=list[Step])
    refused: list[str] = field(default_factory=list[str])
    redacted: int = 0


@dataclass(frozen=True, kw_only=True)
class Learnable:
    """What a judgement needs. `known` are memories to compare with, of which the model was shown those in `shown`
    (None: all). `deleted` are texts in the trash; `terms` are the words a text is found by. `most` None: no limit.
    `properties` tell the scopes that this is about. `sorted_only`: what belongs to none of the topics is not taken.
    """

    said: Sequence[Said]
    known: Sequence[Memory]
    topics: Sequence[Topic]
    deleted: Sequence[str]
    terms: Callable[[str], Iterable[str]]
    most: int | None
    shown: frozenset[str] | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    sorted_only: bool = False
    similar: float = 0.6
    allow_secrets: bool = False

    @cached_property
    def words(self) -> Callable[[str], set[str]]:
        """The words of a text that tell something."""
        return cache(partial(_words, self.terms))


def judge(proposals: Sequence[Proposal], given: Learnable) -> Judged:
    """What may be written of the proposals, as many as the quota allows, in their order."""
    given = replace(given, terms=cache(given.terms))  # all proposals are compared with the same texts
    judged = Judged()
    taken: set[str] = set()
    redacted = 0
    for proposal in proposals:
        cleaned = proposal if given.allow_secrets else replace(proposal, text=redact(proposal.text).text)
        redacted += cleaned.text != proposal.text
        outcome = _judged(cleaned, given)
        if isinstance(outcome, str):
            judged.refused.append(outcome)
            continue
        touched = {*outcome.ids, *([text_hash(outcome.text)] if outcome.text else [])}
        if given.most is not None and len(judged.steps) >= given.most:
            judged.refused.append("over the limit of changes")
        elif taken & touched:
            judged.refused.append("twice the same")
        else:
            judged.steps.append(outcome)
            taken |= touched
    return replace(judged, redacted=redacted)


def _judged(proposal: Proposal, given: Learnable) -> Step | str:
    ids = () if proposal.op == "add" else tuple(dict.fromkeys(proposal.ids))
    proposal = replace(proposal, ids=ids)
    by_id = {m.id: m for m in given.known if given.shown is None or m.id in given.shown}
    if any(one not in by_id for one in proposal.ids):
        return "names a memory that was not shown"
    named = [by_id[one] for one in proposal.ids]
    cited = [one for one in given.said if one.seq in proposal.seqs] or list(given.said)
    said_at = max(one.at for one in cited)
    text = resolve_dates(proposal.text.strip(), said_at)
    if problem := _malformed(proposal.op, text, named):
        return problem
    if proposal.op != "delete" and not given.allow_secrets and only_placeholders(text):
        return "holds nothing but a secret"
    said_by = _said_by(text, named, cited, given)
    if said_by is None:
        return "is not in the words of the conversation"
    step = Step(
        op=proposal.op,
        text="" if proposal.op == "delete" else text,
        topic=_topic_id(proposal.topic, given.topics),
        importance=proposal.importance if said_by == "user" else min(proposal.importance or 3, 5),
        ids=proposal.ids,
        revisions=tuple(memory.revision for memory in named),
        said_by=said_by,
        said_at=said_at,
        first_seq=min(one.seq for one in cited),
        last_seq=max(one.seq for one in cited),
    )
    return _added(step, given) if step.op == "add" else _changed(step, named, given)


def _malformed(op: Op, text: str, named: Sequence[Memory]) -> str | None:
    if op != "delete" and not 0 < len(text) <= LONGEST_FACT:
        return "has no text, or a very long one"
    if op in ("update", "delete") and len(named) != 1:
        return "does not name one memory"
    if op == "merge" and len(named) < 2:
        return "does not name two memories"
    return None


def _changed(step: Step, named: Sequence[Memory], given: Learnable) -> Step | str:
    """What is there changes by what the person says, later than it was written; texts of a person stay theirs."""
    if step.said_by != "user":
        return "would change a memory for what the assistant has said"
    by_hand = [memory for memory in named if memory.source.origin in DELIBERATE]
    if by_hand and step.op in ("merge", "delete"):
        return "would merge or delete what a person has written"
    if any(memory.since >= step.said_at for memory in by_hand):
        return "is older than what a person has written since"
    if any(memory.valid_from > step.said_at for memory in named):
        return "is older than what is known"
    if step.op == "delete":
        return step
    if _deleted(step.text, given):
        return "was deleted before"
    if step.op == "update" and text_hash(step.text) == text_hash(named[0].text):
        return "is known already"
    return _loses(step, named, given) or step


def _loses(step: Step, named: Sequence[Memory], given: Learnable) -> str | None:
    """A change says more or less the same as before, or corrects it; else it would put one fact in another's place."""
    own = given.words(step.text)
    for memory in named:
        former = given.words(memory.text)
        kept = len(own & former) / len(former) if former else 1.0
        bounded = any(topic.id == memory.topic and topic.bounded for topic in given.topics)
        if bounded and len(former) >= LEAST_SUMMARY and kept < KEPT_OF_SUMMARY:
            return "would lose most of a summary"
        if not bounded and kept < (KEPT_OF_WRITTEN if memory.source.origin in DELIBERATE else KEPT_OF_LEARNT):
            return "would put one fact in the place of another"
    return None


def _added(step: Step, given: Learnable) -> Step | str:
    """A new fact, or what it comes to: nothing, where it is known; a correction, where it says more of the same."""
    if _deleted(step.text, given):
        return "was deleted before"
    topic = next((one for one in given.topics if one.id == step.topic), None)
    if topic is None and given.sorted_only:
        return "belongs to none of the topics"
    scope = {} if topic is None else {name: given.properties[name] for name in topic.scope_properties}
    step = replace(step, properties=scope)
    if topic is not None and topic.bounded:
        holders = (m for m in given.known if m.topic == topic.id and m.place is not None and m.properties == scope)
        holder = next(holders, None)
        return step if holder is None else _as_update(step, holder, given)
    own = given.words(step.text)
    for memory in given.known:
        if memory.properties != scope and memory.place is None:
            continue
        other = given.words(memory.text)
        if own <= other and not (other - own) & _NEGATED:
            return "is known already"
        if memory.place is not None:
            continue  # a summary is written anew as a whole
        shared = overlap(own, other)
        if shared >= NEAR or (other <= own and shared >= given.similar):
            return _as_update(step, memory, given)
    return step


def _as_update(step: Step, memory: Memory, given: Learnable) -> Step | str:
    revisions = (memory.revision,)
    changed = replace(step, op="update", ids=(memory.id,), revisions=revisions, topic=None, importance=None)
    return _changed(changed, [memory], given)


def _deleted(text: str, given: Learnable) -> bool:
    own = given.words(text)
    return any(overlap(own, given.words(other)) >= given.similar for other in given.deleted)


def _words(terms: Callable[[str], Iterable[str]], text: str) -> set[str]:
    every = set(terms(text))
    empty = {stem(word) for word in re.findall(r"\w+", fold(text)) if word in _EMPTY}  # "can", and not "canoes"
    return every - empty or every


def _share(fresh: set[str], named: Sequence[Memory]) -> float:
    pairs = sum(not term.isascii() and len(term) <= 2 for term in fresh)
    by_hand = any(memory.source.origin in DELIBERATE for memory in named)
    return WELL_GROUNDED if by_hand or 2 * pairs > len(fresh) else GROUNDED


def _said_by(
    text: str, named: Sequence[Memory], cited: Sequence[Said], given: Learnable
) -> Literal["user", "assistant"] | None:
    """Whose words a change is in: a share of what it brings, or of what it takes away, stands in them, and every number
    and address that it brings."""
    former = {term for memory in named for term in given.words(memory.text)}
    wanted: set[str] = given.words(text) if text else set()
    fresh = wanted - former
    telling, share = (fresh - USUAL or fresh, _share(fresh, named)) if fresh else (former - wanted or wanted, NAMED)
    remembered = [memory.text for memory in named]

    def tells(told: Sequence[str], whole: Sequence[str]) -> bool:
        words = telling & _terms_of(told, given)
        return len(words) >= max(1, share * len(telling)) and not invented(text, [*whole, *remembered])

    theirs = [one.text for one in given.said if one.who == "user"]
    if tells(_told(theirs, fresh, cited, given), theirs):
        return "user"
    replies = [one.text for one in given.said if one.who == "assistant" and not one.echo]
    return "assistant" if tells(replies, replies) else None


def _told(theirs: Sequence[str], fresh: set[str], cited: Sequence[Said], given: Learnable) -> Sequence[str]:
    """What of a person's words counts for a change. All, where what it brings is in them; else no questions, and
    nothing where the model names the assistant's words alone as its source."""
    replies = [one.text for one in given.said if one.who == "assistant"]
    added = fresh & (_terms_of(replies, given) - _terms_of(theirs, given))
    if (added or not fresh) and all(one.who == "assistant" for one in cited):
        return ()
    return [_without_questions(one) for one in theirs] if added else theirs


def _terms_of(texts: Sequence[str], given: Learnable) -> set[str]:
    return {term for one in texts for term in given.terms(one)}


_CLAUSE_END = re.compile(r"(?<=[.,;:!?\n。，；：！？])")


def _without_questions(text: str) -> str:
    """A text without the clauses that end in a question mark."""
    return "".join(one for one in _CLAUSE_END.split(text) if not one.endswith(("?", "？")))


IDENTIFIER = re.compile(r"https?://[^\s\"'<>]{1,300}|[\w.+-]{1,64}@[\w.-]{1,190}|\w{0,40}\d[\w.-]{0,80}")
ISO_DATE = re.compile(r"(?:19|20)\d\d(?:-W?\d\d(?:-\d\d)?)?\.?")


def invented(text: str, sources: Sequence[str]) -> bool:
    """Whether a number or an address stands in none of the sources; dates may be worked out."""
    whole = " ".join(sources).casefold()
    found = (one.rstrip(".-").casefold() for one in IDENTIFIER.findall(ISO_DATE.sub(" ", text)))
    return any(one not in whole for one in found)


def _topic_id(name: str | None, topics: Sequence[Topic]) -> str | None:
    if len(topics) == 1:
        return topics[0].id
    return next((t.id for t in topics if name is not None and folded_name(t.name) == folded_name(name)), None)
