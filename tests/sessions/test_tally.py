from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from sessions.entries import AssistantEntry, CommandEntry, EndedEntry, ResumedEntry
from sessions.record import SessionRecord
from sessions.tally import tallied
from tests.sessions.builders import AT, SESSION, user

if TYPE_CHECKING:
    from sessions.entries import Entry
    from sessions.keys import KeyType

LATER = AT + timedelta(hours=1)


def record(kind: KeyType = "direct") -> SessionRecord:
    return SessionRecord(session=SESSION, key="k", agent="main", type=kind, created_at=AT, active_at=AT)


def test_a_persons_message_is_activity() -> None:
    assert tallied(record(), [dataclasses.replace(user("hello"), at=LATER)]).active_at == LATER


@pytest.mark.parametrize(
    "entry",
    [
        dataclasses.replace(user("good morning"), at=LATER, source="job:01"),
        dataclasses.replace(user("a build failed"), at=LATER, source="hook:01"),
        AssistantEntry(text="a reply", at=LATER),
        CommandEntry(name="status", argument="", reply="fine", at=LATER),
        EndedEntry(reason="daily", at=LATER),
    ],
)
def test_jobs_webhooks_replies_and_bookkeeping_are_nobodys_activity(entry: Entry) -> None:
    assert tallied(record(), [entry]).active_at == AT


@pytest.mark.parametrize("kind", ["cron", "hook", "sub"])
def test_a_session_of_a_job_is_used_by_its_runs(kind: KeyType) -> None:
    said = dataclasses.replace(user("good morning"), at=LATER, source="job:01")
    assert tallied(record(kind), [said]).active_at == LATER


def test_a_session_that_is_taken_up_again_counts_from_then() -> None:
    after = tallied(record(), [EndedEntry(reason="daily", at=AT), ResumedEntry(at=LATER)])
    assert (after.ended, after.active_at, after.resumed_at) == (None, LATER, LATER)
