"""Tells what has become of runs and deliveries: to those who follow events, and to the counters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gateway.jobs.values import OPEN
from sessions.keys import parse_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.bus import EventBus
    from gateway.jobs.values import Delivery, Run
    from sessions.store import SessionStore


class Telling:
    """A hook for `JobStore.after_save`: what is told is on disk. Texts and errors are not told, since those who follow
    a session need not be administrators."""

    def __init__(self, bus: EventBus, sessions: SessionStore) -> None:
        self._bus = bus
        self._sessions = sessions
        self.runs: Counter[tuple[str, str]] = Counter()
        self.deliveries: Counter[str] = Counter()

    def saved(self, runs: Sequence[Run], deliveries: Sequence[Delivery]) -> None:
        for run in runs:
            if run.status not in OPEN:
                self.runs[run.kind, run.status] += 1
            if run.status not in OPEN or run.turn is not None:
                fields = {"run": run.id, run.kind: run.name, "status": run.status, "turn": run.turn}
                self._tell("run", fields, run.key, run.session)
        for one in deliveries:
            if one.attempts:
                self.deliveries["retry" if one.status == "pending" else one.status] += 1
            fields = {"delivery": one.id, "status": one.status, "attempts": one.attempts, "run": one.run}
            self._tell("delivery", {**fields, "turn": one.turn}, one.key, None)

    def _tell(self, name: str, fields: dict[str, Any], key: str, session: str | None) -> None:
        record = self._sessions.find(parse_key(key))
        self._bus.emit(
            name,
            fields,
            key=key,
            session=session or (record and record.session),
            owner=record and record.owner,
        )
