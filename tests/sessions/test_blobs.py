"""Attachments on disk."""

from __future__ import annotations

import errno
import hashlib
import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from gateway.clock import ManualClock
from sessions.blobs import Blobs
from sessions.files import Crash, FaultyFiles, OsFiles, StorageError, StorageFailed, StorageFull, StorageMissing

if TYPE_CHECKING:
    from pathlib import Path


def test_the_same_bytes_are_stored_once_under_their_hash(tmp_path: Path) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    sha256 = blobs.put(b"picture")
    path = tmp_path / "blobs" / sha256[:2] / sha256
    assert sha256 == hashlib.sha256(b"picture").hexdigest()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat().st_ino
    assert blobs.put(b"picture") == sha256
    assert path.stat().st_ino == before
    assert blobs.load(sha256) == b"picture"


def test_bytes_go_with_the_last_session_that_refers_to_them(tmp_path: Path) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    sha256, other = blobs.put(b"picture"), blobs.put(b"letter")
    for session in ("one", "two"):
        blobs.refer(sha256, session)
    blobs.refer(other, "two")
    blobs.release(sha256, "one")
    assert blobs.load(sha256) == b"picture"
    blobs.release_all("two")
    for gone in (sha256, other):
        with pytest.raises(StorageMissing):
            blobs.load(gone)
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_damaged_bytes_are_never_handed_out_and_are_mended_by_the_next_upload(tmp_path: Path) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    sha256 = blobs.put(b"picture")
    (tmp_path / "blobs" / sha256[:2] / sha256).write_bytes(b"pict")
    with pytest.raises(StorageFailed, match="damaged"):
        blobs.load(sha256)
    blobs.put(b"picture")
    assert blobs.load(sha256) == b"picture"


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n", "a" * 63 + "/"])
def test_what_is_no_hash_names_no_file(tmp_path: Path, name: str) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    for act in (blobs.load, lambda sha256: blobs.refer(sha256, "one"), lambda sha256: blobs.release(sha256, "one")):
        with pytest.raises(StorageError):
            act(name)


def test_a_full_disk_leaves_nothing_and_a_crash_nothing_half(tmp_path: Path) -> None:
    files = FaultyFiles()
    blobs = Blobs(files, tmp_path)
    files.fail("write", errno.ENOSPC)
    with pytest.raises(StorageFull):
        blobs.put(b"picture")
    files.heal()
    for step in range(1, 100):
        files.crash_at(step)
        try:
            blobs.put(b"picture %d" % step)
        except Crash:
            files.crash_at(None)
            sha256 = hashlib.sha256(b"picture %d" % step).hexdigest()
            path = tmp_path / "blobs" / sha256[:2] / sha256
            assert not path.exists() or blobs.load(sha256)
            assert blobs.put(b"picture %d" % step) == sha256
        else:
            break


def test_an_upload_is_its_owners_until_it_expires(tmp_path: Path) -> None:
    blobs, clock = Blobs(OsFiles(), tmp_path), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    reference = blobs.put_upload(b"picture", clock.new_id(), owner="user:ana", media_type="image/png", name="a.png")
    found = blobs.upload(reference, "user:ana")
    assert found is not None
    assert (blobs.load(found.sha256), found.media_type, found.size_bytes, found.name) == (
        b"picture",
        "image/png",
        7,
        "a.png",
    )
    assert blobs.upload(reference, "user:bob") is None
    for nonsense in ("", "../..", reference[:-1], reference.replace("-", "/"), f"{reference}/x"):
        assert blobs.upload(nonsense, "user:ana") is None
    day = timedelta(hours=24)
    assert blobs.expire_uploads(clock.now() + day, day) == 0
    assert blobs.expire_uploads(clock.now() + 2 * day, day) == 1
    assert blobs.upload(reference, "user:ana") is None
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


def test_a_used_upload_goes_with_its_session_and_a_fresh_one_stays(tmp_path: Path) -> None:
    blobs, clock = Blobs(OsFiles(), tmp_path), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    first, second = (
        blobs.put_upload(b"picture", clock.new_id(), owner="user:ana", media_type="image/png", name=None)
        for _ in range(2)
    )
    sha256 = first.partition("-")[2]
    blobs.refer(sha256, "one")
    blobs.use(first)
    blobs.use(first)
    assert blobs.upload(first, "user:ana") is not None
    blobs.release(sha256, "one")
    assert blobs.load(sha256) == b"picture"
    blobs.refer(sha256, "two")
    blobs.use(second)
    blobs.release(sha256, "two")
    assert (blobs.upload(first, "user:ana"), blobs.upload(second, "user:ana")) == (None, None)
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


def test_bytes_in_a_session_outlive_their_upload(tmp_path: Path) -> None:
    blobs, clock = Blobs(OsFiles(), tmp_path), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    reference = blobs.put_upload(b"picture", clock.new_id(), owner="user:ana", media_type="image/png", name=None)
    sha256 = reference.partition("-")[2]
    blobs.refer(sha256, "one")
    blobs.use(reference)
    blobs.expire_uploads(clock.now() + timedelta(days=3), timedelta(days=1))
    assert blobs.load(sha256) == b"picture"


def test_held_bytes_stay_until_the_last_one_lets_go_whatever_is_released_meanwhile(tmp_path: Path) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    sha256 = blobs.hold(b"picture")
    assert blobs.hold(b"picture") == sha256
    assert blobs.refer(sha256, "one")
    assert not blobs.refer(sha256, "one")
    blobs.let_go(sha256)
    blobs.release(sha256, "one")
    assert blobs.load(sha256) == b"picture"
    blobs.let_go(sha256)
    with pytest.raises(StorageMissing):
        blobs.load(sha256)
    blobs.refer(blobs.hold(b"letter"), "one")
    blobs.let_go(hashlib.sha256(b"letter").hexdigest())
    assert blobs.load(hashlib.sha256(b"letter").hexdigest()) == b"letter"
