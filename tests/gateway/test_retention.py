"""A simulated year of forgetting, against tables computed by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gateway.clock import ManualClock
from gateway.retention import Retention
from memory.policy import RetentionPolicy
from memory.records import Draft, Filters, ListQuery, parse_pool
from memory.vitality import due_at, vitality
from tests.gateway.test_memory_tools import Opened
from tests.memory.opened import ROOT, opened, person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from memory.memory import Memories
    from memory.records import Memory

ANA, BOB = person("ana"), person("bob")
START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PLAIN = RetentionPolicy()

# importance: (half-life, days until vitality is 10, the first sweep at 04:00 after that); never recalled. By hand:
# days = half-life * log2(50 / 10) = half-life * 2.3219, but 14 at least
NEVER = {
    1: ("2026-01-15 00:00", "2026-01-15"),  # 1 * 2.32 = 2.32, so 14
    2: ("2026-01-15 00:00", "2026-01-15"),  # 3 * 2.32 = 6.97, so 14
    3: ("2026-01-17 06:05", "2026-01-18"),  # 7 * 2.3219 = 16.2535
    4: ("2026-02-02 12:10", "2026-02-03"),  # 14 * 2.3219 = 32.5070
    5: ("2026-02-18 18:15", "2026-02-19"),  # 21 * 2.3219 = 48.7605
    6: ("2026-03-11 15:47", "2026-03-12"),  # 30 * 2.3219 = 69.6578
    7: ("2026-04-15 11:40", "2026-04-16"),  # 45 * 2.3219 = 104.4868
    8: ("2026-05-20 07:34", "2026-05-21"),  # 60 * 2.3219 = 139.3157
    9: ("2026-07-28 23:21", "2026-07-29"),  # 90 * 2.3219 = 208.9735
    10: ("2027-02-22 22:43", "2027-02-23"),  # 180 * 2.3219 = 417.9471: day 418
}
# the same, recalled once on 2026-01-31 00:00: half-life * log2(100 / 10) = half-life * 3.3219 after that
RECALLED = {
    3: ("2026-02-23 06:05", "2026-02-24"),  # 23.2535
    5: ("2026-04-10 18:15", "2026-04-11"),  # 69.7605
    8: ("2026-08-18 07:34", "2026-08-19"),  # 199.3157
}


@dataclass
class Year:
    """Memories, a clock, and what sweeps them; `restarts`: the daemon is started anew every hour."""

    memories: Memories
    clock: ManualClock
    retention: Retention
    path: Path
    policy: RetentionPolicy
    restarts: bool = False

    def restart(self) -> None:
        self.retention = Retention(Opened(self.path, self.memories), self.policy, ZoneInfo("UTC"))

    async def until(self, at: datetime) -> None:
        """Time passes; a daemon that is restarted every hour looks at once whether something is due."""
        while True:
            due = self.retention.next_due(self.clock.now())
            wakes = at if due is None else min(max(due, self.clock.now()), at)
            if self.restarts:
                wakes = min(wakes, self.clock.now() + HOUR)
            self.clock.set(wakes)
            due = self.retention.next_due(wakes)
            if due is not None and due <= wakes:
                await self.retention.run_due(wakes)
            elif self.restarts and wakes < at:
                self.restart()
            if wakes >= at:
                return


@pytest.fixture
async def year(tmp_path: Path) -> AsyncIterator[Year]:
    clock = ManualClock(START)
    async with opened(tmp_path / "state.db", clock) as memories:
        one = Year(memories, clock, None, tmp_path, PLAIN)  # pyright: ignore[reportArgumentType]
        one.restart()
        yield one


async def add(year: Year, importance: int, text: str | None = None, who: str = "ana") -> Memory:
    draft = Draft(text=text or f"importance {importance}", importance=importance)
    return (await year.memories.add(person(who), draft)).memory


async def gone(year: Year, who: str = "ana") -> dict[str, str]:
    """Text and day of what is in the trash."""
    found, _ = await year.memories.page(person(who), query=ListQuery(state="trashed", limit=500))
    return {m.text: f"{m.trashed_at:%Y-%m-%d %H:%M}" for m in found}


@pytest.mark.parametrize("restarts", [False, True], ids=["through", "restarted every hour"])
async def test_a_year_without_use(year: Year, restarts: bool) -> None:
    year.restarts = restarts
    added = {importance: await add(year, importance) for importance in NEVER}
    for importance, (due, _) in NEVER.items():
        at = due_at(added[importance], PLAIN)
        assert at is not None
        assert f"{at:%Y-%m-%d %H:%M}" == due, importance
    await year.until(START + 417 * DAY + 23 * HOUR)
    assert 10 not in {importance for importance in NEVER if f"importance {importance}" in await gone(year)}
    await year.until(START + 430 * DAY)
    assert await gone(year) == {f"importance {i}": f"{day} 04:00" for i, (_, day) in NEVER.items()}
    history = await year.memories.history(ANA, added[10].id)
    assert (history[0].origin, history[0].author, history[0].action) == ("retention", "sessiond", "trashed")


async def test_a_recall_moves_the_day_and_a_second_within_a_day_does_not(year: Year) -> None:
    added = {importance: await add(year, importance) for importance in RECALLED}
    year.clock.set(START + 30 * DAY)
    await year.memories.store.note_recalled(ANA, [m.id for m in added.values()])
    year.clock.set(START + 30 * DAY + 23 * HOUR)
    await year.memories.store.note_recalled(ANA, [m.id for m in added.values()])
    for importance, (due, _) in RECALLED.items():
        memory = await year.memories.load(ANA, added[importance].id)
        at = due_at(memory, PLAIN)
        assert at is not None
        assert f"{at:%Y-%m-%d %H:%M}" == due
        assert vitality(memory, START + 30 * DAY, PLAIN) == pytest.approx(100)
    await year.until(START + 300 * DAY)
    assert await gone(year) == {f"importance {i}": f"{day} 04:00" for i, (_, day) in RECALLED.items()}


@pytest.mark.parametrize("restarts", [False, True], ids=["through", "restarted every hour"])
async def test_five_a_day_the_least_alive_first_and_each_person_for_themselves(year: Year, restarts: bool) -> None:
    for number in range(12):  # an hour apart, so the first one is the least alive
        year.clock.set(START + number * HOUR)
        await add(year, 1, f"{number:02}")
    year.clock.set(START)
    await add(year, 3, "three")  # vitality 12.5 on day 14, 10 on day 16.25, then far more alive than the others
    for number in range(3):
        await add(year, 2, f"bob {number}", "bob")
    year.restarts = restarts
    await year.until(START + 20 * DAY)
    # on the 15th at 04:00 four are older than 14 days, and one is just as old; then five of eight; then the rest
    first = {f"{n:02}": "2026-01-15 04:00" for n in range(4)}
    second = {f"{n:02}": "2026-01-16 04:00" for n in range(4, 9)}
    third = {f"{n:02}": "2026-01-17 04:00" for n in range(9, 12)}
    assert await gone(year) == first | second | third | {"three": "2026-01-18 04:00"}
    assert await gone(year, "bob") == {f"bob {n}": "2026-01-15 04:00" for n in range(3)}


async def test_restoring_does_not_refresh_and_counts_as_gone_today(year: Year) -> None:
    ids = [(await add(year, 1, f"{number}")).id for number in range(6)]
    await year.until(START + 14 * DAY + 5 * HOUR)
    assert len(await gone(year)) == 5
    back = ids[int(next(iter(await gone(year))))]
    before = vitality(await year.memories.load(ANA, back), year.clock.now(), PLAIN)
    restored = await year.memories.restore(ANA, back)
    assert vitality(restored, year.clock.now(), PLAIN) == before
    year.restart()
    await year.until(START + 15 * DAY + 3 * HOUR)
    assert len(await gone(year)) == 4, "five went in these 24 hours already"
    await year.until(START + 15 * DAY + 5 * HOUR)
    assert len(await gone(year)) == 6


async def test_a_sweep_that_was_missed_is_made_up_for_once(year: Year) -> None:
    for number in range(12):
        await add(year, 1, f"{number:02}")
    await year.until(START + 5 * HOUR)
    year.clock.set(START + 40 * DAY)
    year.restart()
    await year.until(START + 40 * DAY + HOUR)
    assert len(await gone(year)) == 5
    await year.until(START + 40 * DAY + 23 * HOUR)
    assert len(await gone(year)) == 5
    await year.until(START + 41 * DAY + HOUR)
    assert len(await gone(year)) == 10


async def test_projects_have_a_cap_of_their_own_and_off_means_off(year: Year) -> None:
    await year.memories.topics.put_project(ROOT, "shop", with_members=["ana"])
    pool = parse_pool("project:shop")
    drafts = [Draft(text=f"shop {n}", importance=1, pool=pool) for n in range(7)]
    await year.memories.add_many(ANA, drafts)
    await add(year, 1, "mine")
    year.policy = RetentionPolicy(enabled=False)
    year.restart()
    await year.until(START + 30 * DAY)
    assert await gone(year) == {}
    year.policy = RetentionPolicy(cap=6)
    year.restart()
    await year.until(START + 30 * DAY + 5 * HOUR)
    found, _ = await year.memories.page(ANA, Filters(pools=(pool,)), ListQuery(state="trashed"))
    assert len(found) == 6
    assert "mine" in await gone(year)


FACTS = st.lists(
    st.tuples(st.integers(1, 10), st.integers(0, 600), st.none() | st.integers(0, 600)), min_size=1, max_size=12
)
POLICIES = st.builds(
    RetentionPolicy,
    threshold=st.sampled_from([1.0, 10.0, 50.0, 90.0]),
    grace_days=st.sampled_from([0.0, 14.0, 365.0]),
    cap=st.sampled_from([1, 3, 200]),
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(FACTS, POLICIES)
async def test_a_sweep_takes_exactly_what_its_due_date_says_the_least_alive_first(
    year: Year, facts: Sequence[tuple[int, int, int | None]], policy: RetentionPolicy
) -> None:
    who = person(f"p{year.clock.new_id()}")
    pool = parse_pool(f"user:{who.user}")
    for importance, created, recalled in facts:
        year.clock.set(START + created * DAY)
        draft = Draft(text=f"{importance} {created} {recalled}", importance=importance)
        memory = (await year.memories.add(who, draft)).memory
        if recalled is not None:
            year.clock.set(START + max(created, recalled) * DAY)
            await year.memories.store.note_recalled(who, [memory.id])
    now = START + 600 * DAY + HOUR
    year.clock.set(now)
    before, _ = await year.memories.page(who, query=ListQuery(limit=100))
    due = [m for m in before if (at := due_at(m, policy)) is not None and at < now]
    assert all(vitality(m, now, policy) <= policy.threshold + 1e-9 for m in due)
    swept = await year.memories.store.sweep(pool, policy)
    taken = {m.id for m in swept.trashed}
    assert taken <= {m.id for m in due}
    assert len(taken) == min(len(due), policy.cap)
    assert (swept.more_at is None) == (len(due) <= policy.cap)
    left = [m for m in due if m.id not in taken]
    alive = [vitality(m, now, policy) for m in left]
    assert all(vitality(m, now, policy) <= min(alive) + 1e-9 for m in due if m.id in taken) if alive else True
    again = await year.memories.store.sweep(pool, policy)
    assert len(again.trashed) == 0 or policy.cap == 200
