from __future__ import annotations

import pytest

from tests.crash.kills import failed, run


@pytest.mark.timeout(300)
async def test_a_daemon_killed_under_load_loses_and_doubles_nothing() -> None:
    figures = await run(kills=8, sessions=16, seed=7)
    print(figures)
    assert figures["acknowledged"] >= 30
    assert not failed(figures), figures


@pytest.mark.timeout(300)
async def test_a_daemon_killed_while_it_commits_a_summary_is_before_it_or_after() -> None:
    figures = await run(kills=5, sessions=3, seed=11, commits=True)
    print(figures)
    assert figures["compactions"] >= 1
    assert not failed(figures), figures
