"""A disk that is full, broken or read-only: said clearly, nothing acknowledged lost, well again without a restart."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from gateway.daemon import Daemon
from gateway.parts import Parts
from sessions.files import AlreadyRunning, FaultyFiles
from tests.journeys.daemon import KEY, config, model_settings, running
from tests.memory.leftovers import not_collected, open_files
from tests.patience import PATIENCE_S, until, until_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.standin import StandIn

FAULTS = [
    ("write", errno.ENOSPC, 507),
    ("write", errno.EIO, 503),
    ("sync", errno.EIO, 503),
    ("sync", errno.ENOSPC, 507),
    ("open", errno.EROFS, 503),
]


@pytest.mark.parametrize(("step", "code", "status"), FAULTS)
async def test_a_message_that_cannot_be_stored_is_refused_and_the_next_one_works(
    tmp_path: Path, standin: StandIn, step: str, code: int, status: int
) -> None:
    files = FaultyFiles()
    async with running(tmp_path, config(**model_settings(standin.base_url)), files=files) as client:
        first = await client.say("one")
        files.fail(step, code)
        for _ in range(2):
            answer = await client.call("POST", f"/v1/sessions/{KEY}/messages", {"text": "lost"})
            assert answer[0] == status, answer
            assert answer[1]["detail"]
        assert len(standin.requests) == 1
        files.heal()
        second = await client.say("two")
        assert await client.texts() == ["one", first["text"], "two", second["text"]]
    async with running(tmp_path, config(**model_settings(standin.base_url))) as client:
        assert await client.texts() == ["one", first["text"], "two", second["text"]]


@pytest.mark.parametrize(("step", "code", "status"), FAULTS)
async def test_a_reply_that_cannot_be_stored_is_told_and_its_message_is_kept(
    tmp_path: Path, standin: StandIn, step: str, code: int, status: int
) -> None:
    files = FaultyFiles()
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings, files=files) as client:
        await client.say("one")
        standin.script("slow")
        turn = await client.post("two")
        files.fail(step, code)
        events = await client.events("GET", f"/v1/turns/{turn['turn']}/events")
        assert events[-1][1] == "error"
        assert events[-1][2]["code"] in ("storage_full", "storage_failed")
        files.heal()
        await client.say("three")
        kinds = [e["type"] for e in await client.transcript()]
        assert kinds == ["user", "assistant", "user", "user", "turn_failed", "assistant"]
        assert status in (503, 507)


async def test_a_reply_is_stored_when_the_disk_recovers_in_time(tmp_path: Path, standin: StandIn) -> None:
    files = FaultyFiles()
    async with running(tmp_path, config(**model_settings(standin.base_url)), files=files) as client:
        await client.say("one")
        standin.script("slow")
        turn = await client.post("two")
        files.fail("write", errno.ENOSPC, times=1)
        events = await client.events("GET", f"/v1/turns/{turn['turn']}/events")
        assert events[-1][1] == "done"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_real_full_disk_refuses_and_recovers(small_disk: Path, tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    data = small_disk / "data"
    (small_disk / "data").mkdir(mode=0o700)
    (data / "cache").symlink_to(tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    async with running(data, settings) as client:
        acknowledged: list[str] = []
        status = 200
        for number in range(200):
            text = f"message {number} " + "x" * 8000
            status, answer = await client.call("POST", f"/v1/sessions/{KEY}/messages", {"text": text})
            if status != 200:
                break
            acknowledged.append(text)
        assert status == 507, answer
        assert len(acknowledged) > 2
        ballast = [p for p in data.iterdir() if p.name.startswith("state.db")]
        before = await client.texts()
        assert [t for t in before if t.startswith("message")][: len(acknowledged)] == acknowledged
        subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
        assert (await client.say("there is room again"))["state"] == "done"
        assert ballast
    async with running(data, settings) as client:
        after = await client.texts()
        assert [t for t in after if t.startswith("message")][: len(acknowledged)] == acknowledged
        assert after[-2] == "there is room again"


@pytest.mark.parametrize("after_ms", [0, 20, 60, 120, 250, 500])
async def test_a_daemon_stopped_while_it_opens_its_parts_leaves_no_file_open(tmp_path: Path, after_ms: int) -> None:
    """A connection that is cut in its opening would stay as long as the process, and keep the disk busy."""
    with not_collected():
        async with running(tmp_path / "data", config()):
            await asyncio.sleep(after_ms / 1000)
        await until(lambda: open_files(tmp_path) == [])


async def test_a_second_daemon_on_the_same_directory_refuses(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings):
        with pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}"):
            await asyncio.wait_for(Daemon(Parts(settings, tmp_path, environ={})).run(), PATIENCE_S)
    async with running(tmp_path, settings) as client:
        assert (await client.say("free again"))["state"] == "done"


async def test_usage_that_was_not_written_is_taken_from_the_transcripts(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        for text in ("one", "two"):
            await client.say(text)
    for path in tmp_path.glob("state.db*"):
        path.unlink()
    async with running(tmp_path, settings) as client:

        async def calls() -> list[int]:
            return [row["calls"] for row in (await client.get("/v1/usage?by=model"))["rows"]]

        await until_equal(calls, [2])
