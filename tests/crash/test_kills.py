from __future__ import annotations

import pytest

from tests.crash.kills import failed, run


@pytest.mark.timeout(300)
async def test_a_daemon_killed_under_load_loses_and_doubles_nothing() -> None:
    figures = await run(kills=8, sessions=16, seed=7)
    print(figures)
    assert figures["acknowledged"] >= 30
    assert not failed(figures), figures
