"""What a compaction covers and what stays word for word: a function from entries to a plan."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from sessions.context import answered_turns, uncarried
from sessions.entries import (
    AssistantEntry,
    CarriedEntry,
    CompactionFailedEntry,
    CompactionStartedEntry,
    Covers,
    Entry,
    PinnedEntry,
    RetractedEntry,
    SummaryEntry,
    ToolResultEntry,
    UserEntry,
    entry_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compaction.policy import CompactionPolicy
    from sessions.entries import JsonObject

WORTH_IT = 0.10
LEAST_SUMMARY = 100
"""Tokens: what introduces a summary, and a few sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`summarised_through` is the anchor: the summary covers everything up to it. From `replay_from` on entries stay
    word for word; those before it that are pinned when the summary is committed as well. `fresh` are the entries no
    summary covers yet; `prefix` is all the plan was made of, and is what must not have changed by then.

    The summary stands for `replaced` tokens and may have at most `summary_limit`. `shortfall` says, for people, why
    what is left will be above the target; None when it will not.
    """

    summarised_through: int
    replay_from: int
    previous: SummaryEntry | None
    fresh: tuple[Entry, ...]
    prefix: tuple[Entry, ...]
    prefix_sha256: str
    tokens_before: int
    tokens_kept: int
    replaced: int
    summary_limit: int
    shortfall: str | None = None


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """Why there is no plan; the text is for people."""

    reason: str


def plan_compaction(
    entries: Sequence[Entry], policy: CompactionPolicy, window: int, *, overlap: bool = True, fixed: int = 0
) -> Plan | NothingToDo:
    """The plan for the entries of a generation, oldest first. `overlap` False keeps as little as possible; `fixed` are
    the tokens of what stands before the conversation in every prompt."""
    previous = next((e for e in entries if isinstance(e, SummaryEntry)), None)
    covered = previous.covers.to_seq if previous else 0
    spoken = _spoken(entries)
    cuts = _cuts(spoken)
    first_open = _first_open(entries, spoken)
    anchor = max((cut for cut in cuts if cut < first_open), default=0)
    fresh = tuple(e for e in spoken if covered < e.seq <= anchor)
    if not fresh:
        return NothingToDo("Nothing has been said since the last summary that is finished.")
    pinned = pinned_seqs(entries)
    said = sum(e.tokens for e in fresh)
    replaced = said + (previous.tokens if previous else 0)
    trigger = int(policy.threshold * window)
    room = _Room(
        trigger=trigger,
        target=int(policy.target * trigger),
        fixed=fixed,
        summary=max(LEAST_SUMMARY, min(int(policy.summary_share * window), replaced - said // 2)),
        pinned=sum(e.tokens for e in spoken if e.seq <= anchor and e.seq in pinned),
        later=sum(e.tokens for e in spoken if e.seq > anchor),
    )
    budget = min(policy.overlap_share * window, room.for_overlap) if overlap else 0
    replay_from = _replay_from([e for e in spoken if e.seq <= anchor], cuts, policy.overlap_messages, budget)
    before = sum(e.tokens for e in spoken) + (previous.tokens if previous else 0)
    kept = sum(e.tokens for e in spoken if e.seq >= replay_from or e.seq in pinned)
    least = min(room.summary, LEAST_SUMMARY + (previous.tokens if previous else 0))
    if before - kept - least < WORTH_IT * before:
        return NothingToDo("A summary would free too little: most of the conversation stays word for word.")
    prefix = prefix_of(entries, anchor)
    return Plan(
        summarised_through=anchor,
        replay_from=replay_from,
        previous=previous,
        fresh=fresh,
        prefix=prefix,
        prefix_sha256=_hash_of(prefix),
        tokens_before=before,
        tokens_kept=kept,
        replaced=replaced,
        summary_limit=room.summary,
        shortfall=room.shortfall(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """The tokens of the next generation's first prompt, and how many it should have at most."""

    trigger: int
    target: int
    fixed: int
    summary: int
    pinned: int
    later: int

    @property
    def for_overlap(self) -> int:
        """Up to the target; where that is out of reach anyway, a quarter of what is left below the trigger."""
        if self._needed <= self.target:
            return self.target - self._needed
        return max(0, (self.trigger - self._needed) // 4)

    @property
    def _needed(self) -> int:
        return self.fixed + self.summary + self.pinned + self.later

    def shortfall(self) -> str | None:
        if self._needed <= self.target:
            return None
        parts = {
            "what has no reply yet": self.later,
            "pinned messages": self.pinned,
            "the system text and the tools": self.fixed,
            "the summary": self.summary,
        }
        largest = max(parts, key=lambda name: parts[name])
        return (
            f"About {self._needed} tokens stay, more than the target of {self.target}: "
            f"{largest} take {parts[largest]} of them."
        )


def _spoken(entries: Sequence[Entry]) -> list[Entry]:
    """User, assistant and tool-result entries that count, by seq."""
    flat = uncarried(entries)
    gone = {seq for e in flat if isinstance(e, RetractedEntry) for seq in e.seqs}
    kinds = (UserEntry, AssistantEntry, ToolResultEntry)
    return sorted((e for e in flat if isinstance(e, kinds) and e.seq not in gone), key=lambda e: e.seq)


def _first_open(entries: Sequence[Entry], spoken: Sequence[Entry]) -> int:
    """The seq of the first message that still waits for its reply; beyond all when none does."""
    done = answered_turns(uncarried(entries))
    waiting = [e.seq for e in spoken if e.turn is not None and e.turn not in done]
    return min(waiting, default=max((e.seq for e in spoken), default=0) + 1)


def _cuts(spoken: Sequence[Entry]) -> list[int]:
    """Seqs behind which the conversation may be cut: no turn and no pair of call and result lies on both sides."""
    ends: dict[str, int] = {}
    for entry in spoken:
        for group in _groups(entry):
            ends[group] = max(ends.get(group, 0), entry.seq)
    cuts: list[int] = []
    reach = 0
    for position, entry in enumerate(spoken):
        reach = max([reach, entry.seq, *(ends[group] for group in _groups(entry))])
        following = spoken[position + 1] if position + 1 < len(spoken) else None
        if reach == entry.seq and not isinstance(following, ToolResultEntry):
            cuts.append(entry.seq)
    return cuts


def _groups(entry: Entry) -> list[str]:
    """The turns an entry belongs to; without one, calls and results are held together by the cut rule for results."""
    also = entry.also if isinstance(entry, AssistantEntry) else ()
    return [*also] if entry.turn is None else [entry.turn, *also]


def _replay_from(covered: Sequence[Entry], cuts: Sequence[int], wanted: int, budget: float) -> int:
    """Where the overlap starts: behind a cut, with `wanted` messages where `budget` tokens allow it."""
    end = covered[-1].seq + 1
    if wanted == 0 or budget <= 0:
        return end
    known = set(cuts)
    starts = {covered[0].seq, *(e.seq for before, e in itertools.pairwise(covered) if before.seq in known)}
    best, tokens, messages = end, 0, 0
    for entry in reversed(covered):
        tokens += entry.tokens
        messages += not isinstance(entry, ToolResultEntry)
        if tokens > budget:
            break
        if entry.seq in starts and isinstance(entry, UserEntry):
            best = entry.seq
            if messages >= wanted:
                break
    return best if best != end else _split_turn(covered, budget, end)


def _split_turn(covered: Sequence[Entry], budget: float, end: int) -> int:
    """The last turn alone is larger than the overlap may be: it is cut where the model spoke after a tool's result."""
    best, tokens = end, 0
    for entry in reversed(covered):
        tokens += entry.tokens
        if tokens > budget:
            break
        if isinstance(entry, AssistantEntry):
            best = entry.seq
    return best


def pinned_seqs(entries: Sequence[Entry]) -> set[int]:
    """Messages that stay word for word through all compactions: texts only, since a call would need its result."""
    flat = uncarried(entries)
    wanted: dict[int, bool] = {e.of: e.pinned for e in flat if isinstance(e, PinnedEntry)}
    texts = {
        e.seq for e in _spoken(flat) if isinstance(e, UserEntry) or (isinstance(e, AssistantEntry) and not e.calls)
    }
    return {seq for seq, pinned in wanted.items() if pinned and seq in texts}


def pin_refusal(entries: Sequence[Entry], seq: int, policy: CompactionPolicy, window: int) -> str | None:
    """Why a message cannot be pinned, in words for people; None when it can."""
    texts = {e.seq: e.tokens for e in _spoken(entries) if not (isinstance(e, AssistantEntry) and e.calls)}
    found = next((e for e in _spoken(entries) if e.seq == seq), None)
    if found is None:
        return f"There is no message {seq} in the part of the conversation that is still word for word."
    if isinstance(found, ToolResultEntry) or seq not in texts:
        return f"Message {seq} belongs to a tool call; only texts can be pinned."
    pinned = sum(texts[one] for one in pinned_seqs(entries) if one != seq and one in texts)
    limit = int(policy.pinned_share * window)
    if pinned + texts[seq] > limit:
        return (
            f"Pinned messages may take {limit} tokens, a share of {policy.pinned_share:g} of the model's window; "
            f"{pinned} are taken and this one has {texts[seq]}. Unpin another one first."
        )
    return None


def prefix_of(entries: Sequence[Entry], anchor: int) -> tuple[Entry, ...]:
    """Everything up to the anchor, and what was retracted of it since. Equal as long as that is what was summarised:
    entries that are still the same objects, as nearly always, are compared in no time."""
    flat = uncarried(entries)
    kept = [e for e in flat if e.seq <= anchor and not isinstance(e, SummaryEntry)]
    later = [
        e for e in flat if e.seq > anchor and isinstance(e, RetractedEntry) and min(e.seqs, default=e.seq) <= anchor
    ]
    return (*kept, *later)


def _hash_of(prefix: Sequence[Entry]) -> str:
    digest = hashlib.sha256()
    for entry in prefix:
        digest.update(orjson.dumps(entry_to_json(entry)))
    return digest.hexdigest()


def next_generation(
    plan: Plan, entries_now: Sequence[Entry], summary: JsonObject, *, by: str, model: str | None, tokens: int
) -> list[Entry]:
    """The drafts a new generation opens with: the summary, and everything that stays, with what came meanwhile."""
    first = plan.previous.covers.from_seq if plan.previous else plan.fresh[0].seq
    opening = SummaryEntry(
        summary=summary,
        covers=Covers(from_seq=first, to_seq=plan.summarised_through, sha256=plan.prefix_sha256),
        replay_from=plan.replay_from,
        by="rules" if by == "rules" else "model",
        model=model,
        tokens=tokens,
    )
    pinned = pinned_seqs(entries_now)
    dropped = (SummaryEntry, CompactionStartedEntry, CompactionFailedEntry)
    kept = [
        e
        for e in uncarried(entries_now)
        if not isinstance(e, dropped)
        and (e.seq >= plan.replay_from or e.seq in pinned or (isinstance(e, PinnedEntry) and e.of in pinned))
    ]
    return [opening, *(_carried(e, alone=e.seq < plan.replay_from) for e in kept)]


def _carried(entry: Entry, *, alone: bool) -> CarriedEntry:
    """A pinned message that stands alone loses its turn: without its reply it would look as if it still waited."""
    return CarriedEntry(entry=dataclasses.replace(entry, turn=None) if alone else entry, tokens=entry.tokens)
