"""The figures of every page, with few sessions and memories; `python -m tests.browser.figures` has the full size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser import figures
from tests.browser.watched import CHROMIUM

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser


async def test_every_page_is_small_and_soon_seen(tmp_path: Path) -> None:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing; on Debian: apt-get install chromium")
    seen = await figures.measure(tmp_path, sessions=300, memories=200, rounds=1)
    assert [one.path for one in seen] == list(figures.PAGES)
    assert [burden for one in seen for burden in one.burdens] == []
    # a machine that tests are run on does other things as well: only what is slow by far, each time, is a fault here
    slow = [one for one in seen if min(one.new_ms, *one.paints_ms) > 10 * figures.MAX_PAINT_MS]
    large = [one for one in seen if one.html_bytes + one.loaded_bytes > figures.MAX_BYTES]
    assert (slow, large) == ([], []), figures.table([*slow, *large])
