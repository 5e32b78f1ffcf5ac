"""A daemon is killed during `POST /v1/cleanup`: every session is in one whole form, or gone for good."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING

import aiohttp
import pytest
import yaml
import zstandard

from sessions.files import OsFiles
from sessions.upkeep import verify
from tests.bench.seed import sow
from tests.crash.kills import Victim, free_port

if TYPE_CHECKING:
    from pathlib import Path

SESSIONS = 150
KILLS = 20 if os.environ.get("SOAK") else 4
AGED = {"after_days": 30, "daily_at": None}
LIMITED = {"after_days": 30, "max_bytes": 20_000, "daily_at": None}


def plain_forms(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".jsonl"}


def whole_forms(folder: Path) -> dict[str, bytes]:
    """What each session's files say now, packed or not; two forms of one must say the same."""
    found: dict[str, bytes] = {}
    for path in folder.iterdir():
        if path.suffix == ".zst":
            content = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        elif path.suffix == ".jsonl":
            content = path.read_bytes()
        else:
            continue  # written aside, never whole: the start removes it
        name = path.name.removesuffix(".zst")
        assert found.setdefault(name, content) == content or b'"deleted"' in found[name] + content
        found[name] = min(found[name], content, key=len)
    return found


async def clean_up(url: str) -> dict[str, object] | None:
    """The report; None when the daemon died meanwhile."""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async with aiohttp.ClientSession() as client, client.post(f"{url}/v1/cleanup") as response:
            assert response.status == 200
            return await response.json()
    return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("policy", "deletes"), [(AGED, False), (LIMITED, True)])
async def test_killed_while_it_cleans_up_no_session_is_half_an_archive_and_none_comes_back(
    tmp_path: Path, policy: dict[str, object], deletes: bool
) -> None:
    chance = random.Random(11)
    data = tmp_path / "data"
    await asyncio.to_thread(sow, data, SESSIONS)
    folder = data / "transcripts" / "main"
    before = plain_forms(folder)
    settings = tmp_path / "config.yaml"
    rest = {"sessions": {"reset": {"daily_at": None}}, "server": {"rate_limit_per_minute": None}}
    settings.write_text(yaml.safe_dump({"cleanup": policy, **rest}))
    victim = Victim(data, settings, free_port())
    gone: set[str] = set()
    halfway = 0
    for _ in range(KILLS):
        await victim.start()
        cleaning = asyncio.create_task(clean_up(victim.url))
        await asyncio.wait({cleaning}, timeout=chance.uniform(0.05, 0.6))
        await victim.kill()
        await cleaning
        there = whole_forms(folder)
        assert not set(there) & gone, "what was deleted has come back"
        assert all(content == before[name] or b'"deleted"' in content for name, content in there.items())
        gone |= set(before) - set(there)
        halfway += {".jsonl", ".zst"} <= {path.suffix for path in folder.iterdir()}
    await victim.start()
    report = await clean_up(victim.url)
    assert report is not None
    assert report["failed"] == []
    await victim.stop()
    names = [path.name for path in folder.iterdir()]
    assert all(name.endswith(".jsonl.zst") for name in names)
    assert len(names) == len({name.partition(".")[0] for name in names})
    assert all(content == before[name] for name, content in whole_forms(folder).items())
    assert (len(names) < SESSIONS) == deletes
    assert halfway > 0
    assert verify(OsFiles(), data, lambda number, count: None).found == ()
