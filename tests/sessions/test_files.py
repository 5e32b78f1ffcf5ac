"""The file layer, with a disk that fails at every step."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessions.files import (
    AlreadyRunning,
    Crash,
    DirectoryLock,
    FaultyFiles,
    ForeignWrite,
    OsFiles,
    Step,
    StorageError,
    StorageFailed,
    StorageFull,
    StorageMissing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_an_append_returns_the_new_size_and_adds_nothing_else(tmp_path: Path) -> None:
    files, path = OsFiles(), tmp_path / "t.jsonl"
    files.create(path, b"one\n", sync=True)
    assert files.append(path, b"two\nthree\n", expected_size=4, sync=True) == 14
    assert files.read(path) == b"one\ntwo\nthree\n"
    assert files.read(path, 4) == b"two\nthree\n"
    assert files.size(path) == 14


def test_files_are_0600_and_folders_0700(tmp_path: Path) -> None:
    files, path = OsFiles(), tmp_path / "a" / "b" / "t.jsonl"
    files.create(path, b"x", sync=True)
    files.replace(tmp_path / "a" / "sessions.json", b"{}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a" / "sessions.json").stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, tmp_path / "a")} == {0o700}


def test_a_file_of_another_size_is_left_alone(tmp_path: Path) -> None:
    files, path = OsFiles(), tmp_path / "t.jsonl"
    path.write_bytes(b"one\nforeign\n")
    with pytest.raises(ForeignWrite, match="12 bytes where 4"):
        files.append(path, b"two\n", expected_size=4, sync=True)
    assert path.read_bytes() == b"one\nforeign\n"


def test_a_new_file_never_takes_the_place_of_one_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"precious")
    with pytest.raises(ForeignWrite):
        OsFiles().create(path, b"new", sync=True)
    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize("operation", ["append", "create", "replace", "read"])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, operation: str) -> None:
    outside, path = tmp_path / "outside", tmp_path / "t.jsonl"
    outside.write_bytes(b"one\n")
    path.symlink_to(outside)
    files = OsFiles()
    calls: dict[str, Callable[[], object]] = {
        "append": lambda: files.append(path, b"two\n", expected_size=4, sync=False),
        "create": lambda: files.create(path, b"two\n", sync=False),
        "read": lambda: files.read(path),
    }
    if operation == "replace":
        files.replace(path, b"two\n")
        assert not path.is_symlink()
    else:
        with pytest.raises(StorageError):
            calls[operation]()
    assert outside.read_bytes() == b"one\n"


def test_looking_at_folders_reads_names_and_sizes_only(tmp_path: Path) -> None:
    files = OsFiles()
    assert files.folders(tmp_path / "none") == []
    assert files.list_sizes(tmp_path / "none") == {}
    assert files.names(tmp_path / "none", "") == []
    files.create(tmp_path / "b" / "x", b"12", sync=False)
    files.create(tmp_path / "a" / "y", b"123", sync=False)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert files.folders(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert files.list_sizes(tmp_path / "a") == {"y": 3}
    assert (files.names(tmp_path / "a", "y"), files.names(tmp_path / "a", "x")) == (["y"], [])


def test_removing_what_is_gone_is_no_error_and_reading_it_says_what_to_do(tmp_path: Path) -> None:
    files = OsFiles()
    files.remove(tmp_path / "gone" / "x")
    assert files.size(tmp_path / "gone" / "x") is None
    with pytest.raises(StorageMissing, match="Restore it from a backup"):
        files.read(tmp_path / "x")


FAULTS: list[tuple[Step, int, type[StorageError]]] = [
    ("open", errno.EROFS, StorageFailed),
    ("write", errno.ENOSPC, StorageFull),
    ("write", errno.EDQUOT, StorageFull),
    ("write", errno.EIO, StorageFailed),
    ("sync", errno.EIO, StorageFailed),
    ("sync", errno.ENOSPC, StorageFull),
]


@pytest.mark.parametrize(("step", "code", "kind"), FAULTS)
def test_a_failed_append_leaves_the_file_as_it_was(
    tmp_path: Path, step: Step, code: int, kind: type[StorageError]
) -> None:
    files, path = FaultyFiles(), tmp_path / "t.jsonl"
    files.create(path, b"one\n", sync=True)
    files.fail(step, code, times=1)
    with pytest.raises(kind):
        files.append(path, b"two\n", expected_size=4, sync=True)
    assert path.read_bytes() == b"one\n"
    assert files.append(path, b"two\n", expected_size=4, sync=True) == 8


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_device_that_is_really_full_says_so() -> None:
    with pytest.raises(StorageFull, match="Free some space"):
        OsFiles().append(Path("/dev/full"), b"one\n", expected_size=0, sync=True)


def test_an_append_that_could_not_be_taken_back_is_seen_by_the_next_one(tmp_path: Path) -> None:
    files, path = FaultyFiles(), tmp_path / "t.jsonl"
    files.create(path, b"one\n", sync=True)
    files.fail("write", errno.ENOSPC, times=1)
    files.fail("truncate", errno.EIO)
    with pytest.raises(StorageFull):
        files.append(path, b"two\n", expected_size=4, sync=True)
    with pytest.raises(ForeignWrite):
        files.append(path, b"two\n", expected_size=4, sync=True)


STEPS: list[tuple[Step, int]] = [
    ("make_folder", errno.ENOSPC),
    ("open", errno.ENOSPC),
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("sync", errno.EIO),
    ("rename", errno.EIO),
    ("sync_folder", errno.EIO),
]


@pytest.mark.parametrize(("step", "code"), STEPS)
def test_a_failed_create_leaves_no_file_and_can_be_tried_again(tmp_path: Path, step: Step, code: int) -> None:
    files, path = FaultyFiles(), tmp_path / "agent" / "t.jsonl"
    files.fail(step, code)
    with pytest.raises(StorageError):
        files.create(path, b"whole", sync=True)
    assert files.size(path) is None
    files.heal()
    files.create(path, b"whole", sync=True)
    assert files.list_sizes(path.parent) == {"t.jsonl": 5}


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_crash_at_any_step_shows_the_old_file_or_the_new_one_whole(tmp_path: Path, operation: str) -> None:
    before = {"create": None, "replace": b"the old one"}[operation]
    seen: set[bytes | None] = set()
    for step in range(1, 100):
        path, files = tmp_path / str(step) / "file", FaultyFiles()
        if before is not None:
            files.create(path, before, sync=True)
        files.crash_at(step)
        try:
            if operation == "create":
                files.create(path, b"the new one", sync=True)
            else:
                files.replace(path, b"the new one")
        except Crash:
            seen.add(path.read_bytes() if path.exists() else None)
            OsFiles().replace(path, b"next try")
            assert OsFiles().list_sizes(path.parent) == {"file": 8}
        else:
            break
    assert seen == {before, b"the new one"}


def test_after_a_crash_nothing_moves_any_more(tmp_path: Path) -> None:
    files, path = FaultyFiles(), tmp_path / "t"
    files.create(path, b"one\n", sync=True)
    files.crash_at(3)
    with pytest.raises(Crash, match="half-way in write"):
        files.append(path, b"two\n", expected_size=4, sync=True)
    for act in (lambda: files.remove(path), lambda: files.truncate(path, 0), lambda: files.read(path)):
        with pytest.raises(Crash):
            act()
    assert path.read_bytes() == b"one\ntw"


def test_a_fault_can_wait_its_turn_and_choose_its_file(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail("write", errno.EIO, after=1, times=1, where="chosen")
    files.replace(tmp_path / "chosen", b"1")
    files.replace(tmp_path / "other", b"2")
    with pytest.raises(StorageFailed):
        files.replace(tmp_path / "chosen", b"3")
    files.replace(tmp_path / "chosen", b"4")
    assert files.read(tmp_path / "chosen") == b"4"


def test_a_second_daemon_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    lock = DirectoryLock.acquire(tmp_path / "new" / "lock", pid=4711, boot_id="b", started_at=NOON)
    with pytest.raises(AlreadyRunning, match="pid 4711"):
        DirectoryLock.acquire(tmp_path / "new" / "lock", pid=4712, boot_id="b", started_at=NOON)
    lock.release()
    DirectoryLock.acquire(tmp_path / "new" / "lock", pid=4712, boot_id="b", started_at=NOON).release()
    assert stat.S_IMODE((tmp_path / "new" / "lock").stat().st_mode) == 0o600


def test_a_lock_left_by_a_killed_process_does_not_block(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib, datetime; from sessions.files import DirectoryLock\n"
        "lock = DirectoryLock.acquire(pathlib.Path(sys.argv[1]), pid=int(sys.argv[2]), boot_id='b',"
        " started_at=datetime.datetime.now(datetime.UTC))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    path = tmp_path / "lock"
    subprocess.run([sys.executable, "-c", code, str(path), str(os.getpid())], check=False)
    assert str(os.getpid()).encode() in path.read_bytes()
    DirectoryLock.acquire(path, pid=os.getpid(), boot_id="b", started_at=NOON).release()
